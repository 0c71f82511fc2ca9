mod changes;

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::schema::{Column, ColumnType, Format, OnGap, OnInfinity, Rounding, TimeUnit};

// Place, words and help of everything found: the line is shown by other tests.
fn brief(found: &[Diagnostic]) -> String {
    found.iter().fold(String::new(), |mut text, diagnostic| {
        let severity = if diagnostic.is_error { "error" } else { "warning" };
        let _ = writeln!(text, "{}:{} {severity}: {}", diagnostic.line, diagnostic.column, diagnostic.message);
        if let Some(help) = &diagnostic.help {
            let _ = writeln!(text, "  {help}");
        }
        text
    })
}

fn mistakes(text: &str) -> String {
    brief(&read("t.yaml", text, None).found)
}

fn of_files(rest: &str) -> String {
    format!("version: 1\ntable: raw/t\nsource: {{ path: \"t/*\", format: csv }}\n{rest}\n")
}

fn of_column(settings: &str) -> String {
    mistakes(&format!(
        "version: 1\ntable: raw/t\nsource: {{ path: \"t/*\", format: csv }}\ncolumns:\n- {{ name: x, {settings} }}\n"
    ))
}

fn of_table(from: &str) -> String {
    mistakes(&format!("version: 1\ntable: gold/t\n{from}\n"))
}

fn good(text: &str) -> Contract {
    parse("t.yaml", text).unwrap_or_else(|found| panic!("{}\n{text}", brief(&found))).0
}

#[test]
fn defaults_are_those_of_the_vocabulary() {
    let contract = good(&of_files("columns: [{ name: id, type: int }]"));
    let source = contract.files().expect("files");
    assert_eq!(source.csv, crate::schema::CsvDialect::default());
    assert!(source.csv.header && source.csv.delimiter == b',' && source.csv.quote == Some(b'"'));
    assert_eq!(contract.columns, [Column::new("id", ColumnType::Int32)]);
    assert_eq!(contract.write_mode, WriteMode::Append);
    assert_eq!(contract.on_overwrite, OnOverwrite::Replace);
    assert_eq!(contract.unknown_columns, UnknownColumns::Rescue);
    assert_eq!(contract.max_quarantine, None);
    assert!(contract.rules.is_empty() && contract.properties.is_empty() && contract.description.is_none());
}

#[test]
fn every_key_of_a_table_of_files_is_read() {
    let contract = good(
        r##"
version: 1
table: raw.t
description: all of it
source:
  path: "t/**/*.csv*"
  format: csv
  ignore: ["t/**/*.bak"]
  header: false
  delimiter: "\t"
  quote: "'"
  escape: \
  skip_rows: 2
  comment: "#"
  encoding: Windows-1252
  null_values: ["", NA, null, 0.0]
columns:
  - name: amount
    type: "decimal(12,2)"
    from: [Amt, amount eur]
    nullable: false
    default: 0.00
    null_values: [n/a]
    decimal_separator: ","
    group_separator: "."
    rounding: half_up
    description: money
  - { name: code, type: string, max_length: 8, trim: true, from: c }
  - { name: flag, type: bool, true_values: [yes, "1"], false_values: [no, "0"] }
  - { name: at, type: timestamp, format: ["%d.%m.%Y %H:%M", "%Y-%m-%d"], timezone: Europe/Vienna, on_gap: later,
      on_overlap: reject, on_infinity: null, unit: ms, rounding: down }
write_mode: upsert
primary_key: [amount]
sequence_by: [at, _file, version, _row]
partition_by: [code]
on_overwrite: append
unknown_columns: add
max_quarantine: 5%
rules:
  - { name: amount_positive, check: "amount > 0", on_fail: fail, covers: [amount] }
properties: { delta.logRetentionDuration: interval 30 days, owner: me, delta.appendOnly: false }
"##
        .trim_start()
        .replace("null, 0.0]", "0.0]")
        .as_str(),
    );
    assert_eq!(contract.table.to_string(), "raw/t");
    let source = contract.files().expect("files");
    assert_eq!((source.path.as_str(), source.format), ("t/**/*.csv*", Format::Csv));
    assert_eq!(source.ignore, ["t/**/*.bak"]);
    let csv = &source.csv;
    assert_eq!((csv.header, csv.delimiter, csv.quote, csv.escape), (false, b'\t', Some(b'\''), Some(b'\\')));
    assert_eq!((csv.skip_rows, csv.comment, csv.encoding.as_str()), (2, Some(b'#'), "windows-1252"));
    assert_eq!(csv.null_values, ["", "NA", "0.0"]);
    let [amount, code, flag, at] = contract.columns.as_slice() else { panic!("{:?}", contract.columns) };
    assert_eq!(amount.data_type, ColumnType::Decimal(12, 2));
    assert_eq!(amount.from, ["Amt", "amount eur"]);
    assert_eq!((amount.nullable, amount.default.as_deref()), (false, Some("0.00")));
    assert_eq!(amount.null_values.as_deref(), Some(&["n/a".to_owned()][..]));
    assert_eq!((amount.decimal_separator, amount.group_separator), (b',', Some('.')));
    assert_eq!((amount.rounding, amount.description.as_deref()), (Rounding::HalfUp, Some("money")));
    assert_eq!((code.max_length, code.trim, code.from.as_slice()), (Some(8), true, &["c".to_owned()][..]));
    assert_eq!(
        (flag.true_values.as_slice(), flag.false_values.as_slice()),
        (&["yes".to_owned(), "1".to_owned()][..], &["no".to_owned(), "0".to_owned()][..])
    );
    assert_eq!(at.formats, ["%d.%m.%Y %H:%M", "%Y-%m-%d"]);
    assert_eq!((at.timezone.as_deref(), at.on_gap), (Some("Europe/Vienna"), OnGap::Later));
    assert_eq!((at.on_infinity, at.unit), (OnInfinity::Null, Some(TimeUnit::Millis)));
    assert_eq!((contract.write_mode, contract.on_overwrite), (WriteMode::Upsert, OnOverwrite::Append));
    assert_eq!(contract.primary_key, ["amount"]);
    assert_eq!(contract.sequence_by, ["at", "_file", "version", "_row"]);
    assert_eq!(contract.partition_by, ["code"]);
    assert_eq!(contract.unknown_columns, UnknownColumns::Add);
    assert_eq!(contract.max_quarantine, Some(Threshold::Share(0.05)));
    assert_eq!(contract.rules[0].on_fail, OnFail::Fail);
    assert_eq!(contract.rules[0].covers, ["amount"]);
    assert_eq!(contract.properties["delta.logRetentionDuration"], "interval 30 days");
    assert_eq!(contract.properties["delta.appendOnly"], "false");
}

#[test]
fn every_key_of_a_derived_table_is_read() {
    let contract = good(
        "version: 1\ntable: gold/t\nfrom: { orders: silver/orders, items: silver/items }\nsql: |\n  select 1 as a\n  from items\n\
         primary_key: [a]\nkeep: last\norder_by: [b]\nrecompute_by: [a]\n\
         columns: [{ name: a, type: int64, nullable: false }, { name: b, type: date }]\n\
         touched:\n  items: select a from items_changed\n  orders: select a from orders_changed\n",
    );
    let derivation = contract.derivation().expect("derived");
    let inputs: Vec<String> = derivation.inputs.iter().map(|(name, table)| format!("{name}={table}")).collect();
    assert_eq!(inputs, ["orders=silver/orders", "items=silver/items"]);
    assert_eq!(derivation.body, Body::Sql("select 1 as a\nfrom items".to_owned()));
    assert_eq!(derivation.keep, Some(crate::schema::Keep::Last));
    assert_eq!(
        (derivation.order_by.as_slice(), derivation.recompute_by.as_slice()),
        (&["b".to_owned()][..], &["a".to_owned()][..])
    );
    assert_eq!(derivation.touched["items"], "select a from items_changed");
    for (path, place) in
        [("sql", (5, 3)), ("recompute_by[0]", (10, 16)), ("touched.orders", (14, 11)), ("from.items", (3, 39))]
    {
        assert_eq!(contract.positions.at(path), Some(place), "{path}");
    }

    let named = good(
        "version: 1\ntable: gold/t\nfrom: raw/t\ntransform: { name: dedup, by: [a], depth: 2, deep: { x: true } }\n",
    );
    let derivation = named.derivation().expect("derived");
    assert_eq!(derivation.inputs["input"].to_string(), "raw/t");
    let args = serde_json::json!({ "by": ["a"], "depth": 2, "deep": { "x": true } });
    assert_eq!(derivation.body, Body::Named { name: "dedup".to_owned(), args });
    let plain = good("version: 1\ntable: gold/t\nfrom: raw/t\ntransform: dedup\n");
    assert_eq!(
        plain.derivation().expect("derived").body,
        Body::Named { name: "dedup".to_owned(), args: serde_json::json!({}) }
    );
}

#[test]
fn a_diagnostic_points_at_the_value() {
    let text = of_files("columns:\n  - { name: id, type: in64 }\nwrite_mod: append");
    let found = parse("schemas/raw/t.yaml", &text).expect_err("mistakes");
    let shown: Vec<String> = found.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(shown.join("\n\n"), @r"
    schemas/raw/t.yaml:5:23: error: unknown type `in64`
      |
    5 |   - { name: id, type: in64 }
      |                       ^^^^
      help: did you mean `int64`?

    schemas/raw/t.yaml:6:1: error: unknown key `write_mod` in a contract
      |
    6 | write_mod: append
      | ^^^^^^^^^
      help: did you mean `write_mode`?
    ");
}

#[test]
fn contracts_that_say_too_little() {
    insta::assert_snapshot!(mistakes(""), @r"
    1:1 error: the contract is empty
      a contract begins with `version: 1` and `table: <layer>/<table>`
    ");
    insta::assert_snapshot!(mistakes("- a\n"), @"1:1 error: expected a contract as a mapping, found a list");
    insta::assert_snapshot!(mistakes("a: [1, 2\nb: 3\n"), @"2:2 error: this is no YAML: illegal placement of ':' indicator");
    insta::assert_snapshot!(mistakes("table: raw/t\n"), @r"
    1:1 error: the contract has no `version`
      write `version: 1`
    1:1 error: the contract does not say where the rows come from
      add `source: { path: ..., format: csv }` for files, or `from: <layer>/<table>` and `sql` for a derived table
    ");
    insta::assert_snapshot!(mistakes("version: 2\ntable: row/t\nsource: {}\ncolumns: []\n"), @r#"
    1:10 error: unknown contract version `2`
      write `version: 1`
    2:8 error: `row` is no layer: expected one of raw, aggregate, curated, bronze, silver, gold
      did you mean `raw/t`?
    3:9 error: `source` has no `path`
      a glob below the landing zone, such as `path: "trips/**/*.csv*"`
    3:9 error: `source` has no `format`
      write `format: csv` (or json, ndjson, parquet, debezium)
    "#);
    insta::assert_snapshot!(of_table("from: raw/t"), @r"
    3:1 error: a table with `from` has neither `sql` nor `transform`
      write `sql: select * from input`, or `source_table: <schema>.<table>` for changes of a database's table
    ");
    insta::assert_snapshot!(mistakes(&of_files("columns: []")), @"4:10 error: `columns` is empty");
    insta::assert_snapshot!(mistakes(&of_files("description: none")), @r"
    3:1 error: a table fed by files needs `columns`
      `alluvium infer FILE` writes them from a file
    ");
}

#[test]
fn keys_are_known_once_and_in_their_place() {
    insta::assert_snapshot!(mistakes(&of_files("colums: []\nwriteMode: append\nzzz: 1")), @r"
    4:1 error: unknown key `colums` in a contract
      did you mean `columns`?
    5:1 error: unknown key `writeMode` in a contract
      did you mean `write_mode`?
    6:1 error: unknown key `zzz` in a contract
      keys of a contract are version, table, description, source, from, sql, transform, columns, write_mode, primary_key, sequence_by, keep, order_by, partition_by, recompute_by, touched, on_overwrite, unknown_columns, rules, max_quarantine, source_table, history, unavailable_value, properties
    ");
    insta::assert_snapshot!(mistakes(&of_files("columns: [{ name: a, type: int }]\ncolumns: []\nsql: x\nkeep: first\nfrom: raw/u")), @r"
    5:1 error: key `columns` occurs twice in a contract
    6:1 error: `sql` is for derived tables (`from`), not for tables fed by files (`source`)
    7:1 error: `keep` is for derived tables (`from`), not for tables fed by files (`source`)
    8:1 error: a table has `source` or `from`, not both
      `source` reads files, `from` reads tables
    ");
    insta::assert_snapshot!(of_table("from: raw/t\nsql: select 1\nrules: []\non_overwrite: append\nsequence_by: [a]"), @r"
    5:1 error: `rules` is for tables fed by files (`source`) and tables of changes (`from` change events), not for derived tables (`from`)
    6:1 error: `on_overwrite` is for tables fed by files (`source`), not for derived tables (`from`)
    7:1 error: `sequence_by` is for tables fed by files (`source`) and tables of changes (`from` change events), not for derived tables (`from`)
      `keep` with `order_by` decides which row of a key stays
    ");
}

fn of_events(source: &str, rest: &str) -> String {
    mistakes(&format!("version: 1\ntable: bronze/t\nsource: {{ format: debezium, {source} }}\n{rest}"))
}

#[test]
fn a_table_of_change_events_says_where_they_come_from_and_no_more() {
    let contract = good(
        "version: 1\ntable: bronze/shop\nsource: { format: debezium, path: \"shop/**\", topics: [\"lake.public.*\", lake], epoch: 2 }\n\
         properties: { owner: me }\n",
    );
    let source = contract.events().expect("events");
    assert_eq!(
        (source.topics.as_slice(), source.epoch.as_deref()),
        (&["lake.public.*".to_owned(), "lake".to_owned()][..], Some("2"))
    );
    assert_eq!(contract.on_overwrite, OnOverwrite::Append);
    assert_eq!(contract.partition_by, ["table", "_ingest_date"]);
    assert_eq!(contract.unknown_columns, UnknownColumns::Ignore);
    assert!(contract.columns.is_empty() && contract.rules.is_empty());
    let from_topics = good("version: 1\ntable: bronze/t\nsource: { format: debezium, topics: [a.b] }\n");
    assert_eq!(from_topics.events().expect("events").path, "");

    insta::assert_snapshot!(of_events("path: \"s/**\", topcs: [a], header: true", "on_overwrite: replace\nrules: []\n"), @r"
    3:43 error: unknown key `topcs` in `source`
      did you mean `topics`?
    3:55 error: `header` is for `format: csv`
    4:15 error: `on_overwrite: replace` is not for `format: debezium`: events are only ever added
      `append` adds the events of a new version (those that are there already change nothing); `ignore` keeps the first
    5:1 error: `rules` is not for `format: debezium`
      the columns of such a table are fixed and every event is kept whole; what is derived from it is typed and checked
    ");
    insta::assert_snapshot!(of_events("epoch: 1", "partition_by: [table]\n"), @r#"
    3:9 error: `source` has no `path`
      a glob below the landing zone, such as `path: "trips/**/*.csv*"`
    4:1 error: `partition_by` is not for `format: debezium`
      the columns of such a table are fixed and every event is kept whole; what is derived from it is typed and checked
    "#);
    insta::assert_snapshot!(of_events("topics: [\"a b\", x, x, \"\", 7]", ""), @r"
    3:38 error: `a b` is no topic
      a topic's name such as `lake.public.orders`, or a pattern such as `lake.public.*`
    3:48 error: `x` occurs twice
    3:51 error: `` is no topic
      a topic's name such as `lake.public.orders`, or a pattern such as `lake.public.*`
    3:55 error: expected a topic, found a number
    ");
    insta::assert_snapshot!(of_events("topics: lake", ""), @r"
    3:37 error: expected a list of topics, found text
      write `[lake]`
    ");
    insta::assert_snapshot!(mistakes(&of_files("columns: [{ name: a, type: int }]").replace("csv }", "csv, topics: [a], epoch: 1 }")), @r"
    3:37 error: `topics` is for `format: debezium`
    3:50 error: `epoch` is for `format: debezium`
    ");
    insta::assert_snapshot!(mistakes("version: 1\ntable: bronze/t\nsource: { format: debezum, path: s }\ncolumns: [{ name: a, type: int }]\n"), @r"
    3:19 error: unknown value `debezum` for `format`
      did you mean `debezium`?
    ");
}

#[test]
fn words_have_a_spelling() {
    insta::assert_snapshot!(mistakes(&of_files(
        "columns: [{ name: a, type: int }]\nwrite_mode: apend\non_overwrite: replce\nunknown_columns: drop\nmax_quarantine: 5 percent"
    )), @r"
    5:13 error: unknown value `apend` for `write_mode`
      did you mean `append`?
    6:15 error: unknown value `replce` for `on_overwrite`
      did you mean `replace`?
    7:18 error: unknown value `drop` for `unknown_columns`
      expected `rescue`, `add`, `ignore` or `reject`
    8:17 error: `5 percent` is no threshold
      write a share such as `5%`, or a number of records such as `100`
    ");
    insta::assert_snapshot!(mistakes(&of_files(
        "columns: [{ name: a, type: int }]\nwrite_mode: [append]\nmax_quarantine: -1\nprimary_key: a\npartition_by: [a, A]\ndescription: [x]"
    )), @r"
    5:13 error: expected `append`, `upsert` or `overwrite`, found a list
    6:17 error: `-1` is no number of records
      write a share such as `5%`, or a number of records such as `100`
    7:14 error: expected a list of columns, found text
      write `[a]`
    8:19 error: `A` occurs twice
    9:14 error: expected text, found a list
    ");
}

#[test]
fn sources_are_checked() {
    let source = |text: &str| {
        mistakes(&format!("version: 1\ntable: raw/t\nsource: {{ {text} }}\ncolumns: [{{ name: a, type: int }}]\n"))
    };
    insta::assert_snapshot!(source("path: \"/t/*\", format: cvs"), @r"
    3:17 error: `/t/*` must be relative: paths begin below the landing zone
      a glob such as `trips/**/*.csv*`: `*` stays in one folder, `**` crosses folders and matches none too
    3:33 error: unknown value `cvs` for `format`
      did you mean `csv`?
    ");
    insta::assert_snapshot!(source("path: \"t/[a\", format: tsv"), @r#"
    3:17 error: `t/[a` is no glob: unclosed character class; missing ']'
      a glob such as `trips/**/*.csv*`: `*` stays in one folder, `**` crosses folders and matches none too
    3:33 error: unknown format `tsv`
      write `format: csv` and `delimiter: "\t"`
    "#);
    insta::assert_snapshot!(source("path: \"../t/*\", format: jsonl, ignore: [\"az://c/x\"]"), @r"
    3:17 error: `../t/*` must not hold `.` or `..`
      a glob such as `trips/**/*.csv*`: `*` stays in one folder, `**` crosses folders and matches none too
    3:35 error: unknown format `jsonl`
      did you mean `ndjson`?
    3:51 error: `az://c/x` must be relative: paths begin below the landing zone
      a glob such as `trips/**/*.csv*`: `*` stays in one folder, `**` crosses folders and matches none too
    ");
    insta::assert_snapshot!(source("path: \"t/*\", format: json, delimiter: \";\", header: true"), @r"
    3:38 error: `delimiter` is for `format: csv`
    3:54 error: `header` is for `format: csv`
    ");
    insta::assert_snapshot!(source("path: \"t/*\", format: csv, delimiter: \"::\", skip_rows: -1, header: 1, encoding: latin-9x"), @r#"
    3:48 error: expected a delimiter, found `::`
      one ASCII character; a tab is "\t"
    3:65 error: expected a whole number from 0 on, found `-1`
    3:77 error: expected true or false, found a number
    3:90 error: unknown encoding `latin-9x`
      encodings are utf-8, utf-16, utf-16le, utf-16be, windows-1252, windows-1250, windows-1251, iso-8859-1, iso-8859-2, iso-8859-15, shift_jis, gbk and the others of the WHATWG standard
    "#);
    insta::assert_snapshot!(source("path: \"t/*\", format: csv, delimiter: \"'\", quote: \"'\""), @"3:53 error: `quote` and `delimiter` are both `'`");
    insta::assert_snapshot!(source("path: \"t/*\", format: csv, quote: null, escape: \"\\\"\", encoding: utf8"), @"");
    insta::assert_snapshot!(source("pth: \"t/*\", format: csv, null_values: NA"), @r"
    3:11 error: unknown key `pth` in `source`
      did you mean `path`?
    3:49 error: expected a list of texts, found text
      write `[NA]`
    ");
}

#[test]
fn columns_are_checked() {
    insta::assert_snapshot!(mistakes(&of_files(
        "columns:\n- { name: a }\n- { type: int }\n- { name: b, type: int }\n- { name: B, type: int }\n- { name: b, type: int }\n\
         - { name: _file, type: string }\n- { name: \"a b\", type: string }\n- 5"
    )), @r"
    5:3 error: a column has no `type`
      write `{ name: id, type: int64 }`
    6:3 error: a column has no `name`
      write `{ name: id, type: int64 }`
    8:11 error: columns `b` and `B` differ only by case
    9:11 error: column `b` occurs twice
    10:11 error: `_file` is a name of the lineage columns
      give the column another name, and the source's name as `from`
    11:11 warning: some engines (Spark among them) cannot write to a table with a column named `a b`
      give the column a plain name, and the source's name as `from`
    12:3 error: expected a column as a mapping, found a number
    ");
    insta::assert_snapshot!(of_column("type: decimal(10,2)"), @r#"
    5:30 error: expected `)` in the type
      a type with a comma needs quotes: `type: "decimal(10,2)"`
    5:31 error: unknown key `2)` in a column
      within braces a value with a comma needs quotes, as in `type: "decimal(10,2)"`
    "#);
    insta::assert_snapshot!(of_column("type: \"list<strng>\""), @r"
    5:26 error: unknown type `strng`
      did you mean `string`?
    ");
    insta::assert_snapshot!(of_column("type: \"list<string>\""), @"5:20 error: a CSV field cannot hold list<string>: lists, structs and maps are for JSON and Parquet");
    insta::assert_snapshot!(of_column("type: int64, max_length: 3, format: \"%Y\", timezone: UTC, true_values: [y]"), @r"
    5:27 error: `max_length` is for string columns, this one is int64
    5:42 error: `format` is for date and timestamp columns, this one is int64
    5:56 error: `timezone` is for timestamp columns, this one is int64
    5:71 error: `true_values` is for boolean columns, this one is int64
    ");
    insta::assert_snapshot!(of_column("type: timestamp, format: \"%Q\", timezone: Europe/Viena, unit: millis, on_gap: never"), @r#"
    5:39 error: `%Q` is no strftime pattern
      a pattern such as "%Y-%m-%d %H:%M:%S"
    5:55 error: unknown time zone `Europe/Viena`
      did you mean `Europe/Vienna`?
    5:75 error: unknown value `millis` for `unit`
      expected `s`, `ms`, `us`, `ns` or `days`
    5:91 error: unknown value `never` for `on_gap`
      expected `reject`, `earlier` or `later`
    "#);
    insta::assert_snapshot!(of_column("type: timestamp, on_gap: later"), @r"
    5:31 error: `on_gap` has no effect without `timezone`
      add the IANA zone of the local times
    ");
    insta::assert_snapshot!(of_column("type: bool, true_values: [Y, 1], false_values: [y]"), @"5:61 error: `y` means both true and false");
    insta::assert_snapshot!(of_column("type: float64, decimal_separator: \",\", group_separator: \",\""), @"5:70 error: `,` is both decimal and group separator");
    insta::assert_snapshot!(of_column("type: int8, default: 128, nulable: false"), @r"
    5:35 error: the default `128` is no int8
    5:40 error: unknown key `nulable` in a column
      did you mean `nullable`?
    ");
}

#[test]
fn defaults_that_can_be_no_value_are_refused() {
    for (settings, is_good) in [
        ("type: int8, default: 127", true),
        ("type: int8, default: \"7.0\"", true),
        ("type: int64, default: abc", false),
        ("type: bool, default: maybe", false),
        ("type: bool, default: false", true),
        ("type: bool, default: J, true_values: [J], false_values: [N]", true),
        ("type: \"decimal(4,2)\", default: \"1,5\"", false),
        ("type: \"decimal(4,2)\", default: \"1,5\", decimal_separator: \",\"", true),
        ("type: string, max_length: 2, default: abc", false),
        ("type: string, default: \"\"", true),
        ("type: date, default: 2024-01-01", true),
    ] {
        assert_eq!(of_column(settings).is_empty(), is_good, "{settings}");
    }
}

#[test]
fn rules_and_properties_are_checked() {
    insta::assert_snapshot!(mistakes(&of_files(
        "columns: [{ name: fare, type: int }]\nrules:\n- { name: a b, check: \"fare > 0\" }\n- { check: \"fare > 0\", on_fail: quarantin }\n\
         - { name: c, check: \"fare > 0\", covers: [far] }\n- { name: c, check: 5 }"
    )), @r#"
    6:11 error: `a b` is no name for a rule
      letters, digits and _ only
    7:3 error: a rule has no `name`
      write `{ name: fare_not_negative, check: "fare >= 0" }`
    7:33 error: unknown value `quarantin` for `on_fail`
      did you mean `quarantine`?
    8:42 error: unknown column `far`
      did you mean `fare`?
    9:11 error: rule `c` occurs twice
    9:21 error: expected a SQL condition, found a number
    "#);
    insta::assert_snapshot!(mistakes(&of_files(
        "columns: [{ name: fare, type: int }]\nproperties:\n  delta.setTransactionRetentionDuration: x\n  delta.enableDeletionVectors: true\n  \
         delta.apendOnly: true\n  delta.constraints.a: fare > 0\n  alluvium.x: 1\n  delta.appendOnly: true\n  mine: [1]\n  delta.feature.x: supported"
    )), @r"
    6:3 error: property `delta.setTransactionRetentionDuration` cannot be set
      files would be loaded twice once their marks have expired
    7:3 error: property `delta.enableDeletionVectors` cannot be set
      tables stay readable and writable by every Delta engine as they are
    8:3 error: unknown Delta property `delta.apendOnly`
      did you mean `delta.appendOnly`?
    9:3 error: property `delta.constraints.a` cannot be set
      conditions on rows are `rules`
    10:3 error: property `alluvium.x` cannot be set
      names with `alluvium.` are kept by this program
    11:3 warning: an append-only table cannot replace rows: new versions of files and recomputed rows are refused
      leave it out unless files never change (`on_overwrite: append` or `ignore`)
    12:9 error: expected the property's value, found a list
    13:3 error: property `delta.feature.x` cannot be set
      tables stay readable and writable by every Delta engine as they are
    ");
}

#[test]
fn keys_of_the_table_name_its_columns() {
    insta::assert_snapshot!(mistakes(&of_files(
        "columns: [{ name: id, type: int }, { name: ratio, type: float64 }]\nwrite_mode: upsert\nprimary_key: [idd]\n\
         partition_by: [ratio]\nsequence_by: [versoin]"
    )), @r"
    5:13 warning: a new version of a file updates its keys; rows that it no longer holds stay in the table
      derive a table with `keep: last` from an append table if vanished rows must go
    6:15 error: unknown column `idd`
      did you mean `id`?
    7:16 error: a table cannot be partitioned by `ratio`: its type is float64
      partition by a date, a number or a short text
    8:15 error: unknown column `versoin`
      did you mean `version`?
    ");
    insta::assert_snapshot!(mistakes(&of_files("columns: [{ name: id, type: int }]\nwrite_mode: upsert")), @r"
    5:13 warning: a new version of a file updates its keys; rows that it no longer holds stay in the table
      derive a table with `keep: last` from an append table if vanished rows must go
    5:13 error: `write_mode: upsert` needs a `primary_key`
      write `primary_key: [<column>]`
    ");
    insta::assert_snapshot!(mistakes(&of_files(
        "columns: [{ name: id, type: int }]\nwrite_mode: upsert\nprimary_key: [id]\non_overwrite: replace"
    )), @r"
    6:15 warning: key column `id` may be null: all rows with null there are one key
      add `nullable: false` to the column
    7:15 warning: a new version of a file updates its keys; rows that it no longer holds stay in the table
      derive a table with `keep: last` from an append table if vanished rows must go
    ");
    insta::assert_snapshot!(mistakes(&of_files("columns: [{ name: id, type: int }]\nsequence_by: [id]")), @r"
    5:14 warning: `sequence_by` decides nothing here: every row is kept
      it is for `write_mode: upsert`
    ");
}

#[test]
fn derived_tables_are_checked() {
    insta::assert_snapshot!(of_table("from: raw/t\nsql: select 1\ntransform: x"), @"5:12 error: a table has `sql` or `transform`, not both");
    insta::assert_snapshot!(of_table("from: { Input: raw/t, a_changed: raww/u }\nsql: select 1"), @r"
    3:9 error: `Input` is no name for an input
      lower-case letters, digits and _ only, beginning with a letter, not ending in `_changed`
    3:23 error: `a_changed` is no name for an input
      lower-case letters, digits and _ only, beginning with a letter, not ending in `_changed`
    3:34 error: `raww` is no layer: expected one of raw, aggregate, curated, bronze, silver, gold
      did you mean `raw/u`?
    ");
    insta::assert_snapshot!(of_table("from: [raw/t]\ntransform: { args: 1 }"), @r"
    3:7 error: expected a table or a mapping of names to tables, found a list
      write `from: raw/trips`, or `from: { orders: raw/orders, items: raw/order_items }`
    4:12 error: `transform` has no `name`
      write `transform: { name: <transform>, <argument>: ... }`
    ");
    insta::assert_snapshot!(of_table("from: raw/t\nsql: select 1\nkeep: frist"), @r"
    5:7 error: unknown value `frist` for `keep`
      did you mean `first`?
    5:7 error: `keep` needs `primary_key`
      `keep` takes one row per `primary_key`, the first or last by `order_by`
    5:7 error: `keep` needs `order_by`
      `keep` takes one row per `primary_key`, the first or last by `order_by`
    ");
    insta::assert_snapshot!(of_table("from: raw/t\nsql: select 1\nkeep: first"), @r"
    5:7 error: `keep` needs `primary_key`
      `keep` takes one row per `primary_key`, the first or last by `order_by`
    5:7 error: `keep` needs `order_by`
      `keep` takes one row per `primary_key`, the first or last by `order_by`
    ");
    insta::assert_snapshot!(of_table("from: raw/t\nsql: select 1\norder_by: [a]"), @r"
    5:1 error: `order_by` decides nothing without `keep`
      write `keep: first` or `keep: last`
    ");
    insta::assert_snapshot!(of_table("from: { orders: raw/o, items: raw/i }\nsql: select 1\ntouched: { order: select 1 }"), @r"
    5:1 error: `touched` needs `recompute_by`
      `recompute_by` names the columns that a query of `touched` gives
    5:1 warning: `touched` does not speak for input `orders`: any change recomputes the whole table
      add a query for `orders`
    5:19 error: `order` is no input of this table
      did you mean `orders`?
    ");
    insta::assert_snapshot!(of_table("from: { orders: raw/o, items: raw/i }\nsql: select 1\nrecompute_by: [a]"), @r"
    5:15 warning: with several inputs and no `touched`, any change recomputes the whole table
      add `touched` with one query per input
    ");
    insta::assert_snapshot!(of_table(
        "from: raw/t\nsql: select 1\nprimary_key: [aa]\nrecompute_by: [b]\npartition_by: [a]\ncolumns:\n- { name: a, type: int, default: 1 }"
    ), @r"
    5:15 error: unknown column `aa`
      columns are a
    6:16 error: unknown column `b`
      columns are a
    7:15 error: all columns are partition columns: at least one must be left for the files
    9:25 error: `default` is for columns that are read from files, not for derived tables
    ");
}

#[test]
fn the_hash_is_of_what_the_contract_says() {
    let text = of_files(
        "columns: [{ name: a, type: int, nullable: true }]\nrules: [{ name: r, check: a > 0 }]\nwrite_mode: append",
    );
    let base = good(&text).hash;
    // A change here recomputes every derived table of everybody.
    insta::assert_snapshot!(base, @"4541bdc721b21b06d00762d851184600");
    let same = [
        // Order of keys, layout, comments, spelled defaults, other names of types, descriptions.
        "# c\nwrite_mode: append\nrules:\n  - check: a > 0\n    name: r\n    on_fail: quarantine\ntable: raw.t\nversion: 1\n\
         description: x\ncolumns:\n  - type: int32 # c\n    name: a\n    description: y\nsource:\n  format: csv\n  path: t/*\n",
    ];
    for text in same {
        assert_eq!(good(text).hash, base, "{text}");
    }
    let mut hashes = vec![base];
    for (from, to) in [
        ("int,", "int64,"),
        ("nullable: true", "nullable: false"),
        ("a > 0", "a > 1"),
        ("raw/t", "raw/u"),
        ("t/*", "u/*"),
        ("format: csv", "format: csv, header: false"),
        ("write_mode: append", "write_mode: append\nunknown_columns: ignore"),
    ] {
        hashes.push(good(&text.replace(from, to)).hash);
    }
    let count = hashes.len();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), count);

    let derived =
        |from: &str, rest: &str| good(&format!("version: 1\ntable: gold/t\nfrom: {from}\nsql: select 1\n{rest}")).hash;
    assert_eq!(derived("{ a: raw/a, b: raw/b }", ""), derived("{ b: raw/b, a: raw/a }", "# c\n"));
    assert_ne!(
        derived("{ a: raw/a, b: raw/b }", ""),
        derived("{ b: raw/b, a: raw/a }", "keep: first\norder_by: [x]\nprimary_key: [y]\n")
    );
}

proptest! {
    // Whatever is written, reading it ends with a contract or with places inside the text.
    #[test]
    fn no_text_breaks_the_reader(lines in proptest::collection::vec(
        prop_oneof![
            Just("version: 1".to_owned()),
            Just("table: raw/t".to_owned()),
            Just("source: { path: a, format: csv }".to_owned()),
            Just("columns: [{ name: a, type: int }]".to_owned()),
            "(from|sql|keep|rules|touched|columns|source|properties|max_quarantine): [\\[\\]{}a-z:,\"' 0-9%*&-]{0,12}",
            "\\PC{0,20}",
        ], 0..8)) {
        let text = lines.join("\n");
        let parsed = read("t.yaml", &text, None);
        let last = text.lines().count().max(1) as u64 + 1;
        for diagnostic in &parsed.found {
            prop_assert!((1..=last).contains(&diagnostic.line) && diagnostic.column >= 1, "{diagnostic}");
            prop_assert!(!diagnostic.message.contains('\n') && !diagnostic.message.ends_with('.'), "{diagnostic}");
        }
        prop_assert!(parsed.contract.is_some() || parsed.found.iter().any(|diagnostic| diagnostic.is_error));
    }
}
