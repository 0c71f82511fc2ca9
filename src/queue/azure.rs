//! Queues of a storage account.
//!
//! A message is text there. A body that is text and survives XML is sent as it is, any other in base64, which readers of
//! events take as well. Received bodies are what the service holds, byte for byte: a copy to another queue is the same.
//! A queue that is not there is created by the first message that is sent to it, and is empty for everybody else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azure_core::Error as SdkError;
use azure_core::http::{RequestContent, XmlFormat};
use azure_core::time::OffsetDateTime;
use azure_storage_queue::models::{
    QueueClientGetPropertiesResultHeaders as _, QueueClientPeekMessagesOptions, QueueClientReceiveMessagesOptions,
    QueueClientSendMessageOptions, QueueMessage, ReceivedMessage,
};
use azure_storage_queue::{QueueClient, QueueClientOptions};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use chrono::{DateTime, Utc};
use futures::{StreamExt as _, TryStreamExt as _};

use super::{Depth, Message, TIME_TO_LIVE};
use crate::azure::{Account, below, error_code, trouble};
use crate::error::{Error, Result};

/// Most messages that one request brings.
const AT_ONCE: usize = 32;

/// Messages that are sent at the same time.
const SENDING: usize = 16;

/// Queues of a storage account. Cheap to clone.
#[derive(Debug, Clone)]
pub struct AzureQueue {
    account: Arc<Account>,
    clients: Arc<Mutex<HashMap<String, Arc<Client>>>>,
}

struct Client(QueueClient);

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Whole seconds, as the service counts, rounded up and at most its seven days.
fn seconds(duration: Duration) -> i32 {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    i32::try_from(whole.min(TIME_TO_LIVE.as_secs())).unwrap_or(i32::MAX)
}

fn instant(time: Option<OffsetDateTime>) -> DateTime<Utc> {
    time.and_then(|time| DateTime::from_timestamp(time.unix_timestamp(), time.nanosecond())).unwrap_or_default()
}

fn count(dequeued: Option<i64>) -> u32 {
    dequeued.and_then(|count| u32::try_from(count).ok()).unwrap_or_default()
}

/// The body as the text of a message: as it is when XML gives it back unchanged, else in base64.
fn text_of(body: Vec<u8>) -> String {
    let survives = |text: &str| {
        let inner = text.chars().all(|c| !c.is_control() && c != '\u{fffe}' && c != '\u{ffff}');
        inner && !text.is_empty() && text.trim() == text
    };
    match String::from_utf8(body) {
        Ok(text) if survives(&text) => text,
        Ok(text) => BASE64.encode(text),
        Err(error) => BASE64.encode(error.as_bytes()),
    }
}

/// Whether an error says that a receipt no longer holds, or that its message is gone.
fn is_lost(error: &SdkError) -> bool {
    matches!(error_code(error), Some("MessageNotFound" | "PopReceiptMismatch" | "QueueNotFound"))
        || error.http_status().map(u16::from) == Some(404)
}

fn is_no_queue(error: &SdkError) -> bool {
    error.http_status().map(u16::from) == Some(404)
}

impl AzureQueue {
    /// The queues of an account. Nothing is asked over the network.
    #[must_use]
    pub fn new(account: Account) -> Self {
        Self { account: Arc::new(account), clients: Arc::default() }
    }

    fn client(&self, queue: &str) -> Result<Arc<Client>> {
        if let Some(client) = self.clients.lock().unwrap_or_else(PoisonError::into_inner).get(queue) {
            return Ok(Arc::clone(client));
        }
        let plain = queue.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if queue.is_empty() || !plain {
            return Err(Error::invalid(format!(
                "`{queue}` is no queue name: lower-case letters, digits and hyphens only"
            )));
        }
        let (client_options, credential) = self.account.client_options();
        let url = below(self.account.queue_endpoint(), queue)?;
        let options = QueueClientOptions { client_options, ..QueueClientOptions::default() };
        let client =
            QueueClient::new(url, credential, Some(options)).map_err(|e| trouble(&format!("queue {queue}"), &e))?;
        let client = Arc::new(Client(client));
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).insert(queue.to_owned(), Arc::clone(&client));
        Ok(client)
    }

    /// Creates a queue where none is.
    ///
    /// # Errors
    /// The account refused, or did not answer.
    pub async fn create(&self, queue: &str) -> Result<()> {
        match self.client(queue)?.0.create(None).await {
            Ok(_) => Ok(()),
            Err(error) if error_code(&error) == Some("QueueAlreadyExists") => Ok(()),
            Err(error) => Err(trouble(&format!("creating queue {queue}"), &error)),
        }
    }

    /// Removes a queue with all its messages; one that is not there is fine.
    ///
    /// # Errors
    /// The account refused, or did not answer.
    pub async fn remove(&self, queue: &str) -> Result<()> {
        match self.client(queue)?.0.delete(None).await {
            Ok(_) => Ok(()),
            Err(error) if is_no_queue(&error) => Ok(()),
            Err(error) => Err(trouble(&format!("removing queue {queue}"), &error)),
        }
    }

    /// Sends messages, to be visible after `delay`; their ids.
    ///
    /// # Errors
    /// Not all of them were sent, or it is not known.
    pub async fn send_all(&self, queue: &str, bodies: Vec<Vec<u8>>, delay: Duration) -> Result<Vec<String>> {
        let sent = bodies.into_iter().map(|body| self.send(queue, text_of(body), delay));
        futures::stream::iter(sent).buffered(SENDING).try_collect().await
    }

    async fn send(&self, queue: &str, text: String, delay: Duration) -> Result<String> {
        let failed = |error: &SdkError| trouble(&format!("sending to queue {queue}"), error);
        let client = self.client(queue)?;
        let mut outcome = client.0.send_message(content(&text).map_err(|e| failed(&e))?, options(delay)).await;
        if outcome.as_ref().err().is_some_and(is_no_queue) {
            self.create(queue).await?;
            outcome = client.0.send_message(content(&text).map_err(|e| failed(&e))?, options(delay)).await;
        }
        let sent = outcome.and_then(|response| response.into_model()?.into_message()).map_err(|e| failed(&e))?;
        sent.message_id.ok_or_else(|| Error::internal(format!("queue {queue}: a message got no id")))
    }

    /// Receives up to `max` visible messages and hides them for `visibility`, which is a second at least.
    ///
    /// # Errors
    /// The queue cannot be read. Messages received by then come back after `visibility`.
    pub async fn receive(&self, queue: &str, max: usize, visibility: Duration) -> Result<Vec<Message>> {
        let client = self.client(queue)?;
        let mut received = Vec::new();
        while received.len() < max {
            let wanted = (max - received.len()).min(AT_ONCE);
            let options = QueueClientReceiveMessagesOptions {
                number_of_messages: i32::try_from(wanted).ok(),
                visibility_timeout: Some(seconds(visibility).max(1)),
                ..QueueClientReceiveMessagesOptions::default()
            };
            let found =
                match client.0.receive_messages(Some(options)).await.and_then(azure_core::http::Response::into_model) {
                    Ok(found) => found.items.unwrap_or_default(),
                    Err(error) if is_no_queue(&error) => break,
                    // What was received by now is worked on; the rest is asked for again.
                    Err(_) if !received.is_empty() => break,
                    Err(error) => return Err(trouble(&format!("receiving from queue {queue}"), &error)),
                };
            let is_last = found.len() < wanted;
            received.extend(found.into_iter().map(|message| message_of(queue, message)));
            if is_last {
                break;
            }
        }
        Ok(received)
    }

    /// Hides a message for `visibility` from now; none when its receipt no longer holds.
    ///
    /// # Errors
    /// It could not be tried.
    pub async fn extend(&self, message: Message, visibility: Duration) -> Result<Option<Message>> {
        let client = self.client(&message.queue)?;
        match client.0.update_message(&message.id, &message.receipt, seconds(visibility), None).await {
            Ok(response) => {
                let header = |name: &'static str| {
                    let name = azure_core::http::headers::HeaderName::from_static(name);
                    response.headers().get_optional_str(&name).map(str::to_owned)
                };
                let receipt = header("x-ms-popreceipt")
                    .ok_or_else(|| Error::internal(format!("queue {}: no new receipt came", message.queue)))?;
                let visible_at = header("x-ms-time-next-visible")
                    .and_then(|text| DateTime::parse_from_rfc2822(&text).ok())
                    .map_or(message.visible_at, |time| time.to_utc());
                Ok(Some(Message { receipt, visible_at, ..message }))
            }
            Err(error) if is_lost(&error) => Ok(None),
            Err(error) => Err(trouble(&format!("extending in queue {}", message.queue), &error)),
        }
    }

    /// Deletes a message; false when its receipt no longer holds.
    ///
    /// # Errors
    /// It could not be tried.
    pub async fn delete(&self, message: &Message) -> Result<bool> {
        match self.client(&message.queue)?.0.delete_message(&message.id, &message.receipt, None).await {
            Ok(_) => Ok(true),
            Err(error) if is_lost(&error) => Ok(false),
            Err(error) => Err(trouble(&format!("deleting from queue {}", message.queue), &error)),
        }
    }

    /// Up to `max` visible messages, 32 at most: the service shows no more, and no hidden ones.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub async fn peek(&self, queue: &str, max: usize) -> Result<Vec<Message>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let options = QueueClientPeekMessagesOptions {
            number_of_messages: i32::try_from(max.min(AT_ONCE)).ok(),
            ..QueueClientPeekMessagesOptions::default()
        };
        let peeked = self.client(queue)?.0.peek_messages(Some(options)).await;
        let peeked = match peeked.and_then(azure_core::http::Response::into_model) {
            Ok(peeked) => peeked.items.unwrap_or_default(),
            Err(error) if is_no_queue(&error) => return Ok(Vec::new()),
            Err(error) => return Err(trouble(&format!("reading queue {queue}"), &error)),
        };
        let message = |peeked: azure_storage_queue::models::PeekedMessage| Message {
            queue: queue.to_owned(),
            id: peeked.message_id.unwrap_or_default(),
            body: peeked.message_text.unwrap_or_default().into_bytes(),
            dequeue_count: count(peeked.dequeue_count),
            receipt: String::new(),
            inserted: instant(peeked.insertion_time),
            expires: instant(peeked.expiration_time),
            visible_at: instant(peeked.insertion_time),
        };
        Ok(peeked.into_iter().map(message).collect())
    }

    /// How many messages there are. The sum is never too low; which of more than 32 visible ones are hidden instead is not
    /// known, and all of them count as visible.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub async fn depth(&self, queue: &str) -> Result<Depth> {
        let failed = |error: &SdkError| trouble(&format!("counting in queue {queue}"), error);
        let counted = match self.client(queue)?.0.get_properties(None).await {
            Ok(properties) => properties.approximate_messages_count().map_err(|e| failed(&e))?.unwrap_or_default(),
            Err(error) if is_no_queue(&error) => return Ok(Depth::default()),
            Err(error) => return Err(failed(&error)),
        };
        let counted = usize::try_from(counted).unwrap_or_default();
        if counted == 0 {
            return Ok(Depth::default());
        }
        let seen = self.peek(queue, AT_ONCE).await?.len();
        let visible = if seen == AT_ONCE { counted.max(seen) } else { seen };
        Ok(Depth { visible, hidden: counted.saturating_sub(visible) })
    }

    /// Whether a queue is there.
    ///
    /// # Errors
    /// The account refused, or did not answer.
    pub async fn exists(&self, queue: &str) -> Result<bool> {
        self.client(queue)?.0.exists().await.map_err(|error| trouble(&format!("queue {queue}"), &error))
    }
}

fn content(text: &str) -> azure_core::Result<RequestContent<QueueMessage, XmlFormat>> {
    QueueMessage { message_text: Some(text.to_owned()) }.try_into()
}

fn options(delay: Duration) -> Option<QueueClientSendMessageOptions<'static>> {
    Some(QueueClientSendMessageOptions {
        visibility_timeout: Some(seconds(delay)),
        ..QueueClientSendMessageOptions::default()
    })
}

fn message_of(queue: &str, message: ReceivedMessage) -> Message {
    Message {
        queue: queue.to_owned(),
        id: message.message_id.unwrap_or_default(),
        body: message.message_text.unwrap_or_default().into_bytes(),
        dequeue_count: count(message.dequeue_count),
        receipt: message.pop_receipt.unwrap_or_default(),
        inserted: instant(message.insertion_time),
        expires: instant(message.expiration_time),
        visible_at: instant(message.time_next_visible.or(message.insertion_time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_goes_as_it_is_and_the_rest_in_base64() {
        for (body, text) in [
            (b"{\"a\":\"b & <c>\"}".as_slice(), "{\"a\":\"b & <c>\"}"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"\xffbytes", "/2J5dGVz"),
            (b" padded", "IHBhZGRlZA=="),
            (b"two\nlines", "dHdvCmxpbmVz"),
            (b"", ""),
        ] {
            assert_eq!(text_of(body.to_vec()), text);
        }
    }

    #[test]
    fn times_are_whole_seconds_within_what_the_service_takes() {
        for (duration, whole) in [
            (Duration::ZERO, 0),
            (Duration::from_millis(1), 1),
            (Duration::from_secs(30), 30),
            (Duration::from_secs(10_000_000), 604_800),
        ] {
            assert_eq!(seconds(duration), whole, "{duration:?}");
        }
    }
}
