use super::*;
use crate::clock::ManualClock;
use chrono::DateTime;
use proptest::prelude::*;

const SUBJECT: &str = "/blobServices/default/containers/landing/blobs/sales/2026/01/15/part-0.parquet";

fn event_grid(subject: &str, kind: &str, data: Value) -> Value {
    json!({
        "topic": "/subscriptions/S/resourceGroups/R/providers/Microsoft.Storage/storageAccounts/acct",
        "subject": subject, "eventType": kind, "eventTime": "2026-01-15T10:00:00.1234567Z",
        "id": "831e1650-001e-001b-66ab-eeb76e069631", "data": data, "dataVersion": "", "metadataVersion": "1",
    })
}

fn flushed() -> Value {
    json!({
        "api": "FlushWithClose", "clientRequestId": "c", "requestId": "r", "eTag": "0x8DC0FFEE0000001",
        "contentType": "application/octet-stream", "contentLength": 524288, "contentOffset": 0, "blobType": "BlockBlob",
        "url": "https://acct.dfs.core.windows.net/elsewhere/other.parquet",
        "sequencer": "00000000000000000000000000015508000000000005101c", "storageDiagnostics": {"batchId": "b"},
    })
}

fn part_0() -> FileEvent {
    FileEvent {
        path: "sales/2026/01/15/part-0.parquet".to_owned(),
        etag: Some("0x8DC0FFEE0000001".to_owned()),
        sequencer: Some("00000000000000000000000000015508000000000005101c".to_owned()),
        bytes: Some(524_288),
    }
}

fn parse_local(message: &[u8]) -> Vec<Item> {
    parse(message, &Scope::local()).unwrap()
}

fn only_file(message: &[u8]) -> FileEvent {
    match parse_local(message).as_slice() {
        [Item::File(file, _)] => file.clone(),
        other => panic!("expected one file, not {other:?}"),
    }
}

#[test]
fn every_form_of_delivery_tells_the_same() {
    let event = event_grid(SUBJECT, CREATED, flushed());
    let cloud = json!({
        "source": event["topic"], "subject": SUBJECT, "type": CREATED, "time": "2026-01-15T10:00:00.1234567Z",
        "id": "831e1650", "data": flushed(), "specversion": "1.0",
    });
    let pretty = serde_json::to_string_pretty(&event).unwrap();
    for message in [
        event.to_string(),
        cloud.to_string(),
        format!("\u{feff} \n{pretty}"),
        format!("[{event}]"),
        format!(" [ {cloud} ] "),
        BASE64.encode(event.to_string()),
        BASE64.encode(format!("[{cloud}]")),
        format!("{}\n", BASE64.encode(event.to_string())),
    ] {
        assert_eq!(only_file(message.as_bytes()), part_0(), "{message}");
    }
}

#[test]
fn an_array_is_read_event_by_event() {
    let message = json!([
        event_grid("/blobServices/default/containers/landing/blobs/a.csv", CREATED, flushed()),
        event_grid("/blobServices/default/containers/landing/blobs/b.csv", "Microsoft.Storage.BlobDeleted", json!({})),
        event_grid("nonsense", CREATED, flushed()),
        7,
    ]);
    let items = parse_local(message.to_string().as_bytes());
    assert!(matches!(&items[0], Item::File(file, _) if file.path == "a.csv"));
    assert!(matches!(&items[1], Item::Skipped { reason, .. } if reason.contains("BlobDeleted")));
    assert!(
        matches!(&items[2], Item::Broken(error) if error.to_string().starts_with("`nonsense` is no blob's subject"))
    );
    assert!(matches!(&items[3], Item::Broken(_)));
    assert!(parse_local(b"[]").is_empty());
}

#[test]
fn what_cannot_be_understood_is_an_error_and_never_a_guess() {
    let event = event_grid(SUBJECT, CREATED, flushed()).to_string();
    let twice = BASE64.encode(BASE64.encode(&event));
    for (message, expected) in [
        (twice.as_bytes(), "the message is base64, but not of a JSON object or array"),
        (b"b'eyJhIjoxfQ=='".as_slice(), "the message is neither JSON nor base64"),
        (b"//4=".as_slice(), "the message is base64, but not of a JSON object or array"),
        (b"".as_slice(), "the message is empty"),
        (b" \n".as_slice(), "the message is empty"),
        (b"\xff\xfe".as_slice(), "the message is neither JSON nor base64"),
        (b"{\"eventType\":".as_slice(), "the message is no JSON"),
    ] {
        let error = parse(message, &Scope::local()).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{error}");
        assert!(error.remedy_text().is_some());
    }
    // `null` is valid base64, and valid JSON, but no event.
    assert!(parse(b"null", &Scope::local()).is_err());
    assert!(matches!(parse_local(b"{\"a\":1}").as_slice(), [Item::Broken(_)]));
}

#[test]
fn apis_decide_whether_there_is_a_file_yet() {
    for (kind, data, is_file) in [
        (CREATED, json!({"api": "CreateFile", "contentLength": 0}), false),
        (CREATED, json!({"api": "CreateFile", "contentLength": 42}), false),
        (CREATED, json!({"api": "FlushWithClose", "contentLength": 0}), false),
        (CREATED, json!({"api": "PutBlob", "contentLength": 0}), false),
        (CREATED, json!({"api": LISTED, "contentLength": 0}), true),
        (CREATED, json!({"api": "FlushWithClose", "contentLength": 42}), true),
        (CREATED, json!({"api": "PutBlob", "contentLength": 42}), true),
        (CREATED, json!({"api": "PutBlockList", "contentLength": 42}), true),
        (CREATED, json!({"api": "CopyBlob", "contentLength": 42}), true),
        (RENAMED, json!({"api": "RenameFile", "destinationUrl": "https://acct.dfs.core.windows.net/landing/x"}), true),
        ("Microsoft.Storage.BlobTierChanged", json!({"api": "SetBlobTier", "contentLength": 42}), false),
        ("Microsoft.EventGrid.SubscriptionValidationEvent", json!({"validationCode": "1"}), false),
    ] {
        let items = parse_local(event_grid(SUBJECT, kind, data.clone()).to_string().as_bytes());
        assert_eq!(matches!(items.as_slice(), [Item::File(..)]), is_file, "{kind} {data}");
        assert!(!matches!(items.as_slice(), [Item::Broken(_)]), "{kind} {data}");
    }
}

#[test]
fn a_renamed_file_has_no_etag_yet() {
    let event = event_grid(SUBJECT, RENAMED, json!({"api": "RenameFile"}));
    let file = only_file(event.to_string().as_bytes());
    assert_eq!((file.etag, file.bytes), (None, None));
}

#[test]
fn quotes_are_no_part_of_an_etag() {
    let event = event_grid(SUBJECT, CREATED, json!({"api": "PutBlob", "eTag": "\"0x8DC\"", "contentLength": 1}));
    assert_eq!(only_file(event.to_string().as_bytes()).etag.as_deref(), Some("0x8DC"));
}

#[test]
fn foreign_containers_and_accounts_are_refused() {
    let lake = event_grid("/blobServices/default/containers/lake/blobs/raw/t/part-0.parquet", CREATED, flushed());
    let items = parse_local(lake.to_string().as_bytes());
    let [Item::Refused(refused)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!((refused.name.as_str(), refused.etag.as_deref()), ("events-of-container-lake", None));
    let mut ours = event_grid(SUBJECT, CREATED, flushed());
    let topic = ours["topic"].as_str().unwrap().to_owned();
    for (account, topic, is_ours) in [
        ("acct", topic.clone(), true),
        ("ACCT", topic.clone(), true),
        ("acct", topic.replace("storageAccounts", "storageaccounts"), true),
        ("acc", topic.clone(), false),
        ("other", topic.clone(), false),
        ("acct", format!("{topic}/../evil"), false),
        ("acct", format!("{topic}/evil"), false),
        ("acct", format!("{topic}/"), false),
        ("acct", "/x/storageAccounts/acct/../evil".to_owned(), false),
        ("evil", "/x/storageAccounts/acct/../../storageAccounts/evil".to_owned(), false),
        ("acct", "/x/storageAccounts/evil/../acct".to_owned(), false),
        ("acct", "acct".to_owned(), false),
        ("acct", String::new(), false),
    ] {
        let scope = Scope { account: Some(account.to_owned()), container: "landing".to_owned() };
        ours["topic"] = Value::from(topic.as_str());
        let items = parse(ours.to_string().as_bytes(), &scope).unwrap();
        match items.as_slice() {
            [Item::File(..)] => assert!(is_ours, "{account} {topic}"),
            [Item::Refused(refused)] => {
                assert!(!is_ours, "{account} {topic}");
                assert!(refused.error.to_string().contains("another account"), "{}", refused.error);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_path_is_decoded_once() {
    for (encoded, path) in [
        ("a%20b.csv", "a b.csv"),
        ("a+b.csv", "a+b.csv"),
        ("100%25.csv", "100%.csv"),
        ("100%.csv", "100%.csv"),
        ("a%2520b.csv", "a%20b.csv"),
        ("a%23b%3Fc.csv", "a#b?c.csv"),
        ("%E6%B1%9F.csv", "江.csv"),
        ("江.csv", "江.csv"),
        ("a/blobs/b.csv", "a/blobs/b.csv"),
        ("Case/Kept.CSV", "Case/Kept.CSV"),
    ] {
        assert_eq!(decoded_path(encoded).unwrap(), path);
    }
}

#[test]
fn a_path_that_could_lead_elsewhere_is_refused() {
    for encoded in [
        "../lake/x",
        "a/../../x",
        "a/..",
        "%2e%2e/x",
        "a/%2E%2E/x",
        "/etc/passwd",
        "a//b",
        "",
        "a/",
        ".",
        "a/./b",
        "a%2Fb",
        "a%2fb",
        "..%2f..%2fx",
        "a%00b",
        "%ff%fe",
    ] {
        assert!(decoded_path(encoded).is_err(), "{encoded}");
        let event = event_grid(&format!("{CONTAINERS}landing{BLOBS}{encoded}"), CREATED, flushed());
        let items = parse_local(event.to_string().as_bytes());
        let [Item::Refused(refused)] = items.as_slice() else { panic!("{encoded}: {items:?}") };
        assert_eq!(refused.etag.as_deref(), Some("0x8DC0FFEE0000001"), "{encoded}");
    }
}

#[test]
fn an_event_is_sent_again_as_it_came_with_its_attempts() {
    let grid = event_grid(SUBJECT, CREATED, flushed());
    let cloud = json!({
        "source": grid["topic"], "subject": SUBJECT, "type": CREATED, "id": "831e1650", "data": flushed(),
        "specversion": "1.0", "ourextension": "kept",
    });
    for event in [grid, cloud] {
        let mut message = BASE64.encode(event.to_string()).into_bytes();
        for attempts in 0..3 {
            let items = parse_local(&message);
            let [Item::File(file, original)] = items.as_slice() else { panic!("{items:?}") };
            assert_eq!((file, original.attempts()), (&part_0(), attempts));
            assert!(!original.is_listed());
            message = original.again();
        }
        let mut expected = event;
        expected["alluviumattempts"] = json!(3);
        assert_eq!(serde_json::from_slice::<Value>(&message).unwrap(), expected);
    }
    for wrong in [json!("7"), json!(-1), json!(u64::MAX), json!(null)] {
        let mut event = event_grid(SUBJECT, CREATED, flushed());
        event["alluviumattempts"] = wrong.clone();
        let items = parse_local(event.to_string().as_bytes());
        assert!(matches!(items.as_slice(), [Item::File(_, original)] if original.attempts() == 0), "{wrong}");
    }
}

proptest! {
    #[test]
    fn our_own_messages_read_back(
        parts in prop::collection::vec("[^/\\x00]{1,12}", 1..4),
        etag in "[a-z0-9-]{1,20}",
        bytes: u64,
        sequencer in prop::option::of("[0-9a-f]{4}"),
        base64: bool,
    ) {
        prop_assume!(parts.iter().all(|part| part != "." && part != ".."));
        let version = FileVersion {
            path: parts.join("/"), etag: etag.clone(), bytes, last_modified: DateTime::UNIX_EPOCH, sequencer: sequencer.clone(),
        };
        let clock = ManualClock::new(DateTime::UNIX_EPOCH, 1);
        let plain = announcement(&version, &Scope::local(), &clock);
        let message = if base64 { BASE64.encode(&plain).into_bytes() } else { plain };
        prop_assert_eq!(
            only_file(&message),
            FileEvent { path: version.path, etag: Some(etag), sequencer, bytes: Some(bytes) }
        );
    }

    #[test]
    fn no_message_makes_it_fall_over(message in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&message, &Scope::local());
    }
}
