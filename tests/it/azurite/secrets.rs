//! Neither the account's key nor any signature is ever printed, by whatever command, at whatever level of the log.

use std::time::Duration;

use alluvium::azure::sas;
use alluvium::clock::{Clock as _, SystemClock};
use alluvium::secret::Secret;
use url::form_urlencoded::byte_serialize;

use crate::support::azurite::{ACCOUNT, KEY};
use crate::support::contracts;
use crate::support::place::Place;
use crate::support::program::{Program, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

/// The text is told on a failure only with what is around the secret.
fn assert_silent(what: &str, text: &str, secrets: &[String]) {
    for secret in secrets {
        assert!(
            !text.contains(secret),
            "{what} prints a secret: {:?}",
            text.split(secret.as_str()).next().map(last_line)
        );
    }
    for (at, _) in text.match_indices("sig=") {
        let shown = &text[at + 4..];
        let hidden = ["***", "REDACTED", "%2A%2A%2A"].iter().any(|stars| shown.starts_with(stars));
        assert!(hidden, "{what} prints a signature: {:?}", last_line(&text[..at]));
    }
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

/// A whole run, with everything that is ever logged: host, handler and the commands that look.
fn whole_run(place: &Place, program: &Program) -> String {
    let mut text = String::new();
    let mut host = program.start(&["local", "--no-port"]);
    let tables = || program.run(&["sql", "select count(*) as n from raw.sales", "--format", "csv"]);
    eventually(PATIENCE, "the file is loaded", || {
        let done = tables();
        text.push_str(&done.text());
        done.stdout.lines().nth(1) == Some("1")
    });
    host.signal("INT");
    assert_eq!(host.ended(PATIENCE), Some(0), "{}", place.name());
    text.push_str(&host.printed());
    for command in [&["doctor"][..], &["doctor", "-o", "json"], &["status"], &["ledger"], &["commit"]] {
        text.push_str(&program.run(command).text());
    }
    text
}

fn loud(program: Program) -> Program {
    program
        .env("ALLUVIUM_LOG", "trace")
        .env("ALLUVIUM_ARRIVAL_HOLD_MS", "20")
        .env("ALLUVIUM_COMMIT_AGE", "10ms")
        .env("COMMIT_SCHEDULE", "* * * * * *")
}

fn shapes(secret: &str) -> Vec<String> {
    vec![secret.to_owned(), byte_serialize(secret.as_bytes()).collect()]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_run_prints_no_key() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    place.drop_file("sales/a.csv", contracts::sales(&[(1, 1, "north", "1.00")])).await;
    let program = loud(place.program());
    let text = whole_run(&place, &program);
    assert!(text.contains("sales/a.csv"), "the run was logged");
    assert_silent("the run", &text, &shapes(KEY));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_run_by_signature_prints_no_signature() {
    let mut place = Place::azurite().await.with_contracts(contracts::ALL);
    place.drop_file("sales/a.csv", contracts::sales(&[(1, 1, "north", "1.00")])).await;
    let pairs = sas::sign(ACCOUNT, &Secret::new(KEY), SystemClock.now()).unwrap();
    let signature = pairs.iter().find(|(name, _)| name == "sig").unwrap().1.clone();
    let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&pairs).finish();
    let (_, connection) = place.variables.iter_mut().find(|(name, _)| name == "AzureWebJobsStorage").unwrap();
    *connection = connection.replace(&format!("AccountKey={KEY}"), &format!("SharedAccessSignature={query}"));
    let program = loud(place.program());
    let text = whole_run(&place, &program);
    assert_silent("the run", &text, &[shapes(KEY), shapes(&signature)].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_wrong_is_told_without_secrets() {
    let place = Place::azurite().await.with_contracts(contracts::ALL);
    let secrets = shapes("c2VzYW1lLW9wZW4teW91cnNlbGY=");
    // A port on which nobody listens, and an account that does not know the key.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = format!(
        "AccountName=lake;AccountKey={0};BlobEndpoint=http://127.0.0.1:{nobody}/lake;\
         QueueEndpoint=http://127.0.0.1:{nobody}/lake",
        secrets[0]
    );
    let stranger =
        place.variables.iter().find(|(name, _)| name == "AzureWebJobsStorage").unwrap().1.replace(KEY, &secrets[0]);
    for (connection, expected) in [(dead, "can be reached from here"), (stranger, "Storage Blob Data Contributor")] {
        let program = loud(place.program()).env("AzureWebJobsStorage", &connection);
        let done = program.run(&["doctor"]);
        assert_eq!(done.code, Some(3), "{}", done.stdout);
        assert!(done.stdout.contains(expected), "{}", done.stdout);
        assert_silent("doctor", &done.text(), &secrets);
    }
}
