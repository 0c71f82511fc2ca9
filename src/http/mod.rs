//! The custom handler: every function of the application over HTTP, as the Functions host calls it.
//!
//! | route | answers |
//! |---|---|
//! | any `/` | at once: the host's ping |
//! | POST `/ingest` `/commit` `/maintain` `/backfill` `/backfill_now` `/reconcile` `/poison` `/status` `/cdc_kafka` `/cdc_eventhubs` | an invocation in the host's wire format |
//! | GET `/api/status` | the status as JSON: a forwarded request |
//! | POST `/api/backfill_now` | what a backfill found, of all derived tables or of `?table=`: a forwarded request. 400 for any other parameter, a body, or a table that is not derived |
//!
//! A message that meets a transient fault goes back into the queue with a count and a delay of its own, so that an outage
//! uses up none of the host's few deliveries. Failures are never 2xx, and successes never empty. An event that must not be
//! followed (of another account or container, or of a name that is no path) is no failure: it is in the ledger once, as
//! `refused`, and its message is done as far as it goes. A message that cannot be understood fails until it is poison.
//!
//! The listener is bound before anything else is opened; the lake is opened by the first invocation that needs it.

mod backfill;
mod error;
mod handlers;
mod invocation;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get, post};
use serde_json::json;
use tokio::net::TcpListener;

use crate::app::App;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::error::{Error, Result};

pub use error::status as status_of;
pub use handlers::{Function, Steps};
pub use invocation::{Answer, INVOCATION_ID, Invocation};

/// Serves the functions on `127.0.0.1:FUNCTIONS_CUSTOMHANDLER_PORT` until the process is ended (or, on a leash, until
/// its standard input closes).
///
/// # Errors
/// The port is not given or cannot be had.
pub async fn serve(config: Config) -> Result<()> {
    let Some(port) = config.handler_port else {
        return Err(Error::invalid("FUNCTIONS_CUSTOMHANDLER_PORT is not set")
            .remedy("the Functions host sets it; run `alluvium local` for a host on this machine"));
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| Error::from(error).within(format!("listening on {address}")))?;
    let leash = config.leash;
    let app = Arc::new(App::new(config, Arc::new(SystemClock))?);
    tracing::info!(port, "the custom handler listens");
    let served = axum::serve(listener, router(app)).into_future();
    tokio::select! {
        outcome = served => outcome.map_err(|error| Error::from(error).within(format!("serving on {address}"))),
        () = standard_input_closed(), if leash => {
            tracing::info!("the host is gone, so is its handler");
            Ok(())
        }
    }
}

/// Ends when standard input does: the leash of a handler whose host may be killed. A thread of its own reads it: the runtime could not be stopped under such a read.
pub(crate) async fn standard_input_closed() {
    let (closed, wait) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        drop(closed);
    });
    let _ = wait.await;
}

/// All routes.
pub fn router(steps: Arc<dyn Steps>) -> Router {
    let mut router = Router::new()
        .route("/", any(ping))
        .route("/api/status", get(status))
        .route("/api/backfill_now", post(backfill_now));
    for function in Function::ALL {
        let handler = move |State(steps): State<Arc<dyn Steps>>, uri: Uri, headers: HeaderMap, body: Body| async move {
            invocation_of(steps, function, &uri, &headers, body).await
        };
        router = router.route(&format!("/{}", function.name()), post(handler));
    }
    router
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        // Batches exceed any limit worth setting; the only client is the host on this machine.
        .layer(DefaultBodyLimit::disable())
        .with_state(steps)
}

async fn ping() -> Response {
    axum::response::IntoResponse::into_response(axum::Json(json!({ "alluvium": env!("CARGO_PKG_VERSION") })))
}

async fn status(State(steps): State<Arc<dyn Steps>>, headers: HeaderMap) -> Response {
    handlers::plain(Function::Status, invocation_id(&headers), async move { steps.status().await }).await
}

async fn backfill_now(State(steps): State<Arc<dyn Steps>>, uri: Uri, headers: HeaderMap, body: Body) -> Response {
    let id = invocation_id(&headers);
    let Ok(body) = axum::body::to_bytes(body, usize::MAX).await else {
        return error::respond(StatusCode::BAD_REQUEST, "invalid", "the body broke off", None);
    };
    let pairs = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned();
    let asked = backfill::Asked { parameters: pairs.collect(), has_body: !body.trim_ascii().is_empty() };
    let asking = Arc::clone(&steps);
    match handlers::guarded(async move { backfill::wanted(&*asking, asked).await }).await {
        Ok(Ok(table)) => {
            let work = async move { steps.backfill(table.as_ref()).await };
            handlers::plain(Function::BackfillNow, id, work).await
        }
        Ok(Err(wrong)) => error::refuse(&wrong),
        Err(error) => handlers::plain(Function::BackfillNow, id, async move { Err(error) }).await,
    }
}

fn parameter(uri: &Uri, wanted: &str) -> Option<String> {
    let mut found = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    found.find(|(name, _)| name == wanted).map(|(_, value)| value.into_owned())
}

async fn invocation_of(
    steps: Arc<dyn Steps>,
    function: Function,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Response {
    let id = invocation_id(headers);
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(broken) => {
            tracing::warn!(invocation.id = id, "the body of an invocation broke off: {broken}");
            return error::respond(StatusCode::BAD_REQUEST, "invalid", "the body broke off", None);
        }
    };
    let force = parameter(uri, "force").is_some_and(|value| value == "true");
    handlers::invoke(steps, function, handlers::Request { id, force, body }).await
}

fn invocation_id(headers: &HeaderMap) -> String {
    headers.get(INVOCATION_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned()
}

async fn no_such_route(uri: Uri) -> Response {
    let functions: Vec<&str> = Function::ALL.iter().map(|function| function.name()).collect();
    let message = format!("{} is no function: there are {}", uri.path(), functions.join(", "));
    error::respond(StatusCode::NOT_FOUND, "not_found", &message, None)
}

async fn no_such_method(uri: Uri) -> Response {
    let message = format!("{} is not called like this: functions are called by POST, the status by GET", uri.path());
    error::respond(StatusCode::METHOD_NOT_ALLOWED, "invalid", &message, None)
}

#[cfg(test)]
mod tests;
