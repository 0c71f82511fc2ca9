//! A late file touches the days that it speaks of, and nothing else.

use crate::support::contracts::{self, sales};
use crate::support::{TestLake, rows};

#[tokio::test]
async fn a_late_file_changes_its_own_day_and_no_other() {
    let lake = TestLake::new(contracts::ALL);
    for day in 1..=4 {
        let rows = [(i64::from(day) * 10, day, "north", "1.00"), (i64::from(day) * 10 + 1, day, "south", "2.00")];
        lake.load(&format!("sales/2026-01-{day:02}.csv"), sales(&rows)).await;
    }
    let files = rows::files(&lake.lake, "aggregate/sales").await;
    let daily = rows::brief(&lake.lake, "curated/sales_daily", &["day", "shop", "sales", "revenue"]).await;
    let version = rows::version(&lake.lake, "curated/sales_daily").await;

    lake.load("sales/late.csv", sales(&[(99, 2, "north", "7.00")])).await;

    let others = |files: &[String]| -> Vec<String> {
        files.iter().filter(|file| !file.contains("day=2026-01-02")).cloned().collect()
    };
    let after = rows::files(&lake.lake, "aggregate/sales").await;
    assert_eq!(others(&files), others(&after), "files of other days stay as they are");
    assert_eq!(others(&files).len(), 3);
    let mut expected = daily.clone();
    let position = expected.iter().position(|row| row == "2026-01-02 north 1 1.00").unwrap();
    "2026-01-02 north 2 8.00".clone_into(&mut expected[position]);
    assert_eq!(rows::brief(&lake.lake, "curated/sales_daily", &["day", "shop", "sales", "revenue"]).await, expected);
    assert_eq!(rows::version(&lake.lake, "curated/sales_daily").await, version + 1, "one commit");
}

#[tokio::test]
async fn a_late_file_whose_rows_lose_changes_nothing_downstream() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    let (aggregate, daily) = (lake.rows("aggregate/sales").await, lake.rows("curated/sales_daily").await);
    // The same key in a file of a greater name: the first one stays.
    lake.load("sales/z.csv", sales(&[(1, 3, "south", "9.00")])).await;
    assert_eq!(lake.rows("raw/sales").await.len(), 2);
    assert_eq!(lake.rows("aggregate/sales").await, aggregate);
    assert_eq!(lake.rows("curated/sales_daily").await, daily);
}

#[tokio::test]
async fn a_late_file_that_wins_a_key_moves_it_from_day_to_day_in_one_commit() {
    let lake = TestLake::new(contracts::ALL);
    lake.load("sales/m.csv", sales(&[(1, 3, "south", "9.00"), (2, 3, "south", "1.00")])).await;
    let version = rows::version(&lake.lake, "aggregate/sales").await;
    lake.load("sales/a.csv", sales(&[(1, 1, "north", "1.00")])).await;
    assert_eq!(rows::brief(&lake.lake, "aggregate/sales", &["id", "day"]).await, ["1 2026-01-01", "2 2026-01-03"]);
    assert_eq!(
        rows::brief(&lake.lake, "curated/sales_daily", &["day", "shop", "revenue"]).await,
        ["2026-01-01 north 1.00", "2026-01-03 south 1.00"]
    );
    assert_eq!(rows::version(&lake.lake, "aggregate/sales").await, version + 1);
}
