//! `alluvium demo --cdc` over the real chain.

use super::*;

#[test]
fn the_demo_follows_a_real_database_and_takes_it_away_again() {
    let services = Services::shared();
    let home = tempfile::tempdir().unwrap();
    let mut program = Program::new(home.path());
    for (name, value) in services.addresses() {
        program = program.env(name, value);
    }
    let done = program.run(&["demo", "--cdc"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    for word in [
        "PostgreSQL committed",
        "events from PostgreSQL by Debezium and Kafka: gold in",
        "customer_email_invalid",
        "Kobe",
        "lifetime_revenue",
    ] {
        assert!(done.stdout.contains(word), "{word} is not in\n{}", done.stdout);
    }
    // What the demo says to try next finds what it left; the database, its slot and the connector are gone.
    let program = program.schemas(&home.path().join("schemas"));
    for (table, rows) in [("products", "200"), ("orders", "600")] {
        assert_eq!(program.value(&format!("select count(*) from silver.{table}")), rows, "{table}");
    }
    assert_eq!(program.value("select count(*) from gold.product_ranks"), "200");
    let open = program.value("select count(*) from silver.customers_history where is_current");
    assert_eq!(program.value("select count(*) from silver.customers"), open);
    assert_eq!(program.value("select count(*) from silver.customers_history where city = 'Kobe'"), "1");
    program.ok(&["backfill", "--verify"]);
    let left = "select (select count(*) from pg_database where datname like 'demo%')
                     + (select count(*) from pg_replication_slots where slot_name like 'demo%');";
    assert_eq!(services.sql(None, left).trim(), "0");
    assert!(!services.connectors().iter().any(|name| name.starts_with("demo")), "{:?}", services.connectors());
}
