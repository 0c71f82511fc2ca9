//! Every result is what exact arithmetic gives, or is refused.

use arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Int32Array, RecordBatch};
use arrow::compute::{CastOptions, cast_with_options, concat_batches};
use arrow::datatypes::{Decimal256Type, TimeUnit, i256};
use datafusion::datasource::MemTable;
use datafusion::prelude::SessionConfig;
use proptest::prelude::*;

use super::*;
use crate::error::Result;
use crate::lineage::engine_error;

/// A session in which partial aggregates are made in small batches, or skipped.
fn session(skip_partial: bool) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(3).with_batch_size(4);
    if skip_partial {
        config.options_mut().execution.skip_partial_aggregation_probe_rows_threshold = 1;
        config.options_mut().execution.skip_partial_aggregation_probe_ratio_threshold = 0.0;
    }
    let context = SessionContext::new_with_config(config);
    install(&context);
    context
}

/// The answer of a query over a table `t` whose rows lie in several partitions.
fn ask(context: &SessionContext, table: &RecordBatch, sql: &str) -> Result<RecordBatch> {
    let third = table.num_rows().div_ceil(3).max(1);
    let parts = (0..table.num_rows()).step_by(third);
    let parts: Vec<_> = parts.map(|at| vec![table.slice(at, third.min(table.num_rows() - at))]).collect();
    let parts = if parts.is_empty() { vec![vec![table.clone()]] } else { parts };
    context.deregister_table("t").unwrap();
    context.register_table("t", Arc::new(MemTable::try_new(table.schema(), parts).unwrap())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let frame = context.sql(sql).await.unwrap();
        let schema = Arc::clone(frame.schema().inner());
        let batches = frame.collect().await.map_err(engine_error)?;
        Ok(concat_batches(&schema, &batches).unwrap())
    })
}

/// Whole numbers as a column of `data_type`; those of a decimal are counted in its last digit.
fn column(data_type: &DataType, values: &[Option<i128>]) -> ArrayRef {
    let whole = Decimal128Array::from_iter(values.iter().copied());
    if let DataType::Decimal128(precision, scale) = data_type {
        return Arc::new(whole.with_precision_and_scale(*precision, *scale).unwrap());
    }
    let whole: ArrayRef = Arc::new(whole.with_precision_and_scale(38, 0).unwrap());
    match data_type {
        DataType::Duration(_) => cast(&cast(&whole, &DataType::Int64), data_type),
        other => cast(&whole, other),
    }
}

fn cast(array: &ArrayRef, data_type: &DataType) -> ArrayRef {
    cast_with_options(array, data_type, &CastOptions { safe: false, ..CastOptions::default() }).unwrap()
}

/// The values of a column as whole numbers, those of a decimal in its last digit.
fn wholes(array: &ArrayRef) -> Vec<Option<i256>> {
    let scale = match array.data_type() {
        DataType::Decimal128(_, scale) => *scale,
        _ => 0,
    };
    let array = match array.data_type() {
        DataType::Duration(_) => cast(array, &DataType::Int64),
        _ => Arc::clone(array),
    };
    cast(&array, &DataType::Decimal256(76, scale)).as_primitive::<Decimal256Type>().iter().collect()
}

fn whole(value: i128) -> i256 {
    i256::from_i128(value)
}

fn ten_to(power: usize) -> i256 {
    (0..power).fold(i256::ONE, |product, _| product * whole(10))
}

/// The least and the greatest value of a type.
fn range(data_type: &DataType) -> (i256, i256) {
    let bits = |bits: u32, signed: bool| match signed {
        true => (whole(-(1 << (bits - 1))), whole((1 << (bits - 1)) - 1)),
        false => (i256::ZERO, whole((1 << bits) - 1)),
    };
    match data_type {
        DataType::Int8 => bits(8, true),
        DataType::Int16 => bits(16, true),
        DataType::Int32 => bits(32, true),
        DataType::UInt8 => bits(8, false),
        DataType::UInt16 => bits(16, false),
        DataType::UInt32 => bits(32, false),
        DataType::UInt64 => bits(64, false),
        DataType::Int64 | DataType::Duration(_) => bits(64, true),
        DataType::Decimal128(precision, _) => {
            let beyond = ten_to(usize::from(*precision));
            (i256::ONE - beyond, beyond - i256::ONE)
        }
        other => panic!("{other} has no range here"),
    }
}

fn fits(value: i256, data_type: &DataType) -> bool {
    let (least, greatest) = range(data_type);
    (least..=greatest).contains(&value)
}

#[test]
fn operators_give_the_exact_result_or_name_themselves() {
    let context = session(false);
    let (int, long) = (DataType::Int32, DataType::Int64);
    let (least, most) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let digits = 10_i128.pow(38) - 1;
    let wide = DataType::Decimal128(38, 0);
    for (data_type, a, b, expression, expected) in [
        (&long, most, 1, "a + b", Err("`t.a + t.b` does not fit into int64")),
        (&long, most, 1, "a + 9223372036854775807", Err("`t.a + 9223372036854775807` does not fit into int64")),
        (&long, most, 0, "a + b", Ok(most)),
        (&long, least, 1, "a - b", Err("`t.a - t.b`")),
        (&long, most, 2, "b * a - 1", Err("`t.b * t.a`")),
        (&long, least, -1, "a / b", Err("`t.a / t.b` does not fit")),
        (&long, least, -1, "a % b", Ok(0)),
        (&long, 1, 0, "a / b", Err("`t.a / t.b` divides by zero")),
        (&long, 1, 0, "a % b", Err("divides by zero")),
        (&long, least, 0, "-a", Err("`(- t.a)` does not fit into int64")),
        (&long, most, 0, "-a", Ok(-most)),
        (&long, most, 1, "case when b = 2 then a + b else 7 end", Ok(7)),
        (&long, most, 1, "cast(a as decimal(38,0)) + b", Ok(most + 1)),
        // The engine would fold this into a negative number before it runs.
        (&long, 0, 0, "a + (9223372036854775807 + 1)", Err("does not fit")),
        (&int, i128::from(i32::MAX), 1, "a + b", Err("does not fit into int32")),
        (&int, i128::from(i32::MAX), 1, "a + cast(b as bigint)", Ok(1 << 31)),
        (&int, i128::from(i32::MAX), 1, "a + 1", Ok(1 << 31)),
        (&wide, digits, 1, "a + b", Err("does not fit into decimal(38,0)")),
        (&wide, -digits, 1, "a - b", Err("does not fit into decimal(38,0)")),
        (&wide, digits, 2, "a * b", Err("does not fit into decimal(38,0)")),
        (&wide, digits, 1, "a - b", Ok(digits - 1)),
    ] {
        let columns = [("a", column(data_type, &[Some(a)])), ("b", column(data_type, &[Some(b)]))];
        let table = RecordBatch::try_from_iter(columns).unwrap();
        let answer = ask(&context, &table, &format!("select {expression} as c from t"));
        match (answer, expected) {
            (Ok(answer), Ok(expected)) => assert_eq!(wholes(answer.column(0)), [Some(whole(expected))], "{expression}"),
            (Err(error), Err(expected)) => {
                assert!(error.message().contains(expected), "{expression}: {error}");
                assert!(error.remedy_text().is_some(), "{expression}");
            }
            (answer, expected) => panic!("{expression} of {a} and {b}: {answer:?}, not {expected:?}"),
        }
    }
}

/// A cast that drops digits stands where it is written: no comparison is made with what it was made of.
#[test]
fn casts_of_decimals_are_not_undone_by_comparisons() {
    let context = session(false);
    let money = DataType::Decimal128(10, 2);
    let table = RecordBatch::try_from_iter([("m", column(&money, &[Some(110), Some(100), Some(199), None]))]).unwrap();
    for (condition, expected) in [
        ("cast(m as int) = 1", 3),
        ("cast(m as bigint) > 1", 0),
        ("cast(m as decimal(10,0)) = 2", 1),
        ("cast(m as decimal(12,3)) = 1.1", 1),
        ("try_cast(m as decimal(2,2)) is null", 4),
    ] {
        let found = ask(&context, &table, &format!("select count(*) as n from t where {condition}")).unwrap();
        assert_eq!(wholes(found.column(0)), [Some(whole(expected))], "{condition}");
    }
    let refused = ask(&context, &table, "select * from t where cast(m as decimal(2,2)) < 6").unwrap_err();
    assert!(refused.to_string().contains("does not fit into decimal(2,2)"), "{refused}");
    let named = ask(&context, &table, "select cast(m as int) from t").unwrap();
    assert_eq!(named.schema().field(0).name(), "t.m");
}

/// The least and the greatest of floats, wherever a NaN stands among them.
#[test]
fn extremes_of_floats_do_not_depend_on_the_order_of_rows() {
    use arrow::array::{Float32Array, Float64Array};
    let floats = [f64::NAN, 1.5, -f64::NAN, -0.0, 0.0, f64::NEG_INFINITY];
    for skip_partial in [false, true] {
        let context = session(skip_partial);
        for turn in 0..floats.len() {
            let mut turned = floats;
            turned.rotate_left(turn);
            let groups: ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values([1; 6]));
            let narrow = turned.map(|value| value as f32);
            let table = RecordBatch::try_from_iter([
                ("k", groups),
                ("f", Arc::new(Float64Array::from_iter_values(turned)) as ArrayRef),
                ("g", Arc::new(Float32Array::from_iter_values(narrow)) as ArrayRef),
            ])
            .unwrap();
            let sql = "select min(f) as a, max(f) as b, max(f) filter (where f between -1 and 0) as c, max(g) as d, min(k) as e from t";
            for sql in [sql.to_owned(), format!("{sql} group by k")] {
                let found = ask(&context, &table, &sql).unwrap();
                let double = |at: usize| found.column(at).as_primitive::<arrow::datatypes::Float64Type>().value(0);
                assert_eq!((double(0), double(1).is_nan()), (f64::NEG_INFINITY, true), "{turned:?}");
                assert_eq!(double(2).to_bits(), 0.0_f64.to_bits(), "{turned:?}");
                assert!(found.column(3).as_primitive::<arrow::datatypes::Float32Type>().value(0).is_nan());
                assert_eq!(wholes(found.column(4)), [Some(whole(1))]);
            }
        }
    }
}

#[test]
fn names_and_types_are_those_of_the_operators() {
    let checked = session(false);
    let plain = SessionContext::new();
    let columns = [("a", column(&DataType::Int32, &[Some(5)])), ("b", column(&DataType::Decimal128(9, 2), &[Some(5)]))];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    for sql in [
        "select a + 1, -a, a * b, b / a, b % 3, 2.5 * a, date '2024-01-01' + interval '1 day' from t",
        "select a + 1, sum(b * a), avg(a), avg(b), sum(a) over (order by b), sum(distinct b) from t group by a + 1, a, b",
        "select count(*) from t where a + 1 in (select a * 6 - 24 from t) group by a % 2 having sum(a + 1) > a % 2 - 7",
    ] {
        let ours = ask(&checked, &table, sql).unwrap();
        let theirs = ask(&plain, &table, sql).unwrap();
        let described = |batch: &RecordBatch| -> Vec<(String, DataType)> {
            batch.schema().fields().iter().map(|field| (field.name().clone(), field.data_type().clone())).collect()
        };
        assert_eq!(described(&ours), described(&theirs), "{sql}");
        assert_eq!(ours.columns(), theirs.columns(), "{sql}");
    }
}

#[test]
fn what_cannot_be_summed_exactly_is_refused_when_it_is_planned() {
    let context = session(false);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (sql, reason) in [
        ("select sum(interval '1 day')", "sum of intervals could wrap"),
        ("select avg(arrow_cast(1, 'Decimal256(70, 0)'))", "at most 66 digits"),
    ] {
        let error = runtime.block_on(context.sql(sql)).unwrap_err();
        assert!(error.to_string().contains(reason), "{sql}: {error}");
    }
}

const INTEGERS: [DataType; 8] = [
    DataType::Int8,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::UInt8,
    DataType::UInt16,
    DataType::UInt32,
    DataType::UInt64,
];

/// A value of a type, often an extreme one or a small one.
fn value_of(data_type: &DataType) -> BoxedStrategy<i128> {
    let (least, greatest) = range(data_type);
    let (least, greatest) = (least.to_i128().unwrap(), greatest.to_i128().unwrap());
    prop_oneof![
        least..=greatest,
        least..=least + 2,
        greatest - 2..=greatest,
        (least.max(-3))..=3_i128,
        least / 2..=least / 2 + 1,
        greatest / 2..=greatest / 2 + 1,
    ]
    .boxed()
}

fn decimal() -> impl Strategy<Value = DataType> {
    (1_u8..=38, 0_i8..=12).prop_map(|(precision, scale)| DataType::Decimal128(precision, scale.min(precision as i8)))
}

fn typed_pair(types: impl Strategy<Value = (DataType, DataType)>) -> impl Strategy<Value = [(DataType, i128); 2]> {
    types.prop_flat_map(|(left, right)| {
        (value_of(&left), value_of(&right)).prop_map(move |(a, b)| [(left.clone(), a), (right.clone(), b)])
    })
}

fn outcome([(left, a), (right, b)]: &[(DataType, i128); 2], operator: &str) -> Result<ArrayRef> {
    let columns = [("a", column(left, &[Some(*a)])), ("b", column(right, &[Some(*b)]))];
    let table = RecordBatch::try_from_iter(columns).unwrap();
    let answer = ask(&session(false), &table, &format!("select a {operator} b from t"));
    answer.map(|answer| Arc::clone(answer.column(0)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn integers_are_exact_or_refused(
        pair in typed_pair(prop::sample::select(&INTEGERS[..]).prop_map(|of| (of.clone(), of))),
        operator in prop::sample::select(&["+", "-", "*", "/", "%"][..]),
    ) {
        let [(data_type, a), (_, b)] = &pair;
        let exact = match operator {
            "+" => Some(whole(*a) + whole(*b)),
            "-" => Some(whole(*a) - whole(*b)),
            "*" => Some(whole(*a) * whole(*b)),
            "/" => (*b != 0).then(|| whole(*a / *b)),
            _ => (*b != 0).then(|| whole(*a % *b)),
        };
        match (outcome(&pair, operator), exact.filter(|exact| fits(*exact, data_type))) {
            (Ok(result), Some(exact)) => prop_assert_eq!(wholes(&result), [Some(exact)]),
            (Err(_), None) => {}
            (result, exact) => prop_assert!(false, "{result:?}, not {exact:?}"),
        }
    }

    #[test]
    fn decimals_are_exact_or_refused(
        pair in typed_pair((decimal(), decimal())),
        operator in prop::sample::select(&["+", "-", "*"][..]),
    ) {
        let [(left, a), (right, b)] = &pair;
        let scale = |of: &DataType| match of { DataType::Decimal128(_, scale) => usize::try_from(*scale).unwrap(), _ => 0 };
        let common = scale(left).max(scale(right));
        let (aligned_a, aligned_b) =
            (whole(*a) * ten_to(common - scale(left)), whole(*b) * ten_to(common - scale(right)));
        let widest = DataType::Decimal128(38, 0);
        let (exact, on_the_way) = match operator {
            "+" => (aligned_a + aligned_b, [aligned_a, aligned_b]),
            "-" => (aligned_a - aligned_b, [aligned_a, aligned_b]),
            _ => (whole(*a) * whole(*b), [whole(*a), whole(*b)]),
        };
        match outcome(&pair, operator) {
            Ok(result) => prop_assert_eq!(wholes(&result), [Some(exact)]),
            Err(error) => prop_assert!(
                [exact, on_the_way[0], on_the_way[1]].iter().any(|value| !fits(*value, &widest)),
                "{} was refused: {error}", exact
            ),
        }
    }

    #[test]
    fn sums_are_exact_or_refused(
        (data_type, rows) in prop::sample::select(&[
            DataType::Int16,
            DataType::Int64,
            DataType::UInt64,
            DataType::Duration(TimeUnit::Microsecond),
            DataType::Decimal128(5, 2),
            DataType::Decimal128(26, 3),
            DataType::Decimal128(27, 3),
            DataType::Decimal128(38, 0),
            DataType::Decimal128(38, 10),
        ][..]).prop_flat_map(|data_type| {
            let row = (0_i32..3, prop::option::weighted(0.8, value_of(&data_type)));
            (Just(data_type), prop::collection::vec(row, 0..24))
        }),
        skip_partial: bool,
    ) {
        let values: Vec<Option<i128>> = rows.iter().map(|(_, value)| *value).collect();
        let groups = Int32Array::from_iter_values(rows.iter().map(|(group, _)| *group));
        let numbers = Int32Array::from_iter_values(0..i32::try_from(rows.len()).unwrap());
        let table = RecordBatch::try_from_iter([
            ("n", Arc::new(numbers) as ArrayRef),
            ("g", Arc::new(groups) as ArrayRef),
            ("v", column(&data_type, &values)),
        ]).unwrap();
        let of_groups = |keep: &dyn Fn(&[i128]) -> Vec<i128>| -> Vec<Vec<i128>> {
            let present = (0..3).filter(|group| rows.iter().any(|row| row.0 == *group));
            present.map(|group| {
                keep(&rows.iter().filter(|row| row.0 == group).filter_map(|row| row.1).collect::<Vec<_>>())
            }).collect()
        };
        let distinct = |values: &[i128]| {
            let mut values = values.to_vec();
            values.sort_unstable();
            values.dedup();
            values
        };
        let window = |from: &dyn Fn(usize) -> usize| -> Vec<Vec<i128>> {
            (0..rows.len()).map(|at| {
                let before = rows[from(at)..=at].iter();
                before.filter_map(|row| row.1).collect()
            }).collect()
        };
        let context = session(skip_partial);
        for (sql, summed) in [
            ("select sum(v) from t", vec![values.iter().flatten().copied().collect::<Vec<_>>()]),
            ("select sum(v) from t group by g order by g", of_groups(&<[i128]>::to_vec)),
            ("select sum(distinct v) from t group by g order by g", of_groups(&distinct)),
            ("select sum(v) filter (where n % 1 = 0) from t group by g order by g", of_groups(&<[i128]>::to_vec)),
            ("select sum(v) over (order by n) from t order by n", window(&|_| 0)),
            ("select sum(v) over (order by n rows 2 preceding) from t order by n", window(&|at| at.saturating_sub(2))),
        ] {
            let exact: Vec<Option<i256>> = summed.iter().map(|values| sum_of(values)).collect();
            let answer = ask(&context, &table, sql);
            let result_type = match &data_type {
                DataType::Int16 => DataType::Int64,
                DataType::Decimal128(precision, scale) => DataType::Decimal128(38.min(precision + 10), *scale),
                other => other.clone(),
            };
            match (answer, exact.iter().flatten().all(|sum| fits(*sum, &result_type))) {
                (Ok(answer), true) => {
                    prop_assert_eq!(answer.column(0).data_type(), &result_type, "{}", sql);
                    prop_assert_eq!(wholes(answer.column(0)), exact, "{}", sql);
                }
                (Err(error), false) => {
                    prop_assert!(error.message().contains("sum(") && error.remedy_text().is_some(), "{sql}: {error}");
                }
                (answer, _) => prop_assert!(false, "{sql}: {answer:?}, not {exact:?}"),
            }
        }
        averages(&context, &table, &data_type, &of_groups(&<[i128]>::to_vec))?;
    }
}

fn sum_of(values: &[i128]) -> Option<i256> {
    (!values.is_empty()).then(|| values.iter().fold(i256::ZERO, |sum, value| sum + whole(*value)))
}

/// Averages of decimals have four digits more and are cut after them; those of durations are cut to whole ones.
fn averages(
    context: &SessionContext,
    table: &RecordBatch,
    data_type: &DataType,
    groups: &[Vec<i128>],
) -> Result<(), TestCaseError> {
    let result_type = match data_type {
        DataType::Decimal128(precision, scale) => DataType::Decimal128(38.min(precision + 4), scale + 4),
        DataType::Duration(_) => data_type.clone(),
        _ => return Ok(()),
    };
    let more = if data_type.is_decimal() { ten_to(4) } else { i256::ONE };
    let exact: Vec<Option<i256>> =
        groups.iter().map(|values| sum_of(values).map(|sum| sum * more / whole(values.len() as i128))).collect();
    match ask(context, table, "select avg(v) from t group by g order by g") {
        Ok(answer) => prop_assert_eq!(wholes(answer.column(0)), exact),
        Err(error) => prop_assert!(
            exact.iter().flatten().any(|average| !fits(*average, &result_type)),
            "{exact:?} was refused: {error}"
        ),
    }
    Ok(())
}
