//! Queues: the same life of a message in both. Azurite has a clock of its own, so times are short and waited for.

use std::time::Duration;

use alluvium::queue::{Depth, Message, Queue, poison};

use crate::support::place::Place;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

/// Receives again and again until there is a message.
async fn next(queue: &Queue, name: &str, visibility: Duration) -> Message {
    let looking = async {
        loop {
            if let Some(message) = queue.receive(name, 1, visibility).await.unwrap().pop() {
                return message;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(MINUTE, looking).await.expect("no message comes")
}

#[tokio::test]
async fn a_message_goes_through_its_life() {
    for place in Place::both().await {
        let (queue, name) = (place.backends().queue(), place.config().queue_name);
        assert_eq!(queue.receive(&name, 32, MINUTE).await.unwrap(), [], "a queue that is not there is empty");
        assert_eq!(queue.depth(&name).await.unwrap(), Depth::default());
        assert_eq!(queue.peek(&name, 5).await.unwrap(), []);

        let id = queue.send(&name, b"{\"a\": \"<b> & c\"}".to_vec(), Duration::ZERO).await.unwrap();
        let first = next(&queue, &name, SECOND).await;
        assert_eq!((first.id.as_str(), first.dequeue_count), (id.as_str(), 1), "{}", place.name());
        assert_eq!(first.body, b"{\"a\": \"<b> & c\"}", "{}", place.name());
        assert_eq!((first.expires - first.inserted).num_days(), 7, "{}", place.name());

        // It comes back by itself, and the old receipt is worth nothing any more.
        let second = next(&queue, &name, MINUTE).await;
        assert_eq!((second.id.as_str(), second.dequeue_count), (id.as_str(), 2), "{}", place.name());
        assert!(!queue.delete(&first).await.unwrap(), "{}", place.name());
        assert_eq!(queue.extend(&first, MINUTE).await.unwrap(), None, "{}", place.name());
        assert_eq!(queue.receive(&name, 1, MINUTE).await.unwrap(), [], "hidden");
        assert_eq!(queue.depth(&name).await.unwrap(), Depth { visible: 0, hidden: 1 }, "{}", place.name());

        // Extending changes the receipt and nothing else; to nothing gives the message back at once.
        let held = queue.extend(&second, MINUTE).await.unwrap().unwrap();
        assert!(!queue.delete(&second).await.unwrap(), "{}", place.name());
        assert_eq!((held.dequeue_count, &held.body), (2, &second.body));
        let given = queue.extend(&held, Duration::ZERO).await.unwrap().unwrap();
        let third = next(&queue, &name, MINUTE).await;
        assert_eq!(third.dequeue_count, 3, "{}", place.name());
        assert!(!queue.delete(&given).await.unwrap(), "{}", place.name());
        assert!(queue.delete(&third).await.unwrap(), "{}", place.name());
        assert!(!queue.delete(&third).await.unwrap(), "{}", place.name());
        assert_eq!(queue.depth(&name).await.unwrap(), Depth::default());
    }
}

#[tokio::test]
async fn a_delay_hides_a_new_message() {
    for place in Place::both().await {
        let (queue, name) = (place.backends().queue(), place.config().queue_name);
        queue.send(&name, b"late".to_vec(), 2 * SECOND).await.unwrap();
        assert_eq!(queue.receive(&name, 1, MINUTE).await.unwrap(), [], "{}", place.name());
        let message = next(&queue, &name, MINUTE).await;
        assert!(message.inserted + chrono::TimeDelta::seconds(1) < message.visible_at, "{}", place.name());
    }
}

#[tokio::test]
async fn many_messages_are_sent_received_and_counted() {
    for place in Place::both().await {
        let (queue, name) = (place.backends().queue(), place.config().queue_name);
        let bodies: Vec<Vec<u8>> = (0..75).map(|n| format!("message {n}").into_bytes()).collect();
        let ids = queue.send_all(&name, bodies.clone(), Duration::ZERO).await.unwrap();
        assert_eq!(ids.len(), 75);
        assert_eq!(queue.depth(&name).await.unwrap().total(), 75, "{}", place.name());
        assert_eq!(queue.peek(&name, 20).await.unwrap().len(), 20);
        // One call may bring more than one request can.
        let mut received = queue.receive(&name, 70, MINUTE).await.unwrap();
        assert_eq!(received.len(), 70, "{}", place.name());
        received.extend(queue.receive(&name, 70, MINUTE).await.unwrap());
        let mut found: Vec<Vec<u8>> = received.iter().map(|message| message.body.clone()).collect();
        let mut sent = bodies;
        found.sort();
        sent.sort();
        assert_eq!(found, sent, "{}", place.name());
        // Ids are in the order of what was sent.
        let of_first = received.iter().find(|message| message.id == ids[0]).unwrap();
        assert_eq!(of_first.body, b"message 0", "{}", place.name());
        for message in &received {
            assert!(queue.delete(message).await.unwrap());
        }
        assert_eq!(queue.depth(&name).await.unwrap().total(), 0, "{}", place.name());
    }
}

#[tokio::test]
async fn poison_is_a_queue_beside_and_a_copy_is_the_same() {
    for place in Place::both().await {
        let (queue, name) = (place.backends().queue(), place.config().queue_name);
        queue.send(&name, b"eyJhIjoxfQ==".to_vec(), Duration::ZERO).await.unwrap();
        let message = next(&queue, &name, MINUTE).await;
        queue.send(&poison(&name), message.body.clone(), Duration::ZERO).await.unwrap();
        assert!(queue.delete(&message).await.unwrap());
        assert_eq!(next(&queue, &poison(&name), MINUTE).await.body, message.body, "{}", place.name());
        assert_eq!(queue.depth(&name).await.unwrap().total(), 0, "{}", place.name());
        for bad in ["", "..", "a/b", "../lake"] {
            assert!(queue.send(bad, b"x".to_vec(), Duration::ZERO).await.is_err(), "{}: {bad}", place.name());
        }
    }
}
