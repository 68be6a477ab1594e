//! Costs and ends: the parameters, and who reads which rows.

use serde_json::json;

use crate::harness::{Harness, read};

/// The UTC day of the clock.
const TODAY: i64 = crate::harness::NOW / 86_400_000;

#[tokio::test]
async fn costs_are_read_for_whole_days() {
    let harness = Harness::open().await;
    for (query, days, limit) in [
        ("", (TODAY - 29, TODAY), 500),
        ("?since=0d", (TODAY, TODAY), 500),
        ("?since=7d&by=person", (TODAY - 7, TODAY), 500),
        ("?since=2026-11-01&until=2026-11-20&limit=3", (TODAY - 19, TODAY - 1), 3),
        ("?since=2026-11-01T10:00:00Z&until=2026-11-20T00:00:00.001Z", (TODAY - 19, TODAY), 500),
    ] {
        let (status, report) = harness.get(&format!("/api/v1/costs{query}")).await;
        let expected = json!({
            "key": "everybody", "calls": days.0, "cost_micro_usd": days.1, "input_tokens": limit, "output_tokens": 0,
        });
        assert_eq!((status, &report["rows"][0]), (200, &expected), "{query}: {report}");
    }
    let (_, report) = harness.get("/api/v1/costs?since=2026-11-18").await;
    let days = json!(["2026-11-18", "2026-11-20", "2026-11-20"]);
    assert_eq!(json!([report["first_day"], report["last_day"], report["today"]["day"]]), days);
    for query in ["by=planet", "since=soon", "until=x", "limit=0", "since=2026-11-20&until=2026-11-20", "day=1"] {
        assert_eq!(harness.get(&format!("/api/v1/costs?{query}")).await.0, 422, "{query}");
    }
}

#[tokio::test]
async fn a_client_reads_its_own_costs() {
    let harness = Harness::locked().await;
    for (token, expected) in [("client", "http:token"), ("operator", "everybody")] {
        let request = harness.client.get(harness.url("/api/v1/costs")).bearer_auth(token);
        let (status, report) = read(request).await;
        assert_eq!((status, &report["rows"][0]["key"]), (200, &json!(expected)), "{report}");
    }
    assert_eq!(harness.get("/api/v1/costs").await.0, 401);
    assert_eq!(harness.get("/api/v1/ends").await.0, 401);
}

#[tokio::test]
async fn ends_are_counted_in_whole_periods() {
    let harness = Harness::open().await;
    for (query, since) in [
        ("", "2026-11-07T00:00:00.000Z"),
        ("?by=hour", "2026-11-18T20:00:00.000Z"),
        ("?by=hour&since=90m", "2026-11-20T18:00:00.000Z"),
        ("?since=2026-11-19T12:00:00Z", "2026-11-19T00:00:00.000Z"),
    ] {
        let (status, report) = harness.get(&format!("/api/v1/ends{query}")).await;
        let end = json!({"at": since, "reason": "user_stop", "layer": "operator", "status": "stopped", "count": 3});
        assert_eq!((status, &report["ends"]), (200, &json!([end])), "{query}");
        assert_eq!((&report["since"], &report["until"]), (&json!(since), &json!("2026-11-20T19:43:00.000Z")));
    }
    let (_, report) = harness.get("/api/v1/ends?channels=true").await;
    assert_eq!(
        (&report["ends"][0]["channel"], &report["ends"][0]["model"]),
        (&json!("http"), &json!(null)),
        "{report}"
    );
    let (_, report) = harness.get("/api/v1/ends?models=true").await;
    assert_eq!(
        (&report["ends"][0]["channel"], &report["ends"][0]["model"]),
        (&json!(null), &json!("large")),
        "{report}"
    );
    for query in
        ["by=week", "channels=some", "models=some", "since=500d", "by=hour&since=17d", "since=2026-11-21", "reason=x"]
    {
        assert_eq!(harness.get(&format!("/api/v1/ends?{query}")).await.0, 422, "{query}");
    }
}

#[tokio::test]
async fn only_operators_judge_runs_and_read_settings() {
    let harness = Harness::locked().await;
    let body = json!({"rules": ""});
    for (token, expected) in [("client", 403), ("operator", 200)] {
        let judge = harness.client.post(harness.url("/api/v1/judge")).json(&body).bearer_auth(token);
        assert_eq!(read(judge).await.0, expected, "{token}");
        let (status, report) = read(harness.client.get(harness.url("/api/v1/settings")).bearer_auth(token)).await;
        assert_eq!((status, report["problems"][0] == "a.b: wrong"), (expected, expected == 200), "{token}");
    }
}

#[tokio::test]
async fn a_judged_run_has_its_end_beside_the_verdict() {
    let harness = Harness::open().await;
    let message = json!({"session": "s", "text": "hello", "wait_ms": 30_000});
    let (_, run) = harness.post("/api/v1/messages", message).await;
    let reply = run["reply"].as_str().unwrap();
    let judged = async |body| harness.post("/api/v1/judge", body).await;
    let (status, report) = judged(json!({"rules": reply})).await;
    assert_eq!((status, &report["complete"]), (200, &json!(true)));
    let one = &report["runs"][0];
    assert_eq!(
        (&one["run_id"], &one["reason"], &one["would"]["stopped"]),
        (&run["run_id"], &run["reason"], &json!(true))
    );
    let (_, report) = judged(json!({"rules": "something else", "runs": [run["run_id"]]})).await;
    assert_eq!(report["runs"][0]["would"]["stopped"], false, "{report}");
    let (status, refused) = judged(json!({"rules": "nonsense"})).await;
    assert_eq!((status, &refused["error"]["message"]), (422, &json!("rules: nonsense: unknown key")));
    let unknown = json!({"rules": "", "runs": ["0193e0e0-0000-7000-8000-000000000000"]});
    assert_eq!(judged(unknown).await.0, 404);
}
