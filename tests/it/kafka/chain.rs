//! PostgreSQL -> Debezium -> Kafka -> the local host -> bronze, silver, history, gold: every change that was committed, once,
//! whatever is killed meanwhile.

use std::time::Instant;

use super::shop::{Clerk, Content, MARTS, Shop, TABLES};
use super::*;
use crate::support::program::{Running, signal};

/// All that a chain consists of, and two who work in the shop.
struct Chain<'a> {
    services: &'a Services,
    shop: &'a Shop<'a>,
    world: &'a World,
    clerks: [Clerk; 2],
    marks: u32,
}

impl Chain<'_> {
    /// So many transactions, while something else happens.
    fn work(&mut self, transactions: usize, meanwhile: impl FnOnce()) {
        let scripts: Vec<String> = self.clerks.iter_mut().map(|clerk| clerk.script(transactions)).collect();
        std::thread::scope(|scope| {
            for script in &scripts {
                scope.spawn(|| self.shop.sql(script));
            }
            meanwhile();
        });
    }

    /// Waits until everything that was committed by now has come through. Then bronze has each of the records once, and
    /// silver what the database has.
    fn settle(&mut self) -> Vec<Record> {
        self.marks += 1;
        let key = 900_000_000 + self.marks;
        self.shop.sql(&format!("insert into products values ({key}, 'mark', 'mark', 'toys', 1.00);"));
        eventually(PATIENCE, "the last change that was committed is in silver", || {
            std::thread::sleep(Duration::from_millis(100));
            self.world.content("silver/products", &["id".to_owned()]).rows.contains(&vec![key.to_string()])
        });
        // Other topics may be a moment behind the one of the mark.
        let begun = Instant::now();
        while let Some(difference) = self.difference() {
            assert!(begun.elapsed() < PATIENCE, "after {PATIENCE:?}: {difference}");
            std::thread::sleep(Duration::from_millis(200));
        }
        let changes = format!("{}.public.", self.world.prefix);
        let records = self.services.read(|topic| topic.starts_with(&changes));
        self.world.wait_for(&records);
        self.world.assert_kept_once(&records);
        records
    }

    /// The first table in which silver is not what the database has.
    fn difference(&self) -> Option<String> {
        TABLES.iter().find_map(|table| {
            let theirs = self.shop.content(table);
            let ours = self.world.content(&format!("silver/{table}"), &theirs.columns);
            (ours != theirs).then(|| difference(table, &ours, &theirs))
        })
    }
}

/// The rows that only one of two has.
fn difference(table: &str, ours: &Content, theirs: &Content) -> String {
    let only = |one: &Content, other: &Content| {
        let rows = one.rows.iter().filter(|row| !other.rows.contains(row));
        rows.take(5).map(|row| format!("{row:.200?}\n")).collect::<String>()
    };
    let counts = format!("{table}: {} rows, the database has {}", ours.rows.len(), theirs.rows.len());
    format!("{counts}\nonly in the table:\n{}only in the database:\n{}", only(ours, theirs), only(theirs, ours))
}

fn kill_handler(host: &Running) {
    let handlers = host.children("serve");
    assert!(!handlers.is_empty(), "the handler runs");
    handlers.into_iter().for_each(|handler| signal(handler, "KILL"));
}

#[test]
fn the_tables_are_what_the_database_has_whichever_part_is_killed() {
    let services = Services::alone();
    let world = World::of_the_shop("chain");
    let shop = Shop::made(&services);
    let clerks = [Clerk::new(0), Clerk::new(1)];
    let mut chain = Chain { services: &services, shop: &shop, world: &world, clerks, marks: 0 };

    // There before anybody looks: the snapshot.
    chain.work(40, || {});
    services.connector(&shop.database, &shop.connector(&world.prefix));
    let program = world.program(&services);
    let mut host = program.start(&["local", "--no-port"]);
    chain.settle();
    chain.work(60, || {});
    let records = chain.settle();
    let has =
        |text: &str| records.iter().any(|record| record.value.as_deref().is_some_and(|value| value.contains(text)));
    for kind in ["r", "c", "u", "d"] {
        assert!(has(&format!("\"op\":\"{kind}\"")), "events of all kinds: {kind}");
    }
    assert!(has("__debezium_unavailable_value"), "big text that was not sent");
    assert!(records.iter().any(|record| record.value.is_none()), "tombstones");

    for part in ["connect", "kafka"] {
        chain.work(60, || services.crash(part));
        chain.settle();
    }
    chain.work(60, || kill_handler(&host));
    chain.settle();
    // The committer has a plan in its hands, and dies; then the host with all that it started.
    for whole in [false, true] {
        let plans = || std::fs::read_dir(world.folder("_alluvium/plans/bronze/shop")).map_or(0, Iterator::count);
        let planned = plans();
        chain.work(60, || eventually(PATIENCE, "the committer is at work", || plans() > planned));
        kill_handler(&host);
        if whole {
            host.signal("KILL");
            host.ended(PATIENCE);
            chain.work(60, || {});
            host = program.start(&["local", "--no-port"]);
        }
        chain.settle();
    }

    big_text_moved_to_another_key(&chain);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    program.ok(&["commit", "--force"]);
    world.assert_all_there_once(&services.read(|topic| topic.starts_with(&format!("{}.public.", world.prefix))));
    for mart in MARTS {
        let theirs = shop.content(mart);
        let ours = world.content(&format!("gold/{mart}"), &theirs.columns);
        assert!(!ours.rows.is_empty() && ours == theirs, "{}", difference(mart, &ours, &theirs));
    }
    let tracked = ["id", "name", "email", "segment", "city"].map(str::to_owned);
    let open = world.content("silver/customers_history", &[&tracked[..], &["is_current".to_owned()]].concat());
    let mut open: Vec<Vec<String>> =
        open.rows.into_iter().filter_map(|row| row.strip_suffix(&["true".to_owned()]).map(<[_]>::to_vec)).collect();
    open.sort();
    assert_eq!(open, world.content("silver/customers", &tracked).rows, "the open versions are the present rows");
    program.ok(&["backfill", "--verify"]);
    // What else Debezium sends is kept, and is no change.
    for topic in [format!("__debezium-heartbeat.{}", world.prefix), format!("{}.transaction", world.prefix)] {
        let kept = format!("select count(*) > 0 and count(\"table\") = 0 from bronze.shop where _topic = '{topic}'");
        assert_eq!(program.value(&kept), "true", "{topic}");
    }
    assert_eq!(world.content("quarantine/bronze/shop", &["rules".to_owned()]).rows, Vec::<Vec<String>>::new());
}

/// Under the usual replica identity, PostgreSQL's log has no text that is stored apart and did not change, and what the key
/// had before belongs to another row: such a row is in quarantine until its text is written again.
fn big_text_moved_to_another_key(chain: &Chain<'_>) {
    let (shop, world) = (chain.shop, chain.world);
    let row =
        |id: u64| format!("({id}, 'Big', 'big@example.org', 'vip', 'Ulm', localtimestamp, localtimestamp, big(1))");
    shop.sql(&format!(
        "insert into customers values {}; update customers set id = 500002 where id = 500001;",
        row(500_001)
    ));
    let of_it = |table: &str, columns: &[&str]| {
        let columns: Vec<String> = columns.iter().map(ToString::to_string).collect();
        let rows = world.content(table, &columns).rows;
        rows.into_iter().filter(|row| row[0].contains("50000")).collect::<Vec<_>>()
    };
    eventually(PATIENCE, "the row with the new key is in quarantine", || {
        of_it("quarantine/silver/customers", &["key", "op", "rules"])
            == [["{\"id\":500002}", "c", "[value_unavailable]"]]
    });
    assert_eq!(of_it("silver/customers", &["id"]), Vec::<Vec<String>>::new());
    shop.sql("update customers set bio = big(1) where id = 500002;");
    eventually(PATIENCE, "text that was written again is there", || chain.difference().is_none());
}
