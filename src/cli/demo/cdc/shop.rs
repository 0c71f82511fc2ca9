//! The made-up shop of the demo: transactions that can be run in its database, or written as the events that Debezium sends of
//! them.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

/// The tables, as the database makes them.
pub const SCHEMA: &str = "
create table customers (id bigint primary key, name text, email text, segment text, city text,
    created_at timestamp, updated_at timestamp, bio text);
create table products (id bigint primary key, sku text, name text, category text, price numeric(10,2));
create table orders (id bigint primary key, customer_id bigint, status text, order_ts timestamp, total numeric(10,2));
create table order_items (order_id bigint, line_no int, product_id bigint, quantity int, unit_price numeric(10,2),
    primary key (order_id, line_no));
";

/// The tables' names.
pub const TABLES: [&str; 4] = ["customers", "products", "orders", "order_items"];

/// The customer who moves twice.
pub const MOVER: u64 = 1;

/// The customer whose address is none.
pub const UNREACHABLE: u64 = 7;

/// Columns that hold instants, in microseconds.
const INSTANTS: [&str; 3] = ["created_at", "updated_at", "order_ts"];

/// Columns that hold amounts: text in events, numbers in the database.
const AMOUNTS: [&str; 3] = ["price", "total", "unit_price"];

/// Microseconds of a day.
const DAY_US: i64 = 86_400_000_000;

type Row = Map<String, Value>;

/// One change of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    table: &'static str,
    before: Option<Row>,
    after: Option<Row>,
}

/// A shop with so many customers, products and orders, and what happens in it; the same size gives the same.
#[must_use]
pub fn transactions(size: u64, began_us: i64) -> Vec<Vec<Change>> {
    let mut all = Vec::new();
    for id in 1..=size {
        all.push(vec![Change::insert("customers", customer(id, began_us)), Change::insert("products", product(id))]);
    }
    for id in 1..=size * 3 {
        // No order is younger than what is told of it.
        let at = began_us - i64::try_from(id % 9).unwrap_or(0) * DAY_US;
        let lines: Vec<Row> = (1..=1 + id % 3).map(|line| item(id, line, 1 + (id * 7 + line) % size)).collect();
        let total = lines.iter().map(|line| cents(line, "unit_price") * line["quantity"].as_i64().unwrap_or(0)).sum();
        let order = row(json!({
            "id": id, "customer_id": 1 + id % size, "status": "pending", "order_ts": at, "total": amount(total),
        }));
        let mut changes = vec![Change::insert("orders", order.clone())];
        changes.extend(lines.iter().map(|line| Change::insert("order_items", line.clone())));
        all.push(changes);
        let status = ["paid", "shipped", "cancelled"][usize::try_from(id % 3).unwrap_or(0)];
        all.push(vec![Change::update("orders", &order, &json!({ "status": status }))]);
        if id % 10 == 0 {
            let gone = Change { table: "order_items", before: lines.first().cloned(), after: None };
            all.push(vec![gone]);
        }
    }
    let first = customer(MOVER, began_us);
    let moved = Change::update("customers", &first, &json!({ "city": "Lyon" }));
    let again = Change::update("customers", &with(&first, &json!({ "city": "Lyon" })), &json!({ "city": "Austin" }));
    all.push(vec![moved]);
    all.push(vec![again]);
    let gone = Change { table: "customers", before: Some(customer(size, began_us)), after: None };
    all.push(vec![gone]);
    all
}

fn customer(id: u64, began_us: i64) -> Row {
    let email = if id == UNREACHABLE { "no address".to_owned() } else { format!("c{id}@example.org") };
    let city = ["Zürich", "Kraków", "Cork", "København"][usize::try_from(id % 4).unwrap_or(0)];
    let segment = ["consumer", "corporate", "smb", "vip"][usize::try_from(id % 4).unwrap_or(0)];
    row(json!({
        "id": id, "name": format!("Customer {id}"), "email": email, "segment": segment, "city": city,
        "created_at": began_us - 9 * DAY_US, "updated_at": began_us - 9 * DAY_US, "bio": null,
    }))
}

fn product(id: u64) -> Row {
    let category = ["books", "garden", "toys"][usize::try_from(id % 3).unwrap_or(0)];
    let price = amount(i64::try_from(100 + id * 37 % 9000).unwrap_or(100));
    row(
        json!({ "id": id, "sku": format!("sku-{id}"), "name": format!("Product {id}"), "category": category, "price": price }),
    )
}

fn item(order: u64, line: u64, product: u64) -> Row {
    let price = amount(i64::try_from(100 + product * 37 % 9000).unwrap_or(100));
    row(
        json!({ "order_id": order, "line_no": line, "product_id": product, "quantity": 1 + order % 4, "unit_price": price }),
    )
}

fn row(value: Value) -> Row {
    match value {
        Value::Object(row) => row,
        _ => Row::new(),
    }
}

fn with(row: &Row, changed: &Value) -> Row {
    let mut row = row.clone();
    row.extend(changed.as_object().cloned().unwrap_or_default());
    row
}

fn amount(cents: i64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}

fn cents(row: &Row, column: &str) -> i64 {
    row[column].as_str().and_then(|text| text.replace('.', "").parse().ok()).unwrap_or(0)
}

/// The columns of a table's key.
fn key_of(table: &str) -> &'static [&'static str] {
    if table == "order_items" { &["order_id", "line_no"] } else { &["id"] }
}

impl Change {
    fn insert(table: &'static str, after: Row) -> Self {
        Self { table, before: None, after: Some(after) }
    }

    fn update(table: &'static str, before: &Row, changed: &Value) -> Self {
        Self { table, before: Some(before.clone()), after: Some(with(before, changed)) }
    }

    /// The statement that makes the change.
    #[must_use]
    pub fn sql(&self) -> String {
        let table = self.table;
        let key = |row: &Row| {
            let columns = key_of(table).iter().map(|column| format!("{column} = {}", literal(column, &row[*column])));
            columns.collect::<Vec<_>>().join(" and ")
        };
        match (&self.before, &self.after) {
            (None, Some(row)) => {
                let names: Vec<&str> = row.keys().map(String::as_str).collect();
                let values: Vec<String> = row.iter().map(|(name, value)| literal(name, value)).collect();
                format!("insert into {table} ({}) values ({});\n", names.join(", "), values.join(", "))
            }
            (Some(old), Some(new)) => {
                let changed = new.iter().filter(|(name, value)| old.get(*name) != Some(value));
                let set: Vec<String> =
                    changed.map(|(name, value)| format!("{name} = {}", literal(name, value))).collect();
                format!("update {table} set {} where {};\n", set.join(", "), key(old))
            }
            (Some(old), None) => format!("delete from {table} where {};\n", key(old)),
            (None, None) => String::new(),
        }
    }

    /// The line of a file of Kafka's records: what Debezium sends of the change, at a position of the database's log.
    #[must_use]
    pub fn event(&self, at_ms: i64, lsn: i64, offset: i64) -> String {
        let op = match (&self.before, &self.after) {
            (None, _) => "c",
            (_, Some(_)) => "u",
            (_, None) => "d",
        };
        let known = self.after.as_ref().or(self.before.as_ref());
        let key: Row = key_of(self.table)
            .iter()
            .filter_map(|column| Some(((*column).to_owned(), known?.get(*column)?.clone())))
            .collect();
        json!({
            "topic": format!("lake.public.{}", self.table), "partition": 0, "offset": offset, "timestamp": at_ms,
            "key": key,
            "value": {
                "before": self.before, "after": self.after,
                "source": {
                    "connector": "postgresql", "name": "lake", "ts_ms": at_ms, "schema": "public", "table": self.table,
                    "lsn": lsn,
                },
                "op": op, "ts_ms": at_ms,
            },
        })
        .to_string()
    }
}

/// A value as SQL takes it.
fn literal(column: &str, value: &Value) -> String {
    match value {
        Value::String(text) if AMOUNTS.contains(&column) => text.clone(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Number(us) if INSTANTS.contains(&column) => {
            format!("timestamp 'epoch' + {us} * interval '1 microsecond'")
        }
        other => other.to_string(),
    }
}

/// The events of all changes, one file's lines: transactions a second apart, the log a few bytes further with each change.
#[must_use]
pub fn events(transactions: &[Vec<Change>], began_ms: i64) -> (String, u64) {
    let (mut lines, mut count) = (String::new(), 0_u64);
    let mut offsets = std::collections::BTreeMap::new();
    for (at, changes) in (0_i64..).zip(transactions) {
        for change in changes {
            let offset: &mut i64 = offsets.entry(change.table).or_insert(0);
            let lsn = 1_000_000 + i64::try_from(count).unwrap_or(i64::MAX) * 96;
            let _ = writeln!(lines, "{}", change.event(began_ms + at * 1000, lsn, *offset));
            *offset += 1;
            count += 1;
        }
    }
    (lines, count)
}

/// What became known late: the one who moved twice lived somewhere else in between.
#[must_use]
pub fn late(topic: &str, at_ms: i64, lsn: i64, began_us: i64) -> String {
    let before = with(&customer(MOVER, began_us), &json!({ "city": "Lyon" }));
    let change = Change::update("customers", &before, &json!({ "city": "Kobe" }));
    // An offset that the topic never has: a file's offsets are data.
    change.event(at_ms, lsn, 1_000_000_000).replace("\"lake.public.customers\"", &format!("\"{topic}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_statement_or_an_event() {
        let all = transactions(8, 1_700_000_000_000_000);
        let find = |op: &str| {
            let changes = all.iter().flatten();
            changes.map(|change| (change.sql(), change.event(5, 6, 7))).find(|(_, event)| event.contains(op)).unwrap()
        };
        let (sql, event) = find("\"op\":\"c\"");
        assert_eq!(
            sql,
            "insert into customers (id, name, email, segment, city, created_at, updated_at, bio) values \
             (1, 'Customer 1', 'c1@example.org', 'corporate', 'Kraków', timestamp 'epoch' + 1699222400000000 * interval \
             '1 microsecond', timestamp 'epoch' + 1699222400000000 * interval '1 microsecond', null);\n"
        );
        assert!(
            event.starts_with(
                r#"{"topic":"lake.public.customers","partition":0,"offset":7,"timestamp":5,"key":{"id":1},"#
            )
        );
        let (sql, _) = find("\"op\":\"u\"");
        assert_eq!(sql, "update orders set status = 'shipped' where id = 1;\n");
        let (sql, event) = find("\"op\":\"d\"");
        assert_eq!(sql, "delete from order_items where order_id = 10 and line_no = 1;\n");
        assert!(event.contains(r#""key":{"order_id":10,"line_no":1}"#) && event.contains(r#""after":null"#), "{event}");
        let (lines, count) = events(&all, 0);
        assert_eq!((lines.lines().count() as u64, all.iter().flatten().count() as u64), (count, count));
    }
}
