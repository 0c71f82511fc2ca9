//! The local host's port: HTTP functions, forwarded to the handler as they came, and `POST /admin/functions/<name>`.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONNECTION, CONTENT_LENGTH, HOST, ORIGIN, TRANSFER_ENCODING};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, body};
use serde_json::json;

use super::caller::Caller;
use super::host::find;
use super::timers::TimerTrigger;
use super::wire;
use crate::error::{Error, Result};
use crate::http::{INVOCATION_ID, status_of};

/// Requests from outside are answered within this time or not at all, as in the cloud.
const ANSWER_WITHIN: Duration = Duration::from_secs(230);

/// Bodies from outside are small: nothing is uploaded here.
const LARGEST_BODY: usize = 100 << 20;

/// An HTTP function.
#[derive(Debug, Clone)]
pub(super) struct HttpFunction {
    /// Upper case; empty for all.
    pub methods: Vec<String>,
    /// The whole path.
    pub path: String,
}

#[derive(Debug)]
struct Web {
    caller: Caller,
    timers: Vec<TimerTrigger>,
    functions: Vec<HttpFunction>,
}

/// All routes of the port.
pub(super) fn router(caller: Caller, timers: Vec<TimerTrigger>, functions: Vec<HttpFunction>) -> Router {
    Router::new()
        .route("/", get(overview))
        .route("/admin/functions/{name}", post(run_now))
        .fallback(forward)
        .with_state(Arc::new(Web { caller, timers, functions }))
}

async fn overview(State(web): State<Arc<Web>>) -> Response {
    let timers: Vec<String> = web.timers.iter().map(|timer| format!("/admin/functions/{}", timer.function)).collect();
    let paths: Vec<&str> = web.functions.iter().map(|function| function.path.as_str()).collect();
    Json(json!({ "alluvium": env!("CARGO_PKG_VERSION"), "http": paths, "run_now": timers })).into_response()
}

/// Runs a timer function now; `?force=true` commits what is not due.
async fn run_now(State(web): State<Arc<Web>>, Path(name): Path<String>, request: Request) -> Response {
    if is_from_a_web_page(request.headers()) {
        return refused(StatusCode::FORBIDDEN, "web pages may not run functions");
    }
    let trigger = match find(&web.timers, &name) {
        Ok(trigger) => trigger,
        Err(error) => return refused(StatusCode::NOT_FOUND, &error.describe()),
    };
    match trigger.run_now(request.uri().query() == Some("force=true")).await {
        Ok(answer) => answer.into_response(),
        Err(error) => refused(status_of(&error), &error.describe()),
    }
}

/// The port is open to every program of this machine, browsers among them; what a page sends names its origin, and a
/// name that somebody else resolved to this machine is not ours.
fn is_from_a_web_page(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
    headers.contains_key(ORIGIN) || !matches!(name, "127.0.0.1" | "localhost")
}

fn refused(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({ "error": { "message": message } }))).into_response()
}

async fn forward(State(web): State<Arc<Web>>, request: Request) -> Response {
    let path = request.uri().path();
    let Some(function) = web.functions.iter().find(|function| function.path.eq_ignore_ascii_case(path)) else {
        return refused(StatusCode::NOT_FOUND, &format!("no function answers {path}"));
    };
    let method = request.method().as_str();
    if !function.methods.is_empty() && !function.methods.iter().any(|allowed| allowed == method) {
        return refused(StatusCode::METHOD_NOT_ALLOWED, &format!("{path} takes {}", function.methods.join(", ")));
    }
    match tokio::time::timeout(ANSWER_WITHIN, forwarded(&web.caller, request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => refused(StatusCode::BAD_GATEWAY, &error.describe()),
        Err(_) => refused(StatusCode::GATEWAY_TIMEOUT, "the handler did not answer in time"),
    }
}

/// Method, path, query, headers and body go as they came; status, headers and body come back as they are.
async fn forwarded(caller: &Caller, request: Request) -> Result<Response> {
    let failed = |error: reqwest::Error| Error::unavailable("the handler broke off").because(error);
    let address = caller.handler.address(ANSWER_WITHIN).await?;
    let (parts, content) = request.into_parts();
    let content = body::to_bytes(content, LARGEST_BODY)
        .await
        .map_err(|error| Error::invalid("the request's body cannot be read").because(error))?;
    let mut headers = parts.headers;
    for name in [HOST, CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    let target = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let answer = caller
        .shared
        .client
        .request(parts.method, format!("http://{address}{target}"))
        .headers(headers)
        .header(INVOCATION_ID, wire::guid(&caller.shared.clock.fresh()))
        .body(content)
        .send()
        .await
        .map_err(failed)?;
    let status = answer.status();
    let mut headers = answer.headers().clone();
    for name in [CONNECTION, TRANSFER_ENCODING, CONTENT_LENGTH] {
        headers.remove(name);
    }
    let mut response = Response::new(Body::from(answer.bytes().await.map_err(failed)?));
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}
