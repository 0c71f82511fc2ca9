//! What is asked for and cannot be had, and what must not be followed.

use super::*;

#[tokio::test]
async fn upkeep_and_backfills_are_called_by_time_or_by_name() {
    let served = Served::start(Recorder::default()).await;
    served.succeed("maintain", TIMER).await;
    served.succeed("backfill", TIMER).await;
    let asked = HTTP.replace(r#""Query":{"x":"1"}"#, r#""Query":{"table":"curated/days"}"#);
    let (status, _, body) = served.request("POST", "/backfill_now", asked).await;
    assert_eq!(status, 200);
    let answer: Answer = serde_json::from_str(&body).unwrap();
    assert_eq!(answer.outputs["res"]["body"], json!({ "tables": [] }));
    // As the host forwards it, and what is called wrongly.
    assert_eq!(served.request("POST", "/api/backfill_now?table=gold%2Fx", "").await.2, r#"{"tables":[]}"#);
    assert_eq!(served.request("POST", "/api/backfill_now", "").await.0, 200);
    assert_eq!(served.request("GET", "/api/backfill_now", "").await.0, 405);
    assert_eq!(
        served.recorder.calls(),
        ["maintain", "backfill all", "backfill curated/days", "backfill gold/x", "backfill all"]
    );
}

#[tokio::test]
async fn a_backfill_that_is_asked_for_otherwise_repairs_nothing() {
    let served = Served::start(Recorder::default()).await;
    for (query, body, told) in [
        ("?tabel=gold/x", "", "no parameter `tabel`"),
        ("?table=gold/x&verify=1", "", "no parameter `verify`"),
        ("?table=gold/x&table=curated/days", "", "not several"),
        ("?table=", "", "no contract declares a derived table ``"),
        ("?table=gold/y", "", "did you mean `gold/x`?"),
        ("?table=raw/trips", "", "derived tables are: gold/x, curated/days"),
        ("", "{\"table\":\"gold/x\"}", "takes no body"),
        ("?table=gold/x", "x", "takes no body"),
    ] {
        let (status, kind, answer) = served.request("POST", &format!("/api/backfill_now{query}"), body).await;
        assert_eq!((status, kind.as_str()), (400, "application/json"), "{query} {body}: {answer}");
        assert!(answer.contains(told), "{query} {body}: {answer}");
        // The same request as the host hands it over when it does not forward.
        let pairs = url::form_urlencoded::parse(query.trim_start_matches('?').as_bytes()).into_owned();
        let pairs: serde_json::Map<String, Value> = pairs.map(|(name, value)| (name, Value::from(value))).collect();
        if told != "not several" {
            let request = json!({ "Data": { "req": { "Method": "POST", "Query": pairs, "Body": body } } }).to_string();
            let (status, _, answer) = served.request("POST", "/backfill_now", request).await;
            let answer: Answer = serde_json::from_str(&answer).unwrap();
            assert_eq!((status, &answer.outputs["res"]["statusCode"]), (200, &json!(400)), "{query} {body}");
            assert!(answer.outputs["res"]["body"].to_string().contains(&told.replace('"', "\\\"")), "{answer:?}");
        }
    }
    assert!(served.recorder.calls().is_empty());
    for query in ["?table=gold.x", "?code=the-functions-key&table=gold%2Fx", "?code=the-functions-key"] {
        assert_eq!(served.request("POST", &format!("/api/backfill_now{query}"), " ").await.0, 200, "{query}");
    }
    assert_eq!(served.recorder.calls(), ["backfill gold/x", "backfill gold/x", "backfill all"]);
}

#[tokio::test]
async fn a_refused_event_is_recorded_and_hinders_no_other() {
    let mut foreign = event("x");
    foreign["subject"] = json!("/blobServices/default/containers/lake/blobs/raw/t/part-0.parquet");
    let message = json!([event("a.csv"), foreign, event("b//c.csv"), event("d%2Fe.csv"), event("f.csv")]);
    let served = Served::start(Recorder::default()).await;
    let logs = served.succeed("ingest", queue_invocation(&message, 1)).await;
    let calls = [
        "ingest a.csv 0x8D",
        "refused events-of-container-lake -",
        "refused b//c.csv 0x8D",
        "refused d/e.csv 0x8D",
        "ingest f.csv 0x8D",
    ];
    assert_eq!(served.recorder.calls(), calls);
    assert!(logs[1].contains("a filter on the subject") && logs[2].contains("an empty part"), "{logs:?}");
    served.succeed("poison", queue_invocation(&message, 1)).await;
    assert_eq!(served.recorder.calls()[6..9], calls[1..4]);
    // What cannot be recorded now is delivered again, after its neighbours were worked on.
    let served = Served::start(Recorder { queue_is_away: true, ..Recorder::default() }).await;
    assert_eq!(served.request("POST", "/ingest", queue_invocation(&message, 1)).await.0, 503);
    assert_eq!(served.recorder.calls(), calls);
}
