//! Every event several times, in any order, with any number of workers and committers, some of which die: the same tables.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};

use alluvium::error::Directive;
use alluvium::event::FileEvent;
use alluvium::faults::Fault;
use alluvium::pipeline::commit::{CommitOptions, commit};
use alluvium::pipeline::ingest::ingest;
use alluvium::pipeline::lake::{Lake, Settings};
use alluvium::pipeline::reconcile;
use proptest::prelude::*;

use crate::support::contracts::sales;
use crate::support::world::World;
use crate::support::{assert_ledger, commit_once, rows, settle, tables};

/// What happens next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// An event, by its number, reaches a worker.
    Deliver(usize),
    /// The committer runs.
    Commit,
}

/// A step, and the call to the store at which its process dies.
#[derive(Debug, Clone, Copy)]
struct Move {
    step: Step,
    death: Option<(u64, Fault)>,
}

impl Move {
    const fn calm(step: Step) -> Self {
        Self { step, death: None }
    }
}

/// How events are delivered. What no move delivers is delivered after all moves, so that a schedule without moves is one
/// of one delivery each, in order, and one commit.
#[derive(Debug, Clone)]
struct Schedule {
    workers: usize,
    moves: Vec<Move>,
}

const FILES: usize = 6;

/// Deliveries of one event; a queue may make it more when a worker dies.
const TIMES: usize = 3;

const ONCE: Schedule = Schedule { workers: 1, moves: Vec::new() };

/// Files that have a bad record, a repeated key, an empty file, a refused file and a file that nobody takes.
fn drop_all(world: &World) -> Vec<FileEvent> {
    let with_faults = "id,day,shop,amount,note\n7,2026-01-02,north,1.00,\nx,2026-01-02,north,1.00,\n\
                       8,2026-01-02,south,-1.00,\n9,2026-01-03,south\n10,2026-01-03,east,2.50,fine\n";
    let events = vec![
        world.drop_file(
            "sales/a.csv",
            sales(&[(1, 1, "north", "10.00"), (2, 1, "south", "5.25"), (3, 2, "north", "1.00")]),
        ),
        world.drop_file(
            "sales/b.csv",
            sales(&[(3, 3, "north", "9.99"), (4, 2, "south", "0.00"), (5, 4, "east", "3.10")]),
        ),
        world.drop_file("sales/c.csv", with_faults),
        world.drop_file("sales/empty.csv", sales(&[])),
        world.drop_file("sales/refused.csv", "no,such,header\n1,2,3\n"),
        world.drop_file("elsewhere/d.txt", "nobody's"),
    ];
    assert_eq!(events.len(), FILES);
    events
}

/// Follows a schedule with workers that each are a process of their own, then commits the rest. A delivery that fails for
/// the moment, or whose worker dies, is delivered again, as a queue does.
async fn follow(world: &Arc<World>, events: &[FileEvent], schedule: &Schedule) -> Lake {
    let mut times = vec![0; events.len()];
    let mut queue: VecDeque<Move> = schedule.moves.iter().copied().filter(|next| within(next, &mut times)).collect();
    let never = times.iter().enumerate().filter(|(_, times)| **times == 0);
    queue.extend(never.map(|(event, _)| Move::calm(Step::Deliver(event))));
    let queue = Arc::new(tokio::sync::Mutex::new(queue));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..schedule.workers {
        workers.spawn(work(Arc::clone(world), events.to_vec(), Arc::clone(&queue)));
    }
    while let Some(done) = workers.join_next().await {
        done.unwrap();
    }
    let last = world.process();
    settle(&last).await;
    last
}

/// Whether an event is still to be delivered, with the deliveries so far.
fn within(next: &Move, times: &mut [usize]) -> bool {
    let Step::Deliver(event) = next.step else { return true };
    // Schedules may be of more events than there are.
    let Some(times) = times.get_mut(event) else { return false };
    *times += 1;
    *times <= TIMES
}

async fn work(world: Arc<World>, events: Vec<FileEvent>, queue: Arc<tokio::sync::Mutex<VecDeque<Move>>>) {
    let mut process = world.process();
    loop {
        let Some(next) = queue.lock().await.pop_front() else { return };
        if let Some((call, fault)) = next.death {
            let (dying, _) = world.process_with(call, fault);
            match next.step {
                Step::Deliver(event) => {
                    if ingest(&dying, &events[event]).await.is_err() {
                        queue.lock().await.push_back(Move::calm(next.step));
                    }
                }
                Step::Commit => {
                    let _ = commit(&dying, CommitOptions { force: true, deadline: None }).await;
                }
            }
            process = world.process();
            continue;
        }
        match next.step {
            Step::Deliver(event) => match ingest(&process, &events[event]).await {
                Ok(_) => {}
                Err(error) if error.kind().directive() == Directive::Retry => {
                    queue.lock().await.push_back(next);
                    tokio::task::yield_now().await;
                }
                Err(error) => panic!("{:?}: {}", events[event], error.describe()),
            },
            Step::Commit => {
                commit_once(&process).await;
            }
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}

/// The tables after each event was delivered once.
static EXPECTED: LazyLock<BTreeMap<String, Vec<String>>> = LazyLock::new(|| {
    let expected = runtime().block_on(async {
        let plain = Arc::new(World::on_disk(Settings::default()));
        let events = drop_all(&plain);
        tables(&follow(&plain, &events, &ONCE).await).await
    });
    assert_eq!(expected["raw/sales"].len(), 8);
    assert_eq!(expected["aggregate/sales"].len(), 7, "id 3 came twice");
    assert_eq!(expected["quarantine/raw/sales"].len(), 4, "three records and a whole file");
    assert_eq!(expected["ledger"].len(), 6);
    expected
});

fn schedule() -> impl Strategy<Value = Schedule> {
    let step = prop_oneof![4 => (0..FILES).prop_map(Step::Deliver), 1 => Just(Step::Commit)];
    let death = (1_u64..80, prop::sample::select(&[Fault::DeadBefore, Fault::DeadAfter][..]));
    let next = (step, prop::option::weighted(0.2, death)).prop_map(|(step, death)| Move { step, death });
    (prop::sample::select(&[1, 2, 4][..]), prop::collection::vec(next, 0..32))
        .prop_map(|(workers, moves)| Schedule { workers, moves })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_order_any_number_of_deliveries_workers_and_deaths(schedule in schedule()) {
        let expected = &*EXPECTED;
        runtime().block_on(async {
            let world = Arc::new(World::on_disk(Settings::default()));
            let lake = follow(&world, &drop_all(&world), &schedule).await;
            let found = tables(&lake).await;
            for (table, rows) in expected {
                assert_eq!(rows, &found[table], "{table}");
            }
            assert_ledger(&lake).await;
        });
    }
}

/// Every event as often as a queue delivers it here, with a commit after each round, by four workers.
fn rounds() -> Schedule {
    let round = || (0..FILES).rev().map(Step::Deliver).chain([Step::Commit]).map(Move::calm);
    Schedule { workers: 4, moves: round().chain(round()).chain(round()).collect() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn delivery_after_everything_is_settled_changes_no_table() {
    let world = Arc::new(World::on_disk(Settings::default()));
    let events = drop_all(&world);
    let lake = follow(&world, &events, &ONCE).await;
    let settled = tables(&lake).await;
    let (raw, ledger) = (rows::version(&lake, "raw/sales").await, rows::version(&lake, "ledger").await);
    let lake = follow(&world, &events, &rounds()).await;
    assert_eq!(settled, tables(&lake).await);
    assert_eq!(rows::version(&lake, "raw/sales").await, raw, "not even an empty commit");
    assert_eq!(rows::version(&lake, "ledger").await, ledger, "not even an empty commit");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_rows_whether_staged_as_arrow_or_adopted_as_parquet() {
    let adopting = Arc::new(World::on_disk(Settings { adopt_bytes: 1, ..Settings::default() }));
    let events = drop_all(&adopting);
    let adopted = follow(&adopting, &events[..3], &rounds()).await;
    let plain = Arc::new(World::on_disk(Settings::default()));
    let events = drop_all(&plain);
    let staged = follow(&plain, &events[..3], &ONCE).await;
    assert_eq!(tables(&staged).await, tables(&adopted).await);
    assert_ledger(&adopted).await;
}

#[tokio::test]
async fn nothing_is_left_in_the_staging_area_once_all_is_settled() {
    let world = Arc::new(World::on_disk(Settings::default()));
    // What a second worker staged of the same file is nobody's, and goes with the old leftovers.
    let lake = follow(&world, &drop_all(&world), &Schedule { workers: 1, ..rounds() }).await;
    let left: Vec<String> = lake
        .store
        .list("_alluvium/staged")
        .await
        .unwrap()
        .into_iter()
        .map(|object| object.location.to_string())
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[tokio::test]
async fn landing_files_are_never_moved_changed_or_deleted() {
    let world = Arc::new(World::on_disk(Settings::default()));
    let events = drop_all(&world);
    let content = || events.iter().map(|event| world.landed(&event.path)).collect::<Vec<_>>();
    let before = content();
    let lake = follow(&world, &events, &rounds()).await;
    assert_eq!(before, content());
    assert_eq!(reconcile::missing(&lake).await.unwrap(), Vec::new(), "every landed file is known");
}

#[tokio::test]
async fn reconcile_finds_the_file_that_no_event_announced() {
    let world = Arc::new(World::on_disk(Settings::default()));
    let events = drop_all(&world);
    let lake = follow(&world, &events[1..], &ONCE).await;
    let missing = reconcile::missing(&lake).await.unwrap();
    assert_eq!(missing.iter().map(|version| version.path.as_str()).collect::<Vec<_>>(), ["sales/a.csv"]);
}
