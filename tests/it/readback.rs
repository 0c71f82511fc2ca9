//! Tables are plain Delta: the Python packages deltalake, polars and duckdb read every layer, and see what we see.

use crate::support::drop_file;
use crate::support::program::Program;
use crate::support::python::readback;

/// Trips with nulls, text beyond ASCII, a repeated key, bad records and several days.
fn land(program_home: &std::path::Path) {
    let header =
        "trip_id,pickup_ts,dropoff_ts,pickup_zone,dropoff_zone,passenger_count,distance_km,fare,tip,payment_type";
    for file in 0..4 {
        let mut text = format!("{header}\n");
        for row in 0..50 {
            let id = file * 45 + row;
            let day = 1 + (id % 6);
            let zone =
                ["Zürich HB", "zone-001", "東京駅", "\"Old \"\"Town\"\", west\""][usize::try_from(id % 4).unwrap()];
            let passengers = if id % 7 == 0 { String::new() } else { (id % 5).to_string() };
            let fare =
                if id % 41 == 40 { "12,5x".replace(',', "") } else { format!("{}.{:02}", 3 + id % 40, id % 100) };
            text.push_str(&format!(
                "{id},2024-03-{day:02} 10:{:02}:00,2024-03-{day:02} 11:00:00,{zone},,{passengers},{}.5,{fare},,card\n",
                id % 60,
                id % 30
            ));
        }
        drop_file(&program_home.join("landing"), &format!("trips/{file}.csv"), text.as_bytes());
    }
}

#[test]
fn other_readers_see_the_same_rows_nulls_and_sums_in_every_layer() {
    let home = tempfile::tempdir().unwrap();
    let program = Program::new(home.path());
    land(home.path());
    let landing = home.path().join("landing");
    program.ok(&["ingest", landing.to_str().unwrap()]);
    // A corrected file and a late one, so that the logs hold removes too.
    let first = std::fs::read_to_string(landing.join("trips/0.csv")).unwrap();
    let shorter: Vec<&str> = first.lines().take(40).collect();
    drop_file(&landing, "trips/0.csv", (shorter.join("\n") + "\n").as_bytes());
    program.ok(&["ingest", landing.to_str().unwrap()]);

    let tables = ["raw/trips", "aggregate/trips", "curated/trips_daily", "quarantine/raw/trips", "ledger"];
    let lake = home.path().join("lake");
    let mut arguments = vec!["tables", lake.to_str().unwrap()];
    arguments.extend(tables);
    let seen = readback(&arguments);
    for table in tables {
        let name = table.replace('/', ".");
        let rows: u64 = program.value(&format!("select count(*) from {name}")).parse().unwrap();
        assert!(rows > 0, "{table}");
        for reader in ["deltalake", "polars", "duckdb"] {
            assert_eq!(seen[table][reader]["rows"], rows, "{reader}: {table}");
            assert_eq!(seen[table][reader]["columns"], seen[table]["duckdb"]["columns"], "{reader}: {table}");
        }
    }
    for (column, query) in [
        ("fare", "select sum(fare) as value from raw.trips"),
        ("trip_id", "select sum(trip_id) as value from raw.trips"),
        ("_row", "select sum(_row) as value from raw.trips"),
    ] {
        let ours = program.value(query);
        let theirs = seen["raw/trips"]["duckdb"]["columns"][column][1].as_str().unwrap();
        let trimmed = if ours.contains('.') { ours.trim_end_matches('0').trim_end_matches('.') } else { &ours };
        assert_eq!(trimmed, theirs, "{column}");
    }
    let nulls = program.value("select count(*) from raw.trips where passenger_count is null");
    assert_eq!(seen["raw/trips"]["polars"]["columns"]["passenger_count"][0].to_string(), nulls);
}
