//! Rows: types, partitions, statistics, queries, memory.

use arrow::array::{
    BinaryArray, BooleanArray, Date32Array, Decimal128Array, Float64Array, Int32Array, StructArray,
    TimestampMicrosecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{Fields, SchemaRef, TimeUnit};
use datafusion::physical_plan::displayable;
use object_store::memory::InMemory;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::error::ErrorKind;

fn utc() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn ntz() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, None)
}

/// One column of every plain type, two rows of edges and one of nulls.
fn every_type() -> RecordBatch {
    let micros = vec![Some(1_700_000_000_123_456), Some(-1), None];
    let inner = Fields::from(vec![int("a"), text("b")]);
    let group = StructArray::try_new(
        inner,
        vec![
            Arc::new(Int64Array::from(vec![Some(7), None, None])),
            Arc::new(StringArray::from(vec![Some("x"), Some(""), None])),
        ],
        Some(vec![true, true, false].into()),
    )
    .unwrap();
    batch(vec![
        ("flag", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None]))),
        ("small", Arc::new(Int32Array::from(vec![Some(i32::MIN), Some(i32::MAX), None]))),
        ("big", Arc::new(Int64Array::from(vec![Some(i64::MIN), Some(i64::MAX), None]))),
        ("real", Arc::new(Float64Array::from(vec![Some(-0.5), Some(1e300), None]))),
        (
            "price",
            Arc::new(Decimal128Array::from(vec![Some(-105), Some(99), None]).with_precision_and_scale(10, 2).unwrap()),
        ),
        (
            "huge",
            Arc::new(
                Decimal128Array::from(vec![Some(-(10_i128.pow(37))), Some(10_i128.pow(37) + 1), None])
                    .with_precision_and_scale(38, 3)
                    .unwrap(),
            ),
        ),
        ("name", Arc::new(StringArray::from(vec![Some("ä\"\\\n\0"), Some(""), None]))),
        ("raw", Arc::new(BinaryArray::from(vec![Some(&b"\xff\x00"[..]), Some(b""), None]))),
        ("day", Arc::new(Date32Array::from(vec![Some(-1), Some(19_000), None]))),
        ("at", Arc::new(TimestampMicrosecondArray::from(micros.clone()).with_timezone("UTC"))),
        ("local", Arc::new(TimestampMicrosecondArray::from(micros))),
        ("group", Arc::new(group)),
    ])
}

async fn rows_of(snapshot: &Snapshot, files: &[DataFile]) -> RecordBatch {
    let mut batches = Vec::new();
    for file in files {
        batches.extend(snapshot.read(file, None).await.unwrap().try_collect::<Vec<_>>().await.unwrap());
    }
    concat_batches(&snapshot.schema(), &batches).unwrap()
}

#[tokio::test]
async fn every_type_comes_back_with_statistics() {
    let lake = lake();
    let rows = every_type();
    let fields = rows.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
    let table = lake.table(fields, &[]).await;
    let snapshot = lake.append(&table, std::slice::from_ref(&rows)).await;
    let files = snapshot.files().unwrap();
    assert_eq!(rows_of(&snapshot, &files).await, rows);
    let stats: Value = serde_json::from_str(files[0].stats.as_ref().unwrap()).unwrap();
    assert_eq!(stats["numRecords"], json!(3));
    let bounds = |name: &str| (stats["minValues"][name].to_string(), stats["maxValues"][name].to_string());
    for (name, min, max) in [
        ("flag", "null", "null"),
        ("small", "-2147483648", "2147483647"),
        ("big", "-9223372036854775808", "9223372036854775807"),
        ("real", "-0.5", "1e+300"),
        ("price", "-1.05", "0.99"),
        ("name", "\"\"", "\"ä\\\"\\\\\\n\\u0000\""),
        ("raw", "null", "null"),
        ("day", "\"1969-12-31\"", "\"2022-01-08\""),
        ("at", "\"1969-12-31T23:59:59.999999Z\"", "\"2023-11-14T22:13:20.123456Z\""),
        ("local", "\"1969-12-31T23:59:59.999999\"", "\"2023-11-14T22:13:20.123456\""),
        ("group", "{\"a\":7,\"b\":\"\"}", "{\"a\":7,\"b\":\"x\"}"),
    ] {
        assert_eq!(bounds(name), (min.to_owned(), max.to_owned()), "{name}");
        let nulls = if name == "group" { json!({"a": 2, "b": 1}) } else { json!(1) };
        assert_eq!(stats["nullCount"][name], nulls, "{name}");
    }
    // Exact digits, which a float would not keep.
    let text = files[0].stats.as_ref().unwrap();
    assert!(text.contains("\"huge\":10000000000000000000000000000000000.001"), "{text}");

    let everything = "select flag, small, big, real, price, huge, name, raw, day, at, local from t order by big";
    let session = lake.session();
    session.register_table("t", snapshot.provider(None).unwrap()).unwrap();
    let found = session.sql(everything).await.unwrap().collect().await.unwrap();
    let found = concat_batches(found[0].schema_ref(), &found).unwrap();
    assert_eq!(found.column(6), rows.column(6));
    assert_eq!(found.schema().field(6).data_type(), &DataType::Utf8);
    assert_eq!(found.columns(), &rows.columns()[..11]);
}

#[tokio::test]
async fn nan_and_infinity_have_no_bounds_and_are_found() {
    let lake = lake();
    let table = lake.table(vec![Field::new("x", DataType::Float64, true)], &[]).await;
    for values in [vec![1.0, f64::NAN], vec![f64::NEG_INFINITY, 0.0], vec![-0.0, 2.5]] {
        lake.append(&table, &[batch(vec![("x", Arc::new(Float64Array::from(values)))])]).await;
    }
    let now = table.snapshot().await.unwrap();
    let stats: Vec<Value> =
        now.files().unwrap().iter().map(|file| serde_json::from_str(file.stats.as_ref().unwrap()).unwrap()).collect();
    let bounds: Vec<(&Value, &Value)> = stats.iter().map(|s| (&s["minValues"]["x"], &s["maxValues"]["x"])).collect();
    assert_eq!(bounds, [(&json!(null), &json!(null)), (&json!(null), &json!(0.0)), (&json!(-0.0), &json!(2.5))]);
    assert_eq!(lake.sql(&now, "select count(*) from t where x > 5").await, ["1"]);
    assert_eq!(lake.sql(&now, "select count(*) from t where x < -5").await, ["1"]);
    assert_eq!(lake.sql(&now, "select count(*) from t where x = 0").await, ["2"]);
}

#[tokio::test]
async fn long_text_is_bounded_from_both_sides() {
    let lake = lake();
    let table = lake.table(vec![text("x")], &[]).await;
    let long = "é".repeat(1000);
    let worst = "\u{10ffff}".repeat(1000);
    for value in [long.as_str(), worst.as_str()] {
        lake.append(&table, &[batch(vec![("x", Arc::new(StringArray::from(vec![value])))])]).await;
    }
    let now = table.snapshot().await.unwrap();
    for file in now.files().unwrap().iter() {
        let stats: Value = serde_json::from_str(file.stats.as_ref().unwrap()).unwrap();
        let min = stats["minValues"]["x"].as_str().unwrap();
        let value = if min.starts_with('é') { &long } else { &worst };
        assert!(min <= value.as_str() && min.len() <= 256);
        match stats["maxValues"]["x"].as_str() {
            Some(max) => assert!(max >= value.as_str() && max.len() <= 256),
            None => assert_eq!(value, &worst, "a greater text exists"),
        }
    }
    assert_eq!(lake.sql(&now, &format!("select count(*) from t where x = '{long}'")).await, ["1"]);
    assert_eq!(lake.sql(&now, &format!("select count(*) from t where x = '{worst}'")).await, ["1"]);
}

#[tokio::test]
async fn partition_values_are_kept_whatever_they_are() {
    let lake = lake();
    let table = lake.table(vec![text("p"), int("id"), Field::new("d", DataType::Date32, true)], &["d", "p"]).await;
    let long = "long ".repeat(100);
    let values =
        ["plain", "ü ñ 日本", "a b", "50%", "a/b", "a=b:c?#[]{}^*'\"\\", "%20", "..", "{x}", " ", "NULL", &long];
    let texts: Vec<Option<&str>> = values.iter().copied().map(Some).chain([None]).collect();
    let count = i64::try_from(texts.len()).unwrap();
    let days: ArrayRef =
        Arc::new(Date32Array::from((0..texts.len()).map(|at| (at % 2 == 0).then_some(19_000)).collect::<Vec<_>>()));
    let rows = batch(vec![("id", ints(0..count)), ("d", days), ("p", Arc::new(StringArray::from(texts.clone())))]);
    let now = lake.append(&table, &[rows]).await;
    assert_eq!(now.files().unwrap().len(), texts.len());
    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!(opened.files().unwrap(), now.files().unwrap());
    for file in opened.files().unwrap().iter() {
        let back = rows_of(&opened, std::slice::from_ref(file)).await;
        let id = back.column(1).as_primitive::<Int64Type>().value(0);
        let expected = texts[usize::try_from(id).unwrap()];
        let found = back.column(0).as_string::<i32>();
        assert_eq!(found.iter().next().unwrap(), expected);
        assert_eq!(file.partition_values["p"].as_deref(), expected);
        let day = if id % 2 == 0 { Some("2022-01-08") } else { None };
        assert_eq!(file.partition_values["d"].as_deref(), day);
        assert!(lake.store.head(&format!("raw/t/{}", file.path)).await.unwrap().is_some());
    }
    for (at, value) in texts.iter().enumerate() {
        let Some(value) = value else { continue };
        let query = format!("select id from t where p = '{}'", value.replace('\'', "''"));
        assert_eq!(lake.sql(&opened, &query).await, [at.to_string()], "{value}");
    }
    assert_eq!(lake.sql(&opened, "select id from t where p is null").await, ["12"]);
    assert_eq!(lake.sql(&opened, "select count(*), count(p), count(d) from t").await, ["13|12|7"]);
    assert_eq!(lake.sql(&opened, "select count(*) from t where d = date '2022-01-08'").await, ["7"]);
    assert_eq!(lake.sql(&opened, "select p, d, id from t where id = 2").await, ["a b|2022-01-08|2"]);
}

#[tokio::test]
async fn partition_columns_have_any_plain_type() {
    let lake = lake();
    let rows = every_type();
    for name in ["flag", "small", "big", "price", "day", "at", "local", "real"] {
        let fields = rows.schema().fields().iter().map(|field| field.as_ref().clone()).collect();
        let folder = format!("raw/by_{name}");
        let table = Table::create(&lake.store, &folder, &spec(fields, &[name])).await.unwrap();
        let base = table.snapshot().await.unwrap();
        let adds = lake.files(&base, std::slice::from_ref(&rows)).await;
        assert_eq!(adds.len(), 3, "{name}");
        let now = committed(table.commit(&base, Change { adds, ..Change::default() }).await.unwrap());
        let mut found = lake.sql(&now, &format!("select {name}, big as b from t")).await;
        found.sort();
        let table = datafusion::datasource::MemTable::try_new(rows.schema(), vec![vec![rows.clone()]]).unwrap();
        let session = lake.session();
        session.register_table("t", Arc::new(table)).unwrap();
        let query = format!("select {name}, big as b from t");
        let expected = session.sql(&query).await.unwrap().collect().await.unwrap();
        let text = arrow::util::pretty::pretty_format_batches(&expected).unwrap().to_string();
        for row in &found {
            let first = row.split('|').next().unwrap();
            assert!(text.contains(first), "{name}: {row} is not in\n{text}");
        }
    }
}

#[tokio::test]
async fn an_empty_partition_value_is_refused_by_name() {
    let lake = lake();
    let table = lake.table(vec![int("id"), text("zone")], &["zone"]).await;
    let base = table.snapshot().await.unwrap();
    let zones: ArrayRef = Arc::new(StringArray::from(vec!["a", ""]));
    let mut writer = Writer::new(
        &lake.store,
        "raw/t",
        base.schema(),
        base.partition_by(),
        WriterOptions::default(),
        Arc::<ManualClock>::clone(&lake.clock),
    );
    writer.write(&batch(vec![("id", ints(0..2)), ("zone", zones)])).await.unwrap();
    let error = writer.finish().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains("zone"), "{error}");
}

/// Files that a plan of the query reads.
async fn files_read(lake: &Lake, snapshot: &Snapshot, query: &str) -> usize {
    let session = lake.session();
    session.register_table("t", snapshot.provider(None).unwrap()).unwrap();
    let plan = session.sql(query).await.unwrap().create_physical_plan().await.unwrap();
    displayable(plan.as_ref()).indent(true).to_string().matches(".parquet").count()
}

#[tokio::test]
async fn files_are_pruned_by_statistics_and_partitions() {
    let lake = lake();
    let fields = vec![
        int("id"),
        Field::new("price", DataType::Decimal128(10, 2), true),
        Field::new("at", utc(), true),
        Field::new("local", ntz(), true),
        text("name"),
        text("p"),
    ];
    let table = lake.table(fields, &["p"]).await;
    for step in 0..4_i64 {
        let prices = Decimal128Array::from(vec![i128::from(step) * 100 + 1, i128::from(step) * 100 + 50]);
        let micros = TimestampMicrosecondArray::from(vec![step * 1_000_000, step * 1_000_000 + 1]);
        let rows = batch(vec![
            ("id", ints([step * 10, step * 10 + 5])),
            ("price", Arc::new(prices.with_precision_and_scale(10, 2).unwrap())),
            ("at", Arc::new(micros.clone().with_timezone("UTC"))),
            ("local", Arc::new(micros)),
            ("name", Arc::new(StringArray::from(vec![format!("n{step}"), format!("n{step}x")]))),
            ("p", Arc::new(StringArray::from(vec![(step % 2 == 0).then_some("even"); 2]))),
        ]);
        lake.append(&table, &[rows]).await;
    }
    let now = table.snapshot().await.unwrap();
    for (filter, files, rows) in [
        ("id = 15", 1, 1),
        ("id > 25", 1, 2),
        ("id in (0, 30)", 2, 2),
        ("price = 1.50", 1, 1),
        ("price >= 2.01 and price < 3", 1, 2),
        ("at < timestamp '1970-01-01T00:00:01Z'", 1, 2),
        ("local = timestamp '1970-01-01T00:00:02.000001'", 1, 1),
        ("name like 'n3%'", 1, 2),
        ("p = 'even'", 2, 4),
        ("p is null", 2, 4),
        ("p is null and id < 15", 1, 1),
        ("id is null", 0, 0),
        ("id > 1000", 0, 0),
    ] {
        let query = format!("select id from t where {filter}");
        assert_eq!(files_read(&lake, &now, &query).await, files, "{filter}");
        assert_eq!(lake.sql(&now, &query).await.len(), rows, "{filter}");
    }
    let plan = "select count(*) from t";
    assert_eq!(files_read(&lake, &now, plan).await, 0, "the row count is known without reading");
    assert_eq!(lake.sql(&now, plan).await, ["8"]);
    assert_eq!(lake.sql(&now, "select count(*) from t where p = 'even' and price > 0.2").await, ["3"]);
    assert_eq!(lake.sql(&now, "select id from t order by id limit 1").await, ["0"]);
    assert_eq!(lake.sql(&now, "select id from t limit 3").await.len(), 3);
}

#[tokio::test]
async fn times_cut_off_at_the_millisecond_by_other_writers_still_find_their_rows() {
    let lake = lake();
    let table = lake.table(vec![Field::new("at", utc(), true)], &[]).await;
    let base = table.snapshot().await.unwrap();
    let at: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1_000_789]).with_timezone("UTC"));
    let mut adds = lake.files(&base, &[batch(vec![("at", at)])]).await;
    adds[0].stats = Some(
        "{\"numRecords\":1,\"minValues\":{\"at\":\"1970-01-01T00:00:01.000Z\"},\
         \"maxValues\":{\"at\":\"1970-01-01T00:00:01.000Z\"},\"nullCount\":{\"at\":0}}"
            .to_owned(),
    );
    let now = committed(table.commit(&base, Change { adds, ..Change::default() }).await.unwrap());
    let query = "select at from t where at > timestamp '1970-01-01T00:00:01.0005Z'";
    assert_eq!(lake.sql(&now, query).await.len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the rows, a filter finds in the table what it finds in memory.
    #[test]
    fn pruning_loses_no_row(
        files in proptest::collection::vec(
            proptest::collection::vec(
                (proptest::option::of(-50_i64..50), proptest::option::of("[a-c\u{e9}\u{10ffff}]{0,3}"),
                 proptest::option::of(-500_i64..500), proptest::option::of(-2000_i64..2000)), 1..5), 1..5),
        at in -50_i64..50, word in "[a-c\u{e9}]{0,2}", op in 0..4_usize,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let lake = lake();
            let fields = vec![
                int("n"), text("s"),
                Field::new("d", DataType::Decimal128(12, 3), true),
                Field::new("at", utc(), true),
                text("p"),
            ];
            let schema: SchemaRef = Arc::new(Schema::new(fields.clone()));
            let table = lake.table(fields, &["p"]).await;
            let mut all = Vec::new();
            for rows in &files {
                let n: Int64Array = rows.iter().map(|row| row.0).collect();
                let s: StringArray = rows.iter().map(|row| row.1.as_deref()).collect();
                let d: Decimal128Array = rows.iter().map(|row| row.2.map(i128::from)).collect();
                let at: TimestampMicrosecondArray = rows.iter().map(|row| row.3).collect();
                let p: StringArray = rows.iter().map(|row| row.1.as_deref().filter(|text| !text.is_empty())).collect();
                let rows = RecordBatch::try_new(Arc::clone(&schema), vec![
                    Arc::new(n), Arc::new(s), Arc::new(d.with_precision_and_scale(12, 3).unwrap()),
                    Arc::new(at.with_timezone("UTC")), Arc::new(p),
                ]).unwrap();
                lake.append(&table, std::slice::from_ref(&rows)).await;
                all.push(rows);
            }
            let op = ["<", ">=", "=", "<>"][op];
            let now = table.snapshot().await.unwrap();
            let memory = datafusion::datasource::MemTable::try_new(schema, vec![all]).unwrap();
            let session = lake.session();
            session.register_table("t", now.provider(None).unwrap()).unwrap();
            session.register_table("m", Arc::new(memory)).unwrap();
            for filter in [
                format!("n {op} {at}"),
                format!("s {op} '{word}'"),
                format!("p {op} '{word}' or n is null"),
                format!("d {op} {}", f64::from(i32::try_from(at).unwrap()) / 100.0),
                format!("at {op} timestamp '1970-01-01T00:00:00.0{:02}Z'", at.unsigned_abs()),
                format!("not (n {op} {at} and s is not null)"),
            ] {
                let mut found = Vec::new();
                for name in ["t", "m"] {
                    let query = format!("select count(*) as a, sum(n) as b, min(s) as c, max(p) as d from {name} where {filter}");
                    let rows = session.sql(&query).await.unwrap().collect().await.unwrap();
                    found.push(arrow::util::pretty::pretty_format_batches(&rows).unwrap().to_string());
                }
                assert_eq!(found[0], found[1], "{filter}");
            }
        });
    }

    /// A path in the log is read back as it was.
    #[test]
    fn paths_read_back(parts in proptest::collection::vec("[^/\u{0}]{1,12}", 1..4)) {
        let path = parts.join("/");
        let plain = parts.iter().all(|part| part != "." && part != "..") && !parts[0].ends_with(':');
        let encoded = super::super::log::encode_path(&path);
        prop_assert!(encoded.is_ascii());
        if plain {
            prop_assert_eq!(super::super::log::decode_path(&encoded).unwrap(), path);
        }
    }
}

#[tokio::test]
async fn a_small_budget_writes_every_row() {
    let lake = lake();
    let table = lake.table(vec![int("id"), text("p"), text("note")], &["p"]).await;
    let base = table.snapshot().await.unwrap();
    let rows = |from: i64| {
        let hash = |id: i64| crate::name::short_hash(&[&id.to_string()]).repeat(6);
        let notes: StringArray = (from..from + 5000).map(|id| Some(format!("{id} {}", hash(id)))).collect();
        let parts: StringArray = (from..from + 5000).map(|id| Some(format!("p{}", id % 7))).collect();
        batch(vec![("id", ints(from..from + 5000)), ("p", Arc::new(parts)), ("note", Arc::new(notes))])
    };
    let batches: Vec<RecordBatch> = (0..8).map(|step| rows(step * 5000)).collect();
    let options = WriterOptions { target_bytes: 64 << 20, memory_bytes: 1 << 20 };
    let adds = lake.files_with(&base, &batches, options).await;
    assert_eq!(adds.iter().map(|file| file.rows.unwrap()).sum::<u64>(), 40_000);
    for file in &adds {
        let meta = lake.store.head(&format!("raw/t/{}", file.path)).await.unwrap().unwrap();
        assert_eq!(meta.size, file.size);
    }
    let now = committed(table.commit(&base, Change { adds, ..Change::default() }).await.unwrap());
    let query = "select count(*), count(distinct id), sum(cast(split_part(note, ' ', 1) as bigint)) - sum(id) from t";
    assert_eq!(lake.sql(&now, query).await, ["40000|40000|0"]);
    assert_eq!(lake.sql(&now, "select count(*) from t where p = 'p3' and id % 7 <> 3").await, ["0"]);

    // Files end at about their target.
    let options = WriterOptions { target_bytes: 64 << 10, memory_bytes: 1 << 20 };
    let adds = lake.files_with(&now, &batches, options).await;
    assert!(adds.len() > 14, "{}", adds.len());
    assert!(adds.iter().all(|file| file.size < 1 << 19));
}

#[tokio::test]
async fn without_a_local_folder_everything_goes_through_the_store() {
    let url = url::Url::parse("memory:///").unwrap();
    let store = Store::over(Arc::new(InMemory::new()), url, None);
    let table = Table::create(&store, "raw/t", &spec(vec![int("id"), text("p")], &["p"])).await.unwrap();
    let base = table.snapshot().await.unwrap();
    let clock = Arc::new(ManualClock::new(start(), 1));
    let mut writer = Writer::new(
        &store,
        "raw/t",
        base.schema(),
        base.partition_by(),
        WriterOptions::default(),
        Arc::<ManualClock>::clone(&clock),
    );
    let p: ArrayRef = Arc::new(StringArray::from(vec!["ü b"; 3]));
    writer.write(&batch(vec![("id", ints(0..3)), ("p", p)])).await.unwrap();
    let adds = writer.finish().await.unwrap();
    let now = committed(table.commit(&base, Change { adds, ..Change::default() }).await.unwrap());
    table.checkpoint().await.unwrap();
    let file = now.files().unwrap()[0].clone();
    assert_eq!(column(&now, &file, "id").await, [Some(0), Some(1), Some(2)]);
    let session = engine::session(&store, 64 << 20, 2).unwrap();
    session.register_table("t", now.provider(None).unwrap()).unwrap();
    let found =
        session.sql("select count(*) from t where p = 'ü b' and id > 0").await.unwrap().collect().await.unwrap();
    assert_eq!(found[0].column(0).as_primitive::<Int64Type>().value(0), 2);

    let gone = DataFile { path: "p=x/none.parquet".to_owned(), ..file };
    let error = match now.read(&gone, None).await {
        Ok(rows) => rows.try_collect::<Vec<_>>().await.unwrap_err(),
        Err(error) => error,
    };
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

#[tokio::test]
async fn a_thousand_files_are_one_commit() {
    let lake = lake();
    let table = lake.table(vec![int("id")], &[]).await;
    let base = lake.append(&table, &[batch(vec![("id", ints(0..10))])]).await;
    let one = base.files().unwrap()[0].clone();
    let adds: Vec<DataFile> =
        (0..1000).map(|at| DataFile { path: format!("part-{at}.parquet"), ..one.clone() }).collect();
    let now = committed(table.commit(&base, Change { adds: adds.clone(), ..Change::default() }).await.unwrap());
    assert_eq!(now.files().unwrap().len(), 1001);
    let change = Change { removes: adds, ..Change::default() };
    let now = committed(table.commit(&now, change).await.unwrap());
    assert_eq!(*now.files().unwrap(), [one]);
    let opened = Table::open(&lake.store, "raw/t").await.unwrap().unwrap().snapshot().await.unwrap();
    assert_eq!(opened.files().unwrap(), now.files().unwrap());
}
