//! The consumer of the local host against a real broker.

use super::*;
use crate::support::chance::Chance;
use crate::support::changes;
use crate::support::program::{Running, signal};

/// Streams over two topics of three partitions each, under a prefix.
fn streams(prefix: &str, seed: u64, count: i64) -> Vec<Vec<Record>> {
    let mut streams = changes::streams(seed, count);
    streams.extend(changes::streams(seed + 1, count));
    for (at, stream) in streams.iter_mut().enumerate().take(6) {
        for record in stream {
            record.topic = format!("{prefix}.{}", at / 3);
            record.partition = i32::try_from(at % 3).unwrap();
        }
    }
    streams.truncate(6);
    streams
}

fn made(name: &str, services: &Services) -> World {
    let world = World::new(name);
    for topic in 0..2 {
        services.topic(&format!("{}.{topic}", world.prefix), 3, &[]);
    }
    world
}

fn kill_handler(host: &Running) {
    for handler in host.children("serve") {
        signal(handler, "KILL");
    }
}

#[test]
fn records_are_in_the_table_once_whichever_process_is_killed() {
    let services = Services::alone();
    let world = made("killed", &services);
    let program = world.program(&services);
    let streams = streams(&world.prefix, 1, 900);
    let sender = services.producer(None);
    let send = |from: usize| streams.iter().for_each(|stream| sender.send(&stream[from..from + 150]));
    let has = |rows: usize| {
        let count = || world.intervals().values().flatten().map(|(first, last)| last - first + 1).sum::<i64>();
        eventually(PATIENCE, "some of them are in the table", || count() >= i64::try_from(rows).unwrap());
    };

    let mut host = program.start(&["local", "--no-port"]);
    send(0);
    has(1);
    kill_handler(&host);
    send(150);
    has(6 * 150 + 1);
    // The broker, while records are on their way.
    send(300);
    services.crash("kafka");
    send(450);
    has(6 * 300 + 1);
    // The host itself, and its handler with it.
    host.signal("KILL");
    host.ended(PATIENCE);
    send(600);
    drop(host);
    let mut host = program.start(&["local", "--no-port"]);
    has(6 * 600 + 1);
    send(750);
    kill_handler(&host);
    let records = streams.concat();
    world.wait_for(&records);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    assert_eq!(services.read(|topic| topic.starts_with(&world.prefix)), {
        let mut sorted = records.clone();
        sorted.sort_by(|a, b| (&a.topic, a.partition, a.offset).cmp(&(&b.topic, b.partition, b.offset)));
        sorted
    });
    world.assert_all_there_once(&records);
}

/// One of two hosts is stopped without knowing it, loses its partitions to the other, and wakes with records in its hands.
#[test]
fn a_zombie_doubles_nothing() {
    let services = Services::shared();
    let world = made("zombie", &services);
    let program = world.program(&services);
    let streams = streams(&world.prefix, 3, 400);
    let sender = services.producer(None);
    let send = |from: usize, to: usize| streams.iter().for_each(|stream| sender.send(&stream[from..to]));
    let first = program.start(&["local", "--no-port"]);
    let second = program.start(&["local", "--no-port"]);
    let reads = |host: &Running, since: usize| host.printed()[since..].contains("is read from offset");
    eventually(PATIENCE, "both read some partitions", || reads(&first, 0) && reads(&second, 0));
    send(0, 100);
    world.wait_for(&streams.iter().flat_map(|stream| &stream[..100]).cloned().collect::<Vec<_>>());
    // Records are gathered for a second before they are delivered: now the first host has some.
    send(100, 200);
    first.signal("STOP");
    let known = second.printed().len();
    send(200, 300);
    // The group notices, and the other one begins where the ledger is.
    world.wait_for(&streams.iter().flat_map(|stream| &stream[..300]).cloned().collect::<Vec<_>>());
    assert!(reads(&second, known), "{}", second.printed());
    first.signal("CONT");
    send(300, 400);
    let records = streams.concat();
    world.wait_for(&records);
    for mut host in [first, second] {
        host.signal("INT");
        assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    }
    world.assert_all_there_once(&records);
}

/// Markers of transactions, aborted records and compacted ones take offsets and are no records.
#[test]
fn offsets_without_a_record_are_no_gap() {
    let services = Services::shared();
    let world = World::new("holes");
    let (together, compacted) = (format!("{}.together", world.prefix), format!("{}.compacted", world.prefix));
    services.topic(&together, 1, &[]);
    let clean = [("cleanup.policy", "compact"), ("segment.ms", "100"), ("min.cleanable.dirty.ratio", "0.001")];
    services.topic(&compacted, 1, &clean);
    let stream = changes::streams(5, 200).remove(1);
    let of = |topic: &str, from: usize, to: usize| {
        let record = |record: &Record| Record { topic: topic.to_owned(), partition: 0, ..record.clone() };
        stream[from..to].iter().map(record).collect::<Vec<_>>()
    };
    // Before the host runs, so that it never sees what is compacted away.
    let plain = services.producer(None);
    for round in 0..4 {
        // The active segment is never compacted: a later record begins another one.
        plain.send(&of(&compacted, round * 40, round * 40 + 40));
        std::thread::sleep(Duration::from_millis(120));
    }
    let kept = || services.read(|topic| topic == compacted);
    eventually(PATIENCE, "the topic is compacted", || {
        plain.send(&of(&compacted, 160, 161));
        std::thread::sleep(Duration::from_millis(200));
        let kept = kept();
        kept.last().unwrap().offset > i64::try_from(kept.len()).unwrap() + 20
    });
    let mut before = kept();
    eventually(PATIENCE, "nothing more is compacted", || {
        std::thread::sleep(Duration::from_secs(1));
        let now = kept();
        let is_same = now == before;
        before = now;
        is_same
    });

    let program = world.program(&services);
    let mut host = program.start(&["local", "--no-port"]);
    let sender = services.producer(Some(&world.prefix));
    let mut chance = Chance::new(7);
    let mut at = 0;
    while at < 180 {
        let to = at + 1 + usize::try_from(chance.below(15)).unwrap();
        sender.send_together(&of(&together, at, to), chance.below(3) > 0);
        at = to;
    }
    sender.send_together(&of(&together, 199, 200), true);
    let records = services.read(|topic| topic.starts_with(&world.prefix));
    let holes = |topic: &str| {
        let of: Vec<i64> = records.iter().filter(|r| r.topic == topic).map(|r| r.offset).collect();
        of.windows(2).filter(|pair| pair[1] > pair[0] + 1).count()
    };
    assert!(holes(&together) > 5 && holes(&compacted) > 0, "the topics have holes");
    world.wait_for(&records);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    world.assert_all_there_once(&records);
    let ledger = |condition: &str| program.value(&format!("select count(*) from ledger where {condition}"));
    let closed = ledger("status = 'empty' and rows_in = 0 and loaded = 0").parse::<usize>().unwrap();
    // The holes of one look are closed together.
    assert!((1..holes(&together) + holes(&compacted)).contains(&closed), "{closed} entries");
    assert_eq!(ledger("status not in ('loaded', 'empty', 'duplicate')"), "0");
}

/// What was delivered and acknowledged, and vanished before it was committed, is read again.
#[test]
fn lost_records_are_read_again() {
    let services = Services::shared();
    let world = World::new("lost");
    let topic = format!("{}.one", world.prefix);
    services.topic(&topic, 1, &[]);
    let mut stream = changes::streams(9, 300).remove(0);
    stream.iter_mut().for_each(|record| record.topic = topic.clone());
    let sender = services.producer(None);
    sender.send(&stream[..200]);
    // Nothing is committed by itself.
    let program = world.program(&services).env("COMMIT_SCHEDULE", "0 0 0 31 2 *").env("ALLUVIUM_COMMIT_AGE", "0ms");
    let mut host = program.start(&["local", "--no-port"]);
    let staged = || {
        let files = std::fs::read_dir(world.folder("_alluvium/staged/bronze/shop/data"));
        files.map(|files| files.flatten().map(|file| file.path()).collect::<Vec<_>>()).unwrap_or_default()
    };
    let manifests =
        || std::fs::read_dir(world.folder("_alluvium/staged/bronze/shop/manifests")).map_or(0, Iterator::count);
    eventually(PATIENCE, "the records are staged", || manifests() > 0 && !staged().is_empty());
    for file in staged() {
        std::fs::remove_file(file).unwrap();
    }
    sender.send(&stream[200..]);
    eventually(PATIENCE, "later ones are staged", || !staged().is_empty());
    // The marker, the note, its row of the ledger; then what is read again.
    let is_whole = || world.intervals().values().cloned().collect::<Vec<_>>() == [vec![(0, 299)]];
    eventually(PATIENCE, "the lost ones are in the table", || {
        program.ok(&["commit"]);
        is_whole()
    });
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    world.assert_all_there_once(&stream);
    assert!(host.printed().contains("they are read again"), "{}", host.printed());
}

/// However the broker stores them.
#[test]
fn compressed_topics_are_read() {
    let services = Services::shared();
    let world = World::new("compressed");
    let mut streams = changes::streams(21, 100);
    streams.truncate(4);
    for (stream, kind) in streams.iter_mut().zip(["gzip", "snappy", "lz4", "zstd"]) {
        let topic = format!("{}.{kind}", world.prefix);
        services.topic(&topic, 1, &[("compression.type", kind)]);
        stream.iter_mut().for_each(|record| (record.topic, record.partition) = (topic.clone(), 0));
    }
    let sender = services.producer(None);
    streams.iter().for_each(|stream| sender.send(stream));
    let mut host = world.program(&services).start(&["local", "--no-port"]);
    let records = streams.concat();
    world.wait_for(&records);
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", host.printed());
    world.assert_all_there_once(&records);
}
