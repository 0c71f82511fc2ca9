//! Small contracts of the tests' own: sales of shops, from files to sums of a day.

/// `raw/sales`, with one declared rule.
pub const RAW: &str = r#"
version: 1
table: raw/sales
source: { path: "sales/**/*.csv*", format: csv }
columns:
  - { name: id, type: int64, nullable: false }
  - { name: day, type: date, nullable: false }
  - { name: shop, type: string, nullable: false, max_length: 12 }
  - { name: amount, type: "decimal(10,2)", nullable: false }
  - { name: note, type: string }
write_mode: append
unknown_columns: ignore
rules:
  - { name: amount_not_negative, check: "amount >= 0", on_fail: quarantine }
"#;

/// `aggregate/sales`: one row an id, partitioned by day.
pub const AGGREGATE: &str = "
version: 1
table: aggregate/sales
from: raw/sales
primary_key: [id]
keep: first
order_by: [_file, _row]
partition_by: [day]
sql: select * from input
";

/// `curated/sales_daily`: sums of a day and shop.
pub const CURATED: &str = "
version: 1
table: curated/sales_daily
from: aggregate/sales
write_mode: upsert
primary_key: [day, shop]
recompute_by: [day]
sql: >
  select day, shop, count(*) as sales, sum(amount) as revenue from input group by 1, 2
";

/// All three.
pub const ALL: &[(&str, &str)] =
    &[("raw/sales", RAW), ("aggregate/sales", AGGREGATE), ("curated/sales_daily", CURATED)];

/// `raw/sales` with one more line at the end.
pub fn raw_with(line: &str) -> String {
    format!("{RAW}{line}\n")
}

/// A file of sales: (id, day of January 2026, shop, amount).
pub fn sales(rows: &[(i64, u32, &str, &str)]) -> String {
    let mut text = "id,day,shop,amount,note\n".to_owned();
    for (id, day, shop, amount) in rows {
        text.push_str(&format!("{id},2026-01-{day:02},{shop},{amount},\n"));
    }
    text
}
