//! The landing zone: what is listed, that a file is read at one version, and that odd names are only letters.

use std::collections::BTreeSet;
use std::io::Read as _;

use alluvium::error::{Error, ErrorKind, Result};
use alluvium::landing::{Entry, Landing, LeftOut};
use alluvium::manifest::FileVersion;
use futures::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path as BlobPath;
use object_store::{Attribute, Attributes, PutOptions};

use super::ODD_NAMES;
use crate::support::place::Place;
use crate::support::raw;

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

#[tokio::test]
async fn a_name_that_is_no_path_hides_nothing_else() {
    let place = Place::azurite().await;
    let landing = place.backends().landing().unwrap();
    let mut names = vec!["a/1.csv", "m/ blanks at both ends ", "m/deep/2.csv", "m/3.csv", "z/4.csv"];
    for name in &names {
        place.drop_file(name, *name).await;
    }
    let odd = ["m//odd.csv", "m/a/../odd.csv", "m/./odd.csv", "m/line\nbreak.csv", "/lead.csv", "m/trail.csv/", "//"];
    for name in odd {
        raw::put(&place, name, "x").await;
    }
    // Nothing of these is meant to be read.
    for name in ["m/_hidden//x.csv", "m//_x.csv", "m/.h/../x.csv", "m//a.csv.tmp"] {
        raw::put(&place, name, "x").await;
    }
    raw::put(&place, "m/empty folder/", "").await;
    let mut files: Vec<FileVersion> = landing.list().try_collect().await.unwrap();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    names.sort_unstable();
    assert_eq!(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), names);
    for file in &files {
        assert_eq!(landing.head(&file.path).await.unwrap().as_ref(), Some(file));
        assert_eq!(read(&landing, file).await.unwrap(), file.path.as_bytes());
    }
    let entries: Vec<Entry> = landing.entries().try_collect().await.unwrap();
    let mut left_out: Vec<&LeftOut> = Vec::new();
    left_out.extend(entries.iter().filter_map(|entry| match entry {
        Entry::LeftOut(entry) => Some(entry),
        Entry::File(_) => None,
    }));
    let found: BTreeSet<&str> = left_out.iter().map(|entry| entry.version.path.as_str()).collect();
    assert_eq!(found, BTreeSet::from(odd));
    for LeftOut { version, reason } in left_out {
        assert!(!version.etag.is_empty() && version.bytes == 1, "{version:?}");
        assert!(reason.contains(&version.path) && reason.contains("another name"), "{reason}");
        assert_eq!(landing.admits(&version.path).unwrap_err().kind(), ErrorKind::Invalid, "{version:?}");
    }
}

#[tokio::test]
async fn a_long_list_comes_in_parts_and_whole() {
    let place = Place::azurite().await;
    let names: Vec<String> = (0..7).map(|n| format!("p/{n} & <{n}>.csv")).collect();
    for name in &names {
        place.drop_file(name, "x").await;
    }
    let (config, backends) = (place.config(), place.backends());
    let blobs = backends.account().unwrap().container(&config.azure.landing_container).unwrap();
    for most in [1, 2, 3, 7, 5000] {
        let (mut listed, mut marker, mut parts) = (Vec::new(), None, 0);
        loop {
            let page = blobs.page(marker.as_deref(), most).await.unwrap();
            assert!(page.blobs.len() <= most);
            listed.extend(page.blobs.into_iter().map(|blob| blob.name));
            parts += 1;
            marker = page.next;
            if marker.is_none() {
                break;
            }
        }
        assert_eq!(listed, names, "{most} at once");
        assert!(parts >= names.len().div_ceil(most), "{parts} parts of {most}");
    }
}
