//! What each function does with its invocation: parse, call the step, answer. Failures are logged here, once.

use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::error::failure;
use super::invocation::{Answer, Invocation};
use crate::error::{Directive, Error, Result};
use crate::event::{self, FileEvent, Item, Scope};
use crate::manifest::FileVersion;
use crate::name::short_hash;

/// The pipeline's steps as the handlers need them. [`crate::app::App`] is the real one.
#[async_trait]
pub trait Steps: Send + Sync + 'static {
    /// Which events are about our landing zone.
    fn scope(&self) -> Scope;
    /// Reads, checks and stages one landed file; what was done, for people.
    async fn ingest(&self, event: &FileEvent) -> Result<Value>;
    /// Keeps the cause of a failed delivery for the ledger.
    async fn note_failure(&self, event: &FileEvent, reason: &str, transient: bool, attempts: u32) -> Result<()>;
    /// One slice of the committer; what was done. `force` commits what is not due yet.
    async fn commit(&self, force: bool) -> Result<Value>;
    /// Landed versions at rest that neither ledger nor staging knows.
    async fn missing(&self) -> Result<Vec<FileVersion>>;
    /// Puts files into the landing queue.
    async fn announce(&self, files: &[FileVersion]) -> Result<()>;
    /// The state of everything.
    async fn status(&self) -> Result<Value>;
}

/// A function of the application.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Stages the file of a queue message.
    Ingest,
    /// The single writer.
    Commit,
    /// Finds what no event announced.
    Reconcile,
    /// Records what failed too often.
    Poison,
    /// Tells the state.
    Status,
}

impl Function {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ingest, Self::Commit, Self::Reconcile, Self::Poison, Self::Status];

    /// Name of its folder, and its path for the host.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Commit => "commit",
            Self::Reconcile => "reconcile",
            Self::Poison => "poison",
            Self::Status => "status",
        }
    }
}

/// One invocation as it came.
#[derive(Debug)]
pub(super) struct Request {
    pub id: String,
    pub force: bool,
    pub body: axum::body::Bytes,
}

/// Runs a function to its end, even if the caller goes away, and answers; a panic is a failure like any other.
pub(super) async fn invoke(steps: Arc<dyn Steps>, function: Function, request: Request) -> Response {
    let span = tracing::info_span!("invocation", function.name = function.name(), invocation.id = request.id);
    let work = async move { run(&*steps, function, &request).await };
    match guarded(work.instrument(span.clone())).await {
        Ok(answer) => answer.into_response(),
        Err(error) => {
            span.in_scope(|| log_failure(&error));
            failure(&error)
        }
    }
}

/// The status as it is, for callers that are no Functions host.
pub(super) async fn plain_status(steps: Arc<dyn Steps>, id: String) -> Response {
    let span = tracing::info_span!("invocation", function.name = "status", invocation.id = id);
    let work = async move { steps.status().await };
    match guarded(work.instrument(span.clone())).await {
        Ok(status) => axum::Json(status).into_response(),
        Err(error) => {
            span.in_scope(|| log_failure(&error));
            failure(&error)
        }
    }
}

async fn guarded<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(panic) => Err(Error::internal("the function broke off").because(panic).remedy("report this with the log")),
    }
}

fn log_failure(error: &Error) {
    tracing::error!(error.kind = error.kind().as_str(), remedy = error.remedy_text(), "{error}");
}

async fn run(steps: &dyn Steps, function: Function, request: &Request) -> Result<Answer> {
    let invocation = Invocation::parse(&request.body)?;
    match function {
        Function::Ingest => ingest(steps, &invocation).await,
        Function::Poison => poison(steps, &invocation).await,
        Function::Commit => Ok(reported(&steps.commit(request.force).await?)),
        Function::Reconcile => reconcile(steps).await,
        Function::Status => {
            let mut answer = Answer::default();
            let headers = json!({ "Content-Type": "application/json" });
            let response = json!({ "statusCode": 200, "headers": headers, "body": steps.status().await? });
            answer.outputs.insert("res".to_owned(), response);
            Ok(answer)
        }
    }
}

/// An answer whose log line is a step's report, which the host ties to the invocation.
fn reported(report: &Value) -> Answer {
    Answer { logs: vec![report.to_string()], ..Answer::default() }
}

/// Every event of a message is worked on, whatever becomes of its neighbours; the message is done when all are.
async fn ingest(steps: &dyn Steps, invocation: &Invocation) -> Result<Answer> {
    let mut answer = Answer::default();
    let mut failed: Option<Error> = None;
    for item in event::parse(&invocation.message()?, &steps.scope())? {
        let outcome = match item {
            Item::File(file) => ingest_one(steps, invocation, &file).await,
            Item::Skipped { subject, reason } => {
                tracing::info!(subject, "event skipped: {reason}");
                Ok(json!({ "skipped": subject, "reason": reason }))
            }
            Item::Broken(error) => Err(error),
        };
        match outcome {
            Ok(report) => answer.logs.push(report.to_string()),
            // The last one is logged where the invocation fails.
            Err(error) => {
                if let Some(earlier) = failed.replace(error) {
                    log_failure(&earlier);
                }
            }
        }
    }
    failed.map_or(Ok(answer), Err)
}

async fn ingest_one(steps: &dyn Steps, invocation: &Invocation, file: &FileEvent) -> Result<Value> {
    let error = match steps.ingest(file).await {
        Ok(report) => return Ok(report),
        Err(error) => error.within(&file.path),
    };
    // The queue keeps no cause, so it is stored before the message is given back.
    let transient = error.kind().directive() == Directive::Retry;
    if let Err(second) = steps.note_failure(file, &error.describe(), transient, invocation.dequeue_count().max(1)).await
    {
        tracing::warn!(error.kind = second.kind().as_str(), "the cause of a failure could not be stored: {second}");
    }
    Err(error)
}

/// Records what was delivered too often. Nothing is lost by acknowledging it: the file stays in the landing zone.
async fn poison(steps: &dyn Steps, invocation: &Invocation) -> Result<Answer> {
    let message = invocation.message()?;
    let items = match event::parse(&message, &steps.scope()) {
        Ok(items) => items,
        Err(error) => vec![Item::Broken(error)],
    };
    let mut recorded = Vec::new();
    for item in items {
        let (file, reason) = match item {
            Item::File(file) => (file, "every delivery of its message failed; earlier notes have the cause".to_owned()),
            Item::Skipped { .. } => continue,
            Item::Broken(error) => (nameless(&message), error.describe()),
        };
        tracing::error!(error.kind = "poison", "{} is given up: {reason}", file.path);
        steps.note_failure(&file, &reason, false, invocation.dequeue_count().max(1)).await?;
        recorded.push(file.path);
    }
    Ok(reported(&json!({ "given_up": recorded })))
}

/// What a message that names no file is called in the ledger: by its content, so that it counts once.
fn nameless(message: &[u8]) -> FileEvent {
    let text = String::from_utf8_lossy(message);
    tracing::error!(message.raw = text.chars().take(4096).collect::<String>(), "a message names no file");
    let path = format!("unreadable-message-{}", short_hash(&[&text]));
    FileEvent { path, etag: None, sequencer: None, bytes: u64::try_from(message.len()).ok() }
}

async fn reconcile(steps: &dyn Steps) -> Result<Answer> {
    let files = steps.missing().await?;
    steps.announce(&files).await?;
    if !files.is_empty() {
        tracing::info!(files = files.len(), "landed files that no event announced are in the queue now");
    }
    Ok(reported(&json!({ "announced": files.len() })))
}
