mod changes;

use std::fs;

use super::*;

const TRIPS: &str = "version: 1\ntable: raw/trips\nsource: { path: \"trips/**/*.csv*\", format: csv, ignore: [\"trips/**/_*\", \"**/*.md\"] }\n\
                     columns: [{ name: id, type: int64 }, { name: fare, type: \"decimal(10,2)\" }, { name: Zone, type: string }]\n";

fn sources(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(file, text)| (format!("schemas/{file}.yaml"), (*text).to_owned())).collect()
}

fn good(files: &[(&str, &str)]) -> Catalog {
    Catalog::from_sources(sources(files)).unwrap_or_else(|found| panic!("{}", shown(&found)))
}

fn mistakes(files: &[(&str, &str)]) -> String {
    match Catalog::from_sources(sources(files)) {
        Ok(catalog) => format!("no mistakes\n{}", shown(catalog.warnings())),
        Err(found) => shown(&found),
    }
}

fn shown(found: &[Diagnostic]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn derived(table: &str, from: &str) -> String {
    format!("version: 1\ntable: {table}\nfrom: {from}\nsql: select * from input\n")
}

fn with_rule(check: &str) -> String {
    mistakes(&[("raw/trips", &format!("{TRIPS}rules: [{{ name: r, check: {check} }}]\n"))])
}

#[test]
fn sources_come_before_what_is_derived_from_them() {
    let catalog = good(&[
        ("aggregate/b", &derived("aggregate/b", "curated/a")),
        ("curated/a", &derived("curated/a", "raw/trips")),
        ("raw/trips", TRIPS),
        ("gold/c", "version: 1\ntable: gold/c\nfrom: { x: aggregate/b, y: raw/trips }\nsql: select * from x\n"),
    ]);
    let order: Vec<String> = catalog.tables().iter().map(|contract| contract.table.to_string()).collect();
    assert_eq!(order, ["raw/trips", "curated/a", "aggregate/b", "gold/c"]);
    let name: TableName = "raw/trips".parse().expect("a name");
    assert_eq!(catalog.get(&name).expect("declared").file, "schemas/raw/trips.yaml");
    let readers: Vec<String> = catalog.derived_from(&name).iter().map(|contract| contract.table.to_string()).collect();
    assert_eq!(readers, ["curated/a", "gold/c"]);
}

#[test]
fn files_find_their_tables() {
    let other = "version: 1\ntable: raw/all\nsource: { path: \"**/*.csv\", format: csv }\ncolumns: [{ name: a, type: string }]\n";
    let catalog = good(&[("raw/trips", TRIPS), ("raw/all", other)]);
    for (path, expected) in [
        ("trips/a.csv", "raw/all take, raw/trips take"),
        ("trips/2024/01/a.csv.gz", "raw/trips take"),
        ("trips/x/_SUCCESS.csv", "raw/all take, raw/trips ignore"),
        ("a.csv", "raw/all take"),
        ("other/README.md", "raw/trips ignore"),
        ("other/a.json", ""),
        ("trips_old/a.csv.gz", ""),
    ] {
        let claims: Vec<String> = catalog
            .claims(path)
            .iter()
            .map(|(contract, claim)| {
                format!("{} {}", contract.table, if *claim == Claim::Take { "take" } else { "ignore" })
            })
            .collect();
        assert_eq!(claims.join(", "), expected, "{path}");
    }
    assert!(Catalog::default().claims("trips/a.csv").is_empty());
}

#[test]
fn sources_must_exist_and_run_in_no_circle() {
    insta::assert_snapshot!(mistakes(&[("raw/trips", TRIPS), ("gold/a", &derived("gold/a", "raw/trps"))]), @r"
    schemas/gold/a.yaml:3:7: error: unknown table `raw/trps`
      |
    3 | from: raw/trps
      |       ^^^^^^^^
      help: did you mean `raw/trips`?
    ");
    insta::assert_snapshot!(mistakes(&[("raw/trips", TRIPS), ("gold/a", &derived("gold/a", "{ input: silver/trips, other: raw/zzzzzz }"))]), @r"
    schemas/gold/a.yaml:3:16: error: unknown table `silver/trips`
      |
    3 | from: { input: silver/trips, other: raw/zzzzzz }
      |                ^^^^^^^^^^^^
      help: did you mean `raw/trips`?
    schemas/gold/a.yaml:3:37: error: unknown table `raw/zzzzzz`
      |
    3 | from: { input: silver/trips, other: raw/zzzzzz }
      |                                     ^^^^^^^^^^
      help: no contract declares it; add schemas/raw/zzzzzz.yaml
    ");
    insta::assert_snapshot!(mistakes(&[("gold/a", &derived("gold/a", "gold/a"))]), @r"
    schemas/gold/a.yaml:3:7: error: `gold/a` reads itself
      |
    3 | from: gold/a
      |       ^^^^^^
      help: read another table
    ");
    insta::assert_snapshot!(mistakes(&[
        ("silver/c", &derived("silver/c", "gold/a")),
        ("gold/a", &derived("gold/a", "gold/b")),
        ("gold/b", &derived("gold/b", "silver/c")),
        ("gold/d", &derived("gold/d", "gold/b")),
    ]), @r"
    schemas/gold/a.yaml:3:7: error: tables read each other in a circle: `gold/a` reads `gold/b` reads `silver/c` reads `gold/a`
      |
    3 | from: gold/b
      |       ^^^^^^
      help: derive one of them from a table that comes earlier
    ");
}

#[test]
fn a_contract_stands_where_its_table_belongs() {
    insta::assert_snapshot!(mistakes(&[("raw/trip", TRIPS)]), @r"
    schemas/raw/trip.yaml:2:8: error: the file declares table `raw/trips`, but stands where `raw/trip` belongs
      |
    2 | table: raw/trips
      |        ^^^^^^^^^
      help: write `table: raw/trip`, or move the file to raw/trips.yaml
    ");
    insta::assert_snapshot!(mistakes(&[("rwa/trips", TRIPS), ("trips", TRIPS)]), @r"
    schemas/rwa/trips.yaml:1:1: error: the folder `rwa` is no layer
      help: did you mean `raw`?
    schemas/trips.yaml:1:1: error: the folder `schemas` is no layer
      help: expected `raw`, `aggregate`, `curated`, `bronze`, `silver` or `gold`
    schemas/trips.yaml:1:1: error: table `raw/trips` is declared twice (first in schemas/rwa/trips.yaml)
      help: a table has one contract
    ");
    insta::assert_snapshot!(mistakes(&[("raw/trips", TRIPS), ("raw/trips", TRIPS)]), @r"
    schemas/raw/trips.yaml:1:1: error: table `raw/trips` is declared twice (first in schemas/raw/trips.yaml)
      help: a table has one contract
    ");
    insta::assert_snapshot!(mistakes(&[("raw/Trips", TRIPS)]), @r"
    schemas/raw/Trips.yaml:1:1: error: `Trips` is no table name: lower-case letters, digits and _ only, beginning with a letter
      help: contracts stand in <layer>/<table>.yaml
    ");
    // A table whose contract cannot be read is not unknown to others.
    insta::assert_snapshot!(mistakes(&[("raw/trips", "a: [\n"), ("gold/a", &derived("gold/a", "raw/trips"))]), @r"
    schemas/raw/trips.yaml:1:4: error: this is no YAML: unclosed bracket '['
      |
    1 | a: [
      |    ^
    ");
}

#[test]
fn rules_name_columns() {
    for check in [
        "fare >= 0",
        "zone in ('a', 'b') and raw.fare <> ''",
        "\"Zone\" is not null",
        "RAW.id is null or length(trim(zone)) > 0",
        "case when fare > 0 then id is not null else true end",
    ] {
        let quoted = serde_json::to_string(check).expect("text");
        assert_eq!(with_rule(&quoted), "no mistakes\n", "{check}");
    }
    insta::assert_snapshot!(with_rule("\"fre >= 0 and raw.zoone = 'x'\""), @r#"
    schemas/raw/trips.yaml:5:28: error: rule `r` names unknown column `fre`
      |
    5 | rules: [{ name: r, check: "fre >= 0 and raw.zoone = 'x'" }]
      |                            ^^^
      help: did you mean `fare`?
    schemas/raw/trips.yaml:5:45: error: rule `r` names unknown column `raw.zoone`
      |
    5 | rules: [{ name: r, check: "fre >= 0 and raw.zoone = 'x'" }]
      |                                             ^^^^^
      help: did you mean `raw.Zone`?
    "#);
    insta::assert_snapshot!(with_rule("zone = \"north\""), @r#"
    schemas/raw/trips.yaml:5:34: error: rule `r` names unknown column `north`
      |
    5 | rules: [{ name: r, check: zone = "north" }]
      |                                  ^^^^^^^
      help: a text is written 'north', in single quotes
    "#);
    insta::assert_snapshot!(with_rule("1 = 1"), @r"
    schemas/raw/trips.yaml:5:27: error: rule `r` names no column
      |
    5 | rules: [{ name: r, check: 1 = 1 }]
      |                           ^
      help: a condition on a record, such as `fare >= 0`
    ");
    insta::assert_snapshot!(with_rule("fare >="), @r"
    schemas/raw/trips.yaml:5:34: error: the SQL does not parse: expected: an expression, found: EOF
      |
    5 | rules: [{ name: r, check: fare >= }]
      |                                  ^
    ");
    insta::assert_snapshot!(with_rule("fare >= 0 fare"), @r"
    schemas/raw/trips.yaml:5:37: error: the SQL does not parse: expected: the end of the condition, found: fare
      |
    5 | rules: [{ name: r, check: fare >= 0 fare }]
      |                                     ^^^^
    ");
    insta::assert_snapshot!(with_rule("id in (select id from other)"), @r"
    schemas/raw/trips.yaml:5:27: error: a rule cannot read other tables
      |
    5 | rules: [{ name: r, check: id in (select id from other) }]
      |                           ^^
      help: a rule judges one record by its own values
    ");
    insta::assert_snapshot!(with_rule("id < 5 and zone < current_date"), @r"
    no mistakes
    schemas/raw/trips.yaml:5:27: warning: `current_date` gives another answer later: the same file could then be judged differently
      |
    5 | rules: [{ name: r, check: id < 5 and zone < current_date }]
      |                           ^^
      help: compare with a value of the record or a constant
    ");
}

#[test]
fn queries_parse_and_only_read() {
    let sql = |sql: &str| {
        mistakes(&[
            ("raw/trips", TRIPS),
            ("gold/a", &format!("version: 1\ntable: gold/a\nfrom: raw/trips\nsql: {sql}\n")),
        ])
    };
    insta::assert_snapshot!(sql("select id frm input where"), @r"
    schemas/gold/a.yaml:4:20: error: the SQL does not parse: expected: end of statement, found: input
      |
    4 | sql: select id frm input where
      |                    ^^^^^
    ");
    insta::assert_snapshot!(sql(">\n  select id\n  from input\n  where id = = 3"), @r"
    schemas/gold/a.yaml:7:14: error: the SQL does not parse: expected: an expression, found: =
      |
    7 |   where id = = 3
      |              ^
    ");
    insta::assert_snapshot!(sql("drop table input"), @r"
    schemas/gold/a.yaml:4:6: error: the SQL is no query
      |
    4 | sql: drop table input
      |      ^^^^
      help: a transform is one `select`: it reads and changes nothing
    ");
    insta::assert_snapshot!(sql("select 1; select 2"), @r"
    schemas/gold/a.yaml:4:6: error: the SQL holds several statements
      |
    4 | sql: select 1; select 2
      |      ^^^^^^
      help: a transform is one `select`
    ");
    insta::assert_snapshot!(sql("\"  \""), @r#"
    schemas/gold/a.yaml:4:6: error: the SQL is empty
      |
    4 | sql: "  "
      |      ^^^^
      help: write a query such as `select * from input`
    "#);
    insta::assert_snapshot!(sql("select id from input\nrecompute_by: [id]\ntouched: { input: \"select from\" }"), @r#"
    schemas/gold/a.yaml:6:31: error: the SQL does not parse: expected: identifier, found: EOF
      |
    6 | touched: { input: "select from" }
      |                               ^
    "#);
}

#[test]
fn folders_are_read_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("schemas");
    let text = |found: Vec<Diagnostic>| shown(&found).replace(&folder.path().display().to_string(), "");
    insta::assert_snapshot!(text(Catalog::load(&root).expect_err("no folder")), @r"
    /schemas:1:1: error: there is no such folder of contracts
      help: create <folder>/<layer>/<table>.yaml, or name another folder with ALLUVIUM_SCHEMAS
    ");
    fs::create_dir_all(root.join("raw/deep")).expect("folders");
    fs::create_dir_all(root.join(".git/raw")).expect("folders");
    let catalog = check_folder(&root).expect("an empty folder");
    insta::assert_snapshot!(text(catalog.warnings().to_vec()), @r"
    /schemas:1:1: warning: the folder holds no contract
      help: add <layer>/<table>.yaml; `alluvium infer FILE` writes a first one from a file
    ");
    fs::write(root.join("raw/trips.yaml"), TRIPS).expect("a file");
    fs::write(root.join("raw/README.md"), "x").expect("a file");
    fs::write(root.join(".git/raw/x.yaml"), "x").expect("a file");
    assert_eq!(Catalog::load(&root).expect("one contract").tables().len(), 1);
    fs::write(root.join("raw/other.yml"), TRIPS.replace("trips", "other")).expect("a file");
    fs::write(root.join("raw/deep/x.yaml"), "version: 1\n").expect("a file");
    fs::write(root.join("raw/latin.yaml"), b"a: \xe9\n").expect("a file");
    insta::assert_snapshot!(text(Catalog::load(&root).expect_err("mistakes")), @r"
    /schemas/raw/deep/x.yaml:1:1: error: the file does not stand in a layer's folder
      help: contracts stand in <layer>/<table>.yaml
    /schemas/raw/deep/x.yaml:1:1: error: the contract has no `table`
      |
    1 | version: 1
      | ^^^^^^^
      help: write `table: <layer>/<table>`
    /schemas/raw/deep/x.yaml:1:1: error: the contract does not say where the rows come from
      |
    1 | version: 1
      | ^^^^^^^
      help: add `source: { path: ..., format: csv }` for files, or `from: <layer>/<table>` and `sql` for a derived table
    /schemas/raw/latin.yaml:1:1: error: cannot be read: byte 3 is not UTF-8
    /schemas/raw/other.yml:1:1: error: the file's name ends in `.yml`
      help: rename it to /schemas/raw/other.yaml
    ");
    insta::assert_snapshot!(text(Catalog::load(&root.join("raw/trips.yaml")).expect_err("a file")), @"/schemas/raw/trips.yaml:1:1: error: this is a file, not a folder of contracts");
}

#[test]
fn the_shipped_contracts_load_without_a_warning() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let catalog = check_folder(&folder).unwrap_or_else(|found| panic!("{}", shown(&found)));
    assert_eq!(shown(catalog.warnings()), "");
    let tables: Vec<String> = catalog.tables().iter().map(|contract| contract.table.to_string()).collect();
    assert_eq!(
        tables,
        [
            "raw/trips",
            "aggregate/trips",
            "bronze/shop",
            "curated/trips_daily",
            "silver/orders",
            "silver/order_items",
            "gold/audit_order_total_mismatch",
            "silver/customers",
            "gold/customer_ltv",
            "gold/daily_revenue",
            "silver/products",
            "gold/product_ranks",
            "raw/flights",
            "silver/customers_history",
        ]
    );
    let shop = catalog.get(&"bronze/shop".parse().expect("a name")).expect("shipped");
    assert_eq!(shop.partition_by, ["table", "_ingest_date"]);
    for (topic, is_taken) in
        [("lake.public.orders", true), ("__debezium-heartbeat.lake", true), ("other.public.x", false)]
    {
        assert_eq!(!catalog.topic_claims(topic).is_empty(), is_taken, "{topic}");
    }
    let flights = catalog.get(&"raw/flights".parse().expect("a name")).expect("shipped");
    assert_eq!(flights.columns.len(), 19);
    assert_eq!(flights.files().expect("files").csv.null_values, ["", "NA"]);
    let trips = catalog.get(&"raw/trips".parse().expect("a name")).expect("shipped");
    assert_eq!(trips.column("tip").and_then(|column| column.default.as_deref()), Some("0.00"));
    let required: Vec<&str> =
        trips.columns.iter().filter(|column| !column.nullable).map(|column| column.name.as_str()).collect();
    assert_eq!(required, ["trip_id", "pickup_ts", "pickup_zone", "fare"]);
}

#[test]
fn the_reference_is_about_these_contracts() {
    let text = include_str!("../../docs/contracts.md");
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let contracts: Vec<(String, String)> = blocks
        .filter(|block| block.starts_with("version: 1"))
        .map(|block| {
            let name = block.lines().find_map(|line| line.strip_prefix("table: ")).expect("a table");
            (format!("schemas/{name}.yaml"), block.to_owned())
        })
        .collect();
    assert_eq!(contracts.len(), 4);
    let catalog = Catalog::from_sources(contracts).unwrap_or_else(|found| panic!("{}", shown(&found)));
    assert_eq!(shown(catalog.warnings()), "");

    // What a wrong key is answered with is the list of the right ones: each is in the reference.
    let found = mistakes(&[
        (
            "raw/t",
            "version: 1\ntable: raw/t\nzzzzzz: 1\nsource: { path: t, format: csv, zzzzzz: 1 }\ncolumns: [{ name: a, type: int, zzzzzz: 1 }]\n\
             rules: [{ name: r, check: a > 0, zzzzzz: 1 }]\n",
        ),
        (
            "silver/t",
            "version: 1\ntable: silver/t\nfrom: raw/t\nsource_table: public.t\nhistory: { zzzzzz: 1 }\nprimary_key: [a]\n\
             columns: [{ name: a, type: int }]\n",
        ),
    ]);
    let lists: Vec<&str> = found.lines().filter_map(|line| line.trim().strip_prefix("help: keys of ")).collect();
    assert_eq!(lists.len(), 5, "{found}");
    for list in lists {
        let (_, keys) = list.split_once(" are ").expect("a list");
        for key in keys.split(", ") {
            assert!(text.contains(&format!("`{key}`")), "docs/contracts.md does not name `{key}`");
        }
    }
}
