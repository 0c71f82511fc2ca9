//! Tables of changes and their histories among all tables.

use super::*;
use crate::schema::arrow::stored_schema;

const SHOP: &str = "version: 1\ntable: bronze/shop\nsource: { format: debezium, path: \"shop/**\" }\n";

fn changes(table: &str, rest: &str) -> String {
    format!(
        "version: 1\ntable: {table}\nfrom: bronze/shop\nsource_table: public.t\nprimary_key: [id]\n\
         columns: [{{ name: id, type: int64 }}, {{ name: city, type: string, nullable: false, max_length: 9 }}]\n{rest}\n"
    )
}

fn columns(contract: &Contract) -> String {
    let schema = stored_schema(contract);
    let columns = schema.fields().iter().map(|field| {
        format!("{} {}{}", field.name(), field.data_type(), if field.is_nullable() { "" } else { " not null" })
    });
    columns.collect::<Vec<_>>().join(", ")
}

#[test]
fn a_history_has_a_contract_that_the_catalog_makes() {
    let silver =
        |rest: &str| changes("silver/t", &format!("history: {{ table: silver/t_history, track: [city] }}\n{rest}"));
    let gold = "version: 1\ntable: gold/a\nfrom: { t: silver/t, h: silver/t_history }\nsql: select * from h\n";
    let catalog = good(&[("bronze/shop", SHOP), ("silver/t", &silver("")), ("gold/a", gold)]);
    let order: Vec<String> = catalog.tables().iter().map(|contract| contract.table.to_string()).collect();
    assert_eq!(order, ["bronze/shop", "silver/t", "silver/t_history", "gold/a"]);
    let get =
        |catalog: &Catalog, name: &str| Arc::clone(catalog.get(&name.parse().expect("a name")).expect("declared"));
    let (table, history) = (get(&catalog, "silver/t"), get(&catalog, "silver/t_history"));
    assert_eq!(history.history_of(), Some(&table.table));
    assert_eq!(history.primary_key, ["id", "version"]);
    assert_eq!(columns(&table), "id Int64, city Utf8 not null, _ts_ms Int64 not null, _lsn Int64 not null");
    insta::assert_snapshot!(columns(&history), @r#"id Int64 not null, version Int64 not null, city Utf8 not null, valid_from Timestamp(µs, "UTC") not null, valid_to Timestamp(µs, "UTC"), is_current Boolean not null, _lsn Int64 not null"#);
    let readers = catalog.derived_from(&table.table);
    assert_eq!(
        readers.iter().map(|reader| reader.table.to_string()).collect::<Vec<_>>(),
        ["silver/t_history", "gold/a"]
    );

    // What changes the table changes its history, too.
    let other = good(&[
        ("bronze/shop", SHOP),
        ("silver/t", &silver("rules: [{ name: r, check: city <> '' }]")),
        ("gold/a", gold),
    ]);
    assert_ne!(get(&other, "silver/t_history").hash, history.hash);
    let by_lsn = good(&[
        ("bronze/shop", SHOP),
        ("silver/t", &silver("sequence_by: [source.lsn, source.ts_ms]")),
        ("gold/a", gold),
    ]);
    insta::assert_snapshot!(columns(&get(&by_lsn, "silver/t_history")), @"id Int64 not null, version Int64 not null, city Utf8 not null, valid_from Int64 not null, valid_to Int64, is_current Boolean not null, _ts_ms Int64 not null");
}

#[test]
fn histories_have_names_of_their_own() {
    let silver = |table: &str| changes(table, "history: { table: silver/h, track: [city] }");
    insta::assert_snapshot!(mistakes(&[
        ("bronze/shop", SHOP),
        ("silver/a", &silver("silver/a")),
        ("silver/b", &silver("silver/b")),
        ("silver/c", &changes("silver/c", "history: { table: silver/a, track: [city] }")),
    ]), @r"
    schemas/silver/b.yaml:7:19: error: `silver/h` is the history of `silver/a` already
      |
    7 | history: { table: silver/h, track: [city] }
      |                   ^^^^^^^^
      help: each history is a table of its own
    schemas/silver/c.yaml:7:19: error: `silver/a` has a contract of its own
      |
    7 | history: { table: silver/a, track: [city] }
      |                   ^^^^^^^^
      help: give the history another name: its columns follow from this contract
    ");
}

#[test]
fn changes_come_from_a_table_of_events() {
    insta::assert_snapshot!(mistakes(&[
        ("bronze/shop", SHOP),
        ("raw/trips", TRIPS),
        ("silver/a", &changes("silver/a", "").replace("bronze/shop", "raw/trips")),
        ("silver/b", &changes("silver/b", "").replace("bronze/shop", "bronze/shp")),
        ("silver/c", &changes("silver/c", "").replace("bronze/shop", "silver/c")),
    ]), @r"
    schemas/silver/a.yaml:3:7: error: `raw/trips` keeps no change events
      |
    3 | from: raw/trips
      |       ^^^^^^^^^
      help: expected `bronze/shop`
    schemas/silver/b.yaml:3:7: error: unknown table `bronze/shp`
      |
    3 | from: bronze/shp
      |       ^^^^^^^^^^
      help: did you mean `bronze/shop`?
    schemas/silver/c.yaml:3:7: error: `silver/c` reads itself
      |
    3 | from: silver/c
      |       ^^^^^^^^
      help: read another table
    ");
    insta::assert_snapshot!(mistakes(&[("raw/trips", TRIPS), ("silver/a", &changes("silver/a", "").replace("bronze/shop", "raw/trips"))]), @r"
    schemas/silver/a.yaml:3:7: error: `raw/trips` keeps no change events
      |
    3 | from: raw/trips
      |       ^^^^^^^^^
      help: a table of change events has `source: { format: debezium, ... }`
    ");
}

#[test]
fn rules_of_changes_name_columns_and_what_the_event_says() {
    let with = |check: &str| {
        let rules = format!("rules: [{{ name: r, check: {} }}]", serde_json::to_string(check).expect("text"));
        mistakes(&[("bronze/shop", SHOP), ("silver/t", &changes("silver/t", &rules))])
    };
    for check in ["op <> 'r'", "source.ts_ms > 5 and SOURCE.lsn > 0", "raw.city is null or Op = 'c'", "id > source.lsn"]
    {
        assert_eq!(with(check), "no mistakes\n", "{check}");
    }
    insta::assert_snapshot!(with("source.ts_msec > 5 and ops = 'c' and source.txId > 1"), @r#"
    schemas/silver/t.yaml:7:35: error: rule `r` names unknown field `source.ts_msec`
      |
    7 | rules: [{ name: r, check: "source.ts_msec > 5 and ops = 'c' and source.txId > 1" }]
      |                                   ^^^^^^^
      help: did you mean `source.ts_ms`?
    schemas/silver/t.yaml:7:51: error: rule `r` names unknown column `ops`
      |
    7 | rules: [{ name: r, check: "source.ts_msec > 5 and ops = 'c' and source.txId > 1" }]
      |                                                   ^^^
      help: columns are id, city
    schemas/silver/t.yaml:7:72: error: rule `r` names unknown field `source.txId`
      |
    7 | rules: [{ name: r, check: "source.ts_msec > 5 and ops = 'c' and source.txId > 1" }]
      |                                                                        ^^^^
      help: expected `source.ts_ms` or `source.lsn`
    "#);
    // They are for tables of changes alone.
    insta::assert_snapshot!(with_rule("op = 'c' and source.lsn > 0"), @r"
    schemas/raw/trips.yaml:5:27: error: rule `r` names unknown column `op`
      |
    5 | rules: [{ name: r, check: op = 'c' and source.lsn > 0 }]
      |                           ^^
      help: columns are id, fare, Zone
    schemas/raw/trips.yaml:5:40: error: rule `r` names unknown column `source`
      |
    5 | rules: [{ name: r, check: op = 'c' and source.lsn > 0 }]
      |                                        ^^^^^^^^^^
      help: columns are id, fare, Zone
    ");
}
