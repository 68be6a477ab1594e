//! Routines: made, changed, switched, deleted, fired by hand and by an event, tested, and what fires next.

use serde_json::{Value, json};

use crate::harness::{Harness, read};

const ROUTINES: &str = "/api/v1/routines";

pub(crate) fn spec(name: &str, trigger: Value) -> Value {
    json!({ "name": name, "trigger": trigger, "action": {"mode": "lightweight", "prompt": "look"} })
}

fn hourly(name: &str) -> Value {
    spec(name, json!({ "kind": "schedule", "when": "@hourly" }))
}

#[tokio::test]
async fn a_routine_is_made_once_changed_switched_and_deleted() {
    let harness = Harness::open().await;
    let (status, made) = harness.post(ROUTINES, hourly("tick")).await;
    assert_eq!((status, &made["name"], &made["enabled"]), (201, &json!("tick"), &json!(true)));
    assert_eq!(made["trigger"], json!({"kind": "schedule", "when": "@hourly", "zone": "UTC", "misfire": "once"}));
    assert_eq!(harness.post(ROUTINES, hourly("tick")).await.0, 422, "it is there");
    let path = format!("{ROUTINES}/tick");
    let other = spec("tick", json!({ "kind": "manual" }));
    let (status, changed) = read(harness.client.put(harness.url(&path)).json(&other)).await;
    assert_eq!((status, &changed["trigger"]), (200, &json!({"kind": "manual"})));
    for (verb, on) in [("disable", false), ("enable", true)] {
        let (status, switched) = harness.post(&format!("{path}/{verb}"), json!({})).await;
        assert_eq!((status, &switched["enabled"]), (200, &json!(on)), "{verb}");
    }
    assert_eq!(harness.get(&path).await.1["trigger"], json!({"kind": "manual"}));
    let (status, gone) = read(harness.client.delete(harness.url(&path))).await;
    assert_eq!((status, gone), (200, json!({"deleted": "tick"})));
    assert_eq!(harness.get(&path).await.0, 404);
    // A name is no route, whatever it is.
    for name in ["test", "next", "runs"] {
        assert_eq!(harness.post(ROUTINES, hourly(name)).await.0, 201, "{name}");
        assert_eq!(harness.get(&format!("{ROUTINES}/{name}")).await.1["name"], name);
    }
}

#[tokio::test]
async fn a_grant_is_given_with_the_routine_shown_and_revoked_by_its_number() {
    let harness = Harness::open().await;
    let grant = json!({"tool": "run_command", "arguments": {"argv": "git fetch"}});
    let mut order = hourly("tick");
    order["allow"] = json!([grant]);
    let (_, made) = harness.post(ROUTINES, order).await;
    assert_eq!(made["allow"], json!([grant]));
    let path = format!("{ROUTINES}/tick/revoke");
    assert_eq!(harness.post(&path, json!({"grant": 2})).await.0, 404);
    let (status, routine) = harness.post(&path, json!({"grant": 1})).await;
    assert_eq!((status, &routine["allow"][0]["revoked"]), (200, &json!(true)));
}

#[tokio::test]
async fn the_heartbeat_is_shown_to_operators() {
    let harness = Harness::open().await;
    let (status, report) = harness.get("/api/v1/heartbeat").await;
    assert_eq!((status, &report["when"], &report["would_skip"]), (200, &json!("every 30m"), &json!("idle")));
    let harness = Harness::locked().await;
    let asked = harness.client.get(harness.url("/api/v1/heartbeat")).bearer_auth("client");
    assert_eq!(read(asked).await.0, 403, "operators only");
}

#[tokio::test]
async fn routines_are_listed_by_name_in_pages() {
    let harness = Harness::open().await;
    for name in ["c", "a", "b"] {
        harness.post(ROUTINES, hourly(name)).await;
    }
    for (query, expected, next) in [
        ("", json!(["a", "b", "c"]), Value::Null),
        ("?limit=2", json!(["a", "b"]), json!("b")),
        ("?limit=2&after=b", json!(["c"]), Value::Null),
    ] {
        let (_, list) = harness.get(&format!("{ROUTINES}{query}")).await;
        let names: Vec<_> =
            list["routines"].as_array().unwrap().iter().map(|routine| routine["name"].clone()).collect();
        assert_eq!((json!(names), list["next"].clone()), (expected, next), "{query}");
    }
}

#[tokio::test]
async fn a_routine_fires_by_hand_and_by_an_event_and_its_routine_runs_are_listed() {
    let harness = Harness::open().await;
    harness.post(ROUTINES, hourly("tick")).await;
    harness.post(ROUTINES, spec("red", json!({ "kind": "system", "source": "ci", "event": "failed" }))).await;
    let (status, routine_run) = harness.post(&format!("{ROUTINES}/tick/fire"), json!({"payload": "now"})).await;
    assert_eq!((status, &routine_run["routine"], &routine_run["trigger"]), (202, &json!("tick"), &json!("manual")));
    assert_eq!(harness.work.told().as_deref(), Some("now"));
    let event = json!({"source": "ci", "event": "failed", "key": "build-7", "payload": {"branch": "main"}});
    let (status, fired) = harness.post("/api/v1/events", event.clone()).await;
    assert_eq!((status, &fired["routine_runs"][0]["routine"]), (200, &json!("red")));
    assert_eq!(harness.post("/api/v1/events", event).await.1, fired, "told twice, fired once");
    let nobody = json!({"source": "ci", "event": "passed"});
    assert_eq!(harness.post("/api/v1/events", nobody).await, (200, json!({"routine_runs": []})));
    for (path, expected) in [
        ("/api/v1/routine-runs", json!(["red", "tick"])),
        ("/api/v1/routine-runs?routine=tick", json!(["tick"])),
        ("/api/v1/routine-runs?status=ok", json!([])),
        ("/api/v1/routines/red/runs?status=running", json!(["red"])),
    ] {
        let (status, list) = harness.get(path).await;
        let names: Vec<_> =
            list["routine_runs"].as_array().unwrap().iter().map(|routine_run| routine_run["routine"].clone()).collect();
        assert_eq!((status, json!(names)), (200, expected), "{path}");
    }
    let (status, one) =
        harness.get(&format!("/api/v1/routine-runs/{}", routine_run["routine_run_id"].as_str().unwrap())).await;
    assert_eq!((status, &one), (200, &routine_run));
}

#[tokio::test]
async fn a_routine_is_tested_at_a_date_before_and_after_it_is_made() {
    let harness = Harness::open().await;
    let asked = json!({"spec": hourly("tick"), "at": "60"});
    let (status, tested) = harness.post(&format!("{ROUTINES}/test"), asked).await;
    assert_eq!(
        (status, &tested["routine"], &tested["at"]["at"]),
        (200, &json!("tick"), &json!("1970-01-01T00:01:00.000Z"))
    );
    harness.post(ROUTINES, hourly("tick")).await;
    harness.post(&format!("{ROUTINES}/tick/disable"), json!({})).await;
    let (status, tested) = harness.post(&format!("{ROUTINES}/tick/test"), json!({"at": "60"})).await;
    assert_eq!((status, &tested["fires"], &tested["disabled_detail"]), (200, &json!(true), &json!("")));
    let (status, refused) = harness.post(&format!("{ROUTINES}/tick/test"), json!({"at": "soon"})).await;
    assert_eq!((status, &refused["error"]["message"]), (422, &json!("at: \"soon\" is not a date")));
}

#[tokio::test]
async fn what_fires_next_is_of_all_routines_together_or_of_one() {
    let harness = Harness::open().await;
    for name in ["slow", "a"] {
        harness.post(ROUTINES, hourly(name)).await;
    }
    harness.post(ROUTINES, spec("hand", json!({ "kind": "manual" }))).await;
    let names = async |query: &str| {
        let (status, list) = harness.get(&format!("/api/v1/routine-runs/next{query}")).await;
        assert_eq!(status, 200, "{list}");
        list["next"].as_array().unwrap().iter().map(|time| time["routine"].clone()).collect::<Value>()
    };
    assert_eq!(names("?count=3").await, json!(["a", "slow", "a"]));
    assert_eq!(names("?count=2&routine=slow").await, json!(["slow", "slow"]));
    assert_eq!(names("?routine=hand").await, json!([]));
    assert_eq!(harness.get("/api/v1/routine-runs/next?routine=nobody").await.0, 404);
}

#[tokio::test]
async fn what_cannot_be_done_with_routines_is_told_as_everywhere() {
    let harness = Harness::open().await;
    for (path, body, status, part) in [
        (ROUTINES, json!({}), 422, "name"),
        (ROUTINES, json!({"spec": hourly("tick")}), 422, "spec"),
        (ROUTINES, spec("tick", json!({ "kind": "moon" })), 422, "moon"),
        (ROUTINES, spec("tick", json!({ "kind": "schedule", "when": "@daily", "colour": 1 })), 422, "colour"),
        ("/api/v1/routines/tick", json!({"spec": hourly("tick"), "at": "1"}), 405, "method"),
        ("/api/v1/routines/tick/enable", json!({}), 404, "There is no routine tick"),
        ("/api/v1/routines/tick/fire", json!({"load": "x"}), 422, "load"),
        ("/api/v1/routines/tick/test", json!({"at": "1"}), 404, "no such routine: tick"),
        ("/api/v1/events", json!({"source": "ci", "event": " "}), 422, "event"),
        ("/api/v1/events", json!({"source": "ci", "event": "x", "payload": [1]}), 422, "payload"),
        ("/api/v1/events", json!({"source": "ci", "event": "x", "key": ""}), 422, "key"),
    ] {
        let (got, answer) = harness.post(path, body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(got == status && message.contains(part), "{path}: {got} {answer}");
    }
    let put = harness.client.put(harness.url("/api/v1/routines/tock")).json(&hourly("tick"));
    assert_eq!(read(put).await.0, 422, "the path names another one");
    for (path, status) in [
        ("/api/v1/routines/tick", 404),
        ("/api/v1/routines/tick/runs", 404),
        ("/api/v1/routine-runs/7", 404),
        ("/api/v1/routine-runs?status=asleep", 422),
        ("/api/v1/routine-runs/next?count=0", 422),
        ("/api/v1/routines?limit=501", 422),
    ] {
        assert_eq!(harness.get(path).await.0, status, "{path}");
    }
    let locked = Harness::locked().await;
    let event = locked.client.post(locked.url("/api/v1/events")).json(&json!({"source": "ci", "event": "x"}));
    assert_eq!(read(event.bearer_auth("client")).await.0, 403, "operators only");
    assert_eq!(locked.get(ROUTINES).await.0, 401);
}

#[tokio::test]
async fn a_routine_run_by_hand_is_asked_for_once_under_a_key_wherever_that_stands() {
    let harness = Harness::open().await;
    harness.post(ROUTINES, hourly("tick")).await;
    let fire = async |header: Option<&str>, body: Value| {
        let mut request = harness.client.post(harness.url(&format!("{ROUTINES}/tick/fire"))).json(&body);
        if let Some(key) = header {
            request = request.header("idempotency-key", key);
        }
        let (status, answer) = read(request).await;
        (status, answer["routine_run_id"].clone())
    };
    let first = fire(Some("k"), json!({})).await;
    assert_eq!(first.0, 202);
    assert_eq!(fire(Some("k"), json!({})).await, first);
    assert_eq!(fire(None, json!({"idempotency_key": "k"})).await, first);
    assert_eq!(fire(Some("k"), json!({"idempotency_key": "k"})).await, first);
    assert_ne!(fire(Some("other"), json!({})).await, first);
    assert_ne!(fire(None, json!({})).await, fire(None, json!({})).await);
    for (header, body) in [(Some(""), json!({})), (Some("k"), json!({"idempotency_key": "other"}))] {
        assert_eq!(fire(header, body).await.0, 422);
    }
}
