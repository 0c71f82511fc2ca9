//! Change streams: whatever is delivered, however often, in whatever pieces and order, each offset is in the table once.

use std::collections::BTreeSet;

use alluvium::error::{Directive, ErrorKind};
use alluvium::event::stream::StreamRecord;
use alluvium::pipeline::deliver::{KeyOf, close, deliver};
use alluvium::pipeline::ingest::Action;
use alluvium::pipeline::lake::Lake;
use alluvium::pipeline::status::status;
use chrono::TimeDelta;

use crate::support::chance::Chance;
use crate::support::changes::{self, Record, streams};
use crate::support::racers::Committers;
use crate::support::{TestLake, assert_ledger, rows, settle};

type Piece = Vec<StreamRecord>;

fn piece(records: &[Record]) -> Piece {
    records.iter().map(Record::delivered).collect()
}

/// Streams with holes, as Kafka has them.
fn with_holes(seed: u64, count: i64) -> Vec<Vec<Record>> {
    let mut chance = Chance::new(seed);
    let mut all = streams(seed, count);
    for stream in &mut all {
        stream.retain(|_| chance.below(12) > 0);
    }
    all
}

/// Pieces that cover all streams, overlap, and come in any order; some hold records of several partitions.
fn pieces(streams: &[Vec<Record>], chance: &mut Chance) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for stream in streams {
        let mut at = 0;
        while at < stream.len() {
            let end = (at + 1 + usize::try_from(chance.below(9)).unwrap()).min(stream.len());
            all.push(piece(&stream[at.saturating_sub(usize::try_from(chance.below(4)).unwrap())..end]));
            at = end;
        }
        // Rewinds: somebody reads a stretch again.
        for _ in 0..4 {
            let from = usize::try_from(chance.below(stream.len() as u64)).unwrap();
            let to = (from + usize::try_from(chance.below(30)).unwrap()).min(stream.len());
            all.push(piece(&stream[from..to]));
        }
    }
    chance.shuffle(&mut all);
    let mut mixed: Vec<Piece> = Vec::new();
    for piece in all {
        match mixed.last_mut() {
            Some(last) if chance.below(4) == 0 => last.extend(piece),
            _ => mixed.push(piece),
        }
    }
    mixed
}

/// Each offset of the streams is in the table once, byte for byte, and what is no event is in quarantine once.
async fn assert_all_there_once(lake: &Lake, streams: &[Vec<Record>]) {
    let mut expected: Vec<String> = streams.concat().iter().map(Record::line).collect();
    expected.sort();
    assert_eq!(rows::events(lake, "bronze/shop").await, expected);
    let malformed: BTreeSet<String> =
        streams.concat().iter().filter(|record| record.is_malformed()).map(Record::line).collect();
    assert_eq!(rows::events(lake, "quarantine/bronze/shop").await, malformed.into_iter().collect::<Vec<_>>());
    let places = rows::brief(lake, "bronze/shop", &["_topic", "_partition", "_offset", "_file", "_row"]).await;
    let mut wanted: Vec<String> = streams
        .concat()
        .iter()
        .map(|record| format!("{} {} {} null null", record.topic, record.partition, record.offset))
        .collect();
    wanted.sort();
    assert_eq!(places, wanted);
    assert_ledger(lake).await;
}

/// Two consumers, one of them a zombie that does not know it lost its partitions, and two committers.
async fn delivered_anyhow(seed: u64) {
    let first = TestLake::new(changes::ALL);
    let second = first.another();
    let streams = with_holes(seed, 40);
    let mut chance = Chance::new(seed);
    let committers = Committers::start([first.lake.clone(), second.clone()]);
    let mut consumers = tokio::task::JoinSet::new();
    for lake in [first.lake.clone(), second.clone()] {
        let mut pieces = pieces(&streams, &mut chance);
        consumers.spawn(async move {
            while let Some(piece) = pieces.pop() {
                match deliver(&lake, piece.clone(), KeyOf::Record).await {
                    Ok(_) => {}
                    // What the trigger's retry does.
                    Err(error) if error.kind().directive() == Directive::Retry => pieces.push(piece),
                    Err(error) => panic!("{}", error.describe()),
                }
            }
        });
    }
    while let Some(done) = consumers.join_next().await {
        done.unwrap();
    }
    committers.stop().await;
    settle(&first.lake).await;
    settle(&second).await;
    assert_all_there_once(&first.lake, &streams).await;

    // The same as what comes in order, once.
    let plain = TestLake::new(changes::ALL);
    for stream in &streams {
        deliver(&plain.lake, piece(stream), KeyOf::Record).await.unwrap();
    }
    plain.settle().await;
    let (mut expected, mut found) = (plain.tables().await, first.tables().await);
    // Pieces are what was delivered: the ledger depends on arrival.
    expected.remove("ledger");
    found.remove("ledger");
    assert_eq!(expected, found, "seed {seed}");
    let staged = first.folder("_alluvium/staged/bronze/shop/manifests");
    assert_eq!(std::fs::read_dir(staged).unwrap().count(), 0, "nothing stays staged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn any_pieces_in_any_order_by_anybody_give_each_offset_once() {
    for seed in 0..6 {
        delivered_anyhow(seed).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_piece_is_trimmed_to_what_is_new() {
    let lake = TestLake::new(changes::ALL);
    let stream = streams(1, 40).remove(0);
    let deliver_range = |from: usize, to: usize| deliver(&lake.lake, piece(&stream[from..to]), KeyOf::Record);
    for (from, to) in [(10, 20), (5, 25), (0, 40), (12, 15), (10, 20)] {
        deliver_range(from, to).await.unwrap();
    }
    lake.settle().await;
    let told =
        rows::brief(&lake.lake, "ledger", &["first", "last", "status", "rows_in", "topic", "epoch", "path"]).await;
    // In one plan a piece counts from its first offset on: [0, 39] comes first.
    let line = |first: u32, last: u32, status: &str, rows: u32| {
        format!("{first} {last} {status} {rows} lake.public.orders one null")
    };
    assert_eq!(
        told,
        [
            line(0, 39, "loaded", 40),
            line(10, 19, "duplicate", 0),
            line(12, 14, "duplicate", 0),
            line(5, 24, "duplicate", 0)
        ]
    );
    let action = |delivered: &[alluvium::pipeline::deliver::Delivered]| delivered[0].action;
    assert_eq!(action(&deliver_range(3, 9).await.unwrap()), Action::AlreadySettled);

    // Over several plans.
    let lake = TestLake::new(changes::ALL);
    let deliver_range = |from: usize, to: usize| deliver(&lake.lake, piece(&stream[from..to]), KeyOf::Record);
    deliver_range(10, 20).await.unwrap();
    lake.settle().await;
    assert_eq!(action(&deliver_range(5, 25).await.unwrap()), Action::Staged);
    assert_eq!(action(&deliver_range(5, 25).await.unwrap()), Action::AlreadyStaged);
    lake.settle().await;
    let of = |from: usize, to: usize| {
        let records = stream[from..to].iter();
        let apart = |is: fn(&Record) -> bool| records.clone().filter(|record| is(record)).count();
        (apart(Record::is_malformed), apart(Record::is_ignored))
    };
    let (before, all) = (of(10, 20), of(5, 25));
    assert_eq!(
        rows::brief(&lake.lake, "ledger", &["first", "last", "rows_in", "loaded", "quarantined", "ignored"]).await,
        [
            format!("10 19 10 10 {} {}", before.0, before.1),
            format!("5 24 10 10 {} {}", all.0 - before.0, all.1 - before.1)
        ]
    );
    assert_all_there_once(&lake.lake, &[stream[5..25].to_vec()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_told_when_it_stays_open_and_is_no_error() {
    let lake = TestLake::new(changes::ALL);
    let stream = streams(2, 40).remove(0);
    for range in [0..5, 8..12, 20..30] {
        deliver(&lake.lake, piece(&stream[range]), KeyOf::Record).await.unwrap();
    }
    lake.settle().await;
    let gaps = async || {
        let now = status(&lake.lake).await.unwrap();
        assert_eq!(now.tables[0].last_error, None);
        now.tables[0].gaps.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(gaps().await.is_empty(), "it may still come");
    lake.clock.advance(TimeDelta::minutes(11));
    assert_eq!(gaps().await, ["lake.public.orders/0: 11 offsets between 5 and 19, in 2 pieces"]);
    deliver(&lake.lake, piece(&stream[3..9]), KeyOf::Record).await.unwrap();
    deliver(&lake.lake, piece(&stream[35..36]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    assert_eq!(gaps().await, ["lake.public.orders/0: offsets 12 to 19"]);
    deliver(&lake.lake, piece(&stream[12..20]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    assert!(gaps().await.is_empty());
    lake.clock.advance(TimeDelta::minutes(11));
    assert_eq!(gaps().await, ["lake.public.orders/0: offsets 30 to 34"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holes_that_are_closed_are_no_gaps_and_close_nothing_else() {
    let lake = TestLake::new(changes::ALL);
    let stream = streams(14, 40).remove(0);
    for range in [0..5, 8..12, 13..20, 30..40] {
        deliver(&lake.lake, piece(&stream[range]), KeyOf::Record).await.unwrap();
    }
    lake.settle().await;
    let contract = lake.lake.catalog.topic_claims("lake.public.orders").remove(0);
    let close = |stretch| close(&lake.lake, &contract, "lake.public.orders", 0, stretch);
    // Two holes by one entry, over records that the table has; and once more, before and after it is settled.
    for _ in 0..2 {
        close((5, 12)).await.unwrap();
        lake.settle().await;
    }
    lake.clock.advance(TimeDelta::minutes(11));
    let now = status(&lake.lake).await.unwrap();
    let gaps: Vec<String> = now.tables[0].gaps.iter().map(ToString::to_string).collect();
    assert_eq!(gaps, ["lake.public.orders/0: offsets 20 to 29"]);
    let told =
        rows::brief(&lake.lake, "ledger", &["first", "last", "status", "rows_in", "loaded", "quarantined"]).await;
    assert!(told.contains(&"5 12 empty 0 0 0".to_owned()), "{told:?}");
    assert_eq!(told.len(), 5, "{told:?}");
    // What lies elsewhere is still new when it comes.
    deliver(&lake.lake, piece(&stream[18..34]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    assert_all_there_once(&lake.lake, &[stream[..5].to_vec(), stream[8..12].to_vec(), stream[13..].to_vec()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn staged_records_that_vanish_are_told_as_lost_until_they_come_again() {
    let lake = TestLake::new(changes::ALL);
    let stream = streams(4, 40).remove(0);
    let vanish = || {
        let folder = lake.folder("_alluvium/staged/bronze/shop/data");
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            std::fs::remove_file(entry.path()).unwrap();
        }
    };
    let lost = async || {
        let now = status(&lake.lake).await.unwrap();
        let table = &now.tables[0];
        assert_eq!(table.missing, table.lost.len());
        table.lost.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    deliver(&lake.lake, piece(&stream[..10]), KeyOf::Record).await.unwrap();
    vanish();
    let reports = lake.settle().await;
    assert!(reports.iter().all(|report| report.restage.is_empty()), "no file is to be read again");
    // The marker, the note of the next run, its row of the ledger.
    lake.settle().await;
    lake.settle().await;
    assert_eq!(lost().await, ["lake.public.orders/0: offsets 0 to 9"]);
    assert_eq!(rows::brief(&lake.lake, "ledger", &["first", "last", "status", "rows_in"]).await, ["0 9 missing 0"]);
    // It rests.
    let version = rows::version(&lake.lake, "ledger").await;
    lake.settle().await;
    assert_eq!(rows::version(&lake.lake, "ledger").await, version);

    // A part of it comes by another piece, then all of it again.
    deliver(&lake.lake, piece(&stream[4..14]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    assert_eq!(lost().await, ["lake.public.orders/0: offsets 0 to 3"]);
    deliver(&lake.lake, piece(&stream[..10]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    assert!(lost().await.is_empty());
    assert_all_there_once(&lake.lake, &[stream[..14].to_vec()]).await;

    // Gone, but brought by others: nothing is lost.
    deliver(&lake.lake, piece(&stream[20..25]), KeyOf::Record).await.unwrap();
    vanish();
    lake.settle().await;
    deliver(&lake.lake, piece(&stream[18..30]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    lake.settle().await;
    assert!(lost().await.is_empty());
    assert_all_there_once(&lake.lake, &[stream[..14].to_vec(), stream[18..30].to_vec()]).await;
    let staged = lake.folder("_alluvium/staged/bronze/shop/manifests");
    assert_eq!(std::fs::read_dir(staged).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_incarnation_of_a_topic_begins_anew() {
    let mut lake = TestLake::new(changes::ALL);
    let stream = streams(6, 10).remove(0);
    deliver(&lake.lake, piece(&stream), KeyOf::Record).await.unwrap();
    lake.settle().await;
    lake.redeploy(&[("bronze/shop", &changes::SHOP.replace("epoch: one", "epoch: two"))]);
    deliver(&lake.lake, piece(&stream[..6]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    assert_eq!(rows::events(&lake.lake, "bronze/shop").await.len(), 16);
    assert_eq!(rows::brief(&lake.lake, "ledger", &["epoch", "first", "last"]).await, ["one 0 9", "two 0 5"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_staged_for_a_dropped_table_is_staged_for_the_new_one() {
    let mut lake = TestLake::new(changes::ALL);
    let stream = streams(12, 20).remove(0);
    deliver(&lake.lake, piece(&stream[..8]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    deliver(&lake.lake, piece(&stream[8..14]), KeyOf::Record).await.unwrap();
    std::fs::remove_dir_all(lake.folder("bronze/shop")).unwrap();
    lake.redeploy(changes::ALL);
    deliver(&lake.lake, piece(&stream[12..20]), KeyOf::Record).await.unwrap();
    lake.settle().await;
    let mut expected: Vec<String> = stream[8..].iter().map(Record::line).collect();
    expected.sort();
    assert_eq!(rows::events(&lake.lake, "bronze/shop").await, expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_nobody_takes_is_refused_and_its_neighbours_are_taken() {
    let lake = TestLake::new(changes::ALL);
    let stream = streams(8, 6).remove(0);
    let mut records = piece(&stream);
    records.push(StreamRecord { topic: "elsewhere".to_owned(), ..records[0].clone() });
    let error = deliver(&lake.lake, records, KeyOf::Record).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("no contract takes the topic `elsewhere`"), "{error}");
    lake.settle().await;
    assert_all_there_once(&lake.lake, &[stream]).await;
    assert!(deliver(&lake.lake, Vec::new(), KeyOf::Record).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_of_a_hub_have_their_key_in_the_value() {
    let lake = TestLake::new(changes::ALL);
    let mut records = piece(&streams(9, 30).remove(2));
    records.retain(|record| record.value.is_some());
    records.truncate(1);
    records[0].key = None;
    deliver(&lake.lake, records.clone(), KeyOf::Value).await.unwrap();
    lake.settle().await;
    let value = String::from_utf8(records[0].value.clone().unwrap()).unwrap();
    let StreamRecord { topic, offset, timestamp, .. } = &records[0];
    let time = timestamp.unwrap();
    let line = format!(r#"{{"topic":"{topic}","partition":0,"offset":{offset},"timestamp":{time},"value":{value}}}"#);
    assert_eq!(rows::events(&lake.lake, "bronze/shop").await, [line]);
    assert_eq!(rows::brief(&lake.lake, "bronze/shop", &["table", "key"]).await, ["public.customers null"]);
}
