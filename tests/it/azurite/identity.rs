//! A managed identity as Functions offer one: a token endpoint of the tests' own, and an account that takes its token alone.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use alluvium::clock::{Clock as _, SystemClock};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;

use crate::support::contracts;
use crate::support::place::Place;

const TOKEN: &str = "a-token-that-nobody-may-see";
const PROOF: &str = "the-platforms-proof";

/// What was asked: (method and path with query, the header that proves or authorizes).
type Asked = Arc<Mutex<Vec<(String, String)>>>;

fn ask(asked: &Asked, request: &Request, header: &str) -> String {
    let value = request.headers().get(header).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    asked.lock().unwrap().push((format!("{} {}", request.method(), request.uri()), value.clone()));
    value
}

async fn token(State(asked): State<Asked>, request: Request) -> Response {
    if ask(&asked, &request, "x-identity-header") != PROOF {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let expires_on = (SystemClock.now() + chrono::TimeDelta::hours(1)).timestamp().to_string();
    Json(serde_json::json!({
        "access_token": TOKEN, "expires_on": expires_on, "resource": "https://storage.azure.com", "token_type": "Bearer",
    }))
    .into_response()
}

async fn account(State(asked): State<Asked>, request: Request) -> Response {
    if ask(&asked, &request, "authorization") != format!("Bearer {TOKEN}") {
        return StatusCode::FORBIDDEN.into_response();
    }
    match *request.method() {
        Method::GET => {
            "<?xml version=\"1.0\"?><EnumerationResults><Blobs></Blobs></EnumerationResults>".into_response()
        }
        Method::PUT => (StatusCode::CREATED, [(header::ETAG, "\"0x1\"")]).into_response(),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_managed_identity_of_a_function_app_is_used_and_its_token_is_not_shown() {
    let place = Place::local().with_contracts(contracts::ALL);
    let (tokens, blobs) = (Asked::default(), Asked::default());
    let router = axum::Router::new()
        .route("/msi/token", get(token).with_state(Arc::clone(&tokens)))
        .fallback(account)
        .with_state(Arc::clone(&blobs));
    let listener = tokio::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let program = place
        .program()
        .env("ALLUVIUM_LOG", "trace")
        .env("STORAGE_BACKEND", "azure")
        .env("AZURE_STORAGE_ACCOUNT", "lake")
        .env("AZURE_STORAGE_ENDPOINT", &format!("http://{address}"))
        .env("AZURE_CLIENT_ID", "11111111-2222-3333-4444-555555555555")
        .env("IDENTITY_ENDPOINT", &format!("http://{address}/msi/token"))
        .env("IDENTITY_HEADER", PROOF);
    let done = tokio::task::spawn_blocking(move || program.run(&["doctor", "-o", "json"])).await.unwrap();
    serving.abort();

    let checks: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    let level = |name: &str| {
        let checks = checks.as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).map(|check| check["level"].as_str().unwrap().to_owned())
    };
    assert_eq!(level("storage account").as_deref(), Some("ok"), "{}", done.stdout);
    assert_eq!(level("landing zone").as_deref(), Some("ok"), "{}", done.text());
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 1, "one identity, one token: {tokens:?}");
    for part in ["resource=https%3A%2F%2Fstorage.azure.com", "client_id=11111111-2222-3333-4444-555555555555"] {
        assert!(tokens[0].0.contains(part), "{tokens:?}");
    }
    let blobs = blobs.lock().unwrap();
    assert!(blobs.iter().any(|(what, _)| what.starts_with("GET /landing?")), "{blobs:?}");
    assert!(blobs.iter().any(|(what, _)| what.starts_with("PUT /lake/_alluvium/")), "{blobs:?}");
    for secret in [TOKEN, PROOF] {
        assert!(!done.text().contains(secret), "{}", done.text());
    }
}
