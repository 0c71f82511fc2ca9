//! The shop itself: its rows, and the transactions that change them.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::super::Random;
use super::{Record, Trouble};

/// Rows that the snapshot finds of customers and of products.
const AT_FIRST: i64 = 40;
/// The first moment: 2024-03-01.
const BEGIN_MS: i64 = 1_709_251_200_000;
/// The log position of the snapshot.
const BEGIN_LSN: i64 = 20_000_000;
const DAY_MICROS: i64 = 86_400_000_000;

const NAMES: [&str; 6] = ["Ann", "Björn", "Zoë \"Z\" Q", "李雷", "O'Hara", "Mia\u{2028}M"];
const CITIES: [&str; 5] = ["Zürich", "Lagos", "São Paulo", "Wien", "東京"];
const SEGMENTS: [&str; 4] = ["consumer", "corporate", "smb", "vip"];
const STATUSES: [&str; 6] = ["pending", "paid", "shipped", "delivered", "cancelled", "returned"];
const CATEGORIES: [&str; 4] = ["books", "garden", "kitchen", "toys"];

/// A table: its topic, its name, and the columns of its key.
#[derive(Debug, Clone, Copy)]
struct Table {
    topic: &'static str,
    name: &'static str,
    key: &'static [&'static str],
}

const CUSTOMERS: Table = Table { topic: "lake.public.customers", name: "customers", key: &["id"] };
const PRODUCTS: Table = Table { topic: "lake.public.products", name: "products", key: &["id"] };
const ORDERS: Table = Table { topic: "lake.public.orders", name: "orders", key: &["id"] };
const ITEMS: Table = Table { topic: "lake.public.order_items", name: "order_items", key: &["order_id", "line_no"] };

/// The rows of the shop. Each is a JSON object, as an event shows it.
#[derive(Debug)]
pub(super) struct World {
    random: Random,
    trouble: Trouble,
    customers: Vec<Value>,
    products: Vec<Value>,
    /// Orders and their lines.
    orders: Vec<(Value, Vec<Value>)>,
    /// The next keys of customers, products and orders.
    next: [i64; 3],
    now: i64,
    lsn: i64,
    transaction: i64,
    made: u64,
    is_new: bool,
}

impl World {
    pub(super) fn new(seed: u64, trouble: Trouble) -> Self {
        Self {
            random: Random::new(seed, 2),
            trouble,
            customers: Vec::new(),
            products: Vec::new(),
            orders: Vec::new(),
            next: [1; 3],
            now: BEGIN_MS,
            lsn: BEGIN_LSN,
            transaction: 700,
            made: 0,
            is_new: true,
        }
    }

    /// The next transaction (at first the snapshot); gives how many changes it made.
    pub(super) fn step(&mut self, records: &mut VecDeque<Record>) -> u64 {
        self.made = 0;
        if std::mem::take(&mut self.is_new) {
            for _ in 0..AT_FIRST {
                let (customer, product) = (self.new_customer(), self.new_product());
                self.upsert(records, CUSTOMERS, "r", &Value::Null, &customer);
                self.upsert(records, PRODUCTS, "r", &Value::Null, &product);
                self.customers.push(customer);
                self.products.push(product);
            }
            return self.made;
        }
        // Transactions of one millisecond are told apart by their log positions alone.
        self.now += i64::try_from(self.random.below(40)).unwrap_or_default();
        self.transaction += 1;
        if self.random.once_in(self.trouble.others) {
            self.other(records);
        }
        if self.random.once_in(self.trouble.truncates) {
            self.truncate(records);
        }
        if self.random.once_in(self.trouble.key_changes) {
            self.change_key(records);
        }
        match self.random.below(100) {
            0..5 => {
                let customer = self.new_customer();
                self.upsert(records, CUSTOMERS, "c", &Value::Null, &customer);
                self.customers.push(customer);
            }
            5..7 => {
                let product = self.new_product();
                self.upsert(records, PRODUCTS, "c", &Value::Null, &product);
                self.products.push(product);
            }
            7..27 => self.change_customer(records),
            27..37 => self.change_product(records),
            37..62 => self.new_order(records),
            62..90 => self.change_order(records),
            90..93 => self.drop_one(records, CUSTOMERS),
            93..95 => self.drop_one(records, PRODUCTS),
            _ => self.drop_order(records),
        }
        self.made
    }

    fn pick(&mut self, texts: &[&'static str]) -> &'static str {
        let at = self.random.below(texts.len() as u64);
        texts[usize::try_from(at).unwrap_or_default()]
    }

    fn any_of(&mut self, length: usize) -> Option<usize> {
        (length > 0).then(|| usize::try_from(self.random.below(length as u64)).unwrap_or_default())
    }

    fn id(&mut self, of: usize) -> i64 {
        self.next[of] += 1;
        self.next[of] - 1
    }

    fn new_customer(&mut self) -> Value {
        let (id, name, at) = (self.id(0), self.pick(&NAMES), self.now * 1000);
        let (segment, city) = (self.pick(&SEGMENTS), self.pick(&CITIES));
        let bio = match self.random.below(3) {
            0 => Value::Null,
            1 => Value::from("short"),
            _ => Value::from(format!("{name} {}", "likes long texts ".repeat(150))),
        };
        json!({"id": id, "name": name, "email": format!("c{id}@example.org"), "segment": segment, "city": city,
            "created_at": at, "updated_at": at, "bio": bio})
    }

    fn new_product(&mut self) -> Value {
        let (id, category) = (self.id(1), self.pick(&CATEGORIES));
        let price = money(1 + self.random.below(10_000));
        json!({"id": id, "sku": format!("SKU-{id:05}"), "name": format!("Thing {id}"), "category": category, "price": price})
    }

    fn change_customer(&mut self, records: &mut VecDeque<Record>) {
        let Some(at) = self.any_of(self.customers.len()) else { return };
        let before = self.customers[at].clone();
        let mut after = before.clone();
        match self.random.below(4) {
            0 => after["city"] = self.pick(&CITIES).into(),
            1 => after["segment"] = self.pick(&SEGMENTS).into(),
            2 => after["bio"] = format!("{} again", "rewritten ".repeat(220)).into(),
            // Nothing that anybody tracks.
            _ => {}
        }
        after["updated_at"] = (self.now * 1000).into();
        self.upsert(records, CUSTOMERS, "u", &before, &after);
        self.customers[at] = after;
    }

    fn change_product(&mut self, records: &mut VecDeque<Record>) {
        let Some(at) = self.any_of(self.products.len()) else { return };
        let before = self.products[at].clone();
        let mut after = before.clone();
        after["price"] = money(1 + self.random.below(10_000)).into();
        self.upsert(records, PRODUCTS, "u", &before, &after);
        self.products[at] = after;
    }

    fn new_order(&mut self, records: &mut VecDeque<Record>) {
        let Some(customer) = self.any_of(self.customers.len()) else { return };
        let customer = self.customers[customer]["id"].clone();
        let id = self.id(2);
        let mut lines = Vec::new();
        let mut total = 0;
        for line in 1..=1 + self.random.below(4) {
            let Some(product) = self.any_of(self.products.len()) else { break };
            let (quantity, price) = (1 + self.random.below(5), 1 + self.random.below(5_000));
            total += quantity * price;
            lines.push(json!({"order_id": id, "line_no": line, "product_id": self.products[product]["id"],
                "quantity": quantity, "unit_price": money(price)}));
        }
        let order = json!({"id": id, "customer_id": customer, "status": "pending", "order_ts": self.now * 1000,
            "total": money(total)});
        self.upsert(records, ORDERS, "c", &Value::Null, &order);
        for line in &lines {
            self.upsert(records, ITEMS, "c", &Value::Null, line);
        }
        self.orders.push((order, lines));
    }

    fn change_order(&mut self, records: &mut VecDeque<Record>) {
        let Some(at) = self.any_of(self.orders.len()) else { return };
        let (before, mut lines) = self.orders[at].clone();
        let mut after = before.clone();
        if self.random.once_in(700) {
            after["status"] = self.pick(&STATUSES).into();
        } else if let Some(line) = self.any_of(lines.len()) {
            let was = lines[line].clone();
            lines[line]["quantity"] = (1 + self.random.below(5)).into();
            self.upsert(records, ITEMS, "u", &was, &lines[line]);
        }
        self.upsert(records, ORDERS, "u", &before, &after);
        self.orders[at] = (after, lines);
    }

    fn drop_one(&mut self, records: &mut VecDeque<Record>, table: Table) {
        let rows = if table.name == CUSTOMERS.name { &mut self.customers } else { &mut self.products };
        if rows.len() <= 5 {
            return;
        }
        let at = usize::try_from(self.random.below(rows.len() as u64)).unwrap_or_default();
        let row = rows.swap_remove(at);
        self.delete(records, table, &row);
    }

    fn drop_order(&mut self, records: &mut VecDeque<Record>) {
        let Some(at) = self.any_of(self.orders.len()) else { return };
        let (order, lines) = self.orders.swap_remove(at);
        for line in &lines {
            self.delete(records, ITEMS, line);
        }
        self.delete(records, ORDERS, &order);
    }

    /// A delete and a create at one position, or an update that says both keys.
    fn change_key(&mut self, records: &mut VecDeque<Record>) {
        let Some(at) = self.any_of(self.customers.len()) else { return };
        let before = self.customers[at].clone();
        let mut after = before.clone();
        after["id"] = self.id(0).into();
        if self.random.once_in(500) {
            self.delete(records, CUSTOMERS, &before);
            // Both halves have one position.
            self.lsn -= 8;
            self.upsert(records, CUSTOMERS, "c", &Value::Null, &after);
        } else {
            self.upsert(records, CUSTOMERS, "u", &before, &after);
        }
        self.customers[at] = after;
    }

    fn truncate(&mut self, records: &mut VecDeque<Record>) {
        let table = if self.random.once_in(500) { ITEMS } else { CUSTOMERS };
        self.lsn += 8;
        self.made += 1;
        let value = self.envelope(table, "t", &Value::Null, &Value::Null);
        self.push(records, table.topic, None, Some(value));
        if table.name == ITEMS.name {
            self.orders.iter_mut().for_each(|(_, lines)| lines.clear());
        } else {
            self.customers.clear();
        }
    }

    /// A record that changes nothing.
    fn other(&mut self, records: &mut VecDeque<Record>) {
        let now = self.now;
        let id = format!("{}:{}", self.transaction, self.lsn);
        let (topic, value) = match self.random.below(5) {
            0 => ("__debezium-heartbeat.lake", json!({"ts_ms": now})),
            1 => ("lake.transaction", json!({"status": "BEGIN", "id": id, "ts_ms": now})),
            2 => ("lake.transaction", json!({"status": "END", "id": id, "event_count": 3, "ts_ms": now})),
            3 => {
                ("lake", json!({"source": {"lsn": self.lsn}, "ddl": "COMMENT ON TABLE customers", "tableChanges": []}))
            }
            _ => {
                let source = json!({"ts_ms": now, "lsn": self.lsn, "schema": "", "table": ""});
                let message = json!({"prefix": "audit", "content": "aGI="});
                ("lake.message", json!({"op": "m", "source": source, "message": message}))
            }
        };
        self.push(records, topic, Some(json!({"about": topic}).to_string()), Some(value.to_string()));
    }

    fn delete(&mut self, records: &mut VecDeque<Record>, table: Table, row: &Value) {
        self.lsn += 8;
        self.made += 1;
        let value = self.envelope(table, "d", row, &Value::Null);
        self.push(records, table.topic, Some(key_of(table, row)), Some(value));
        // The tombstone that lets the topic forget the key.
        self.push(records, table.topic, Some(key_of(table, row)), None);
    }

    /// A row that came or changed; what is sent of it may break a rule, or leave a long text out.
    fn upsert(&mut self, records: &mut VecDeque<Record>, table: Table, op: &str, before: &Value, row: &Value) {
        if op != "r" {
            self.lsn += 8;
        }
        self.made += 1;
        let mut sent = row.clone();
        let is_long = row.get("bio").and_then(Value::as_str).is_some_and(|text| text.len() > 2_000);
        if self.trouble.leaves_out && is_long && before.get("bio") == row.get("bio") {
            sent["bio"] = crate::schema::UNAVAILABLE_VALUE.into();
        }
        if self.random.once_in(self.trouble.bad) {
            self.spoil(table, &mut sent);
        }
        let value = self.envelope(table, op, before, &sent);
        let twin = (table.name == CUSTOMERS.name).then(|| {
            sent["city"] = "elsewhere".into();
            self.envelope(table, op, before, &sent)
        });
        let key = Some(key_of(table, row));
        records.push_back(Record { topic: table.topic, key, value: Some(value), at: self.now + 6, twin });
    }

    /// Breaks a rule of the row's table.
    fn spoil(&mut self, table: Table, row: &mut Value) {
        let (column, value) = match (table.name, self.random.below(6)) {
            ("customers", 0) => ("name", Value::from("  ")),
            ("customers", 1) => ("email", Value::from("no at sign")),
            ("customers", 2) => ("email", Value::Null),
            ("customers", _) => ("segment", Value::from("gold")),
            ("products", 0) => ("sku", Value::from("")),
            ("products", 1) => ("price", Value::from("1e3")),
            ("products", 2) => ("price", Value::from("-1.00")),
            ("products", _) => ("price", Value::from("0.00")),
            ("orders", 0) => ("customer_id", Value::Null),
            ("orders", 1) => ("status", Value::from("Paid")),
            ("orders", 2) => ("total", Value::from("12.345")),
            ("orders", 3) => ("total", Value::from("-0.01")),
            ("orders", _) => ("order_ts", Value::from(self.now * 1000 + 2 * DAY_MICROS)),
            (_, 0) => ("product_id", Value::Null),
            (_, 1) => ("quantity", Value::from(0)),
            (_, 2) => ("unit_price", Value::Null),
            _ => ("unit_price", Value::from("-3.50")),
        };
        row[column] = value;
    }

    fn envelope(&self, table: Table, op: &str, before: &Value, after: &Value) -> String {
        let is_snapshot = op == "r";
        let (ts_ms, lsn) = if is_snapshot { (BEGIN_MS, BEGIN_LSN) } else { (self.now, self.lsn) };
        let source = json!({"version": "3.6.1.Final", "connector": "postgresql", "name": "lake", "ts_ms": ts_ms,
            "snapshot": is_snapshot.to_string(), "db": "shop", "schema": "public", "table": table.name,
            "txId": self.transaction, "lsn": lsn});
        json!({"before": before, "after": after, "source": source, "transaction": null, "op": op, "ts_ms": self.now + 5})
            .to_string()
    }

    fn push(&self, records: &mut VecDeque<Record>, topic: &'static str, key: Option<String>, value: Option<String>) {
        records.push_back(Record { topic, key, value, at: self.now + 6, twin: None });
    }
}

fn key_of(table: Table, row: &Value) -> String {
    let members = table.key.iter().map(|name| ((*name).to_owned(), row[*name].clone()));
    Value::Object(members.collect()).to_string()
}

fn money(cents: u64) -> String {
    format!("{}.{:02}", cents / 100, cents % 100)
}
