//! Pages of lists: a client whose rows are rare reads each of them once, and an operator reads all rows.

use belay_protocol::{JobId, RunId, RunRecord};
use serde_json::{Value, json};

use crate::harness::{Harness, blank, read};
use crate::routines::spec;
use crate::websocket::client::Socket;

/// The most pages that a test reads.
const PAGES_MAX: usize = 1000;

/// The rows of all pages of a list. `path` has a query.
async fn all_pages(harness: &Harness, token: &str, path: &str, rows: &str) -> Vec<Value> {
    let (mut found, mut after) = (Vec::new(), String::new());
    for _ in 0..PAGES_MAX {
        let (status, mut page) = get(harness, token, &format!("{path}{after}")).await;
        assert_eq!(status, 200, "{path}{after}: {page}");
        let Value::Array(more) = page[rows].take() else { panic!("{path} has no {rows}: {page}") };
        found.extend(more);
        match &page["next"] {
            Value::Null => return found,
            Value::String(next) => after = format!("&after={next}"),
            number => after = format!("&after={number}"),
        }
    }
    panic!("{path} has no last page");
}

async fn get(harness: &Harness, token: &str, path: &str) -> (u16, Value) {
    read(harness.client.get(harness.url(path)).bearer_auth(token)).await
}

/// The values of a field.
fn field(rows: &[Value], name: &str) -> Vec<Value> {
    rows.iter().map(|row| row[name].clone()).collect()
}

/// The session of a job that an operator has made.
async fn hidden_session(harness: &Harness) -> String {
    let job = harness.client.post(harness.url("/api/v1/jobs")).json(&json!({ "task": "secret" }));
    let (status, job) = read(job.bearer_auth("operator")).await;
    assert_eq!(status, 202, "{job}");
    format!("job:{}", job["job_id"].as_str().unwrap())
}

/// A cursor that names no row is refused, also one of another shape.
async fn refuses_unknown_cursors(harness: &Harness, path: &str) {
    let unknown = RunId::new().to_string();
    for cursor in [&*unknown, "", "x", "%F0%9F%92%A5", "-1"] {
        let (status, answer) = get(harness, "client", &format!("{path}?after={cursor}")).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_cursor")), "{path} {cursor}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            message.starts_with("after: ") && message.ends_with("begin the list again, without `after`"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn runs_are_read_page_by_page() {
    let harness = Harness::locked().await;
    let hidden = hidden_session(&harness).await;
    let mut own = Vec::new();
    for n in 0..7 {
        // More hidden runs in a row than one request checks.
        for _ in 0..if n == 3 { 2100 } else { 5 } {
            harness.store.put(RunRecord { session: hidden.as_str().into(), ..blank() });
        }
        let run = blank();
        own.insert(0, json!(run.run_id));
        harness.store.put(run);
    }
    for limit in [1, 3, 7, 500] {
        let path = format!("/api/v1/runs?limit={limit}");
        let of_client = all_pages(&harness, "client", &path, "runs").await;
        assert_eq!(field(&of_client, "run_id"), own, "{path}");
    }
    let of_operator = all_pages(&harness, "operator", "/api/v1/runs?limit=500", "runs").await;
    assert_eq!(of_operator.len(), 2137);
    let ids = field(&of_operator, "run_id");
    assert!(own.iter().all(|id| ids.contains(id)) && ids.iter().is_sorted_by(|a, b| a.as_str() > b.as_str()));
    let (_, last) = get(&harness, "operator", "/api/v1/runs?session=s&limit=7").await;
    assert_eq!(last.get("next"), None, "a page that is just full is the last one");
    refuses_unknown_cursors(&harness, "/api/v1/runs").await;
}

#[tokio::test]
async fn found_messages_are_read_page_by_page() {
    let harness = Harness::locked().await;
    for limit in [1, 2, 3, 7, 500] {
        let path = format!("/api/v1/search?q=cake&limit={limit}");
        let of_operator = all_pages(&harness, "operator", &path, "found").await;
        assert_eq!(field(&of_operator, "id"), [0, 1, 2, 3, 4, 5, 6].map(Value::from), "{path}");
        let of_client = all_pages(&harness, "client", &path, "found").await;
        assert_eq!(field(&of_client, "id"), [0, 2, 4, 6].map(Value::from), "{path}");
    }
    let (_, last) = get(&harness, "operator", "/api/v1/search?q=cake&limit=7").await;
    assert_eq!(last.get("next"), None, "a page that is just full is the last one");

    let (_, first) = get(&harness, "operator", "/api/v1/search?q=cake&limit=2").await;
    let next = first["next"].as_str().unwrap();
    let (status, same) = get(&harness, "operator", &format!("/api/v1/search?q=Cake!&limit=4&after={next}")).await;
    assert_eq!((status, field(same["found"].as_array().unwrap(), "id")), (200, [2, 3, 4, 5].map(Value::from).to_vec()));
    for other in ["q=tea", "q=cake&session=kept", "q=cake%20tea"] {
        let (status, answer) = get(&harness, "operator", &format!("/api/v1/search?{other}&after={next}")).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_cursor")), "{other}: {answer}");
    }
    for broken in ["", "x", "-1", &next[1..]] {
        let (status, answer) = get(&harness, "operator", &format!("/api/v1/search?q=cake&after={broken}")).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_cursor")), "{broken}: {answer}");
    }
}

/// A request that must be accepted, and its answer.
async fn post(harness: &Harness, token: &str, path: &str, body: Value) -> Value {
    let request = harness.client.post(harness.url(path)).json(&body).bearer_auth(token);
    let (status, answer) = read(request).await;
    assert!((200..300).contains(&status), "{path}: {answer}");
    answer
}

/// The client reads exactly these rows of the list, newest first, in pages of any length, and an operator reads `all` rows.
async fn are_listed(harness: &Harness, path: &str, rows: &str, id: &str, own: &[Value], all: usize) {
    for limit in [1, 3, 7, 500] {
        let path = format!("{path}?limit={limit}");
        assert_eq!(field(&all_pages(harness, "client", &path, rows).await, id), own, "{path}");
    }
    assert_eq!(all_pages(harness, "operator", &format!("{path}?limit=10"), rows).await.len(), all, "{path}");
    for (dates, expected) in [("since=1h", own.len()), ("since=2026-11-21", 0)] {
        assert_eq!(all_pages(harness, "client", &format!("{path}?{dates}"), rows).await.len(), expected, "{dates}");
    }
    assert_eq!(get(harness, "client", &format!("{path}?since=soon")).await.0, 422, "{path}");
    refuses_unknown_cursors(harness, path).await;
}

#[tokio::test]
async fn jobs_are_read_page_by_page() {
    let harness = Harness::locked().await;
    let mut own = Vec::new();
    for n in 0..21 {
        let token = if n % 3 == 1 { "client" } else { "operator" };
        let job = post(&harness, token, "/api/v1/jobs", json!({ "task": "count" })).await;
        if token == "client" {
            own.insert(0, job["job_id"].clone());
        }
    }
    are_listed(&harness, "/api/v1/jobs", "jobs", "job_id", &own, 21).await;
}

#[tokio::test]
async fn approvals_are_read_page_by_page() {
    let harness = Harness::locked().await;
    let hidden = hidden_session(&harness).await;
    let mut own = Vec::new();
    for n in 0..21 {
        let (token, session) = if n % 3 == 1 { ("client", "s") } else { ("operator", hidden.as_str()) };
        let asks = json!({ "session": session, "text": format!("ask {n}"), "wait_ms": 30_000 });
        let run = post(&harness, token, "/api/v1/messages", asks).await;
        if token == "client" {
            own.insert(0, run["waiting_for"]["approval"].clone());
        }
    }
    are_listed(&harness, "/api/v1/approvals", "approvals", "id", &own, 21).await;
    let (mut socket, _) = Socket::hello(&harness, Some("client")).await;
    let first = socket.payload("approvals.list", json!({ "limit": 5 })).await;
    let rest = socket.payload("approvals.list", json!({ "limit": 5, "after": first["next"] })).await;
    let ids = [&first, &rest].map(|page| field(page["approvals"].as_array().unwrap(), "id")).concat();
    assert_eq!((ids, rest.get("next")), (own, None));
}

#[tokio::test]
async fn routine_runs_are_read_page_by_page() {
    let harness = Harness::locked().await;
    for (token, name) in [("client", "mine"), ("operator", "theirs"), ("client", "also-mine")] {
        let hourly = spec(name, json!({ "kind": "schedule", "when": "@hourly" }));
        post(&harness, token, "/api/v1/routines", hourly).await;
    }
    let (mut own, mut of_one) = (Vec::new(), Vec::new());
    for n in 0..21 {
        let (token, name) = [("client", "mine"), ("operator", "theirs"), ("client", "also-mine")][n % 3];
        let path = format!("/api/v1/routines/{name}/fire");
        let id = post(&harness, token, &path, json!({})).await["routine_run_id"].clone();
        if token == "client" {
            own.insert(0, id.clone());
        }
        if name == "mine" {
            of_one.insert(0, id);
        }
    }
    are_listed(&harness, "/api/v1/routine-runs", "routine_runs", "routine_run_id", &own, 21).await;
    are_listed(&harness, "/api/v1/routines/mine/runs", "routine_runs", "routine_run_id", &of_one, 7).await;
}

#[tokio::test]
async fn sessions_are_read_page_by_page() {
    let harness = Harness::locked().await;
    let (mut own, mut all) = (Vec::new(), 0);
    for n in 0..7 {
        for _ in 0..if n == 3 { 1100 } else { 2 } {
            let hidden = format!("job:{}", JobId::new());
            harness.store.put(RunRecord { session: hidden.as_str().into(), ..blank() });
            all += 1;
        }
        let session = format!("{n} a/b?c=&d #ä");
        harness.store.put(RunRecord { session: session.as_str().into(), ..blank() });
        own.push(json!(session));
        all += 1;
    }
    are_listed(&harness, "/api/v1/sessions", "sessions", "session", &own, all).await;
    let (mut socket, _) = Socket::hello(&harness, Some("client")).await;
    let mut page = socket.payload("sessions.list", json!({ "limit": 5 })).await;
    let mut keys = field(page["sessions"].as_array().unwrap(), "sessionKey");
    while let Some(next) = page.get("next").cloned() {
        page = socket.payload("sessions.list", json!({ "limit": 5, "after": next })).await;
        keys.extend(field(page["sessions"].as_array().unwrap(), "sessionKey"));
    }
    assert_eq!(keys, own);
}

#[tokio::test]
async fn principals_are_read_page_by_page() {
    let harness = Harness::locked().await;
    for limit in [1, 3, 7, 500] {
        let path = format!("/api/v1/principals?limit={limit}");
        let ids = field(&all_pages(&harness, "operator", &path, "principals").await, "id");
        assert_eq!(ids, ["0", "1", "2", "3", "4", "5", "6"], "{path}");
    }
    for (since, expected) in [("1h", 7), ("2026-11-20T19:42:59.998Z", 3), ("2026-11-21", 0)] {
        let path = format!("/api/v1/principals?since={since}");
        assert_eq!(all_pages(&harness, "operator", &path, "principals").await.len(), expected, "{since}");
    }
    let (_, sessions) = get(&harness, "operator", "/api/v1/sessions?limit=1").await;
    assert_eq!(sessions, json!({ "sessions": [] }));
    for cursor in ["", "x", "W10", "WzEsInMiXQ"] {
        let (status, answer) = get(&harness, "operator", &format!("/api/v1/principals?after={cursor}")).await;
        assert_eq!((status, &answer["error"]["code"]), (400, &json!("invalid_cursor")), "{cursor}: {answer}");
    }
}

#[tokio::test]
async fn notes_are_read_page_by_page() {
    let harness = Harness::locked().await;
    for (token, query, expected) in
        [("operator", "limit=1", vec![1, 2]), ("operator", "limit=2", vec![1, 2]), ("client", "limit=1", vec![1])]
    {
        let found = all_pages(&harness, token, &format!("/api/v1/memory?{query}"), "notes").await;
        assert_eq!(field(&found, "id"), expected, "{token} {query}");
    }
    let (_, best) = get(&harness, "operator", "/api/v1/memory?limit=1&q=note").await;
    assert_eq!(
        (best["notes"].as_array().unwrap().len(), best.get("next")),
        (1, None),
        "a list by relevance has no pages"
    );
}
