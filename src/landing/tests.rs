//! What is listed, looked at and opened, and what is refused.

use futures::TryStreamExt;

use super::*;

fn zone() -> (tempfile::TempDir, Landing) {
    let folder = tempfile::tempdir().unwrap();
    let landing = Landing::local(&folder.path().join("landing")).unwrap();
    (folder, landing)
}

fn put(landing: &Landing, path: &str, text: &str) {
    let file = landing.folder().unwrap().join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

#[tokio::test]
async fn lists_files_and_passes_over_what_is_arriving() {
    let (_folder, landing) = zone();
    for path in [
        "trips/b.csv",
        "trips/a.csv",
        "a b%20/ü=1.csv",
        "trips/_hidden.csv",
        "trips/.x.csv",
        "trips/c.csv.tmp",
        "trips/c.tmp.csv",
        "trips/d.part",
        "trips/d.partial.csv",
        "trips/e.csv~",
        "_folder/a.csv",
        ".folder/a.csv",
        "y.parts/a.csv",
    ] {
        put(&landing, path, "x");
    }
    let files: Vec<FileVersion> = landing.list().try_collect().await.unwrap();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a b%20/ü=1.csv", "trips/a.csv", "trips/b.csv", "y.parts/a.csv"]);
    for file in &files {
        assert_eq!(landing.head(&file.path).await.unwrap().as_ref(), Some(file));
        assert!(landing.unchanged(file).await.unwrap());
    }
    assert_eq!(files[1].bytes, 1);
}

#[tokio::test]
async fn an_empty_zone_lists_nothing() {
    let (_folder, landing) = zone();
    let files: Vec<FileVersion> = landing.list().try_collect().await.unwrap();
    assert!(files.is_empty());
}

#[tokio::test]
async fn a_changed_file_has_another_version() {
    let (_folder, landing) = zone();
    put(&landing, "a.csv", "one");
    let first = landing.head("a.csv").await.unwrap().unwrap();
    let mut text = String::new();
    landing.open(&first).unwrap().content.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one");

    // The same size, put into place by a rename: another inode.
    put(&landing, "new", "two");
    std::fs::rename(landing.folder().unwrap().join("new"), landing.folder().unwrap().join("a.csv")).unwrap();
    assert!(!landing.unchanged(&first).await.unwrap());
    let error = landing.open(&first).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");

    std::fs::remove_file(landing.folder().unwrap().join("a.csv")).unwrap();
    assert!(!landing.unchanged(&first).await.unwrap());
    assert_eq!(landing.open(&first).err().unwrap().kind(), ErrorKind::NotFound);
}

#[cfg(unix)]
#[tokio::test]
async fn a_version_that_comes_back_is_a_new_version() {
    let (_folder, landing) = zone();
    put(&landing, "a.csv", "one");
    let first = landing.head("a.csv").await.unwrap().unwrap();
    // Moved away and back: inode, size and mtime are as before, ctime is not. A link count changes ctime too, and it is
    // changed until the clock of the file system has moved.
    let (file, aside) = (landing.folder().unwrap().join("a.csv"), landing.folder().unwrap().join("aside"));
    let mut again = first.clone();
    for _ in 0..1_000_000 {
        std::fs::rename(&file, &aside).unwrap();
        std::fs::rename(&aside, &file).unwrap();
        again = landing.head("a.csv").await.unwrap().unwrap();
        if again != first {
            break;
        }
    }
    assert_eq!((again.bytes, again.last_modified), (first.bytes, first.last_modified));
    assert_ne!(again.etag, first.etag);
}

#[tokio::test]
async fn what_is_not_there_is_none() {
    let (_folder, landing) = zone();
    put(&landing, "a/b.csv", "x");
    for path in ["none.csv", "a", "a/b.csv/c", "a/none/x.csv"] {
        assert_eq!(landing.head(path).await.unwrap(), None, "{path}");
    }
}

#[tokio::test]
async fn paths_out_of_the_zone_are_refused() {
    let (folder, landing) = zone();
    std::fs::write(folder.path().join("secret"), "x").unwrap();
    for path in ["", "/", "/etc/passwd", "../secret", "a/../../secret", "./a", "a//b", "a/", "a\0b"] {
        let error = landing.head(path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{path}: {error}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn links_lead_nowhere_outside() {
    use std::os::unix::fs::symlink;
    let (folder, landing) = zone();
    std::fs::write(folder.path().join("secret"), "x").unwrap();
    std::fs::create_dir(folder.path().join("out")).unwrap();
    std::fs::write(folder.path().join("out/b.csv"), "x").unwrap();
    put(&landing, "a.csv", "x");
    symlink(folder.path().join("secret"), landing.folder().unwrap().join("link.csv")).unwrap();
    symlink(folder.path().join("out"), landing.folder().unwrap().join("out")).unwrap();
    symlink(landing.folder().unwrap(), landing.folder().unwrap().join("round")).unwrap();
    symlink(landing.folder().unwrap().join("a.csv"), landing.folder().unwrap().join("same.csv")).unwrap();
    symlink("nowhere", landing.folder().unwrap().join("broken.csv")).unwrap();
    for path in ["link.csv", "out/b.csv"] {
        let error = landing.head(path).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{path}: {error}");
    }
    let entries: Vec<Entry> = landing.entries().try_collect().await.unwrap();
    let [Entry::File(first), Entry::LeftOut(link), Entry::File(last)] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!([&first.path, &link.version.path, &last.path], ["a.csv", "link.csv", "same.csv"]);
    assert!(link.reason.contains("a link that leads out") && link.reason.contains("copy the file"), "{link:?}");
    assert!(landing.admits("link.csv").is_ok(), "it may become a file");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_name_that_is_not_utf8_is_named() {
    use std::os::unix::ffi::OsStrExt;
    let (_folder, landing) = zone();
    put(&landing, "a.csv", "x");
    let name = std::ffi::OsStr::from_bytes(b"bad\xff.csv");
    std::fs::write(landing.folder().unwrap().join(name), "x").unwrap();
    let files: Vec<FileVersion> = landing.list().try_collect().await.unwrap();
    assert_eq!(files.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["a.csv"]);
    let entries: Vec<Entry> = landing.entries().try_collect().await.unwrap();
    let [_, Entry::LeftOut(bad)] = entries.as_slice() else { panic!("{entries:?}") };
    assert_eq!(bad.version.path, "bad\u{fffd}.csv");
    assert!(bad.reason.contains("not UTF-8; rename it"), "{bad:?}");
}
