//! The real host's bytes: its requests, and what it puts into them.

use std::net::SocketAddr;

use alluvium::clock::{Clock as _, SystemClock};
use alluvium::queue::Message;
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What the handler answered.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Its media type, without parameters.
    pub media_type: String,
    /// Its body.
    pub body: String,
}

impl Answer {
    /// Success is 2xx with a JSON object. An answer with nothing in it would hang the real host, so that fails the test.
    pub fn judged(&self) -> Result<Value, String> {
        if !(200..300).contains(&self.status) {
            return Err(format!("{}: {}", self.status, self.body));
        }
        assert!(!self.body.is_empty() && self.body != "null", "the real host would wait until the time is over");
        if !["application/json", "text/json"].contains(&self.media_type.as_str()) {
            return Err(format!("UnsupportedMediaType: {}", self.media_type));
        }
        match serde_json::from_str(&self.body) {
            Ok(answer @ Value::Object(_)) => Ok(answer),
            _ => Err(format!("no JSON object: {}", self.body)),
        }
    }
}

/// One request as the host sends it: the body in chunks, with the id of an invocation.
pub async fn request(address: SocketAddr, method: &str, path: &str, body: Option<&[u8]>) -> std::io::Result<Answer> {
    let mut stream = TcpStream::connect(address).await?;
    let id = uuid_of(&SystemClock.fresh());
    let mut head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nX-Azure-Functions-HostVersion: 4.1037.0.0\r\n\
         X-Azure-Functions-InvocationId: {id}\r\nUser-Agent: Azure-Functions-Host/4.1037.0.0\r\n"
    );
    if body.is_some() {
        head.push_str("Content-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n");
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await?;
    if let Some(body) = body {
        for chunk in body.chunks(1021) {
            stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
            stream.write_all(chunk).await?;
            stream.write_all(b"\r\n").await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let broken = || std::io::Error::other("the answer broke off");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(broken)?;
    let header = |name: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    if header("content-length").parse() != Ok(body.len()) {
        return Err(broken());
    }
    let media_type = header("content-type").split(';').next().unwrap_or_default().to_owned();
    Ok(Answer { status, media_type, body: body.to_owned() })
}

fn uuid_of(hex: &str) -> String {
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// A string of .NET: a JSON string that holds JSON text.
fn twice(text: &str) -> Value {
    Value::String(Value::from(text).to_string())
}

fn system(function: &str) -> Value {
    json!({ "MethodName": function, "UtcNow": "2026-01-15T10:00:01.1234567Z", "RandGuid": uuid_of(&SystemClock.fresh()) })
}

/// What the host sends for a message.
pub fn queue_body(function: &str, binding: &str, message: &Message) -> Value {
    let text = String::from_utf8(message.body.clone()).expect("messages are text");
    let time = |at: chrono::DateTime<chrono::Utc>| at.format("%Y-%m-%dT%H:%M:%S+00:00").to_string();
    let mut metadata = Map::new();
    metadata.insert("DequeueCount".to_owned(), json!(message.dequeue_count.to_string()));
    metadata.insert("ExpirationTime".to_owned(), json!(time(message.expires)));
    metadata.insert("Id".to_owned(), twice(&message.id));
    metadata.insert("InsertionTime".to_owned(), json!(time(message.inserted)));
    metadata.insert("NextVisibleTime".to_owned(), json!(time(message.visible_at)));
    metadata.insert("PopReceipt".to_owned(), twice(&message.receipt));
    metadata.insert("sys".to_owned(), system(function));
    if let Ok(Value::Object(properties)) = serde_json::from_str(&text) {
        for (name, value) in properties {
            let value = match value {
                Value::Null | Value::Array(_) => continue,
                Value::Object(_) => value,
                Value::String(text) => twice(&text),
                scalar => twice(&scalar.to_string()),
            };
            metadata.retain(|known, _| !known.eq_ignore_ascii_case(&name));
            metadata.insert(name, value);
        }
    }
    json!({ "Data": { binding: twice(&text) }, "Metadata": metadata })
}

/// What the host sends for a timer.
pub fn timer_body(function: &str, binding: &str) -> Value {
    let timer = json!({ "Schedule": { "AdjustForDST": true }, "ScheduleStatus": null, "IsPastDue": false });
    json!({ "Data": { binding: timer }, "Metadata": { "sys": system(function) } })
}
