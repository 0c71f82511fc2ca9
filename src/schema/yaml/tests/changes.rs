//! Tables of changes.

use super::*;
use crate::schema::{Encoding, HistorySpec};

const KEYED: &str = "primary_key: [id]\ncolumns: [{ name: id, type: int64 }, { name: city, type: string }]\n";

fn of_changes(rest: &str) -> String {
    mistakes(&format!("version: 1\ntable: silver/t\nfrom: bronze/shop\n{rest}"))
}

#[test]
fn a_table_of_changes_says_what_is_newer_and_what_is_kept() {
    let contract = good(&format!(
        "version: 1\ntable: silver/t\nfrom: bronze.shop\nsource_table: public.t\nhistory: {{ table: silver/t_history, track: [city] }}\n\
         unavailable_value: \"hex:00ff\"\nrules: [{{ name: r, check: city <> '', covers: [city] }}]\n{KEYED}"
    ));
    let source = contract.changes().expect("changes");
    assert_eq!((source.from.to_string(), source.source_table.as_str()), ("bronze/shop".to_owned(), "public.t"));
    assert_eq!(source.sequence_by, ["source.ts_ms", "source.lsn"]);
    assert_eq!(source.sequence_columns(), ["_ts_ms", "_lsn"]);
    let history = HistorySpec { table: "silver/t_history".parse().expect("a name"), track: vec!["city".to_owned()] };
    assert_eq!(source.history, Some(history));
    assert_eq!(source.unavailable_value, "hex:00ff");
    assert_eq!(contract.unknown_columns, UnknownColumns::Ignore);
    assert!(contract.sequence_by.is_empty() && contract.files().is_none() && contract.derivation().is_none());
    assert_eq!(contract.sources(), [&source.from]);

    let plain = good(&format!(
        "version: 1\ntable: silver/t\nfrom: bronze/shop\nsource_table: public.t\nsequence_by: [source.lsn]\n{KEYED}"
    ));
    let source = plain.changes().expect("changes");
    assert_eq!(source.fields(), ["source.lsn", "source.ts_ms"]);
    assert_eq!(source.variables(), ["op", "source.lsn", "source.ts_ms"]);
    assert_eq!((source.history.as_ref(), source.unavailable_value.as_str()), (None, "__debezium_unavailable_value"));
    let hashes: Vec<String> =
        ["", "unavailable_value: x\n", "history: { table: silver/h, track: [city] }\n", "sequence_by: [source.lsn]\n"]
            .map(|rest| {
                good(&format!("version: 1\ntable: silver/t\nfrom: bronze/shop\nsource_table: public.t\n{rest}{KEYED}"))
                    .hash
            })
            .to_vec();
    let distinct: std::collections::BTreeSet<&String> = hashes.iter().collect();
    assert_eq!(distinct.len(), hashes.len());
}

#[test]
fn what_a_table_of_changes_lacks_is_told() {
    insta::assert_snapshot!(of_changes("source_table: public.t"), @r"
    3:1 error: a table of changes needs `columns`
      name the columns of the database's table that are wanted
    3:1 error: a table of changes needs a `primary_key`
      write `primary_key: [id]`
    ");
    insta::assert_snapshot!(of_changes(&format!("sequence_by: [source.lsn]\n{KEYED}")), @r"
    3:1 error: a table of changes has no `source_table`
      name the table as its database does: `source_table: public.customers`
    ");
    insta::assert_snapshot!(of_changes(&format!("source_tabel: public.t\n{KEYED}")), @r"
    4:1 error: unknown key `source_tabel` in a contract
      did you mean `source_table`?
    ");
    insta::assert_snapshot!(mistakes(&format!("version: 1\ntable: silver/t\nfrom: {{ a: bronze/shop }}\nsource_table: public.t\n{KEYED}")), @r"
    3:7 error: expected one table of change events, found a mapping
      write `from: bronze/shop`
    ");
    insta::assert_snapshot!(mistakes(&format!("version: 1\ntable: silver/t\nsource_table: public/t\n{KEYED}")), @r"
    2:1 error: the contract does not say where the rows come from
      add `source: { path: ..., format: csv }` for files, or `from: <layer>/<table>` and `sql` for a derived table
    3:15 error: `public/t` is no table of a database
      write <schema>.<table> as the database names them, such as `public.customers`
    ");
}

#[test]
fn the_order_of_changes_is_of_known_fields() {
    let sequence = |fields: &str| of_changes(&format!("source_table: public.t\nsequence_by: {fields}\n{KEYED}"));
    insta::assert_snapshot!(sequence("[ts_ms, source.lns, _row, source.lsn, source.lsn, 5]"), @r"
    5:15 error: events have no field `ts_ms` to order them by
      did you mean `source.ts_ms`?
    5:22 error: events have no field `source.lns` to order them by
      did you mean `source.lsn`?
    5:34 error: events have no field `_row` to order them by
      expected `source.ts_ms`, `source.lsn` or `source.txId`
    5:52 error: `source.lsn` occurs twice
    5:64 error: expected a field of the event, found a number
    ");
    insta::assert_snapshot!(sequence("[]"), @r"
    5:14 error: `sequence_by` is empty: nothing would say which change is newer
      write `[source.ts_ms, source.lsn]`
    ");
    insta::assert_snapshot!(sequence("[source.txId]"), @r"
    5:15 warning: transactions are numbered when they begin: changes would be in another order than they were committed
      begin with `source.ts_ms` or `source.lsn`
    ");
    insta::assert_snapshot!(sequence("source.lsn"), @r"
    5:14 error: expected a list of fields, found text
      write `[source.lsn]`
    ");
}

#[test]
fn histories_track_columns_and_stay_in_their_layer() {
    let history = |history: &str| of_changes(&format!("source_table: public.t\nhistory: {history}\n{KEYED}"));
    insta::assert_snapshot!(history("{}"), @r"
    5:10 error: `history` has no `table`
      write `table: silver/customers_history`
    5:10 error: `history` has no `track`
      write `track: [name, email]`
    ");
    insta::assert_snapshot!(history("{ table: silver/h, trak: [city] }"), @r"
    5:29 error: unknown key `trak` in `history`
      did you mean `track`?
    ");
    insta::assert_snapshot!(history("{ table: silver/h, track: [] }"), @r"
    5:36 error: `track` is empty: no change would open a version
      name the columns whose changes are kept
    ");
    insta::assert_snapshot!(history("{ table: silver/h, track: [id, citty, city, City] }"), @r"
    5:37 error: key column `id` is never tracked: another key is another row
      leave it out: the history has the key's columns anyway
    5:41 error: unknown column `citty`
      did you mean `city`?
    5:54 error: `City` occurs twice
    ");
    insta::assert_snapshot!(history("{ table: silver/t, track: [city] }"), @r"
    5:19 error: `silver/t` cannot be its own history
      write `table: silver/t_history`
    ");
    insta::assert_snapshot!(history("{ table: gold/h, track: [city] }"), @r"
    5:19 error: the history `gold/h` lies in another layer than `silver/t`
      write `table: silver/h`
    ");
    insta::assert_snapshot!(history("{ table: silvr/h, track: [city] }"), @r"
    5:19 error: `silvr` is no layer: expected one of raw, aggregate, curated, bronze, silver, gold
      did you mean `silver/h`?
    ");
    insta::assert_snapshot!(history("silver/h"), @"5:10 error: expected `history` as a mapping, found text");
    insta::assert_snapshot!(of_changes(
        "source_table: public.t\nhistory: { table: silver/h, track: [Version] }\nprimary_key: [id]\n\
         columns: [{ name: id, type: int64 }, { name: Version, type: string }]\n"
    ), @r"
    5:19 error: a history has a column `version` of its own, and `Version` would be another
      give the column another name, and the database's name as `from`
    ");
}

#[test]
fn columns_and_rules_of_changes_are_checked() {
    insta::assert_snapshot!(of_changes(
        "source_table: public.t\nprimary_key: [di, ratio, tags]\ncolumns:\n- { name: id, type: int64 }\n- { name: ratio, type: float64 }\n\
         - { name: tags, type: \"list<string>\" }\n- { name: _lsn, type: int64 }\n- { name: b, type: string, encoding: hex }\n\
         - { name: c, type: binary, encoding: bas64 }\nunknown_columns: rescue\nrules:\n\
         - { name: r, check: id > 0, on_fail: fail, covers: [ids] }\n- { name: event_malformed, check: id > 0 }\n"
    ), @r"
    5:15 error: unknown column `di`
      did you mean `id`?
    5:19 error: `ratio` cannot be a key: its type is float64
    5:26 error: `tags` cannot be a key: its type is list<string>
    10:11 error: a column of a table of changes cannot be called `_lsn`
      names that begin with `_` are for what the event says of itself; give the database's name as `from`
    11:28 error: `encoding` is for binary and decimal columns, this one is string
    12:38 error: unknown value `bas64` for `encoding`
      did you mean `base64`?
    13:18 error: a table of changes ignores columns that the contract does not name
      the events keep them: name the columns that are wanted, and the table is made anew with them
    15:38 error: `on_fail: fail` is for tables fed by files: there is no file to refuse
      `quarantine` keeps the event out, and the last good row stays
    15:53 error: unknown column `ids`
      did you mean `id`?
    16:11 error: `event_malformed` is a rule that is built in
    ");
    insta::assert_snapshot!(of_changes(&format!(
        "source_table: public.t\nunavailable_value: \"hex:0\"\nwrite_mode: upsert\nkeep: last\non_overwrite: append\nmax_quarantine: 5\ntouched: {{}}\n{KEYED}"
    )), @r"
    5:20 error: `hex:0` can be no placeholder
      the connector's `unavailable.value.placeholder`: a text, or `hex:` and pairs of hexadecimal digits
    6:1 error: `write_mode` is for tables fed by files (`source`) and derived tables (`from`), not for tables of changes (`from` change events)
    7:1 error: `keep` is for derived tables (`from`), not for tables of changes (`from` change events)
    8:1 error: `on_overwrite` is for tables fed by files (`source`), not for tables of changes (`from` change events)
    9:1 error: `max_quarantine` is for tables fed by files (`source`), not for tables of changes (`from` change events)
    10:1 error: `touched` is for derived tables (`from`), not for tables of changes (`from` change events)
    ");
    insta::assert_snapshot!(mistakes(&of_files("columns: [{ name: a, type: int }]\nsource_table: public.t\nhistory: {}\nunavailable_value: x")), @r"
    5:1 error: `source_table` is for tables of changes (`from` change events), not for tables fed by files (`source`)
    6:1 error: `history` is for tables of changes (`from` change events), not for tables fed by files (`source`)
    7:1 error: `unavailable_value` is for tables of changes (`from` change events), not for tables fed by files (`source`)
    ");
    insta::assert_snapshot!(of_table("from: raw/t\nsql: select 1\nunavailable_value: x\nsource_table: public.t"), @r"
    3:1 error: a table of changes needs `columns`
      name the columns of the database's table that are wanted
    3:1 error: a table of changes needs a `primary_key`
      write `primary_key: [id]`
    4:1 error: `sql` is for derived tables (`from`), not for tables of changes (`from` change events)
    ");
}

#[test]
fn encodings_are_words() {
    for (word, encoding) in [
        ("text", Encoding::Text),
        ("hex", Encoding::Hex),
        ("base64", Encoding::Base64),
        ("base64url", Encoding::Base64Url),
    ] {
        let text = of_files(&format!("columns: [{{ name: a, type: binary, encoding: {word} }}]"));
        assert_eq!(good(&text).columns[0].encoding, Some(encoding));
    }
    // What is not said is no part of the hash of contracts from before it could be said.
    assert_eq!(good(&of_files("columns: [{ name: a, type: binary }]")).columns[0].encoding, None);
}
