//! A derived table is what its sources make it: what is not is found to the row, and mended.

use std::sync::Arc;

use alluvium::catalog::Catalog;
use alluvium::landing::Landing;
use alluvium::pipeline::backfill::{BackfillOptions, BackfillReport, Backfilled, Outcome, backfill};
use alluvium::pipeline::lake::Lake;
use alluvium::pipeline::layers::Difference;
use alluvium::store::Store;
use alluvium::table::{self, Change, Table, Writer, WriterOptions};
use arrow::array::{Array as _, AsArray as _, Decimal128Array, RecordBatch};
use arrow::datatypes::Decimal128Type;
use futures::TryStreamExt as _;

use crate::support::contracts::{self, sales};
use crate::support::program::Program;
use crate::support::{TestLake, manual_clock, rows, settle, write_contracts};

const CURATED: &str = "curated/sales_daily";

async fn run(lake: &Lake, verify: bool) -> BackfillReport {
    let options = BackfillOptions { verify, ..BackfillOptions::default() };
    let report = backfill(lake, &options, |_| {}).await.unwrap();
    assert!(report.failed.is_empty() && report.left.is_empty(), "{report:#?}");
    report
}

fn of<'a>(report: &'a BackfillReport, table: &str) -> &'a Backfilled {
    report.tables.iter().find(|found| found.table.to_string() == table).unwrap()
}

/// Four sales, one corrected, one late.
async fn loaded() -> TestLake {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00"), (2, 1, "south", "2.00")])).await;
    lake.load("sales/b.csv", sales(&[(3, 2, "north", "3.00"), (4, 2, "south", "4.00")])).await;
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.50"), (2, 1, "south", "2.00")])).await;
    lake.load("sales/late.csv", sales(&[(5, 1, "south", "5.00")])).await;
    lake
}

/// A commit that no step of the pipeline would make: all rows of a table changed by `change`, the watermark as it was.
async fn tamper(lake: &Lake, folder: &str, change: impl Fn(RecordBatch) -> Vec<RecordBatch>) {
    let table = Table::open(&lake.store, folder).await.unwrap().unwrap();
    let base = table.snapshot().await.unwrap();
    let clock = manual_clock();
    let mut writer =
        Writer::new(&lake.store, folder, base.schema(), base.partition_by(), WriterOptions::default(), clock);
    let mut batches: Vec<RecordBatch> = Vec::new();
    for file in base.files().unwrap().iter() {
        let found: Vec<RecordBatch> = base.read(file, None).await.unwrap().try_collect().await.unwrap();
        batches.extend(found);
    }
    for batch in change(arrow::compute::concat_batches(&base.schema(), &batches).unwrap()) {
        writer.write(&batch).await.unwrap();
    }
    let change = Change {
        operation: "WRITE".to_owned(),
        adds: writer.finish().await.unwrap(),
        removes: base.files().unwrap().to_vec(),
        ..Change::default()
    };
    assert!(matches!(table.commit(&base, change).await.unwrap(), table::Outcome::Committed(_)));
}

/// The first row with another revenue.
fn dearer(batch: &RecordBatch) -> RecordBatch {
    let at = batch.schema().index_of("revenue").unwrap();
    let revenue = batch.column(at).as_primitive::<Decimal128Type>();
    let changed: Decimal128Array =
        (0..revenue.len()).map(|row| Some(revenue.value(row) + i128::from(row == 0))).collect();
    let changed = changed.with_data_type(revenue.data_type().clone());
    let mut columns = batch.columns().to_vec();
    columns[at] = Arc::new(changed);
    RecordBatch::try_new(batch.schema(), columns).unwrap()
}

#[tokio::test]
async fn a_lake_that_is_right_is_said_to_be_and_nothing_is_written() {
    let lake = loaded().await;
    let before = lake.tables().await;
    let versions = [rows::version(&lake.lake, "aggregate/sales").await, rows::version(&lake.lake, CURATED).await];
    for verify in [true, false] {
        let report = run(&lake.lake, verify).await;
        assert_eq!(report.tables.len(), 2);
        assert!(report.tables.iter().all(|table| table.outcome == Outcome::Same), "{report:#?}");
        assert_eq!((of(&report, "aggregate/sales").rows, of(&report, CURATED).rows), (5, 4));
    }
    let after = [rows::version(&lake.lake, "aggregate/sales").await, rows::version(&lake.lake, CURATED).await];
    assert_eq!(versions, after);
    assert_eq!(lake.tables().await, before);
    assert!(lake.lake.store.list("_alluvium/scratch").await.unwrap().is_empty());
}

#[tokio::test]
async fn differences_are_counted_by_the_row_and_mended() {
    let lost = |batch: RecordBatch| vec![batch.slice(1, batch.num_rows() - 1)];
    let doubled = |batch: RecordBatch| vec![batch.clone(), batch.slice(0, 1)];
    let changed = |batch: RecordBatch| vec![dearer(&batch)];
    let nothing = |_: RecordBatch| Vec::new();
    type Tamper = dyn Fn(RecordBatch) -> Vec<RecordBatch>;
    let cases: [(&Tamper, Difference); 4] = [
        (&lost, Difference { missing: 1, ..Difference::default() }),
        (&doubled, Difference { extra: 1, ..Difference::default() }),
        (&changed, Difference { different: 1, ..Difference::default() }),
        (&nothing, Difference { missing: 4, ..Difference::default() }),
    ];
    for (change, expected) in cases {
        let lake = loaded().await;
        let before = lake.tables().await;
        tamper(&lake.lake, CURATED, change).await;
        let lake_now = lake.another();
        let told = run(&lake_now, true).await;
        assert_eq!((of(&told, CURATED).outcome, of(&told, CURATED).difference), (Outcome::Differs, expected));
        assert_eq!(of(&told, "aggregate/sales").outcome, Outcome::Same);
        assert!(told.differs());
        assert_ne!(lake.tables().await, before, "it was only told");

        let mended = run(&lake_now, false).await;
        assert_eq!((of(&mended, CURATED).outcome, of(&mended, CURATED).difference), (Outcome::Mended, expected));
        assert_eq!(of(&mended, CURATED).version, Some(rows::version(&lake_now, CURATED).await));
        assert_eq!(lake.tables().await, before);
        assert!(!run(&lake_now, true).await.differs());
    }
}

#[tokio::test]
async fn what_a_mended_table_feeds_follows_it() {
    let lake = loaded().await;
    let before = lake.tables().await;
    tamper(&lake.lake, "aggregate/sales", |batch| vec![batch.slice(0, batch.num_rows() - 1)]).await;
    // The layer above follows what it reads, faults included.
    settle(&lake.another()).await;
    let told = run(&lake.another(), true).await;
    assert!(of(&told, "aggregate/sales").difference.missing > 0);
    assert_eq!(of(&told, CURATED).outcome, Outcome::Same, "it is what its source makes it");
    run(&lake.another(), false).await;
    assert_eq!(lake.tables().await, before);
}

#[tokio::test]
async fn a_table_that_is_behind_is_compared_with_what_it_has_read() {
    let lake = loaded().await;
    let catalog = Catalog::from_sources(vec![("raw/sales.yaml".to_owned(), contracts::RAW.to_owned())]).unwrap();
    let landing = Landing::local(&lake.home.path().join("landing")).unwrap();
    let raw_only = Lake::new(catalog, lake.lake.store.clone(), landing, manual_clock(), Default::default());
    let event = lake.drop_file("sales/c.csv", sales(&[(9, 9, "west", "9.00")]));
    alluvium::pipeline::ingest::ingest(&raw_only, &event).await.unwrap();
    settle(&raw_only).await;
    let lake_now = lake.another();
    let told = run(&lake_now, true).await;
    assert_eq!((of(&told, "aggregate/sales").outcome, of(&told, "aggregate/sales").rows), (Outcome::Same, 5));
    let brought = run(&lake_now, false).await;
    assert_eq!((of(&brought, "aggregate/sales").outcome, of(&brought, "aggregate/sales").rows), (Outcome::Same, 6));
    assert_eq!(of(&brought, CURATED).rows, 5);
}

#[tokio::test]
async fn what_cannot_be_compared_is_said() {
    let mut lake = loaded().await;
    lake.redeploy(&[
        contracts::ALL[0],
        ("aggregate/sales", &contracts::AGGREGATE.replace("keep: first", "keep: last")),
        contracts::ALL[2],
    ]);
    let told = run(&lake.lake, true).await;
    let table = of(&told, "aggregate/sales");
    assert_eq!(table.outcome, Outcome::Skipped);
    assert!(table.reason.as_ref().unwrap().contains("contract changed"), "{table:#?}");
    let mended = run(&lake.lake, false).await;
    assert!(mended.tables.iter().all(|table| table.outcome == Outcome::Same), "{mended:#?}");

    for (name, said) in [("raw/sales", "fed by files"), ("gold/none", "no contract")] {
        let options = BackfillOptions { only: vec![name.parse().unwrap()], ..BackfillOptions::default() };
        let error = backfill(&lake.lake, &options, |_| {}).await.unwrap_err();
        assert!(error.message().contains(said), "{error}");
    }
}

#[tokio::test]
async fn the_command_says_what_differs_and_mends_it() {
    let home = tempfile::tempdir().unwrap();
    write_contracts(home.path(), contracts::ALL);
    let program = Program::new(home.path()).schemas(&home.path().join("schemas"));
    let landing = home.path().join("landing");
    crate::support::drop_file(&landing, "sales/a.csv", sales(&[(1, 1, "north", "1.00")]).as_bytes());
    program.ok(&["ingest", landing.to_str().unwrap()]);
    let text = program.ok(&["backfill", "--verify"]);
    assert!(text.contains("same") && text.contains(CURATED), "{text}");

    let store = Store::local(&home.path().join("lake")).unwrap();
    let catalog = Catalog::load(&home.path().join("schemas")).unwrap();
    let zone = Landing::local(&landing).unwrap();
    let lake = Lake::new(catalog, store, zone, manual_clock(), Default::default());
    tamper(&lake, CURATED, |batch| vec![dearer(&batch)]).await;
    let done = program.run(&["backfill", CURATED, "--verify", "-o", "json"]);
    assert_eq!(done.code, Some(3), "{}", done.text());
    let report: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert_eq!(report["tables"][0]["outcome"], "differs");
    assert_eq!(report["tables"][0]["different"], 1);
    let text = program.ok(&["backfill"]);
    assert!(text.contains("mended"), "{text}");
    assert_eq!(program.value("select sum(revenue) from curated.sales_daily"), "1.0");
    program.ok(&["backfill", "--verify"]);
}
