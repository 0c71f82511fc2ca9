//! The shop's database: what happens in it, and what it has, as text to compare our tables with.

use std::fmt::Write as _;

use alluvium::cli::demo::cdc::shop::SCHEMA;
pub(super) use alluvium::cli::demo::cdc::shop::TABLES;
use serde_json::{Value, json};

use crate::support::chance::Chance;
use crate::support::services::Services;

/// What the demo's shop does not have.
const MORE: &str = "
-- Text that does not compress is stored apart, and is not sent when it did not change.
create function big(pages int) returns text language sql volatile as
    $$ select string_agg(md5(random()::text), '') from generate_series(1, pages * 300) $$;

-- What the marts must hold, as the database itself works it out.
create view daily_revenue as
    select order_ts::date as order_date, count(*) as orders, coalesce(sum(units), 0)::bigint as items, sum(total) as revenue
    from orders left join (select order_id, sum(quantity) as units from order_items group by 1) sold on order_id = id
    where status <> 'cancelled' group by 1;
create view product_ranks as
    select *, dense_rank() over (partition by category order by revenue desc) as rank from (
        select p.id as product_id, category, name, coalesce(sum(quantity) filter (where o.id is not null), 0)::bigint as units,
            coalesce(sum(quantity * unit_price) filter (where o.id is not null), 0.00) as revenue
        from products p left join order_items i on i.product_id = p.id
            left join orders o on o.id = i.order_id and o.status <> 'cancelled'
        group by p.id) sold;
create view customer_ltv as
    select c.id as customer_id, name, segment, count(o.id) as orders, coalesce(sum(total), 0.00) as lifetime_revenue,
        min(order_ts) as first_order, max(order_ts) as last_order
    from customers c left join orders o on o.customer_id = c.id and status <> 'cancelled' group by c.id;
create view audit_order_total_mismatch as
    select * from (
        select o.id as order_id, total, coalesce(sum(quantity * unit_price), 0.00) as items_total
        from orders o left join order_items i on i.order_id = o.id group by o.id) summed
    where total <> items_total;
";

/// What is worked out from them.
pub(super) const MARTS: [&str; 4] = ["daily_revenue", "product_ranks", "customer_ltv", "audit_order_total_mismatch"];

/// A shop's database.
pub(super) struct Shop<'a> {
    services: &'a Services,
    pub(super) database: String,
}

/// A table as text: its columns, and its rows, sorted.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

impl<'a> Shop<'a> {
    pub(super) fn made(services: &'a Services) -> Self {
        let database = format!("shop{}", std::process::id());
        services.sql(None, &format!("create database {database}"));
        services.sql(Some(&database), &format!("{SCHEMA}{MORE}"));
        Self { services, database }
    }

    pub(super) fn sql(&self, script: &str) -> String {
        self.services.sql(Some(&self.database), script)
    }

    /// The configuration of Debezium.
    pub(super) fn connector(&self, prefix: &str) -> Value {
        let address = &self.services.addresses()["CDC_POSTGRES"];
        let port = address.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap();
        json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": port,
            "database.user": "postgres",
            "database.password": "",
            "database.dbname": self.database,
            "topic.prefix": prefix,
            "plugin.name": "pgoutput",
            "slot.name": self.database,
            "publication.name": self.database,
            "publication.autocreate.mode": "filtered",
            "table.include.list": TABLES.map(|table| format!("public.{table}")).join(","),
            "decimal.handling.mode": "string",
            "heartbeat.interval.ms": "500",
            "provide.transaction.metadata": "true",
            "retriable.restart.connector.wait.ms": "200",
            "errors.max.retries": "-1",
            "poll.interval.ms": "50",
        })
    }

    /// All rows of a table or view.
    pub(super) fn content(&self, table: &str) -> Content {
        let columns = self.sql(&format!(
            "select json_agg(json_build_array(column_name, data_type) order by ordinal_position)
             from information_schema.columns where table_schema = 'public' and table_name = '{table}'"
        ));
        let columns: Vec<(String, String)> = serde_json::from_str(&columns).unwrap();
        let values = columns.iter().map(|(name, kind)| match kind.starts_with("timestamp") {
            true => format!("(extract(epoch from {name}) * 1000000)::bigint::text"),
            false => format!("{name}::text"),
        });
        let values = values.collect::<Vec<_>>().join(", ");
        let rows = self.sql(&format!("select array_to_json(array[{values}]) from {table}"));
        let row = |line: &str| -> Vec<String> {
            let values: Vec<Option<String>> = serde_json::from_str(line).unwrap();
            values.into_iter().map(|value| value.unwrap_or_else(|| "null".to_owned())).collect()
        };
        let mut rows: Vec<Vec<String>> = rows.lines().map(row).collect();
        rows.sort();
        Content { columns: columns.into_iter().map(|(name, _)| name).collect(), rows }
    }
}

/// Somebody who works in the shop, with rows of their own, so that two can work at once and neither waits for the other.
///
/// Inserts, updates, deletes, key changes, transactions that are rolled back, big text that stays the same while its row
/// changes.
pub(super) struct Clerk {
    chance: Chance,
    number: u64,
    next: u64,
}

impl Clerk {
    /// One of two: 0 or 1.
    pub(super) fn new(number: u64) -> Self {
        Self { chance: Chance::new(11 + number), number, next: 0 }
    }

    fn id(&self, at: u64) -> u64 {
        at * 2 + self.number
    }

    fn cents(&mut self) -> String {
        format!("{}.{:02}", self.chance.below(400) + 1, self.chance.below(100))
    }

    fn statement(&mut self) -> String {
        let at = self.chance.below(self.next.max(1));
        let id = self.id(at);
        let kind = if self.next == 0 { 0 } else { self.chance.below(14) };
        match kind {
            0..4 => {
                let id = self.id(self.next);
                self.next += 1;
                let (total, price) = (self.cents(), self.cents());
                let bio = ["big(1)", "'short'", "null"][usize::try_from(self.chance.below(3)).unwrap()];
                let category = ["toys", "books"][usize::try_from(self.chance.below(2)).unwrap()];
                format!(
                    "insert into customers values ({id}, 'Né ''{id}''', 'c{id}@example.org', 'vip', 'Köln', \
                         localtimestamp, localtimestamp, {bio});
                     insert into products values ({id}, 'sku-{id}', E'a\\tb\\u2028', '{category}', {price});
                     insert into orders values ({id}, {id}, 'paid', localtimestamp - interval '1 day' * ({id} % 5), {total});
                     insert into order_items select {id}, n, {id}, n, {price} from generate_series(1, 3) n;"
                )
            }
            4 => format!("update customers set city = 'Bonn', updated_at = localtimestamp where id = {id};"),
            5 => format!("update orders set status = 'shipped', total = {} where id = {id};", self.cents()),
            6 => format!("update customers set bio = big(2), name = 'N' || id where id = {id};"),
            7 => format!("delete from order_items where order_id = {id}; delete from orders where id = {id};"),
            8 => format!("delete from customers where id = {id};"),
            // A key that changes is a delete and an insert at one position. Text that did not change would be sent with
            // neither.
            9 => format!("update products set id = id + 1000000 where id = {id};"),
            10 => format!("update customers set id = id + 1000000, bio = big(1) where id = {id};"),
            11 => format!("update order_items set line_no = line_no + 10, quantity = 9 where order_id = {id};"),
            // Gone and there again in one transaction.
            12 => format!(
                "delete from orders where id = {id};
                 insert into orders values ({id}, {id}, 'cancelled', localtimestamp, 9.99);"
            ),
            // Twice in one transaction: one time, two positions.
            _ => format!(
                "update customers set city = 'A' where id = {id}; update customers set city = 'B' where id = {id};"
            ),
        }
    }

    /// Transactions of a few statements each; every seventh is rolled back.
    pub(super) fn script(&mut self, transactions: usize) -> String {
        let mut script = String::new();
        for _ in 0..transactions {
            let _ = writeln!(script, "begin;");
            for _ in 0..=self.chance.below(4) {
                let _ = writeln!(script, "{}", self.statement());
            }
            let _ = writeln!(script, "{};", if self.chance.below(7) == 0 { "rollback" } else { "commit" });
        }
        script
    }
}
