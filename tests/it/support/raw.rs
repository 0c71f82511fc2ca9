//! Blobs under any name, past every client that would make a path of it.

use alluvium::azure::sas;
use alluvium::clock::{Clock as _, SystemClock};
use alluvium::secret::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::azurite::{ACCOUNT, KEY};
use super::place::Place;

/// A name in a request: slashes and dots as they are.
const IN_REQUEST: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.');

/// Puts a blob into the landing container.
pub async fn put(place: &Place, name: &str, content: &str) {
    assert_eq!(request(place, "PUT", name, content).await, 201, "{name:?}");
}

/// Deletes a blob of the landing container.
pub async fn delete(place: &Place, name: &str) {
    assert_eq!(request(place, "DELETE", name, "").await, 202, "{name:?}");
}

/// One request, letter by letter: URL libraries take `..` out of a path.
async fn request(place: &Place, method: &str, name: &str, content: &str) -> u16 {
    let (config, backends) = (place.config(), place.backends());
    let endpoint = backends.account().unwrap().blob_endpoint().clone();
    let (host, port) = (endpoint.host_str().unwrap(), endpoint.port().unwrap());
    let pairs = sas::sign(ACCOUNT, &Secret::new(KEY), SystemClock.now()).unwrap();
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let container = &config.azure.landing_container;
    let head = format!(
        "{method} {}/{container}/{}?{query} HTTP/1.1\r\nhost: {host}:{port}\r\nx-ms-version: 2021-12-02\r\n\
         x-ms-blob-type: BlockBlob\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{content}",
        endpoint.path().trim_end_matches('/'),
        utf8_percent_encode(name, IN_REQUEST),
        content.len(),
    );
    let mut stream = tokio::net::TcpStream::connect((host, port)).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}
