//! Blobs under any name, past every client that would make a path of it.

use alluvium::azure::sas;
use alluvium::clock::{Clock as _, SystemClock};
use alluvium::secret::Secret;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use url::Url;

use super::azurite::{ACCOUNT, KEY};
use super::place::Place;

/// A name in a request: slashes and dots as they are.
const IN_REQUEST: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.');

/// Puts a blob into the landing container.
pub async fn put(place: &Place, name: &str, content: &str) {
    let (status, answer) = request("PUT", blob(place, name), content).await;
    assert_eq!(status, 201, "{name:?}: {answer}");
}

/// Deletes a blob of the landing container.
pub async fn delete(place: &Place, name: &str) {
    let (status, answer) = request("DELETE", blob(place, name), "").await;
    assert_eq!(status, 202, "{name:?}: {answer}");
}

/// The names of all queues of the account.
pub async fn queues(place: &Place) -> Vec<String> {
    let endpoint = place.backends().account().unwrap().queue_endpoint().clone();
    let (status, answer) = request("GET", (endpoint, "/?comp=list".to_owned()), "").await;
    assert_eq!(status, 200, "{answer}");
    answer.split("<Name>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()).collect()
}

fn blob(place: &Place, name: &str) -> (Url, String) {
    let endpoint = place.backends().account().unwrap().blob_endpoint().clone();
    let container = place.config().azure.landing_container;
    (endpoint, format!("/{container}/{}", utf8_percent_encode(name, IN_REQUEST)))
}

/// One request, letter by letter: URL libraries take `..` out of a path.
async fn request(method: &str, (endpoint, path): (Url, String), content: &str) -> (u16, String) {
    let (host, port) = (endpoint.host_str().unwrap(), endpoint.port().unwrap());
    let pairs = sas::sign(ACCOUNT, &Secret::new(KEY), SystemClock.now()).unwrap();
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
    let sign = if path.contains('?') { '&' } else { '?' };
    let head = format!(
        "{method} {}{path}{sign}{query} HTTP/1.1\r\nhost: {host}:{port}\r\nx-ms-version: 2021-12-02\r\n\
         x-ms-blob-type: BlockBlob\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{content}",
        endpoint.path().trim_end_matches('/'),
        content.len(),
    );
    let mut stream = tokio::net::TcpStream::connect((host, port)).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{answer}")), answer)
}
