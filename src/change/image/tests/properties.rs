//! Any event, against a reading of it that is slow and simple.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn text() -> impl Strategy<Value = Value> {
    prop_oneof!["[a-c\"\\\\é\u{2028}\n{}\\[\\],: ]{0,10}".prop_map(Into::into), Just(Value::Null)]
}

fn row() -> impl Strategy<Value = Map<String, Value>> {
    let number = prop_oneof![any::<i32>().prop_map(Value::from), Just(Value::Null)];
    let other = prop_oneof![Just(json!({"id": 9, "after": {"v": "x"}})), Just(json!([1, "}", {"]": 2}])), text()];
    let members = (0_i64..5, text(), number, other).prop_map(|(id, v, n, other)| {
        [("id", Value::from(id)), ("v", v), ("n", n), ("other", other)]
            .map(|(name, value)| (name.to_owned(), value))
            .to_vec()
    });
    (members.prop_shuffle(), proptest::bool::weighted(0.2)).prop_map(|(mut members, lacks)| {
        if lacks {
            members.retain(|(name, _)| name == "id");
        }
        members.into_iter().collect()
    })
}

#[derive(Debug, Clone)]
struct Event {
    op: &'static str,
    before: Option<Map<String, Value>>,
    after: Map<String, Value>,
    wrapped: bool,
    bare: bool,
    pretty: bool,
}

fn event() -> impl Strategy<Value = Event> {
    let ops = prop_oneof![Just("r"), Just("c"), Just("u"), Just("d"), Just("t")];
    (ops, proptest::option::of(row()), row(), any::<[bool; 3]>())
        .prop_map(|(op, before, after, [wrapped, bare, pretty])| Event { op, before, after, wrapped, bare, pretty })
}

/// Rank, key, `v` and `n` of a row.
type Expected = (i8, Option<i64>, Option<String>, Option<i64>);

impl Event {
    fn line(&self) -> String {
        let before = self.before.clone().map_or(Value::Null, Value::Object);
        let before = if self.op == "d" { Value::Object(self.after.clone()) } else { before };
        let after = if matches!(self.op, "d" | "t") { Value::Null } else { Value::Object(self.after.clone()) };
        let source = json!({"ts_ms": 5000, "lsn": 100, "schema": "public", "table": "t"});
        let mut value = json!({"before": before, "after": after, "source": source, "op": self.op});
        if self.wrapped {
            value = json!({"schema": {"fields": [{"field": "after"}]}, "payload": value});
        }
        if !self.bare {
            let key = if self.op == "t" { Value::Null } else { json!({"id": self.after["id"]}) };
            value = json!({"topic": "x", "partition": 0, "offset": 1, "key": key, "value": value});
        }
        if self.pretty { serde_json::to_string_pretty(&value).unwrap().replace('\n', " ") } else { value.to_string() }
    }

    /// The rows that it gives.
    fn expected(&self) -> Vec<Expected> {
        let id = self.after["id"].as_i64();
        let text = |row: &Map<String, Value>| row.get("v").and_then(Value::as_str).map(str::to_owned);
        let number = |row: &Map<String, Value>| row.get("n").and_then(Value::as_i64);
        match self.op {
            "t" => vec![(4, None, None, None)],
            "d" => vec![(3, id, None, None)],
            op => {
                let rank = ["r", "c", "u"].iter().position(|letter| *letter == op).unwrap() as i8;
                let mut rows = vec![(rank, id, text(&self.after), number(&self.after))];
                let was = self.before.as_ref().and_then(|before| before["id"].as_i64());
                rows.extend(was.filter(|was| Some(*was) != id).map(|was| (3, Some(was), None, None)));
                rows
            }
        }
    }
}

proptest! {
    #[test]
    fn rows_are_those_of_a_slow_reading(events in proptest::collection::vec(event(), 1..12), cut in 0_usize..12) {
        let contract = contract(COLUMNS);
        let lines: Vec<String> = events.iter().map(Event::line).collect();
        let images = Images::new(&contract).unwrap();
        let kept = kept(&lines);
        let rows = images.read(&kept).unwrap();
        let column = |name: &str| Arc::clone(rows.column_by_name(name).unwrap());
        let (rank, id, v, n) = (column("_rank"), column("id"), column("v"), column("n"));
        let cell = |array: &ArrayRef, row: usize| value_text(array, row).unwrap();
        let found: Vec<_> = (0..rows.num_rows())
            .map(|row| (cell(&rank, row), cell(&id, row), cell(&v, row), cell(&n, row)))
            .collect();
        let number = |number: Option<i64>| number.map(|number| number.to_string());
        let wanted: Vec<_> = events
            .iter()
            .flat_map(Event::expected)
            .map(|(rank, id, v, n)| (Some(rank.to_string()), number(id), v, number(n)))
            .collect();
        prop_assert_eq!(found, wanted);

        // However the events are split.
        let cut = cut.min(lines.len());
        let parts = [kept.slice(0, cut), kept.slice(cut, lines.len() - cut)].map(|part| images.read(&part).unwrap());
        prop_assert_eq!(arrow::compute::concat_batches(images.schema(), &parts).unwrap(), rows);
    }

    #[test]
    fn no_line_breaks_the_reader(line in "[\\PC\"{}\\[\\],: ]{0,60}", cut in 0_usize..200, with in "[\"{}\\[\\],:x]{0,3}") {
        let contract = contract(COLUMNS);
        let good = create(r#"{"id":1,"v":"a\"b","n":3}"#);
        let cut = cut.min(good.len());
        let (head, tail) = good.split_at(cut);
        // Kept as an event although it is none: what is walked over without care must not be believed either.
        let mut kept = kept(&[good.clone(), good.clone()]);
        let broken = [format!("{head}{with}{tail}"), line];
        let events: ArrayRef = Arc::new(arrow::array::BinaryArray::from_iter_values(broken.iter().map(String::as_bytes)));
        let mut columns = kept.columns().to_vec();
        columns[kept.schema().index_of("event").unwrap()] = events;
        kept = RecordBatch::try_new(kept.schema(), columns).unwrap();
        prop_assert!(Images::new(&contract).unwrap().read(&kept).is_ok());
    }
}
