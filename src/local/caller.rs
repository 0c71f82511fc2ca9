//! Calls the handler as the host does.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Shared;
use super::child::Handler;
use super::wire::{self, Moment};
use crate::error::{Error, Result};
use crate::http::{Answer, INVOCATION_ID};

/// How long an invocation waits for a handler that is not up.
const WAIT_FOR_HANDLER: Duration = Duration::from_secs(120);

/// Makes invocations. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    pub shared: Shared,
    pub handler: Handler,
    /// Longest run of a function; then the whole handler is killed, as the Functions host does.
    pub limit: Option<Duration>,
    /// No new work is begun; whoever waits for a handler gives up.
    pub stop: CancellationToken,
}

impl Caller {
    /// Now, and a fresh id.
    pub(super) fn moment(&self) -> Moment {
        Moment { now: self.shared.clock.now(), fresh: self.shared.clock.fresh() }
    }

    /// One invocation.
    ///
    /// # Errors
    /// The handler is not there, did not answer in time, or failed.
    pub(super) async fn invoke(&self, path: &str, body: Vec<u8>) -> Result<Answer> {
        let address = tokio::select! {
            address = self.handler.address(WAIT_FOR_HANDLER) => address?,
            () = self.given_up() => return Err(Error::unavailable("the host stops and the handler is not up")),
        };
        let call = self.call(format!("http://{address}/{path}"), body);
        let Some(limit) = self.limit else { return call.await };
        match tokio::time::timeout(limit, call).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.handler.kill();
                let message = format!("{path} ran longer than {} s, so the handler was killed", limit.as_secs());
                Err(Error::unavailable(message).remedy("raise functionTimeout in host.json if it must run so long"))
            }
        }
    }

    /// A moment after the host was told to stop: an address that is known is had by then.
    async fn given_up(&self) {
        self.stop.cancelled().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    async fn call(&self, url: String, body: Vec<u8>) -> Result<Answer> {
        let broken = |error: reqwest::Error| Error::unavailable("the handler broke off").because(error);
        let response = self
            .shared
            .client
            .post(url)
            .header(INVOCATION_ID, wire::guid(&self.shared.clock.fresh()))
            .header("x-azure-functions-hostversion", "4.1037.0.0")
            .header("content-type", "application/json; charset=utf-8")
            .body(body)
            .send()
            .await
            .map_err(broken)?;
        let status = response.status().as_u16();
        let media_type = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().to_owned();
        let body = response.bytes().await.map_err(broken)?;
        wire::judge(status, &media_type, &body)
    }
}
