//! A proxy between a program and a service that kills connections and drops answers, at requests that a seed draws.
//!
//! It knows as much of HTTP/1.1 as it takes to see where a request and an answer end, so that an answer that is lost is the
//! answer to a request that was carried out.

use std::io::{Error, Result};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::chance::Chance;

/// What is done to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// The connection ends before the service hears of it.
    Killed,
    /// The service hears half of it.
    RequestCut,
    /// It is carried out, and the connection ends without an answer.
    AnswerLost,
    /// It is carried out, and half of the answer comes.
    AnswerCut,
}

const TROUBLES: [Trouble; 4] = [Trouble::Killed, Trouble::RequestCut, Trouble::AnswerLost, Trouble::AnswerCut];

/// A running proxy. It ends when this is dropped.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    to: u16,
    one_in: u64,
    chance: Mutex<Chance>,
    requests: AtomicU64,
    troubles: [AtomicU64; TROUBLES.len()],
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// A proxy before the service at a port of this machine, with trouble at one request in so many.
    pub async fn start(to: u16, seed: u64, one_in: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (chance, requests) = (Mutex::new(Chance::new(seed)), AtomicU64::new(0));
        let shared = Arc::new(Shared { to, one_in, chance, requests, troubles: Default::default() });
        let serving = Arc::clone(&shared);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let shared = Arc::clone(&serving);
                // However a connection ends, its ends hear of it by themselves.
                tokio::spawn(async move { drop(shared.serve(client).await) });
            }
        });
        Self { port, shared, accepting }
    }

    /// Requests, and how many of them met each kind of trouble: killed, half a request, no answer, half an answer.
    pub fn counts(&self) -> (u64, [u64; 4]) {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        (count(&self.shared.requests), std::array::from_fn(|at| count(&self.shared.troubles[at])))
    }
}

impl Shared {
    async fn serve(&self, client: TcpStream) -> Result<()> {
        let (from_client, mut to_client) = client.into_split();
        let mut from_client = BufReader::new(from_client);
        let (from_service, mut to_service) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.to)).await?.into_split();
        let mut from_service = BufReader::new(from_service);
        while let Some(request) = message(&mut from_client, false).await? {
            let trouble = self.draw();
            match trouble {
                Some(Trouble::Killed) => return Ok(()),
                Some(Trouble::RequestCut) => return to_service.write_all(half(&request)).await,
                _ => to_service.write_all(&request).await?,
            }
            let is_bare = request.starts_with(b"HEAD ");
            let Some(answer) = message(&mut from_service, is_bare).await? else { return Ok(()) };
            match trouble {
                Some(Trouble::AnswerLost) => return Ok(()),
                Some(Trouble::AnswerCut) => return to_client.write_all(half(&answer)).await,
                _ => to_client.write_all(&answer).await?,
            }
        }
        Ok(())
    }

    fn draw(&self) -> Option<Trouble> {
        self.requests.fetch_add(1, Ordering::SeqCst);
        let mut chance = self.chance.lock().unwrap();
        if chance.below(self.one_in) != 0 {
            return None;
        }
        // One kind after the other, so that a short run has all.
        let counts = self.troubles.each_ref().map(|count| count.load(Ordering::SeqCst));
        let which = (0..counts.len()).min_by_key(|at| counts[*at]).unwrap();
        self.troubles[which].fetch_add(1, Ordering::SeqCst);
        Some(TROUBLES[which])
    }
}

fn half(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len() / 2]
}

/// One request or answer, whole; none at the end of the connection. `is_bare`: it has no body, whatever its head says.
async fn message(from: &mut (impl AsyncBufRead + Unpin), is_bare: bool) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    if line(from, &mut bytes).await?.is_empty() {
        return Ok(None);
    }
    let status = String::from_utf8_lossy(&bytes).split(' ').nth(1).and_then(|word| word.parse::<u16>().ok());
    let (mut length, mut is_chunked) = (0, false);
    loop {
        let head = line(from, &mut bytes).await?.to_ascii_lowercase();
        match head.trim().split_once(':') {
            Some(("content-length", value)) => length = value.trim().parse().map_err(Error::other)?,
            Some(("transfer-encoding", value)) => is_chunked = value.trim() == "chunked",
            Some(_) => {}
            None => break,
        }
    }
    if is_bare || matches!(status, Some(100..200 | 204 | 304)) {
        return Ok(Some(bytes));
    }
    if !is_chunked {
        take(from, &mut bytes, length).await?;
        return Ok(Some(bytes));
    }
    loop {
        let size = line(from, &mut bytes).await?;
        let size = u64::from_str_radix(size.trim().split(';').next().unwrap_or_default(), 16).map_err(Error::other)?;
        if size == 0 {
            while !line(from, &mut bytes).await?.trim().is_empty() {}
            return Ok(Some(bytes));
        }
        take(from, &mut bytes, size + 2).await?;
    }
}

/// Takes one line, which is empty at the end of the connection alone.
async fn line(from: &mut (impl AsyncBufRead + Unpin), bytes: &mut Vec<u8>) -> Result<String> {
    let begin = bytes.len();
    from.read_until(b'\n', bytes).await?;
    Ok(String::from_utf8_lossy(&bytes[begin..]).into_owned())
}

async fn take(from: &mut (impl AsyncBufRead + Unpin), bytes: &mut Vec<u8>, length: u64) -> Result<()> {
    let taken = from.take(length).read_to_end(bytes).await?;
    if taken as u64 == length { Ok(()) } else { Err(Error::other("the connection ended within a message")) }
}
