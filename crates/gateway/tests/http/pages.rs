//! Pages of lists: a client whose rows are rare reads each of them once, and an operator reads all rows.

use belay_protocol::{RunId, RunRecord};
use serde_json::{Value, json};

use crate::harness::{Harness, blank, read};

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
            next => after = format!("&after={}", next.as_str().unwrap()),
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
