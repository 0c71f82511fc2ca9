use std::collections::BTreeMap;

use arrow::array::{ArrayRef, Int64Array, ListArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use arrow::util::pretty::pretty_format_batches;

use super::*;
use crate::schema::diagnostic::Positions;
use crate::schema::{Body, Contract, Derivation, Keep, OnOverwrite, Origin, UnknownColumns, WriteMode};

pub(crate) fn derived(table: &str, inputs: &[(&str, &str)], sql: &str) -> Contract {
    Contract {
        table: table.parse().unwrap(),
        description: None,
        origin: Origin::Derived(Derivation {
            inputs: inputs.iter().map(|(name, table)| ((*name).to_owned(), table.parse().unwrap())).collect(),
            body: Body::Sql(sql.to_owned()),
            keep: None,
            order_by: Vec::new(),
            recompute_by: Vec::new(),
            touched: IndexMap::new(),
        }),
        columns: Vec::new(),
        write_mode: WriteMode::Append,
        primary_key: Vec::new(),
        partition_by: Vec::new(),
        sequence_by: Vec::new(),
        on_overwrite: OnOverwrite::Replace,
        unknown_columns: UnknownColumns::Ignore,
        rules: Vec::new(),
        max_quarantine: None,
        properties: BTreeMap::new(),
        hash: "0".to_owned(),
        file: "t.yaml".to_owned(),
        positions: Positions::default(),
    }
}

fn derivation(contract: &mut Contract) -> &mut Derivation {
    match &mut contract.origin {
        Origin::Derived(derivation) => derivation,
        _ => unreachable!(),
    }
}

fn names(columns: &[&str]) -> Vec<String> {
    columns.iter().map(|name| (*name).to_owned()).collect()
}

fn trips() -> SchemaRef {
    let list = DataType::List(Arc::new(Field::new("element", DataType::Int64, true)));
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("day", DataType::Date32, true),
        Field::new("zone", DataType::Utf8, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), true),
        Field::new("fare", DataType::Decimal128(10, 2), true),
        Field::new("stops", list, true),
        Field::new("score", DataType::Float64, true),
        Field::new("_file", DataType::Utf8, false),
        Field::new("_row", DataType::Int64, false),
    ]))
}

fn one_input() -> Inputs {
    Inputs::from([("input".to_owned(), trips())])
}

fn with_units(sql: &str, units: &[&str]) -> Contract {
    let mut contract = derived("curated/t", &[("input", "raw/trips")], sql);
    derivation(&mut contract).recompute_by = names(units);
    contract
}

#[test]
fn sound_units_are_traced_to_one_row_of_the_input() {
    for (sql, units, maps) in [
        ("select day, zone, count(*) as n from input group by 1, 2", vec!["day"], vec!["day"]),
        ("select cast(at as date) as d, sum(fare) as s from input group by 1", vec!["d"], vec!["CAST(at AS Date32)"]),
        ("select distinct day, zone from input", vec!["day", "zone"], vec!["day, zone"]),
        (
            "select id, day, row_number() over (partition by day, zone order by id) as r from input",
            vec!["day"],
            vec!["day"],
        ),
        (
            "select * from (select *, row_number() over (partition by id order by at) as r from input) where r = 1",
            vec!["id"],
            vec!["id"],
        ),
        (
            "select a.day, a.id, t.n from input a join (select day, count(*) as n from input group by day) t on a.day = t.day",
            vec!["day"],
            vec!["day"],
        ),
        (
            "select a.day, b.id from input a left join input b on a.day = b.day and a.id < b.id",
            vec!["day"],
            vec!["day"],
        ),
        ("select a.day, a.id from input a, input b where a.day = b.day", vec!["day"], vec!["day"]),
        (
            "select i.day, i.id from input i where exists (select 1 from input j where j.day = i.day and j.id > i.id)",
            vec!["day"],
            vec!["day"],
        ),
        (
            "select i.id, i.day from input i where i.fare = (select max(fare) from input j where j.day = i.day)",
            vec!["day"],
            vec!["day"],
        ),
        (
            "select zone as k from input union all select cast(id as varchar) from input",
            vec!["k"],
            vec!["zone", "CAST(id AS Utf8)"],
        ),
        ("select day, id from input except select day, id + 1 from input", vec!["day"], vec!["day"]),
        ("select day, unnest(stops) as stop from input", vec!["day"], vec!["day"]),
        (
            "with d as (select day, zone, sum(fare) as s from input group by 1, 2) select day, max(s) as m from d group by day",
            vec!["day"],
            vec!["day"],
        ),
        (
            "select zone, day, extract(month from day) as m, count(*) as n from input group by zone, day",
            vec!["zone"],
            vec!["zone"],
        ),
    ] {
        let contract = with_units(sql, &units);
        let lineage = analyse(&contract, &one_input()).unwrap_or_else(|e| panic!("{sql}: {}", e.describe()));
        let Unit::Mapped { maps: found, .. } = lineage.unit else { panic!("{sql}: {:?}", lineage.unit) };
        let found: Vec<String> =
            found.iter().map(|map| map.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")).collect();
        assert_eq!(found, maps, "{sql}");
    }
}

#[test]
fn unsound_units_are_refused_with_the_clause() {
    for (sql, unit, reason) in [
        (
            "select zone, max(day) as day, count(*) as n from input group by zone",
            "day",
            "`day` is the result of an aggregate",
        ),
        ("select count(*) as n, max(day) as day from input", "day", "an aggregate without GROUP BY `day`"),
        (
            "select day, zone from (select day, zone, count(*) over (partition by zone) as c from input)  where c > 1",
            "day",
            "PARTITION BY does not contain `day`",
        ),
        ("select day, count(*) over () as n from input", "day", "PARTITION BY does not contain `day`"),
        ("select a.day, b.id from input a join input b on a.id = b.id", "day", "the join has no equality on `day`"),
        ("select a.day, b.id from input a cross join input b", "day", "the join has no equality on `day`"),
        (
            "select b.day, a.id from input a left join input b on a.day = b.day",
            "day",
            "the optional side of an outer join",
        ),
        ("select a.day, b.id from input a full join input b on a.day = b.day", "day", "FULL JOIN"),
        ("select day, id from input order by fare limit 10", "day", "LIMIT keeps rows by their place"),
        (
            "select day, id from input where fare > (select avg(fare) from input)",
            "day",
            "a subquery reads rows of every unit",
        ),
        (
            "select day, id from input where id in (select max(id) from input)",
            "day",
            "the join has no equality on `day`",
        ),
        ("select zone, id from input where zone not in (select zone from input where fare < 0)", "zone", "NOT IN"),
        ("select day, zone, count(*) as n from input group by rollup (day, zone)", "day", "ROLLUP"),
        ("select unnest(stops) as stop, id from input", "stop", "comes out of UNNEST"),
        (
            "select distinct on (zone) zone, day, id from input order by zone, id",
            "day",
            "`day` is the result of an aggregate",
        ),
        ("select 1 as day, zone, count(*) as n from input group by zone", "day", "`day` is the same for every row"),
        ("select day, id from input union all select max(day), 1 from input", "day", "in one part of UNION"),
        (
            "select zone, lag(day) over (partition by zone order by id) as day from input",
            "day",
            "the result of a window function",
        ),
        (
            "select coalesce(a.day, b.day) as day, a.id from input a join input b on a.id = b.id",
            "day",
            "made of both sides",
        ),
    ] {
        let problems = check(&with_units(sql, &[unit]), &one_input());
        let [problem] = problems.as_slice() else { panic!("{sql}: {problems:?}") };
        assert_eq!(problem.at, "recompute_by", "{sql}");
        assert!(problem.message.contains(reason), "{sql}: {}", problem.message);
        assert!(problem.help.is_some());
    }
}

#[test]
fn mistakes_are_found_where_they_are() {
    let touched = |sql: &str| {
        let mut contract = derived(
            "gold/t",
            &[("orders", "silver/orders"), ("items", "silver/items")],
            "select o.day, count(*) as n from orders o join items i on o.id = i.id group by 1",
        );
        let derivation = derivation(&mut contract);
        derivation.recompute_by = names(&["day"]);
        derivation.touched.insert("orders".to_owned(), "select day from orders_changed".to_owned());
        derivation.touched.insert("items".to_owned(), sql.to_owned());
        contract
    };
    let two = Inputs::from([("orders".to_owned(), trips()), ("items".to_owned(), trips())]);
    let plain = |sql: &str| derived("curated/t", &[("input", "raw/trips")], sql);
    let keyed = |key: &str| Contract { primary_key: names(&[key]), ..plain("select * from input") };
    let mut kept = keyed("id");
    derivation(&mut kept).keep = Some(Keep::First);
    derivation(&mut kept).order_by = names(&["_flie"]);
    let mut named = plain("");
    derivation(&mut named).body = Body::Named { name: "unpivto".to_owned(), args: serde_json::Value::Null };
    let mut made = plain("");
    derivation(&mut made).body = Body::Named {
        name: "unpivot".to_owned(),
        args: serde_json::json!({"keep": ["id"], "columns": ["fare"], "names_to": "k", "values_to": "v"}),
    };
    derivation(&mut made).recompute_by = names(&["k"]);
    for (contract, inputs, at, message, help) in [
        (plain("select idd from input"), one_input(), "sql", "no column `idd`", "did you mean `id`?"),
        (plain("select * from inptu"), one_input(), "sql", "no table `inptu`", "did you mean `input`?"),
        (plain("select * from"), one_input(), "sql", "expected", ""),
        (plain("create table x as select 1"), one_input(), "sql", "DDL", ""),
        (plain("select sum(zone) as s from input"), one_input(), "sql", "sum", ""),
        (plain("select id, now() as t from input"), one_input(), "sql", "now() differs", "the same"),
        (plain("select id from input where random() < 0.5"), one_input(), "sql", "random() differs", "the same"),
        (
            plain("select zone, first_value(id) as f from input group by 1"),
            one_input(),
            "sql",
            "first_value() without ORDER BY",
            "",
        ),
        (plain("select id from input limit 3"), one_input(), "sql", "LIMIT without ORDER BY", ""),
        (plain("select count(*) from input"), one_input(), "sql", "`count(*)` has no proper name", "as name"),
        (plain("select id, id as \"ID\" from input"), one_input(), "sql", "two columns are called", ""),
        (plain("select null as x from input"), one_input(), "sql", "always null", "cast(null"),
        (keyed("idd"), one_input(), "primary_key[0]", "gives no column `idd`", "did you mean `id`?"),
        (
            Contract { partition_by: names(&["id", "dya"]), ..plain("select * from input") },
            one_input(),
            "partition_by[1]",
            "`dya`",
            "`day`",
        ),
        (kept, one_input(), "order_by[0]", "`_flie`", "`_file`"),
        (
            with_units("select day, count(*) as n from input group by 1", &["dayy"]),
            one_input(),
            "recompute_by[0]",
            "`dayy`",
            "`day`",
        ),
        (
            with_units("select score, count(*) as n from input group by 1", &["score"]),
            one_input(),
            "recompute_by[0]",
            "exact equality",
            "",
        ),
        (
            touched("select day from orders o join items_changd i on o.id = i.id"),
            two.clone(),
            "touched.items",
            "no table `items_changd`",
            "`items_changed`",
        ),
        (touched("select id from items_changed"), two.clone(), "touched.items", "exactly the units day", ""),
        (
            touched("select cast(day as varchar) as day from items_changed"),
            two.clone(),
            "touched.items",
            "`day` is Utf8 here",
            "cast",
        ),
        (named, one_input(), "transform", "no transform `unpivto`", "`unpivot`"),
        (made, one_input(), "recompute_by[0]", "made by the transform", "id"),
    ] {
        let problems = check(&contract, &inputs);
        let found = problems.iter().find(|problem| problem.at == at && problem.message.contains(message));
        let found = found.unwrap_or_else(|| panic!("{at}: {message}: {problems:?}"));
        assert!(found.help.as_deref().unwrap_or_default().contains(help), "{found:?}");
    }
    let good = touched("select o.day from items_changed i join orders o on o.id = i.id");
    assert_eq!(check(&good, &two), []);
}

#[test]
fn the_smallest_unit_is_chosen() {
    let plain = |sql: &str, key: &[&str]| {
        let mut contract = derived("curated/t", &[("input", "raw/trips")], sql);
        contract.primary_key = names(key);
        contract
    };
    for (contract, row_by_row, columns) in [
        (plain("select *, cast(at as date) as d from input", &["id"]), true, vec!["id"]),
        (plain("select id + 1 as id from input", &["id"]), true, vec![]),
        (plain("select id, unnest(stops) as stop from input where id > 3", &["id"]), true, vec!["id"]),
        (plain("select id from input", &[]), true, vec![]),
        (plain("select id, count(*) as n from input group by id", &["id"]), false, vec![]),
        (with_units("select id, day from input", &["day"]), true, vec!["day"]),
    ] {
        let lineage = analyse(&contract, &one_input()).unwrap();
        assert_eq!(lineage.row_by_row, row_by_row, "{contract:?}");
        assert_eq!(lineage.unit.columns(), names(&columns), "{contract:?}");
    }
}

fn rows() -> RecordBatch {
    let stops = ListArray::from_iter_primitive::<Int64Type, _, _>([
        Some(vec![Some(7), Some(8)]),
        None,
        Some(vec![]),
        Some(vec![None]),
    ]);
    RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(vec![1, 2, 3, 4])) as ArrayRef),
        ("zone", Arc::new(StringArray::from(vec![Some("a"), None, Some("c"), Some("d")])) as ArrayRef),
        ("stops", Arc::new(stops) as ArrayRef),
    ])
    .unwrap()
}

#[test]
fn compiled_rows_are_what_the_sql_says() {
    let batch = rows();
    for (sql, wanted, expected) in [
        (
            "select *, id * 2 as twice from input where zone <> 'c' or zone is null",
            Some(names(&["twice", "zone"])),
            vec!["| 2     | a    |", "| 4     |      |", "| 8     | d    |"],
        ),
        ("select upper(zone) as z from input where id < 2", None, vec!["| A |"]),
        ("select id, unnest(stops) as s from input", None, vec!["| 1  | 7 |", "| 1  | 8 |", "| 4  |   |"]),
    ] {
        let map = RowMap::of_sql(sql, ("input", &batch.schema()), wanted.as_deref()).unwrap().unwrap();
        let indices: Vec<usize> = map.reads().iter().map(|name| batch.schema().index_of(name).unwrap()).collect();
        let made = map.apply(batch.project(&indices).unwrap()).unwrap();
        assert_eq!(made.schema(), *map.output());
        let table = pretty_format_batches(&[made]).unwrap().to_string();
        let lines: Vec<&str> = table.lines().skip(3).filter(|line| line.starts_with('|')).collect();
        assert_eq!(lines, expected, "{sql}");
    }
    assert!(RowMap::of_sql("select count(*) as n from input", ("input", &batch.schema()), None).unwrap().is_none());
}

#[test]
fn hidden_columns_are_not_visible() {
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("_batch_id", DataType::Utf8, true),
        Field::new("_file", DataType::Utf8, false),
        Field::new("_ingested_at", DataType::Utf8, true),
    ]);
    let seen = visible(&schema);
    assert_eq!(seen.fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["id", "_file"]);
}

#[test]
fn a_catalog_is_planned_in_order_and_mistakes_are_shown_in_place() {
    let raw = "version: 1\ntable: raw/trips\nsource: { path: \"trips/*.csv\", format: csv }\ncolumns:\n  - { name: id, type: int64 }\n  - { name: day, type: date }\n";
    let aggregate = "version: 1\ntable: aggregate/trips\nfrom: raw/trips\nprimary_key: [id]\nkeep: first\norder_by: [_file, _row]\nsql: select * from input\n";
    let curated = "version: 1\ntable: curated/days\nfrom: aggregate/trips\nrecompute_by: [day]\nsql: >\n  select day,\n  count(*) as n, max(zonne) as z from input group by 1\n";
    let check = |curated: &str| {
        let sources = [("raw/trips", raw), ("aggregate/trips", aggregate), ("curated/days", curated)];
        let sources = sources.iter().map(|(name, text)| (format!("{name}.yaml"), (*text).to_owned())).collect();
        check_catalog(&crate::catalog::Catalog::from_sources(sources).unwrap())
    };
    assert_eq!(check(&curated.replace("max(zonne)", "max(id)")), []);
    let found = check(curated);
    let [problem] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((problem.file.as_str(), problem.line, problem.column), ("curated/days.yaml", 7, 22));
    assert_eq!(problem.message, "there is no column `zonne`; known are id, day, _rescued, _file, _row");
    let unsound = check(
        &curated
            .replace("group by 1", "group by 1, id")
            .replace("select day", "select max(day) as day")
            .replace("max(zonne) as z", "id")
            .replace("group by 1, id", "group by id"),
    );
    assert_eq!((unsound[0].line, unsound[0].column), (4, 15), "{unsound:?}");
    assert!(check(&curated.replace("max(zonne)", "max(_batch_id)"))[0].message.contains("`_batch_id`"));
}

/// A key that several rows can have is a mistake where the SQL shows it.
#[test]
fn a_key_is_one_rows_alone() {
    let raw = |mode: &str| {
        format!(
            "version: 1\ntable: raw/t\nsource: {{ path: \"t/*.csv\", format: csv }}\n{mode}columns:\n  - {{ name: id, type: int64, nullable: false }}\n  - {{ name: day, type: date }}\n"
        )
    };
    let upsert = "write_mode: upsert\nprimary_key: [id]\n";
    let other = "several rows of raw/t can have it";
    for (source, key, rest, sql, reason) in [
        ("", "id", "", "select id, day from input", Some(other)),
        ("", "id", "recompute_by: [day]\n", "select id, day from input where day is not null", Some(other)),
        ("", "id", "keep: last\norder_by: [_file, _row]\n", "select * from input", None),
        (upsert, "id", "", "select id, day from input", None),
        (upsert, "day", "", "select id, day from input", Some(other)),
        (upsert, "number", "", "select id as number from input", None),
        (upsert, "number", "", "select id + 1 as number from input", Some(other)),
        ("", "day", "", "select day, count(*) as n from input group by day", None),
        ("", "day", "", "select day, id, count(*) as n from input group by day, id", Some("it is grouped by `id` too")),
        ("", "day", "", "select distinct day from input", None),
        ("", "id", "", "select id, max(day) over (partition by id) as day from input", None),
    ] {
        let derived = format!(
            "version: 1\ntable: gold/t\nfrom: raw/t\nwrite_mode: upsert\nprimary_key: [{key}]\n{rest}sql: {sql}\n"
        );
        let sources = vec![("raw/t.yaml".to_owned(), raw(source)), ("gold/t.yaml".to_owned(), derived)];
        let found = check_catalog(&crate::catalog::Catalog::from_sources(sources).unwrap());
        let expected = reason.map(|reason| format!("`{key}` is not one row's alone: {reason}"));
        assert_eq!(found.first().map(|problem| problem.message.clone()), expected, "{source}{rest}{sql}");
        assert!(found.iter().all(|problem| problem.line == 5), "{found:?}");
    }
}

#[test]
fn the_shipped_contracts_plan_and_are_incremental() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let catalog = crate::catalog::Catalog::load(&folder).unwrap();
    assert_eq!(check_catalog(&catalog), []);
    for (table, unit) in [
        ("gold/daily_revenue", "order_date"),
        ("gold/product_ranks", "category"),
        ("gold/customer_ltv", "customer_id"),
        ("gold/audit_order_total_mismatch", "order_id"),
    ] {
        let contract = catalog.get(&table.parse().unwrap()).unwrap();
        let inputs = contract.derivation().unwrap().inputs.iter();
        let inputs = inputs.map(|(name, source)| (name.clone(), planned_schema(&catalog, source).unwrap())).collect();
        let lineage = analyse(contract, &inputs).unwrap();
        assert!(matches!(&lineage.unit, Unit::Touched { columns, .. } if *columns == [unit]), "{:?}", lineage.unit);
    }
    let columns = |table: &str| {
        let schema = planned_schema(&catalog, &table.parse().unwrap()).unwrap();
        let columns = schema.fields().iter().map(|field| format!("{} {}", field.name(), field.data_type()));
        columns.collect::<Vec<_>>().join(", ")
    };
    let tables = [
        "silver/customers",
        "silver/customers_history",
        "gold/daily_revenue",
        "gold/product_ranks",
        "gold/customer_ltv",
        "gold/audit_order_total_mismatch",
    ];
    insta::assert_snapshot!(tables.map(columns).join("\n"), @r#"
    id Int64, name Utf8, email Utf8, segment Utf8, city Utf8, created_at Timestamp(µs, "UTC"), updated_at Timestamp(µs, "UTC"), bio Utf8, _ts_ms Int64, _lsn Int64
    id Int64, version Int64, name Utf8, email Utf8, segment Utf8, city Utf8, valid_from Timestamp(µs, "UTC"), valid_to Timestamp(µs, "UTC"), is_current Boolean, _lsn Int64
    order_date Date32, orders Int64, items Int64, revenue Decimal128(22, 2)
    product_id Int64, category Utf8, name Utf8, units Int64, revenue Decimal128(38, 2), rank Int64
    customer_id Int64, name Utf8, segment Utf8, orders Int64, lifetime_revenue Decimal128(22, 2), first_order Timestamp(µs, "UTC"), last_order Timestamp(µs, "UTC")
    order_id Int64, total Decimal128(12, 2), items_total Decimal128(38, 2)
    "#);
}
