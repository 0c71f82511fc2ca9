use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::clock::{ManualClock, SystemClock};
use crate::queue::poison;

const QUEUE: &str = "landing-events";
const MINUTE: Duration = Duration::from_secs(60);

struct Fixture {
    folder: tempfile::TempDir,
    clock: Arc<ManualClock>,
    queue: LocalQueue,
}

fn fixture() -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new("2026-01-15T10:00:00Z".parse().unwrap(), 1));
    let queue = LocalQueue::new(folder.path(), Arc::<ManualClock>::clone(&clock), false);
    Fixture { folder, clock, queue }
}

fn receive_one(queue: &LocalQueue, visibility: Duration) -> Option<Message> {
    queue.receive(QUEUE, 1, visibility).unwrap().pop()
}

#[test]
fn a_message_goes_through_its_life() {
    let Fixture { clock, queue, .. } = fixture();
    assert_eq!(queue.receive(QUEUE, 32, MINUTE).unwrap(), [], "a queue that is not there is empty");
    let id = queue.send(QUEUE, b"\xffbytes", Duration::ZERO).unwrap();
    let first = receive_one(&queue, MINUTE).unwrap();
    assert_eq!(
        (first.id.as_str(), first.body.as_slice(), first.dequeue_count),
        (id.as_str(), b"\xffbytes".as_slice(), 1)
    );
    assert_eq!(first.inserted, clock.now());
    assert_eq!(first.expires, clock.now() + TimeDelta::days(7));
    assert_eq!(first.visible_at, clock.now() + TimeDelta::minutes(1));
    assert_eq!(receive_one(&queue, MINUTE), None, "hidden");
    assert_eq!(queue.depth(QUEUE).unwrap(), Depth { visible: 0, hidden: 1 });

    clock.advance(TimeDelta::seconds(61));
    let second = receive_one(&queue, MINUTE).unwrap();
    assert_eq!((second.id == first.id, second.dequeue_count), (true, 2));
    assert!(!queue.delete(&first).unwrap(), "an old receipt gives no right");
    assert_eq!(queue.extend(first, MINUTE).unwrap(), None, "an old receipt gives no right");
    assert!(queue.delete(&second).unwrap());
    assert!(!queue.delete(&second).unwrap());
    assert_eq!(queue.depth(QUEUE).unwrap().total(), 0);
}

#[test]
fn a_delay_hides_a_new_message() {
    let Fixture { clock, queue, .. } = fixture();
    queue.send(QUEUE, b"late", MINUTE).unwrap();
    assert_eq!(receive_one(&queue, MINUTE), None);
    clock.advance(TimeDelta::minutes(1));
    assert_eq!(receive_one(&queue, MINUTE).unwrap().dequeue_count, 1);
}

#[test]
fn extending_keeps_a_message_hidden_and_changes_its_receipt() {
    let Fixture { clock, queue, .. } = fixture();
    queue.send(QUEUE, b"long work", Duration::ZERO).unwrap();
    let mut held = receive_one(&queue, MINUTE).unwrap();
    for _ in 0..5 {
        clock.advance(TimeDelta::seconds(50));
        held = queue.extend(held, MINUTE).unwrap().unwrap();
        assert_eq!(receive_one(&queue, MINUTE), None);
    }
    assert_eq!(held.dequeue_count, 1, "extending does not count as receiving");
    let again = queue.extend(held, Duration::ZERO).unwrap().unwrap();
    assert_eq!(receive_one(&queue, MINUTE).unwrap().dequeue_count, 2, "zero gives it back at once");
    assert!(!queue.delete(&again).unwrap());
}

#[test]
fn an_expired_message_is_gone() {
    let Fixture { clock, queue, .. } = fixture();
    queue.send(QUEUE, b"old", Duration::ZERO).unwrap();
    clock.advance(TimeDelta::days(7));
    assert_eq!(receive_one(&queue, MINUTE), None);
    assert_eq!(queue.depth(QUEUE).unwrap().total(), 0);
}

#[test]
fn what_waited_longest_comes_first() {
    let Fixture { clock, queue, .. } = fixture();
    for body in ["1", "2", "3"] {
        queue.send(QUEUE, body.as_bytes(), Duration::ZERO).unwrap();
        clock.advance(TimeDelta::milliseconds(1));
    }
    let bodies: Vec<Vec<u8>> = queue.receive(QUEUE, 2, MINUTE).unwrap().into_iter().map(|m| m.body).collect();
    assert_eq!(bodies, [b"1", b"2"]);
    assert_eq!(queue.peek(QUEUE, 10).unwrap().len(), 3);
    assert_eq!(queue.peek(QUEUE, 1).unwrap()[0].body, b"3", "the visible one before the hidden ones");
}

#[test]
fn queues_are_apart_and_cannot_leave_their_folder() {
    let Fixture { queue, .. } = fixture();
    queue.send(&poison(QUEUE), b"bad", Duration::ZERO).unwrap();
    assert_eq!(queue.depth(QUEUE).unwrap().total(), 0);
    assert_eq!(queue.depth("landing-events-poison").unwrap().total(), 1);
    for name in ["", "..", "a/b", "../lake", "a\\b", ".hidden"] {
        assert!(queue.send(name, b"", Duration::ZERO).is_err(), "{name}");
        assert!(queue.receive(name, 1, MINUTE).is_err(), "{name}");
    }
}

#[test]
fn a_sender_that_died_leaves_nothing_that_is_received_and_nothing_for_ever() {
    let Fixture { folder, clock, queue } = fixture();
    queue.send(QUEUE, b"whole", Duration::ZERO).unwrap();
    let half = folder.path().join(QUEUE).join(format!("{UNFINISHED}.{:014}.x", queue.now()));
    fs::write(&half, b"ha").unwrap();
    fs::write(folder.path().join(QUEUE).join("README"), b"not ours").unwrap();
    assert_eq!(queue.receive(QUEUE, 9, MINUTE).unwrap().len(), 1);
    assert!(half.exists(), "its sender may still be writing");
    clock.advance(TimeDelta::hours(2));
    queue.depth(QUEUE).unwrap();
    assert!(!half.exists());
}

#[test]
fn many_messages_are_received_without_listing_the_folder_each_time() {
    let Fixture { folder, queue, .. } = fixture();
    for n in 0..50 {
        queue.send(QUEUE, format!("{n}").as_bytes(), Duration::ZERO).unwrap();
    }
    assert!(receive_one(&queue, MINUTE).is_some());
    // Another process takes the rest but one: our hints are stale now, and harmless.
    let other = LocalQueue::new(folder.path(), Arc::new(ManualClock::new(queue.clock.now(), 2)), false);
    assert_eq!(other.receive(QUEUE, 48, MINUTE).unwrap().len(), 48);
    assert!(receive_one(&queue, MINUTE).is_some());
    assert_eq!(receive_one(&queue, MINUTE), None);
}

#[test]
fn concurrent_receivers_share_messages_without_overlap() {
    let folder = tempfile::tempdir().unwrap();
    let sender = LocalQueue::new(folder.path(), Arc::new(SystemClock), false);
    let sent: BTreeSet<String> =
        (0..200).map(|n| sender.send(QUEUE, format!("{n}").as_bytes(), Duration::ZERO).unwrap()).collect();
    let received: Vec<Vec<String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|_| {
                // Each has its own hints, as another process would.
                let queue = LocalQueue::new(folder.path(), Arc::new(SystemClock), false);
                scope.spawn(move || {
                    let mut ids = Vec::new();
                    loop {
                        let batch = queue.receive(QUEUE, 3, MINUTE * 60).unwrap();
                        if batch.is_empty() {
                            return ids;
                        }
                        ids.extend(batch.into_iter().map(|message| message.id));
                    }
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let received: Vec<String> = received.into_iter().flatten().collect();
    assert_eq!(received.len(), sent.len(), "each was received exactly once");
    assert_eq!(received.into_iter().collect::<BTreeSet<_>>(), sent);
    assert!(sender.peek(QUEUE, usize::MAX).unwrap().iter().all(|message| message.dequeue_count == 1));
}

/// What a worker does next in the model below.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Receive(usize),
    Extend(usize),
    Delete(usize),
    /// The worker dies: what it held is forgotten, a half-written file may stay behind.
    Crash(usize),
    Wait(u16),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        Just(Step::Send),
        (0..3usize).prop_map(Step::Receive),
        (0..3usize).prop_map(Step::Extend),
        (0..3usize).prop_map(Step::Delete),
        (0..3usize).prop_map(Step::Crash),
        (0..90u16).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn nothing_is_lost_and_nothing_is_held_twice(steps in prop::collection::vec(step(), 1..80)) {
        let Fixture { folder, clock, queue } = fixture();
        let worker = |seed| LocalQueue::new(folder.path(), Arc::new(ManualClock::new(clock.now(), seed)), false);
        let mut seed = 10;
        // A worker's clock is the shared one in truth; rebuilding it on each step keeps them equal.
        let mut held: [Vec<Message>; 3] = Default::default();
        let mut alive: BTreeMap<String, ()> = BTreeMap::new();
        for step in steps {
            seed += 1;
            let now = clock.now();
            match step {
                Step::Send => {
                    alive.insert(queue.send(QUEUE, b"m", Duration::ZERO).unwrap(), ());
                }
                Step::Receive(who) => {
                    for message in worker(seed).receive(QUEUE, 2, MINUTE).unwrap() {
                        let holders = held.iter().flatten().filter(|m| m.id == message.id && m.visible_at > now);
                        prop_assert_eq!(holders.count(), 0, "held by another inside its visibility");
                        prop_assert!(alive.contains_key(&message.id), "deleted messages do not come back");
                        held[who].push(message);
                    }
                }
                Step::Extend(who) => {
                    if let Some(message) = held[who].pop()
                        && let Some(message) = worker(seed).extend(message, MINUTE).unwrap()
                    {
                        held[who].push(message);
                    }
                }
                Step::Delete(who) => {
                    if let Some(message) = held[who].pop() {
                        let still_ours = message.visible_at > now;
                        let deleted = worker(seed).delete(&message).unwrap();
                        prop_assert!(deleted || !still_ours, "inside its visibility the receipt holds");
                        if deleted {
                            alive.remove(&message.id);
                        }
                    }
                }
                Step::Crash(who) => {
                    held[who].clear();
                    let place = folder.path().join(QUEUE);
                    fs::create_dir_all(&place).unwrap();
                    fs::write(place.join(format!("{UNFINISHED}.{:014}.{seed}", now.timestamp_millis())), b"h").unwrap();
                }
                Step::Wait(seconds) => clock.advance(TimeDelta::seconds(i64::from(seconds))),
            }
        }
        clock.advance(TimeDelta::seconds(61));
        let back: BTreeMap<String, ()> =
            queue.receive(QUEUE, usize::MAX, MINUTE).unwrap().into_iter().map(|m| (m.id, ())).collect();
        prop_assert_eq!(back, alive, "all that was not deleted comes back");
    }
}
