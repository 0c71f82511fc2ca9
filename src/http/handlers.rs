//! What each function does with its invocation: parse, call the step, answer. Failures are logged here, once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::backfill;
use super::error::{body as error_body, failure};
use super::invocation::{Answer, Invocation};
use crate::error::{Directive, Error, Result};
use crate::event::stream::{self, StreamRecord};
use crate::event::{self, FileEvent, Item, Original, Refused, Scope};
use crate::name::{TableName, short_hash};
use crate::pipeline::deliver::KeyOf;

/// The pipeline's steps as the handlers need them. [`crate::app::App`] is the real one.
#[async_trait]
pub trait Steps: Send + Sync + 'static {
    /// Which events are about our landing zone.
    fn scope(&self) -> Scope;
    /// Reads, checks and stages one landed file; what was done, for people.
    async fn ingest(&self, event: &FileEvent) -> Result<Value>;
    /// Keeps the cause of a failed delivery for the ledger.
    async fn note_failure(&self, event: &FileEvent, reason: &str, transient: bool, attempts: u32) -> Result<()>;
    /// Sees to it that the ledger gets a cause for a file whose every delivery failed; the causes, for people.
    async fn give_up(&self, event: &FileEvent, attempts: u32) -> Result<Vec<String>>;
    /// Keeps a message that names no file, under a name of its own, for the ledger.
    async fn note_unreadable(&self, name: &str, bytes: u64, reason: &str, attempts: u32) -> Result<()>;
    /// Puts a message back into the landing queue, to be delivered after `delay`.
    async fn put_back(&self, message: Vec<u8>, delay: Duration) -> Result<()>;
    /// Stages the records that a change stream delivered; what was done, for people.
    async fn deliver(&self, records: Vec<StreamRecord>, key_of: KeyOf) -> Result<Value>;
    /// One slice of the committer; what was done. `force` commits what is not due yet.
    async fn commit(&self, force: bool) -> Result<Value>;
    /// One run of the upkeep over all tables; what was done.
    async fn maintain(&self) -> Result<Value>;
    /// Derived tables (or one of them) compared with what their sources make them, and mended; what was found.
    async fn backfill(&self, table: Option<&TableName>) -> Result<Value>;
    /// Keeps an event that must not be followed for the ledger, once.
    async fn note_refused(&self, refused: &Refused) -> Result<()>;
    /// Puts landed versions at rest that neither ledger nor staging knows into the landing queue; how many.
    async fn reconcile(&self) -> Result<usize>;
    /// The tables that a backfill can be about.
    async fn derived(&self) -> Result<Vec<TableName>>;
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
    /// Compacts, checkpoints and cleans up.
    Maintain,
    /// Compares derived tables with their sources, in time.
    Backfill,
    /// The same, when somebody asks.
    BackfillNow,
    /// Finds what no event announced.
    Reconcile,
    /// Records what failed too often.
    Poison,
    /// Tells the state.
    Status,
    /// Stages the change events of a Kafka topic.
    CdcKafka,
    /// Stages the change events of an event hub.
    CdcEventhubs,
}

impl Function {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Ingest,
        Self::Commit,
        Self::Maintain,
        Self::Backfill,
        Self::BackfillNow,
        Self::Reconcile,
        Self::Poison,
        Self::Status,
        Self::CdcKafka,
        Self::CdcEventhubs,
    ];

    /// Name of its folder, and its path for the host.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Commit => "commit",
            Self::Maintain => "maintain",
            Self::Backfill => "backfill",
            Self::BackfillNow => "backfill_now",
            Self::Reconcile => "reconcile",
            Self::Poison => "poison",
            Self::Status => "status",
            Self::CdcKafka => "cdc_kafka",
            Self::CdcEventhubs => "cdc_eventhubs",
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

/// What a function answers, as it is, to callers that are no Functions host.
pub(super) async fn plain(
    function: Function,
    id: String,
    work: impl Future<Output = Result<Value>> + Send + 'static,
) -> Response {
    let span = tracing::info_span!("invocation", function.name = function.name(), invocation.id = id);
    match guarded(work.instrument(span.clone())).await {
        Ok(body) => axum::Json(body).into_response(),
        Err(error) => {
            span.in_scope(|| log_failure(&error));
            failure(&error)
        }
    }
}

pub(super) async fn guarded<T: Send + 'static>(work: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
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
        Function::Maintain => Ok(reported(&steps.maintain().await?)),
        Function::Reconcile => reconcile(steps).await,
        Function::CdcKafka => {
            let records = stream::kafka(invocation.value()?, &invocation.metadata)?;
            Ok(reported(&steps.deliver(records, KeyOf::Record).await?))
        }
        Function::CdcEventhubs => {
            let records = stream::event_hubs(invocation.value()?, &invocation.metadata)?;
            Ok(reported(&steps.deliver(records, KeyOf::Value).await?))
        }
        Function::Backfill => Ok(reported(&steps.backfill(None).await?)),
        Function::BackfillNow => {
            let asked = backfill::asked(invocation.data.values().next());
            Ok(match backfill::wanted(steps, asked).await? {
                Ok(table) => responded(200, steps.backfill(table.as_ref()).await?),
                Err(wrong) => responded(400, error_body(&wrong)),
            })
        }
        Function::Status => Ok(responded(200, steps.status().await?)),
    }
}

/// An answer of an HTTP function: the body of its response.
fn responded(status: u16, body: Value) -> Answer {
    let headers = json!({ "Content-Type": "application/json" });
    let mut answer = Answer::default();
    answer.outputs.insert("res".to_owned(), json!({ "statusCode": status, "headers": headers, "body": body }));
    answer
}

/// An answer whose log line is a step's report, which the host ties to the invocation.
fn reported(report: &Value) -> Answer {
    Answer { logs: vec![report.to_string()], ..Answer::default() }
}

/// Deliveries after which the host calls a message poison: host.json's `maxDequeueCount`.
pub(super) const MOST_DELIVERIES: u32 = 5;

/// An event that a listing of the landing zone brought is put back this often, a quarter of an hour in all: by then the
/// next listing has brought it again, and during a long outage the queue would only fill with copies.
const MOST_TIMES_LISTED: u32 = 10;

/// The first delay before an event that met a transient fault is delivered again; each further one is twice as long ...
const FIRST_DELAY: Duration = Duration::from_secs(1);

/// ... up to this one.
const LONGEST_DELAY: Duration = Duration::from_secs(600);

/// Every event of a message is worked on, whatever becomes of its neighbours; the message is done when all are.
async fn ingest(steps: &dyn Steps, invocation: &Invocation) -> Result<Answer> {
    let mut answer = Answer::default();
    let mut failed: Option<Error> = None;
    for item in event::parse(&invocation.message()?, &steps.scope())? {
        let outcome = match item {
            Item::File(file, original) => ingest_one(steps, invocation, &file, &original).await,
            Item::Skipped { subject, reason } => {
                tracing::info!(subject, "event skipped: {reason}");
                Ok(json!({ "skipped": subject, "reason": reason }))
            }
            Item::Refused(refused) => refuse(steps, &refused).await,
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

/// An event that must not be followed is done: no delivery could do better, and its neighbours in the message need none.
async fn refuse(steps: &dyn Steps, refused: &Refused) -> Result<Value> {
    steps.note_refused(refused).await?;
    tracing::info!(subject = refused.name, "event refused: {}", refused.error);
    Ok(json!({ "refused": refused.name, "reason": refused.error.describe() }))
}

async fn ingest_one(
    steps: &dyn Steps,
    invocation: &Invocation,
    file: &FileEvent,
    original: &Original,
) -> Result<Value> {
    let error = match steps.ingest(file).await {
        Ok(report) => return Ok(report),
        Err(error) => error.within(&file.path),
    };
    let attempts = original.attempts().saturating_add(invocation.dequeue_count().max(1));
    if error.kind().directive() == Directive::Retry {
        match put_back(steps, file, original, &error, attempts).await {
            Ok(report) => return Ok(report),
            // The message is still the host's, which delivers it again.
            Err(second) => log_failure(&second.within("the event could not be put back into the queue")),
        }
    }
    // The queue keeps no cause, so it is stored before the message is given back.
    note(steps, file, &error, attempts).await;
    Err(error)
}

/// A fault that passes by itself must not use up the host's few deliveries: the event goes back into the queue, with a
/// delay and a count of its own, and this message is done. Dying in between leaves both, and both do the same.
async fn put_back(
    steps: &dyn Steps,
    file: &FileEvent,
    original: &Original,
    error: &Error,
    attempts: u32,
) -> Result<Value> {
    let times = original.attempts();
    if original.is_listed() && times >= MOST_TIMES_LISTED {
        note(steps, file, error, attempts).await;
        tracing::warn!(attempt = attempts, error.kind = error.kind().as_str(), "left to the next reconcile: {error}");
        return Ok(json!({ "path": file.path, "left_to": "reconcile", "because": error.to_string() }));
    }
    let delay = FIRST_DELAY.saturating_mul(1 << times.min(16)).min(LONGEST_DELAY);
    steps.put_back(original.again(), delay).await?;
    tracing::warn!(
        attempt = attempts,
        delay_s = delay.as_secs(),
        error.kind = error.kind().as_str(),
        "put back into the queue: {error}"
    );
    // What does not pass soon, people should read in the status; the store may well be what is away, so never sooner.
    if attempts >= MOST_DELIVERIES {
        note(steps, file, error, attempts).await;
    }
    Ok(json!({ "path": file.path, "again_in_s": delay.as_secs(), "because": error.to_string() }))
}

/// Stores the cause of a failure if it can be stored.
async fn note(steps: &dyn Steps, file: &FileEvent, error: &Error, attempts: u32) {
    if let Err(second) = steps.note_failure(file, &error.describe(), error.kind().may_pass(), attempts).await {
        tracing::warn!(error.kind = second.kind().as_str(), "the cause of a failure could not be stored: {second}");
    }
}

/// Records what was delivered too often. Nothing is lost by acknowledging it: the file stays in the landing zone.
async fn poison(steps: &dyn Steps, invocation: &Invocation) -> Result<Answer> {
    let message = invocation.message()?;
    let items = match event::parse(&message, &steps.scope()) {
        Ok(items) => items,
        Err(error) => vec![Item::Broken(error)],
    };
    let mut given_up = Vec::new();
    for item in items {
        match item {
            Item::Skipped { .. } => {}
            Item::Refused(refused) => {
                steps.note_refused(&refused).await?;
                given_up.push(refused.name);
            }
            Item::File(file, original) => {
                let attempts = original.attempts().saturating_add(MOST_DELIVERIES);
                let causes = steps.give_up(&file, attempts).await?;
                tracing::error!(error.kind = "poison", "{} is given up: {}", file.path, causes.join("; "));
                given_up.push(file.path);
            }
            Item::Broken(error) => {
                // By its content, so that it counts once.
                let text = String::from_utf8_lossy(&message);
                let name = format!("unreadable-message-{}", short_hash(&[&text]));
                let shown: String = text.chars().take(4096).collect();
                tracing::error!(error.kind = "poison", message.raw = shown, "{name} is given up: {error}");
                let bytes = u64::try_from(message.len()).unwrap_or(u64::MAX);
                steps.note_unreadable(&name, bytes, &error.describe(), MOST_DELIVERIES).await?;
                given_up.push(name);
            }
        }
    }
    Ok(reported(&json!({ "given_up": given_up })))
}

async fn reconcile(steps: &dyn Steps) -> Result<Answer> {
    let files = steps.reconcile().await?;
    if files > 0 {
        tracing::info!(files, "landed files that no event announced are in the queue now");
    }
    Ok(reported(&json!({ "announced": files })))
}
