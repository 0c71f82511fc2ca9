//! What one advance commits: rows and watermark together, and nothing that did not change.

use super::*;

fn two_tables() -> Vec<(String, String)> {
    vec![
        derived(
            "aggregate/trips",
            "from: raw/trips\nprimary_key: [id]\nkeep: first\norder_by: [_file, _row]\npartition_by: [day]\nsql: select * from input\n",
        ),
        derived(
            "curated/days",
            "from: aggregate/trips\nprimary_key: [day, zone]\nrecompute_by: [day]\nsql: select day, zone, count(*) as n, sum(amount) as total from input group by day, zone\n",
        ),
    ]
}

async fn loaded() -> World {
    let world = world(&two_tables(), settings());
    let trips = vec![
        trip(1, 0, "n", 1, "a.csv", 1),
        trip(2, 0, "s", 2, "a.csv", 2),
        trip(3, 1, "n", 3, "a.csv", 3),
        trip(4, 2, "n", 4, "a.csv", 4),
    ];
    world.put("raw/trips", vec![], &[trips]).await;
    world.advance_all().await;
    world
}

async fn paths(world: &World, table: &str) -> Vec<String> {
    let mut paths: Vec<String> = world.files(table).await.into_iter().map(|file| file.path).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn rows_and_watermark_are_one_commit() {
    let world = loaded().await;
    let source = world.table("raw/trips").await.snapshot().await.unwrap();
    let id = watermark_id(&"raw/trips".parse().unwrap(), source.table_id());
    let table = world.table("aggregate/trips").await;
    let before = table.snapshot().await.unwrap();
    assert_eq!(before.txn(&id).await.unwrap(), Some(1));
    world.put("raw/trips", vec![], &[vec![trip(5, 1, "s", 5, "b.csv", 1)]]).await;
    let done = world.advance("aggregate/trips").await;
    assert_eq!((done.mode, done.units, done.rows_added, done.rows_removed), (Mode::Incremental, 1, 1, 0));
    assert_eq!(done.version, Some(before.version() + 1));
    let after = table.snapshot().await.unwrap();
    assert_eq!(after.txn(&id).await.unwrap(), Some(2));
    assert_eq!(after.files().unwrap().len(), before.files().unwrap().len() + 1);
    assert!(world.advance("aggregate/trips").await.is_nothing());
    assert_eq!(table.snapshot().await.unwrap().version(), after.version());
}

#[tokio::test]
async fn the_watermark_moves_over_commits_that_change_no_row() {
    let world = loaded().await;
    world.compact("raw/trips").await;
    world.put("raw/trips", vec![], &[]).await;
    for table in ["aggregate/trips", "curated/days"] {
        let before = (paths(&world, table).await, world.rows(table).await);
        let done = world.advance(table).await;
        assert_eq!((&done.mode, done.units, done.rows_added, done.rows_removed), (&Mode::Incremental, 0, 0, 0));
        assert!(!done.is_nothing());
        assert_eq!((paths(&world, table).await, world.rows(table).await), before);
    }
}

#[tokio::test]
async fn a_late_row_touches_its_own_day_only() {
    let world = loaded().await;
    let before = world.files("aggregate/trips").await;
    world.put("raw/trips", vec![], &[vec![trip(9, 0, "n", 7, "late.csv", 1)]]).await;
    let done = world.advance("aggregate/trips").await;
    assert_eq!((done.rows_added, done.rows_removed), (1, 0));
    let after = world.files("aggregate/trips").await;
    assert!(before.iter().all(|file| after.contains(file)), "a commit that only adds rows rewrites nothing");
    let new: Vec<_> = after.iter().filter(|file| !before.contains(file)).collect();
    assert_eq!(
        new.iter().map(|file| file.partition_values["day"].as_deref()).collect::<Vec<_>>(),
        [Some("1970-01-01")]
    );
    let done = world.advance("curated/days").await;
    assert_eq!((&done.mode, done.units, done.rows_added, done.rows_removed), (&Mode::Incremental, 1, 1, 1));
    assert_eq!(
        world.rows("curated/days").await,
        ["1970-01-01|n|2|8", "1970-01-01|s|1|2", "1970-01-02|n|1|3", "1970-01-03|n|1|4"]
    );
}

#[tokio::test]
async fn a_better_row_takes_the_old_one_out_of_another_partition() {
    let world = loaded().await;
    let before = world.files("aggregate/trips").await;
    let day = |file: &DataFile| file.partition_values["day"].clone().unwrap();
    world.put("raw/trips", vec![], &[vec![trip(3, 2, "n", 30, "0.csv", 1)]]).await;
    let done = world.advance("aggregate/trips").await;
    assert_eq!((done.units, done.rows_added, done.rows_removed), (1, 1, 1));
    let after = world.files("aggregate/trips").await;
    let gone: Vec<String> = before.iter().filter(|file| !after.contains(file)).map(day).collect();
    let new: Vec<String> = after.iter().filter(|file| !before.contains(file)).map(day).collect();
    assert_eq!((gone, new), (vec!["1970-01-02".to_owned()], vec!["1970-01-03".to_owned()]));
}

#[tokio::test]
async fn a_corrected_file_corrects_every_layer_and_vanished_rows_go() {
    let world = loaded().await;
    world.put("raw/trips", vec![], &[vec![trip(1, 0, "n", 9, "z.csv", 1)]]).await;
    world.advance_all().await;
    let old = world.files("raw/trips").await.into_iter().find(|file| file.rows == Some(4)).unwrap();
    let corrected = vec![trip(2, 0, "s", 20, "a.csv", 1), trip(4, 2, "n", 4, "a.csv", 4)];
    world.put("raw/trips", vec![old], &[corrected]).await;
    let done = world.advance_all().await;
    // Trip 1 comes from the other file now, trip 2 changed, trip 3 is gone, trip 4 is as it was.
    assert_eq!((done[0].units, done[0].rows_added, done[0].rows_removed), (3, 2, 3));
    assert_eq!(done[1].units, 2);
    assert_eq!(world.rows("curated/days").await, ["1970-01-01|n|1|9", "1970-01-01|s|1|20", "1970-01-03|n|1|4"]);
}

#[tokio::test]
async fn two_at_once_do_the_work_once() {
    let world = loaded().await;
    world.put("raw/trips", vec![], &[vec![trip(9, 0, "n", 7, "late.csv", 1)]]).await;
    let (one, two) = tokio::join!(world.advance("aggregate/trips"), world.advance("aggregate/trips"));
    assert_eq!(one.rows_added + two.rows_added, 1, "{one:?} {two:?}");
    assert_eq!(world.rows("aggregate/trips").await.len(), 5);
}

#[tokio::test]
async fn whole_recomputations_say_why() {
    let world = loaded().await;
    let folder = world._folder.path().join("lake");
    // Another contract for the same stored table.
    let mut contract = (**world.lake.catalog.get(&"curated/days".parse().unwrap()).unwrap()).clone();
    contract.hash = "another".to_owned();
    let contract = Arc::new(contract);
    let done = advance(&world.lake, &contract).await.unwrap();
    assert_eq!(done.mode, Mode::Whole("the contract changed".to_owned()));
    assert_eq!((done.rows_added, done.rows_removed), (4, 4));
    assert!(advance(&world.lake, &contract).await.unwrap().is_nothing());
    // A log that no longer goes back to the watermark.
    world.put("raw/trips", vec![], &[vec![trip(9, 0, "n", 7, "late.csv", 1)]]).await;
    world.put("raw/trips", vec![], &[vec![trip(8, 0, "n", 7, "late.csv", 2)]]).await;
    world.table("raw/trips").await.checkpoint().await.unwrap();
    std::fs::remove_file(folder.join("raw/trips/_delta_log/00000000000000000002.json")).unwrap();
    let done = world.advance("aggregate/trips").await;
    let Mode::Whole(reason) = done.mode else { panic!("{done:?}") };
    assert!(reason.contains("can no longer be read back to version 1"), "{reason}");
    assert_eq!(world.rows("aggregate/trips").await.len(), 6);
}

#[tokio::test]
async fn a_source_that_was_created_again_is_read_whole() {
    let world = loaded().await;
    let folder = world._folder.path().join("lake/raw/trips");
    std::fs::remove_dir_all(&folder).unwrap();
    let fresh = Lake::new(
        (*world.lake.catalog).clone(),
        world.lake.store.clone(),
        world.lake.landing.clone(),
        Arc::clone(&world.lake.clock),
        settings(),
    );
    let world = World { lake: fresh, _folder: world._folder };
    let contract = Arc::clone(world.lake.catalog.get(&"aggregate/trips".parse().unwrap()).unwrap());
    let error = advance(&world.lake, &contract).await.unwrap_err();
    assert!(error.message().contains("its source raw/trips is gone") && error.remedy_text().is_some(), "{error}");
    world.put("raw/trips", vec![], &[vec![trip(1, 0, "n", 1, "a.csv", 1)]]).await;
    let done = world.advance("aggregate/trips").await;
    assert_eq!(done.mode, Mode::Whole("raw/trips was created again".to_owned()));
    assert_eq!(world.rows("aggregate/trips").await, ["1|1970-01-01|n|1|a.csv|1"]);
}

#[tokio::test]
async fn a_failure_stops_only_what_is_derived_from_it() {
    let mut contracts = two_tables();
    contracts.push(derived(
        "curated/zones",
        "from: raw/trips\nrecompute_by: [zone]\nsql: select zone, count(*) as n from input group by zone\n",
    ));
    let world = world(&contracts, settings());
    world.put("raw/trips", vec![], &[vec![trip(1, 0, "n", 1, "a.csv", 1)]]).await;
    // Somebody made the aggregate with another partitioning.
    let spec = TableSpec {
        schema: Arc::new(Schema::new(vec![
            Field::new("id", DataType::Int64, true),
            Field::new("zone", DataType::Utf8, true),
        ])),
        partition_by: vec!["zone".to_owned()],
        properties: BTreeMap::new(),
        description: None,
    };
    Table::create(&world.lake.store, "aggregate/trips", &spec).await.unwrap();
    let outcomes = advance_each(&world.lake, None).await;
    let told: Vec<(String, bool)> =
        outcomes.iter().map(|(table, outcome)| (table.to_string(), outcome.is_ok())).collect();
    assert_eq!(told, [("aggregate/trips".to_owned(), false), ("curated/zones".to_owned(), true)]);
    assert!(outcomes[0].1.as_ref().unwrap_err().message().contains("partitioned by [zone]"));
    assert_eq!(world.rows("curated/zones").await, ["n|1"]);
}

#[tokio::test]
async fn without_sources_nothing_is_made() {
    let world = world(&two_tables(), settings());
    let done = world.advance_all().await;
    assert!(done.iter().all(|advanced| advanced.is_nothing() && advanced.version.is_none()), "{done:?}");
    // An empty source makes empty tables, with all their columns.
    world.put("raw/trips", vec![], &[]).await;
    world.advance_all().await;
    let snapshot = world.table("curated/days").await.snapshot().await.unwrap();
    let names: Vec<String> = snapshot.schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, ["day", "zone", "n", "total"]);
}

#[tokio::test]
async fn arithmetic_that_does_not_fit_stops_its_table_until_the_data_does() {
    let world = world(
        &[
            derived(
                "aggregate/next",
                "from: raw/trips\nprimary_key: [id]\nkeep: last\norder_by: [_file, _row]\nsql: select id, amount + 1 as next, _file, _row from input\n",
            ),
            derived(
                "curated/days",
                "from: raw/trips\nprimary_key: [day]\nrecompute_by: [day]\nwrite_mode: upsert\nsql: select day, sum(amount) as total from input group by day\n",
            ),
            derived(
                "curated/zones",
                "from: raw/trips\nprimary_key: [zone]\nrecompute_by: [zone]\nwrite_mode: upsert\nsql: select zone, count(*) as n from input group by zone\n",
            ),
        ],
        settings(),
    );
    let day = |amounts: [i64; 2]| {
        let trips = amounts.iter().zip(1..);
        trips.map(|(amount, id)| trip(id, 0, "n", *amount, "a.csv", id)).collect::<Vec<_>>()
    };
    world.put("raw/trips", vec![], &[day([1, 2])]).await;
    world.advance_all().await;
    let before = (world.rows("aggregate/next").await, world.rows("curated/days").await);
    // However often it is tried, neither the stored rows nor the neighbours are touched.
    for _ in 0..2 {
        let gone = world.files("raw/trips").await;
        world.put("raw/trips", gone, &[day([i64::MAX, 1])]).await;
        let outcomes = advance_each(&world.lake, None).await;
        let errors: Vec<String> =
            outcomes.iter().filter_map(|(_, outcome)| Some(outcome.as_ref().err()?.describe())).collect();
        let [next, days] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(next.starts_with("aggregate/next: `input.amount + 1` does not fit into int64"), "{next}");
        assert!(next.ends_with("cast an operand to a wider type, such as bigint or decimal(38,0)"), "{next}");
        assert!(days.starts_with("curated/days: `sum(input.amount)` does not fit into int64"), "{days}");
        assert!(days.ends_with("cast what is summed to a wider type, such as decimal(38,0)"), "{days}");
        assert_eq!((world.rows("aggregate/next").await, world.rows("curated/days").await), before);
        assert_eq!(world.rows("curated/zones").await, ["n|2"]);
    }
    let gone = world.files("raw/trips").await;
    world.put("raw/trips", gone, &[day([i64::MAX - 1, 1])]).await;
    world.advance_all().await;
    assert_eq!(world.rows("curated/days").await, [format!("1970-01-01|{}", i64::MAX)]);
}
