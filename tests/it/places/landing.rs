//! The landing zone: what is listed, that a file is read at one version, and that odd names are only letters.

use std::io::Read as _;

use alluvium::error::{Error, ErrorKind, Result};
use alluvium::landing::Landing;
use alluvium::manifest::FileVersion;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path as BlobPath;
use object_store::{Attribute, Attributes, PutOptions};

use super::ODD_NAMES;
use crate::support::azurite::{ACCOUNT, KEY};
use crate::support::place::Place;

async fn read(landing: &Landing, version: &FileVersion) -> Result<Vec<u8>> {
    let (landing, version) = (landing.clone(), version.clone());
    tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        landing.open(&version)?.content.read_to_end(&mut bytes).map_err(Error::from)?;
        Ok(bytes)
    })
    .await
    .unwrap()
}

#[tokio::test]
async fn odd_names_are_listed_looked_at_and_read_as_they_are() {
    for place in Place::both().await {
        let landing = place.backends().landing().unwrap();
        for name in ODD_NAMES {
            place.drop_file(name, name).await;
        }
        let mut listed: Vec<FileVersion> = landing.list().try_collect().await.unwrap();
        listed.sort_by(|a, b| a.path.cmp(&b.path));
        let mut names = ODD_NAMES.to_vec();
        names.sort_unstable();
        assert_eq!(listed.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), names, "{}", place.name());
        for file in &listed {
            assert_eq!(landing.head(&file.path).await.unwrap().as_ref(), Some(file), "{}", place.name());
            assert_eq!(read(&landing, file).await.unwrap(), file.path.as_bytes(), "{}", place.name());
        }
    }
}

#[tokio::test]
async fn a_version_is_read_as_it_is_or_not_at_all() {
    for place in Place::both().await {
        let landing = place.backends().landing().unwrap();
        place.drop_file("a.csv", "one").await;
        let first = landing.head("a.csv").await.unwrap().unwrap();
        assert_eq!(read(&landing, &first).await.unwrap(), b"one");
        assert!(landing.unchanged(&first).await.unwrap());
        place.drop_file("a.csv", "two").await;
        let second = landing.head("a.csv").await.unwrap().unwrap();
        assert_ne!(first.etag, second.etag, "{}", place.name());
        assert!(!landing.unchanged(&first).await.unwrap());
        assert_eq!(read(&landing, &first).await.unwrap_err().kind(), ErrorKind::Conflict, "{}", place.name());
        assert_eq!(read(&landing, &second).await.unwrap(), b"two");
        place.delete_file("a.csv").await;
        assert_eq!(landing.head("a.csv").await.unwrap(), None);
        assert!(!landing.unchanged(&second).await.unwrap());
        // A service may say that it is gone, or that what is there is not this version.
        let kind = read(&landing, &second).await.unwrap_err().kind();
        assert!(matches!(kind, ErrorKind::NotFound | ErrorKind::Conflict), "{}: {kind:?}", place.name());
    }
}

#[tokio::test]
async fn no_bytes_of_another_version_are_read_in_the_middle() {
    // Local files are looked at again at the end instead: what was replaced can be read to its end.
    let place = Place::azurite().await;
    let landing = place.backends().landing().unwrap();
    let size = 16 << 20;
    place.drop_file("a.csv", vec![1; size]).await;
    let first = landing.head("a.csv").await.unwrap().unwrap();
    let opened = {
        let (landing, first) = (landing.clone(), first.clone());
        tokio::task::spawn_blocking(move || landing.open(&first)).await.unwrap().unwrap()
    };
    place.drop_file("a.csv", vec![2; size]).await;
    let outcome = tokio::task::spawn_blocking(move || {
        let (mut bytes, mut content) = (Vec::new(), opened.content);
        content.read_to_end(&mut bytes).map(|_| bytes)
    });
    let error = Error::from(outcome.await.unwrap().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
}

#[tokio::test]
async fn files_of_every_size_come_whole() {
    for place in Place::both().await {
        let landing = place.backends().landing().unwrap();
        for size in [0_usize, 1, (4 << 20) - 1, 4 << 20, (9 << 20) + 7] {
            let bytes: Vec<u8> = (0..size).map(|n| (n % 251).try_into().unwrap()).collect();
            place.drop_file("t/a.bin", &bytes).await;
            let version = landing.head("t/a.bin").await.unwrap().unwrap();
            assert_eq!(version.bytes, size as u64);
            assert!(read(&landing, &version).await.unwrap() == bytes, "{}: {size} bytes", place.name());
        }
    }
}

#[tokio::test]
async fn what_is_not_finished_is_passed_over_and_ways_out_are_refused() {
    for place in Place::both().await {
        let landing = place.backends().landing().unwrap();
        for name in ["t/a.csv", "t/_x.csv", "_t/b.csv", "t/.h/c.csv", "t/d.csv.tmp", "t/e.part", "t/f~", "t/empty.csv"]
        {
            place.drop_file(name, if name == "t/empty.csv" { "" } else { "x" }).await;
        }
        let mut listed: Vec<String> = landing.list().map(|found| found.unwrap().path).collect().await;
        listed.sort();
        assert_eq!(listed, ["t/a.csv", "t/empty.csv"], "{}", place.name());
        for path in ["", "/", "/t/a.csv", "../t/a.csv", "t/../../x", "./t", "t//a.csv", "t/", "t\0"] {
            assert_eq!(landing.head(path).await.unwrap_err().kind(), ErrorKind::Invalid, "{}: {path:?}", place.name());
        }
        for path in ["none.csv", "t", "t/a.csv/x", "t%2Fa.csv", "..%2Ft/a.csv"] {
            assert_eq!(landing.head(path).await.unwrap(), None, "{}: {path:?}", place.name());
        }
    }
}

#[tokio::test]
async fn blobs_that_stand_for_folders_are_no_files() {
    let place = Place::azurite().await;
    let (blobs, landing) = (place.landing_blobs().unwrap(), place.backends().landing().unwrap());
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::Metadata("hdi_isfolder".into()), "true".into());
    let options = PutOptions { attributes, ..PutOptions::default() };
    blobs.put_opts(&BlobPath::from("sales"), Vec::new().into(), options).await.unwrap();
    place.drop_file("sales/a.csv", "x").await;
    let listed: Vec<FileVersion> = landing.list().try_collect().await.unwrap();
    assert_eq!(listed.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["sales/a.csv"]);
    assert_eq!(landing.head("sales").await.unwrap(), None);
}

/// Puts a blob under any name, past the client that would not.
async fn put_raw(place: &Place, encoded: &str) {
    let config = place.config();
    let backends = place.backends();
    let account = backends.account().unwrap();
    let key = alluvium::secret::Secret::new(KEY);
    let now = alluvium::clock::Clock::now(&alluvium::clock::SystemClock);
    let signature = alluvium::azure::sas::sign(ACCOUNT, &key, now).unwrap();
    let url = format!("{}/{}/{encoded}", account.blob_endpoint(), config.azure.landing_container);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let mut url = reqwest::Url::parse(&url).unwrap();
    url.query_pairs_mut().extend_pairs(signature);
    let request = client.put(url).header("x-ms-blob-type", "BlockBlob").header("x-ms-version", "2021-12-02").body("x");
    let status = request.send().await.unwrap().status();
    assert_eq!(status.as_u16(), 201);
}

#[tokio::test]
async fn a_name_that_is_no_path_hides_its_folder_alone() {
    let place = Place::azurite().await;
    let landing = place.backends().landing().unwrap();
    for name in ["a/1.csv", "m/deep/2.csv", "m/3.csv", "z/4.csv"] {
        place.drop_file(name, "x").await;
    }
    put_raw(&place, "m//odd.csv").await;
    let found: Vec<Result<FileVersion>> = landing.list().collect().await;
    let mut files: Vec<&str> = found.iter().flatten().map(|file| file.path.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    assert_eq!(files, ["a/1.csv", "z/4.csv"]);
    let told: Vec<String> = found.iter().filter_map(|file| file.as_ref().err()).map(Error::describe).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("`m`") && told[0].contains("another name"), "{told:?}");
    // Those that the listing cannot show are still found by whoever is told of them.
    assert!(landing.head("m/3.csv").await.unwrap().is_some());
}
