//! Any changes, in any order and split, against definitions that are written another way: event by event, nothing carried
//! along, no arrays.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Int32Array, ListBuilder, StringArray, StringBuilder};
use arrow::datatypes::{Field, Schema, TimeUnit};
use proptest::prelude::*;

use super::*;

/// A delivery of a change of a person, as a database would tell of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Delivery {
    key: i64,
    ts_ms: i64,
    lsn: i64,
    op: Op,
    /// Partition and offset, or a file and a line.
    place: Result<(i32, i64), (&'static str, i64)>,
    name: Option<&'static str>,
    /// None: it was not sent.
    bio: Option<Option<&'static str>>,
    read_at: i64,
}

impl Delivery {
    fn position(&self) -> (i64, i64, Op) {
        (self.ts_ms, self.lsn, self.op)
    }

    fn rank_of_place(&self) -> (bool, i32, i64, &'static str) {
        match self.place {
            Ok((partition, offset)) => (false, partition, offset, ""),
            Err((file, line)) => (true, 0, line, file),
        }
    }

    fn is_upsert(&self) -> bool {
        self.op < Op::Delete
    }

    fn event(&self) -> String {
        format!("{:?}", (self.key, self.position(), self.rank_of_place()))
    }
}

/// The rules: a name is there; who is called `b` has not the bio `x`.
fn rules(name: Option<&str>, bio: Option<Option<&str>>) -> Vec<String> {
    let mut broken = Vec::new();
    if name == Some("b") && bio == Some(Some("x")) {
        broken.push("b_with_x".to_owned());
    }
    if name.is_none() {
        broken.push("name_missing".to_owned());
    }
    broken
}

fn instant() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()))
}

fn shape() -> Shape {
    let field = |name: &str, kind: DataType| Field::new(name, kind, true);
    let (text, long) = (DataType::Utf8, DataType::Int64);
    Shape {
        source_table: "public.people".to_owned(),
        key: vec!["id".to_owned()],
        sequence: vec!["_ts_ms".to_owned(), "_lsn".to_owned()],
        columns: Arc::new(Schema::new(vec![
            field("id", long.clone()),
            field("name", text.clone()),
            field("bio", text.clone()),
            field("_ts_ms", long.clone()),
            field("_lsn", long.clone()),
        ])),
        history: Some(HistoryShape {
            columns: Arc::new(Schema::new(vec![
                field("id", long.clone()),
                field("version", long.clone()),
                field("name", text.clone()),
                field("bio", text),
                field("valid_from", instant()),
                field("valid_to", instant()),
                field("is_current", DataType::Boolean),
                field("_lsn", long),
            ])),
            track: vec!["name".to_owned(), "bio".to_owned()],
        }),
    }
}

fn lists(rows: impl Iterator<Item = Vec<String>>) -> ArrayRef {
    let item = Field::new("element", DataType::Utf8, true);
    let mut lists = ListBuilder::new(StringBuilder::new()).with_field(item);
    for row in rows {
        row.iter().for_each(|name| lists.values().append_value(name));
        lists.append(!row.is_empty());
    }
    Arc::new(lists.finish())
}

/// Deliveries as kept changes.
fn kept(deliveries: &[Delivery]) -> RecordBatch {
    let longs = |of: &dyn Fn(&Delivery) -> Option<i64>| -> ArrayRef {
        Arc::new(deliveries.iter().map(of).collect::<Int64Array>())
    };
    let texts = |of: &dyn Fn(&Delivery) -> Option<String>| -> ArrayRef {
        Arc::new(deliveries.iter().map(of).collect::<StringArray>())
    };
    let unavailable = |d: &Delivery| d.is_upsert() && d.bio.is_none();
    let broken = |d: &Delivery| if d.is_upsert() { rules(d.name, d.bio) } else { Vec::new() };
    let is_kept_whole = |d: &Delivery| unavailable(d) || !broken(d).is_empty();
    let digest = |d: &Delivery| i64::from(crc(&format!("{:?}", (d.name, d.bio))));
    let bio = |d: &Delivery| d.bio.unwrap_or(Some("unavailable")).map(str::to_owned).filter(|_| d.is_upsert());
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", longs(&|d| (d.op != Op::Truncate).then_some(d.key))),
        ("_ts_ms", longs(&|d| Some(d.ts_ms))),
        ("_lsn", longs(&|d| Some(d.lsn))),
        (stored::RANK, Arc::new(deliveries.iter().map(|d| Some(d.op.rank())).collect::<Int8Array>())),
        (
            stored::PARTITION,
            Arc::new(deliveries.iter().map(|d| d.place.ok().map(|place| place.0)).collect::<Int32Array>()),
        ),
        (stored::OFFSET, longs(&|d| d.place.ok().map(|place| place.1))),
        (stored::FILE, texts(&|d| d.place.err().map(|place| place.0.to_owned()))),
        (stored::ROW, longs(&|d| d.place.err().map(|place| place.1))),
        ("name", texts(&|d| d.name.filter(|_| d.is_upsert()).map(str::to_owned))),
        ("bio", texts(&bio)),
        (
            stored::UNAVAILABLE,
            lists(deliveries.iter().map(|d| if unavailable(d) { vec!["bio".to_owned()] } else { Vec::new() })),
        ),
        (stored::BROKEN, lists(deliveries.iter().map(broken))),
        (stored::KEY, texts(&|d| is_kept_whole(d).then(|| format!("{{\"id\":{}}}", d.key)))),
        (stored::OP, texts(&|d| is_kept_whole(d).then(|| d.op.letter().to_owned()))),
        (stored::TOPIC, texts(&|_| None)),
        (
            stored::EVENT,
            Arc::new(
                deliveries
                    .iter()
                    .map(|d| is_kept_whole(d).then(|| d.event().into_bytes()))
                    .collect::<arrow::array::BinaryArray>(),
            ),
        ),
        (stored::DIGEST, longs(&|d| Some(digest(d)))),
        (READ_AT, longs(&|d| Some(d.read_at))),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true))).unwrap()
}

fn crc(text: &str) -> u32 {
    text.bytes().fold(17, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
}

/// Rows as texts, in their order.
fn shown(batch: &RecordBatch) -> Vec<String> {
    let formatters: Vec<_> = batch
        .columns()
        .iter()
        .map(|column| arrow::util::display::ArrayFormatter::try_new(column, &Default::default()).unwrap())
        .collect();
    let cell = |formatter: &arrow::util::display::ArrayFormatter<'_>, row| formatter.value(row).to_string();
    (0..batch.num_rows()).map(|row| formatters.iter().map(|f| cell(f, row)).collect::<Vec<_>>().join("|")).collect()
}

/// Judges resolved rows by the same rules; counts how often it was asked.
fn judge(batch: &RecordBatch) -> Result<Vec<Vec<String>>> {
    let text = |name: &str, row: usize| {
        let column = batch.column_by_name(name).unwrap().as_string::<i32>();
        column.is_valid(row).then(|| column.value(row).to_owned())
    };
    let of = |row| rules(text("name", row).as_deref(), Some(text("bio", row).as_deref()));
    Ok((0..batch.num_rows()).map(of).collect())
}

/// What came of a walk: present rows, history, quarantine, ties, ties that were known.
type Told = (Vec<String>, Vec<String>, Vec<String>, u64, u64);

/// Walks slices of keys, as they come when not all changes are held at once.
fn told(batches: &[RecordBatch], known: i64, keys_at_once: usize) -> Told {
    let shape = shape();
    let all = sorted(&shape, batches).unwrap();
    let mut walker = Walker::new(&shape, &judge, known);
    let keys = all.column(0).as_primitive::<Int64Type>();
    let mut told = Told::default();
    let mut from = 0;
    let mut seen = 0;
    for row in 1..=all.num_rows() {
        let ends = row == all.num_rows()
            || keys.is_null(row - 1) != keys.is_null(row)
            || keys.value(row - 1) != keys.value(row);
        seen += usize::from(ends);
        if ends && (seen >= keys_at_once || row == all.num_rows()) {
            let walked = walker.walk(&all.slice(from, row - from)).unwrap();
            told.0.extend(shown(&walked.rows));
            told.1.extend(shown(&walked.history.unwrap()));
            told.2.extend(shown(&walked.quarantine));
            told.3 += walked.ties;
            told.4 += walked.known_ties;
            (from, seen) = (row, 0);
        }
    }
    told.2.sort();
    told
}

/// The definitions.
struct Plain<'a> {
    /// The delivery of each change that counts.
    changes: BTreeMap<(i64, (i64, i64, Op)), &'a Delivery>,
    cuts: BTreeSet<(i64, i64, Op)>,
}

impl<'a> Plain<'a> {
    fn of(deliveries: &'a [Delivery]) -> Self {
        let mut changes: BTreeMap<(i64, (i64, i64, Op)), &Delivery> = BTreeMap::new();
        for delivery in deliveries.iter().filter(|d| d.op != Op::Truncate) {
            let counts = changes.entry((delivery.key, delivery.position())).or_insert(delivery);
            let order =
                |d: &Delivery| (d.rank_of_place().0, d.rank_of_place().1, d.rank_of_place().3, d.rank_of_place().2);
            if order(delivery) < order(counts) {
                *counts = delivery;
            }
        }
        let cuts = deliveries.iter().filter(|d| d.op == Op::Truncate).map(Delivery::position).collect();
        Self { changes, cuts }
    }

    fn of_key(&self, key: i64) -> impl Iterator<Item = &'a Delivery> + '_ {
        self.changes
            .range((key, (i64::MIN, i64::MIN, Op::Read))..)
            .take_while(move |((of, _), _)| *of == key)
            .map(|(_, d)| *d)
    }

    /// What a key shows just before a position: name and bio.
    fn before(&self, key: i64, position: (i64, i64, Op)) -> Option<(&'a Delivery, Option<&'a str>)> {
        let earlier: Vec<&Delivery> = self.of_key(key).filter(|d| d.position() < position).collect();
        let last = earlier.into_iter().rev().find(|d| !d.is_upsert() || self.broken(d).is_empty())?;
        let is_cut = self.cuts.iter().any(|cut| *cut > last.position() && *cut < position);
        if is_cut || !last.is_upsert() { None } else { Some((last, self.bio(last).unwrap())) }
    }

    /// The bio of a change; none when it is not known.
    fn bio(&self, change: &'a Delivery) -> Option<Option<&'a str>> {
        change.bio.or_else(|| self.before(change.key, change.position()).map(|(_, bio)| bio))
    }

    fn broken(&self, change: &'a Delivery) -> Vec<String> {
        let bio = self.bio(change);
        let mut broken = rules(change.name, bio);
        if bio.is_none() {
            broken.push("value_unavailable".to_owned());
        }
        broken
    }

    fn told(&self) -> (Vec<String>, Vec<String>, Vec<String>) {
        let text = |value: Option<&str>| value.unwrap_or_default().to_owned();
        let instant = |ms: i64| format!("1970-01-01T00:00:00.{ms:03}Z").replace(".000Z", "Z");
        let end = (i64::MAX, i64::MAX, Op::Truncate);
        let keys: BTreeSet<i64> = self.changes.keys().map(|(key, _)| *key).collect();
        let (mut rows, mut history, mut quarantine) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            if let Some((d, bio)) = self.before(key, end) {
                rows.push(format!("{key}|{}|{}|{}|{}", text(d.name), text(bio), d.ts_ms, d.lsn));
            }
            let mut version = 0;
            let opens = |d: &'a Delivery| {
                let tracked = |d: &'a Delivery, bio| (d.name, bio);
                let before = self.before(key, d.position()).map(|(before, bio)| tracked(before, bio));
                d.is_upsert() && self.broken(d).is_empty() && before != Some(tracked(d, self.bio(d).unwrap()))
            };
            for d in self.of_key(key) {
                let broken = if d.is_upsert() { self.broken(d) } else { Vec::new() };
                if !broken.is_empty() {
                    let place = match d.place {
                        Ok((partition, offset)) => format!("{partition}|{offset}||"),
                        Err((file, line)) => format!("||{file}|{line}"),
                    };
                    let event = crate::name::hex(d.event().as_bytes());
                    quarantine.push(format!(
                        "public.people|{{\"id\":{key}}}|{}|{}|{}|[{}]|{event}||{place}",
                        d.op.letter(),
                        d.ts_ms,
                        d.lsn,
                        broken.join(", ")
                    ));
                }
                if opens(d) {
                    version += 1;
                    let ends =
                        self.of_key(key).filter(|other| !other.is_upsert() || opens(other)).map(Delivery::position);
                    let to = ends.chain(self.cuts.iter().copied()).filter(|end| *end > d.position()).min();
                    history.push(format!(
                        "{key}|{version}|{}|{}|{}|{}|{}|{}",
                        text(d.name),
                        text(self.bio(d).unwrap()),
                        instant(d.ts_ms),
                        to.map(|to| instant(to.0)).unwrap_or_default(),
                        to.is_none(),
                        d.lsn
                    ));
                }
            }
        }
        quarantine.sort();
        (rows, history, quarantine)
    }
}

/// A change: its key and where it stands.
type Identity = (i64, (i64, i64, Op));

/// Changes that came with different rows, in deliveries that hold a condition.
fn ties(deliveries: &[Delivery], among: impl Fn(&Delivery) -> bool) -> u64 {
    let mut images: BTreeMap<Identity, BTreeSet<String>> = BTreeMap::new();
    for d in deliveries.iter().filter(|d| d.is_upsert() && among(d)) {
        images.entry((d.key, d.position())).or_default().insert(format!("{:?}", (d.name, d.bio)));
    }
    images.values().filter(|images| images.len() > 1).count() as u64
}

fn a_delivery() -> impl Strategy<Value = Delivery> {
    let ops = prop::sample::select(vec![Op::Read, Op::Create, Op::Update, Op::Update, Op::Update, Op::Delete]);
    let names = prop::sample::select(vec![None, Some("a"), Some("b"), Some("b")]);
    let bios = prop::sample::select(vec![None, None, Some(None), Some(Some("x")), Some(Some("y"))]);
    let places = prop_oneof![
        (0..2_i32, 0..40_i64).prop_map(Ok),
        (prop::sample::select(vec!["a.ndjson", "b.ndjson"]), 1..20_i64).prop_map(Err)
    ];
    (0..3_i64, 0..4_i64, 0..3_i64, ops, places, names, bios, 0..3_i64, prop::bool::weighted(0.06)).prop_map(
        |(key, ts_ms, lsn, op, place, name, bio, read_at, is_truncate)| Delivery {
            key,
            ts_ms,
            lsn,
            op: if is_truncate { Op::Truncate } else { op },
            place,
            name,
            bio,
            read_at,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn any_changes_in_any_order_come_to_what_the_definitions_say(
        deliveries in prop::collection::vec(a_delivery(), 1..30),
        order in prop::collection::vec(any::<prop::sample::Index>(), 30),
        pieces in 1..5_usize,
        keys_at_once in 1..4_usize,
        known in -1..3_i64,
    ) {
        // One place is one delivery.
        let mut deliveries = deliveries;
        let mut places = BTreeSet::new();
        deliveries.retain(|d| places.insert(d.rank_of_place()));
        let plain = Plain::of(&deliveries).told();
        let counted = (ties(&deliveries, |_| true), ties(&deliveries, |d| d.read_at <= known));

        // Everything twice, in another order, in pieces.
        let mut shuffled: Vec<Delivery> = deliveries.iter().chain(&deliveries).cloned().collect();
        for (at, index) in order.iter().enumerate().take(shuffled.len()) {
            let other = index.index(shuffled.len());
            shuffled.swap(at, other);
        }
        for some in [deliveries.clone(), shuffled] {
            let batches: Vec<RecordBatch> = some.chunks(some.len().div_ceil(pieces)).map(kept).collect();
            let (rows, history, quarantine, ties, known_ties) = told(&batches, known, keys_at_once);
            prop_assert_eq!(&rows, &plain.0);
            prop_assert_eq!(&history, &plain.1);
            prop_assert_eq!(&quarantine, &plain.2);
            prop_assert_eq!((ties, known_ties), counted);
        }
    }
}

#[test]
fn a_chain_of_placeholders_is_judged_in_few_rounds() {
    let delivery = |lsn: i64, name, bio| Delivery {
        key: 1,
        ts_ms: 1,
        lsn,
        op: Op::Update,
        place: Ok((0, lsn)),
        name: Some(name),
        bio,
        read_at: 0,
    };
    let first = delivery(0, "a", Some(Some("x")));
    let rest = (1..2_000).map(|lsn| delivery(lsn, if lsn % 500 == 0 { "b" } else { "a" }, None));
    let all: Vec<Delivery> = std::iter::once(first).chain(rest).collect();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let shape = shape();
    let counting = |batch: &RecordBatch| {
        asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        judge(batch)
    };
    let walked = Walker::new(&shape, &counting, 0).walk(&sorted(&shape, &[kept(&all)]).unwrap()).unwrap();
    assert_eq!(shown(&walked.rows), ["1|a|x|1|1999"]);
    assert_eq!(walked.quarantine.num_rows(), 3);
    assert_eq!(walked.history.unwrap().num_rows(), 1);
    let asked = asked.into_inner();
    assert!(asked <= 5, "{asked} rounds");
}

#[test]
fn a_malformed_event_is_quarantined_once_for_its_text() {
    let base = kept(&[
        Delivery { key: 1, ts_ms: 1, lsn: 1, op: Op::Truncate, place: Ok((0, 1)), name: None, bio: None, read_at: 0 },
        Delivery { key: 1, ts_ms: 1, lsn: 1, op: Op::Truncate, place: Ok((0, 2)), name: None, bio: None, read_at: 0 },
        Delivery { key: 1, ts_ms: 1, lsn: 1, op: Op::Truncate, place: Ok((0, 3)), name: None, bio: None, read_at: 0 },
    ]);
    let mut columns = base.columns().to_vec();
    let mut set = |name: &str, column: ArrayRef| columns[base.schema().index_of(name).unwrap()] = column;
    set("_ts_ms", Arc::new(Int64Array::from(vec![None::<i64>; 3])));
    set(stored::RANK, Arc::new(Int8Array::from(vec![stored::MALFORMED_RANK; 3])));
    set(stored::BROKEN, lists(vec![vec!["event_malformed".to_owned()]; 3].into_iter()));
    set(stored::EVENT, Arc::new(BinaryArray::from(vec![b"x".as_slice(), b"y", b"x"])));
    let batch = RecordBatch::try_new(base.schema(), columns).unwrap();
    let (rows, history, quarantine, ..) = told(&[batch], 0, 1);
    assert_eq!((rows.len(), history.len()), (0, 0));
    assert_eq!(quarantine, ["|||||[event_malformed]|78||0|1||", "|||||[event_malformed]|79||0|2||"]);
}

#[test]
fn tracked_values_are_compared_as_values() {
    // SCD-06: null to '' and back are changes; NaN to NaN, and 0.0 to -0.0, are none.
    let column = |values: Vec<Option<f64>>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
    let plain = plain(&column(vec![Some(0.0), Some(-0.0), Some(f64::NAN), Some(-f64::NAN), None, None]));
    let compare = make_comparator(&plain, &plain, SortOptions::default()).unwrap();
    let same = [(0, 1), (2, 3), (4, 5)].map(|(a, b)| compare(a, b).is_eq());
    assert_eq!(same, [true; 3]);
    assert!(!compare(0, 4).is_eq() && !compare(2, 4).is_eq());
}
