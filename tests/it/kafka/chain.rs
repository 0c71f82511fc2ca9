//! PostgreSQL -> Debezium -> Kafka -> the local host: every change that was committed, once, whatever is killed meanwhile.

use serde_json::{Value, json};

use super::*;
use crate::support::chance::Chance;
use crate::support::program::signal;

const SCHEMA: &str = "
create table customers (id bigint primary key, name text, email text, segment text, city text,
    created_at timestamp, updated_at timestamp, bio text);
create table products (id bigint primary key, sku text, name text, category text, price numeric(10,2));
create table orders (id bigint primary key, customer_id bigint, status text, order_ts timestamp, total numeric(10,2));
create table order_items (order_id bigint, line_no int, product_id bigint, quantity int, unit_price numeric(10,2),
    primary key (order_id, line_no));
-- Text that does not compress is stored apart, and is not sent when it did not change.
create function big(pages int) returns text language sql volatile as
    $$ select string_agg(md5(random()::text), '') from generate_series(1, pages * 300) $$;
";

const TABLES: [&str; 4] = ["customers", "products", "orders", "order_items"];

/// What the shop does: inserts, updates, deletes, key changes, transactions that are rolled back, big text that stays the same
/// while its row changes.
struct Shop {
    chance: Chance,
    next: u64,
}

impl Shop {
    fn statement(&mut self) -> String {
        let id = self.chance.below(self.next.max(1));
        let cents = |chance: &mut Chance| format!("{}.{:02}", chance.below(400) + 1, chance.below(100));
        match self.chance.below(12) {
            0..4 => {
                let id = self.next;
                self.next += 1;
                let (total, price) = (cents(&mut self.chance), cents(&mut self.chance));
                let bio = match self.chance.below(3) {
                    0 => "big(1)",
                    1 => "'short'",
                    _ => "null",
                };
                format!(
                    "insert into customers values ({id}, 'Né ''{id}''', 'c{id}@example.org', 'vip', 'Köln', \
                         localtimestamp, localtimestamp, {bio});
                     insert into products values ({id}, 'sku-{id}', E'a\\tb', 'toys', {price});
                     insert into orders values ({id}, {id}, 'paid', localtimestamp, {total});
                     insert into order_items select {id}, n, {id}, n, {price} from generate_series(1, 3) n;"
                )
            }
            4 => format!("update customers set city = 'Bonn', updated_at = localtimestamp where id = {id};"),
            5 => format!("update orders set status = 'shipped', total = {} where id = {id};", cents(&mut self.chance)),
            6 => format!("update customers set bio = big(2), name = 'N' || id where id = {id};"),
            7 => format!("delete from order_items where order_id = {id}; delete from orders where id = {id};"),
            8 => format!("delete from customers where id = {id};"),
            // A key that changes is a delete and an insert at one position.
            9 => format!("update products set id = id + 1000000 where id = {id};"),
            10 => format!("update order_items set line_no = line_no + 10, quantity = 9 where order_id = {id};"),
            // Twice in one transaction: one time, two positions.
            _ => format!(
                "update customers set city = 'A' where id = {id}; update customers set city = 'B' where id = {id};"
            ),
        }
    }

    /// Transactions of a few statements each; every seventh is rolled back.
    fn script(&mut self, transactions: usize) -> String {
        let mut script = String::new();
        for _ in 0..transactions {
            let statements: String = (0..=self.chance.below(4)).map(|_| self.statement()).collect();
            let end = if self.chance.below(7) == 0 { "rollback" } else { "commit" };
            script += &format!("begin;\n{statements}\n{end};\n");
        }
        script
    }
}

fn connector(services: &Services, database: &str, prefix: &str) -> Value {
    let port = services.addresses()["CDC_POSTGRES"].rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": port,
        "database.user": "postgres",
        "database.password": "",
        "database.dbname": database,
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "slot.name": database,
        "publication.name": database,
        "publication.autocreate.mode": "filtered",
        "table.include.list": TABLES.map(|table| format!("public.{table}")).join(","),
        "decimal.handling.mode": "string",
        "retriable.restart.connector.wait.ms": "200",
        "errors.max.retries": "-1",
        "poll.interval.ms": "50",
    })
}

/// Waits until Debezium has sent all that the database committed: a row of the last transaction is in its topic.
fn wait_for_mark(services: &Services, database: &str, prefix: &str, mark: u32) {
    let key = 900_000_000 + mark;
    services.sql(Some(database), &format!("insert into products values ({key}, 'mark', 'mark', 'toys', 1.00);"));
    let topic = format!("{prefix}.public.products");
    let wanted = format!("\"id\":{key}");
    eventually(PATIENCE, "Debezium has sent everything", || {
        std::thread::sleep(Duration::from_millis(200));
        services
            .read(|name| name == topic)
            .iter()
            .any(|record| record.key.as_deref().is_some_and(|key| key.contains(&wanted)))
    });
}

#[test]
fn every_change_of_the_database_is_in_the_table_whichever_part_is_killed() {
    let services = Services::alone();
    let world = World::new("chain");
    let database = format!("shop{}", std::process::id());
    services.sql(None, &format!("create database {database}"));
    services.sql(Some(&database), SCHEMA);
    let mut shop = Shop { chance: Chance::new(11), next: 0 };
    let run = |shop: &mut Shop, transactions| drop(services.sql(Some(&database), &shop.script(transactions)));
    // There before anybody looks: the snapshot.
    run(&mut shop, 60);
    services.connector(&database, &connector(&services, &database, &world.prefix));
    let program = world.program(&services);
    let mut host = program.start(&["local", "--no-port"]);
    let wait = |mark: u32| {
        wait_for_mark(&services, &database, &world.prefix, mark);
        let records = services.read(|topic| topic.starts_with(&world.prefix));
        world.wait_for(&records);
        world.assert_all_there_once(&records);
        records
    };
    run(&mut shop, 100);
    let records = wait(0);
    let has =
        |text: &str| records.iter().any(|record| record.value.as_deref().is_some_and(|value| value.contains(text)));
    assert!(
        ["\"op\":\"r\"", "\"op\":\"c\"", "\"op\":\"u\"", "\"op\":\"d\""].into_iter().all(has),
        "all kinds of events"
    );
    assert!(has("__debezium_unavailable_value"), "big text that was not sent");
    assert!(records.iter().any(|record| record.value.is_none()), "tombstones");

    for (mark, part) in [(1, "connect"), (2, "kafka")] {
        run(&mut shop, 60);
        services.crash(part);
        run(&mut shop, 60);
        wait(mark);
    }
    // The handler, then the committer in the middle of a run, with the host around it.
    run(&mut shop, 60);
    host.children("serve").into_iter().for_each(|handler| signal(handler, "KILL"));
    run(&mut shop, 60);
    wait(3);
    run(&mut shop, 60);
    let plans = || std::fs::read_dir(world.folder("_alluvium/plans/bronze/shop")).map_or(0, Iterator::count);
    let planned = plans();
    eventually(PATIENCE, "the committer is at work", || plans() > planned);
    host.signal("KILL");
    host.ended(PATIENCE);
    drop(host);
    run(&mut shop, 60);
    let mut host = program.start(&["local", "--no-port"]);
    wait(4);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
}
