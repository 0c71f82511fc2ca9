//! Records that are redriven from what quarantine keeps of them: whether their file is there makes no difference, and where
//! it does, that is said.

use std::sync::Arc;

use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::pipeline::redrive::Action;
use alluvium::quarantine::HEADER;
use alluvium::table::{Change, Outcome, Table, TableSpec, Writer, WriterOptions};
use arrow::array::{ArrayRef, RecordBatch, StringArray};
use futures::TryStreamExt as _;

use super::{CONTENT, ROWS, STRICT, lenient, quarantine, redrive_all};
use crate::support::{TestLake, assert_ledger, rows, settle};

const QUARANTINE: &str = "quarantine/raw/t";

/// A contract that reads files as `source` says.
fn reading(contract: &str, source: &str) -> String {
    contract.replace("format: csv", source)
}

fn utf16(text: &str) -> Vec<u8> {
    [0xFF, 0xFE].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect()
}

fn gzip(content: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, content).unwrap();
    packed.finish().unwrap()
}

fn parquet(ids: &[&str]) -> Vec<u8> {
    let ids: ArrayRef = Arc::new(StringArray::from(ids.to_vec()));
    let batch = RecordBatch::try_from_iter([("id", ids)]).unwrap();
    let mut out = Vec::new();
    let mut writer = parquet::arrow::ArrowWriter::try_new(&mut out, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    out
}

/// The quarantine table as a former version of the program would have left it: the same rows, without the newest column.
pub(super) async fn as_left_by_a_former_version(lake: &Lake) {
    let table = Table::open(&lake.store, QUARANTINE).await.unwrap().unwrap();
    let snapshot = table.snapshot().await.unwrap();
    let txns: Vec<(String, i64)> = snapshot.txns().await.unwrap().into_iter().collect();
    let columns = snapshot.schema().fields().len() - 1;
    assert_eq!(snapshot.schema().field(columns).name(), HEADER);
    let mut batches: Vec<RecordBatch> = Vec::new();
    for file in snapshot.files().unwrap().iter() {
        let read: Vec<RecordBatch> = snapshot.read(file, None).await.unwrap().try_collect().await.unwrap();
        batches.extend(read.iter().map(|batch| batch.project(&(0..columns).collect::<Vec<_>>()).unwrap()));
    }
    let objects = lake.store.list(&format!("{QUARANTINE}/")).await.unwrap();
    let paths: Vec<String> = objects.iter().map(|object| object.location.to_string()).collect();
    lake.store.delete(&paths).await.unwrap();
    let schema = batches[0].schema();
    let spec = TableSpec {
        schema: Arc::clone(&schema),
        partition_by: Vec::new(),
        properties: std::collections::BTreeMap::new(),
        description: None,
    };
    let table = Table::create(&lake.store, QUARANTINE, &spec).await.unwrap();
    let options = WriterOptions { target_bytes: 1 << 20, memory_bytes: 1 << 20 };
    let mut writer = Writer::new(&lake.store, QUARANTINE, schema, &[], options, Arc::clone(&lake.clock));
    for batch in &batches {
        writer.write(batch).await.unwrap();
    }
    let adds = writer.finish().await.unwrap();
    let change = Change { operation: "WRITE".to_owned(), adds, txns, ..Change::default() };
    let snapshot = table.snapshot().await.unwrap();
    assert!(matches!(table.commit(&snapshot, change).await.unwrap(), Outcome::Committed(_)));
}

/// What became of the landed file before the redrive.
#[derive(Debug, Clone, Copy)]
enum Landed {
    Stays,
    IsGone,
    /// Another version is there, which nobody has ingested.
    IsAnother,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_come_as_they_would_have_come_whatever_became_of_their_file() {
    let csv = "id,amt,new\n1,1.00,a\n2,2.005,\"b\n,\"\"b\"\n3,-3.00,é\n4,x,d\n\n5,5.00,e\n6,6.005,\n";
    let bare = "1,1.00\n2,2.005\n4,x\n";
    let json = "[{\"id\":1,\"amt\":1.005},\n {\"id\":2,\n  \"amt\":\"2.005\", \"new\":{\"a\":[1]}},\n {\"id\":3,\"amt\":3}, 4]";
    let lines = "{\"id\":1,\"amt\":1.005,\"new\":\"é\"}\r\n{\"id\":\n{\"id\":3,\"amt\":-3}\n";
    let spelled = "{\"id\":1,\"amt\":1,\"New\":\"a\"}\n{\"id\":2,\"amt\":2.005,\"new\":\"b\"}\n";
    let cases: Vec<(&str, Vec<u8>, u64)> = vec![
        ("format: csv", csv.into(), 3),
        ("format: csv", [b"\xEF\xBB\xBF", csv.as_bytes()].concat(), 3),
        ("format: csv", utf16(csv), 3),
        ("format: csv", csv.replace('\n', "\r").into(), 3),
        ("format: csv", gzip(csv.as_bytes()), 3),
        ("format: csv, encoding: windows-1252", csv.chars().map(|c| u8::try_from(c).unwrap()).collect(), 3),
        ("format: csv, header: false", bare.into(), 1),
        ("format: csv, skip_rows: 1, delimiter: \";\"", format!("x\nsep=;\n{}", csv.replace(',', ";")).into(), 3),
        ("format: json", json.into(), 2),
        ("format: ndjson", lines.into(), 2),
        ("format: ndjson", utf16(lines), 2),
        ("format: ndjson", spelled.into(), 1),
    ];
    for unknown in ["rescue", "add"] {
        for (source, content, cured) in &cases {
            let more = format!("unknown_columns: {unknown}\n");
            let (before, after) = (reading(STRICT, source) + &more, reading(&lenient(), source) + &more);
            let expected = TestLake::new(&[("raw/t", &after)]);
            expected.load("t/a", content).await;
            let all = [Landed::IsGone, Landed::Stays, Landed::IsAnother];
            for landed in all.into_iter().take(if unknown == "add" { 1 } else { 3 }) {
                let what = format!("{source}, {unknown}, the file {landed:?}");
                let mut lake = TestLake::new(&[("raw/t", &before)]);
                lake.load("t/a", content).await;
                match landed {
                    Landed::Stays => {}
                    Landed::IsGone => std::fs::remove_file(lake.landed("t/a")).unwrap(),
                    Landed::IsAnother => drop(lake.drop_file("t/a", "id,amt\n9,9\n")),
                }
                lake.redeploy(&[("raw/t", &after)]);
                let planned = redrive_all(&lake.lake, true).await;
                assert_eq!((planned[0].action, planned[0].cured), (Action::Redriven, *cured), "{what}: {planned:?}");
                assert_eq!(redrive_all(&lake.lake, false).await[0].cured, *cured, "{what}");
                assert_eq!(redrive_all(&lake.lake, false).await[0].action, Action::AlreadyStaged, "{what}");
                settle(&lake.lake).await;
                assert_eq!(lake.rows("raw/t").await, expected.rows("raw/t").await, "{what}");
                assert_eq!(quarantine(&lake.lake).await.0, quarantine(&expected.lake).await.0, "{what}");
                assert_eq!(quarantine(&lake.lake).await.1.len() as u64, *cured, "{what}");
                assert_ledger(&lake.lake).await;
                let again = redrive_all(&lake.lake, false).await;
                assert!(again.iter().all(|one| one.action == Action::Refused), "{what}: {again:?}");
            }
        }
    }
}

#[tokio::test]
async fn what_only_the_file_can_give_is_said() {
    let nullable = STRICT.replace(", nullable: false", "");
    let accepts = |source: &str| {
        let contract =
            reading(&nullable, source).replace("name: id, type: int64", "name: id, type: int64, null_values: [x]");
        contract.replace("decimal(10,2)\" }", "decimal(10,2)\", null_values: [x] }")
    };
    // Parquet: what is kept of a row has no types.
    let mut lake = TestLake::new(&[("raw/t", &reading(&nullable, "format: parquet"))]);
    lake.load("t/a", parquet(&["1", "x"])).await;
    std::fs::rename(lake.landed("t/a"), lake.home.path().join("kept")).unwrap();
    lake.redeploy(&[("raw/t", &accepts("format: parquet"))]);
    let found = redrive_all(&lake.lake, false).await;
    assert_eq!(found[0].action, Action::Gone);
    let reason = found[0].reason.as_ref().unwrap();
    assert!(reason.contains("Parquet") && reason.contains("put it back"), "{reason}");
    // Put back it has the content that it had: no new rows, and what waits is read from it.
    lake.load("t/a", std::fs::read(lake.home.path().join("kept")).unwrap()).await;
    assert_eq!(rows::brief(&lake.lake, "ledger", &["status"]).await, ["duplicate", "loaded"]);
    assert_eq!(redrive_all(&lake.lake, false).await[0].action, Action::Redriven);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["id", "_row"]).await, ["1 1", "null 2"]);
    assert_eq!(quarantine(&lake.lake).await, (Vec::new(), vec!["2".to_owned()]));

    // Another format or no header line: the numbers of the records would mean others.
    for (before, after) in [("format: csv, header: false", "format: csv"), ("format: csv", "format: ndjson")] {
        let mut lake = TestLake::new(&[("raw/t", &reading(STRICT, before))]);
        lake.load("t/a", CONTENT).await;
        lake.redeploy(&[("raw/t", &reading(&lenient(), after))]);
        let found = redrive_all(&lake.lake, false).await;
        assert_eq!(found[0].action, Action::Refused, "{before}");
        assert!(found[0].reason.as_ref().unwrap().contains("under another name"), "{found:?}");
    }

    // Text that was decoded from an encoding that is declared no more.
    let mut lake = TestLake::new(&[("raw/t", &reading(STRICT, "format: csv, encoding: windows-1252"))]);
    lake.load("t/a", CONTENT).await;
    lake.redeploy(&[("raw/t", &reading(&lenient(), "format: csv, encoding: windows-1250"))]);
    assert_eq!(redrive_all(&lake.lake, true).await[0].action, Action::Redriven, "the file is there");
    std::fs::remove_file(lake.landed("t/a")).unwrap();
    let found = redrive_all(&lake.lake, false).await;
    assert_eq!(found[0].action, Action::Gone);
    assert!(found[0].reason.as_ref().unwrap().contains("windows-1252"), "{found:?}");

    // A file that was refused whole is what was refused.
    let mut lake = TestLake::new(&[("raw/t", STRICT)]);
    lake.load("t/a", "number,amt\n7,7.00\n").await;
    std::fs::remove_file(lake.landed("t/a")).unwrap();
    lake.redeploy(&[("raw/t", &STRICT.replace("{ name: id,", "{ name: id, from: [id, number],"))]);
    let found = redrive_all(&lake.lake, false).await;
    assert_eq!((found[0].action, found[0].waiting), (Action::Gone, None));
    assert!(found[0].reason.as_ref().unwrap().contains("loaded as a new version"), "{found:?}");
}

#[tokio::test]
async fn rows_of_a_former_version_need_their_file_and_new_ones_beside_them_do_not() {
    let mut lake = TestLake::new(&[("raw/t", STRICT)]);
    lake.load("t/a", CONTENT).await;
    as_left_by_a_former_version(&lake.lake).await;
    lake.lake = lake.another();
    // The table gets the column with the first rows that have something in it.
    lake.load("t/b", CONTENT).await;
    assert_eq!(rows::brief(&lake.lake, QUARANTINE, &["record"]).await.len(), 6);
    std::fs::rename(lake.landed("t/a"), lake.home.path().join("a")).unwrap();
    std::fs::remove_file(lake.landed("t/b")).unwrap();
    lake.redeploy(&[("raw/t", &lenient())]);
    let found = redrive_all(&lake.lake, false).await;
    assert_eq!((found[0].action, found[1].action), (Action::Gone, Action::Redriven), "{found:?}");
    let reason = found[0].reason.as_ref().unwrap();
    assert!(reason.contains("no header") && reason.contains("put it back"), "{reason}");
    settle(&lake.lake).await;
    // Put back under its old name it is the same file still.
    std::fs::rename(lake.home.path().join("a"), lake.landed("t/a")).unwrap();
    let event = alluvium::event::FileEvent { path: "t/a".to_owned(), etag: None, sequencer: None, bytes: None };
    lake.ingest(&event).await;
    settle(&lake.lake).await;
    assert_eq!(redrive_all(&lake.lake, false).await[0].action, Action::Redriven);
    settle(&lake.lake).await;
    let each = ["1 1.00 1", "2 2.01 2", "3 -3.00 3", "5 5.00 5"];
    let both: Vec<&str> = each.iter().flat_map(|row| [*row, *row]).collect();
    assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, both);
    assert_eq!(quarantine(&lake.lake).await.0, ["4", "4"]);
    assert_ledger(&lake.lake).await;
}

#[tokio::test]
async fn the_same_content_again_does_not_strand_what_waits() {
    let mut lake = TestLake::new(&[("raw/t", STRICT)]);
    lake.load("t/a", CONTENT).await;
    lake.load("t/a", CONTENT).await;
    assert_eq!(rows::brief(&lake.lake, "ledger", &["status"]).await, ["duplicate", "loaded"]);
    lake.redeploy(&[("raw/t", &lenient())]);
    assert_eq!(redrive_all(&lake.lake, false).await[0].cured, 2);
    settle(&lake.lake).await;
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["id"]).await, ["1", "2", "3", "5"]);
    // What was redriven counts as this content too.
    lake.load("t/a", CONTENT).await;
    assert_eq!(rows::brief(&lake.lake, "ledger", &["status"]).await, ["duplicate", "duplicate", "loaded", "loaded"]);
    assert_eq!(rows::brief(&lake.lake, "raw/t", &["id"]).await, ["1", "2", "3", "5"]);
}

/// A contract that counts records in another way must not bring a neighbour, which is in the table already.
#[tokio::test]
async fn a_record_that_has_another_number_today_is_not_taken_for_its_neighbour() {
    let content = "id,amt\n#1,1.00\n2,2.005\n3,3.00\n4,4.00\n";
    let today = reading(&lenient(), "format: csv, comment: \"#\"");
    for is_former in [false, true] {
        let mut lake = TestLake::new(&[("raw/t", STRICT)]);
        lake.load("t/a", content).await;
        if is_former {
            as_left_by_a_former_version(&lake.lake).await;
        }
        lake.redeploy(&[("raw/t", &today)]);
        let found = redrive_all(&lake.lake, false).await;
        settle(&lake.lake).await;
        let wanted: &[&str] = if is_former { &["3 3.00 3", "4 4.00 4"] } else { &["2 2.01 2", "3 3.00 3", "4 4.00 4"] };
        assert_eq!(rows::brief(&lake.lake, "raw/t", &ROWS).await, wanted, "{found:?}");
    }
}

#[tokio::test]
async fn what_does_not_fit_into_memory_together_is_read_file_by_file() {
    let settings = || Settings { memory_bytes: 2 << 20, ..Settings::default() };
    let wide = "x".repeat(100_000);
    let strict = STRICT.replace("rules:", "  - { name: note, type: string }\nrules:");
    let lenient = lenient().replace("rules:", "  - { name: note, type: string }\nrules:");
    let mut lake = TestLake::with_settings(&[("raw/t", &strict)], settings());
    let files = 5;
    for file in 0..files {
        let lines: String = (0..2).map(|row| format!("{row},{file}.005,{wide}\n")).collect();
        lake.load(&format!("t/{file}"), format!("id,amt,note\n{lines}9,9.00,\n")).await;
        std::fs::remove_file(lake.landed(&format!("t/{file}"))).unwrap();
    }
    lake.redeploy(&[("raw/t", &lenient)]);
    let found = redrive_all(&lake.lake, false).await;
    assert_eq!(found.iter().map(|one| one.cured).collect::<Vec<_>>(), vec![2; files], "{found:?}");
    settle(&lake.lake).await;
    let lengths = rows::select(&lake.lake, "raw/t", &["note"]).await;
    assert_eq!(lengths.iter().filter(|row| row[0].len() == wide.len()).count(), 2 * files);
    assert_eq!(quarantine(&lake.lake).await.0, Vec::<String>::new());
}
