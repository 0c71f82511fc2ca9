//! The demo, end to end, in a home of its own: what the README promises is what is there afterwards.

use crate::support::program::Program;

#[test]
fn the_demo_runs_and_leaves_a_lake_that_the_other_commands_use() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path());
    let done = program.run(&["demo", "--files", "3", "--rows", "200"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    let text = done.stdout.to_lowercase();
    for word in ["rows/s", "raw", "aggregate", "curated", "quarantine", "late", "compact", "version", "sql"] {
        assert!(text.contains(word), "{word} is not in\n{}", done.stdout);
    }

    // Every record that was read is somewhere, once.
    let arithmetic = "select sum(rows_in) - sum(loaded) - sum(quarantined) - sum(ignored) from ledger";
    assert_eq!(program.value(arithmetic), "0");
    let raw: i64 = program.value("select count(*) from raw.trips").parse().unwrap();
    assert!(raw >= 600, "{raw} rows in raw");
    assert_eq!(program.value("select sum(loaded) from ledger where \"table\" = 'raw/trips'"), raw.to_string());
    assert_eq!(program.value("select count(*) from (select distinct _file, _row from raw.trips)"), raw.to_string());
    let keys = program.value("select count(distinct trip_id) from raw.trips");
    assert_eq!(program.value("select count(*) from aggregate.trips"), keys);
    assert_eq!(program.value("select sum(trips) from curated.trips_daily"), keys);
    let revenue = program.value("select sum(fare + tip) from aggregate.trips");
    assert_eq!(program.value("select sum(revenue) from curated.trips_daily"), revenue);
    assert_ne!(program.value("select count(*) from quarantine.raw.trips"), "0", "the bad file is in quarantine");
    program.ok(&["status"]);
    program.ok(&["tables"]);

    // A second demo over the same home works too.
    program.ok(&["demo", "--files", "2", "--rows", "100"]);
    assert_eq!(program.value(arithmetic), "0");
}

#[test]
fn the_demo_of_change_data_needs_no_service() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path());
    let done = program.run(&["demo", "--cdc"]);
    assert_eq!(done.code, Some(0), "{}", done.text());
    for word in ["gold in", "customer_email_invalid", "as versions of a slowly changing dimension", "lifetime_revenue"]
    {
        assert!(done.stdout.contains(word), "{word} is not in\n{}", done.stdout);
    }

    // Every event is kept; who is here now has one open version; the marts add up to what they are made from.
    let kept = program.value("select sum(loaded) from ledger where \"table\" = 'bronze/shop'");
    assert_eq!(program.value("select count(*) from bronze.shop"), kept);
    let open = program.value("select count(*) from silver.customers_history where is_current");
    assert_eq!(program.value("select count(*) from silver.customers"), open);
    let orders = "select count(*) from silver.orders where status <> 'cancelled'";
    assert_eq!(program.value("select sum(orders) from gold.daily_revenue"), program.value(orders));
    assert_eq!(
        program.value("select count(*) from gold.product_ranks"),
        program.value("select count(*) from silver.products")
    );
    program.ok(&["backfill", "--verify"]);
}
