//! Jobs: made, listed, shown at work, told something, followed, taken back, accepted.

use belay_protocol::{CallId, EventKind, JobId, JobState, RunId, RunRecord, ToolStatus};
use serde_json::{Value, json};

use crate::harness::{Harness, blank, read};
use crate::streams::events;

async fn make(harness: &Harness, body: Value) -> (JobId, Value) {
    let (status, job) = harness.post("/api/v1/jobs", body).await;
    assert_eq!(status, 202, "{job}");
    (job["job_id"].as_str().unwrap().parse().unwrap(), job)
}

/// Lets a job be at work by a run, which is in the store.
fn begin(harness: &Harness, id: JobId) -> RunRecord {
    let run = RunRecord { session: belay_protocol::job_session(id), cost_micro_usd: 70, ..blank() };
    harness.store.put(run.clone());
    harness.work.change(id, |job| {
        (job.state, job.attempt, job.run_id) = (JobState::InProgress, 1, Some(run.run_id));
    });
    harness.store.fact(&run, changed(id, Some(JobState::Pending), JobState::InProgress));
    run
}

fn changed(job: JobId, from: Option<JobState>, to: JobState) -> EventKind {
    EventKind::JobChanged { job, from, to, attempt: 1, detail: String::new() }
}

#[tokio::test]
async fn a_job_is_made_once_for_its_id_and_listed_by_state_and_session() {
    let harness = Harness::open().await;
    let id = JobId::new();
    let order = json!({
        "job_id": id, "task": "count the files", "title": "Files", "plan": true, "session": "alice",
        "budget": {"max_steps": 5},
    });
    let (_, job) = make(&harness, order.clone()).await;
    assert_eq!((&job["state"], &job["title"], &job["asked_in"]), (&json!("pending"), &json!("Files"), &json!("alice")));
    assert_eq!((&job["usage"]["input"], &job["steps"], &job["last_action"]), (&json!(0), &json!(0), &Value::Null));
    assert_eq!(make(&harness, order).await.0, id);
    let (other, _) = make(&harness, json!({"task": "sweep"})).await;
    harness.work.change(other, |job| job.state = JobState::Failed);
    for (query, expected) in [
        ("", vec![other, id]),
        ("?state=pending", vec![id]),
        ("?state=pending,failed&limit=1", vec![other]),
        ("?session=alice", vec![id]),
        ("?session=alice&state=failed", vec![]),
    ] {
        let (status, list) = harness.get(&format!("/api/v1/jobs{query}")).await;
        let ids: Vec<_> = list["jobs"].as_array().unwrap().iter().map(|job| job["job_id"].clone()).collect();
        let expected: Vec<_> = expected.iter().map(|id| json!(id)).collect();
        assert_eq!((status, ids), (200, expected), "{query}");
    }
}

#[tokio::test]
async fn a_job_at_work_shows_what_it_has_used_and_what_it_does() {
    let harness = Harness::open().await;
    let (id, _) = make(&harness, json!({"task": "count"})).await;
    let run = begin(&harness, id);
    let call_id = CallId::from("c1");
    for kind in [
        EventKind::model_called(1, Some(5), Some(2)),
        EventKind::ToolStarted { call_id: call_id.clone(), name: "list_files".into(), arguments: String::new() },
        EventKind::ToolFinished {
            call_id,
            name: "list_files".into(),
            status: ToolStatus::Success,
            took_ms: 3,
            result: String::new(),
        },
        EventKind::model_called(2, Some(9), Some(1)),
    ] {
        harness.store.fact(&run, kind);
    }
    // An attempt before this one has used something, too.
    let earlier = RunRecord { run_id: RunId::new(), ..run };
    harness.store.put(earlier);
    let (status, job) = harness.get(&format!("/api/v1/jobs/{id}")).await;
    assert_eq!((status, &job["steps"], &job["cost_micro_usd"]), (200, &json!(2), &json!(140)));
    let action = json!({"at": "2026-11-20T19:43:00.000Z", "tool": "list_files", "status": "success"});
    assert_eq!(job["last_action"], action);
    let (_, list) = harness.get("/api/v1/jobs").await;
    assert_eq!((&list["jobs"][0]["cost_micro_usd"], list["jobs"][0].get("steps")), (&json!(140), Some(&json!(2))));
    harness.work.change(id, |job| job.state = JobState::Submitted);
    let (_, list) = harness.get("/api/v1/jobs").await;
    assert_eq!((&list["jobs"][0]["cost_micro_usd"], list["jobs"][0].get("steps")), (&json!(140), None));
}

#[tokio::test]
async fn a_grant_is_given_with_the_job_shown_and_revoked_by_its_number() {
    let harness = Harness::open().await;
    let grant = json!({"tool": "run_command", "arguments": {"argv": "cargo test"}});
    let (id, job) = make(&harness, json!({"task": "test", "allow": [grant]})).await;
    assert_eq!(job["grants"], json!([grant]));
    let path = format!("/api/v1/jobs/{id}/revoke");
    assert_eq!(harness.post(&path, json!({"grant": 2})).await.0, 404);
    let (status, job) = harness.post(&path, json!({"grant": 1})).await;
    assert_eq!((status, &job["grants"][0]["revoked"]), (200, &json!(true)));
}

#[tokio::test]
async fn a_job_is_taken_back_or_accepted_where_it_may_be() {
    let harness = Harness::open().await;
    let (id, _) = make(&harness, json!({"task": "count"})).await;
    let path = |verb: &str| format!("/api/v1/jobs/{id}/{verb}");
    let (status, refused) = harness.post(&path("accept"), json!({})).await;
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("decided")));
    harness.work.change(id, |job| job.state = JobState::Submitted);
    let (status, job) = read(harness.client.post(harness.url(&path("accept")))).await;
    assert_eq!((status, &job["state"]), (200, &json!("accepted")));
    assert_eq!(harness.post(&path("cancel"), json!({})).await.0, 409);
    let (other, _) = make(&harness, json!({"task": "count"})).await;
    let (status, job) = harness.post(&format!("/api/v1/jobs/{other}/cancel"), json!({})).await;
    assert_eq!((status, &job["state"]), (200, &json!("cancelled")));
}

#[tokio::test]
async fn what_is_said_to_a_job_is_passed_on_under_a_key_of_its_own() {
    let harness = Harness::open().await;
    let (id, _) = make(&harness, json!({"task": "count"})).await;
    let path = format!("/api/v1/jobs/{id}/messages");
    let (status, said) = harness.post(&path, json!({"text": "also the hidden ones", "idempotency_key": "m1"})).await;
    assert_eq!((status, &said["job_id"], &said["reply"]), (200, &json!(id), &json!("pong")));
    let message = harness.agent.seen.lock().unwrap().last().unwrap().clone();
    let key = message.key.unwrap();
    assert_eq!((&*key.account, &*key.message_id), (format!("job:{id}").as_str(), "m1"));
    assert_eq!(message.body, belay_protocol::Body::Text(format!("/job {id} also the hidden ones")));
    let (status, refused) = harness.post(&path, json!({"text": "nosuch"})).await;
    assert_eq!((status, &refused["error"]["message"]), (409, &json!("I know no nosuch.")));
}

#[tokio::test]
async fn the_events_of_a_job_are_those_of_its_session_to_its_end() {
    let harness = Harness::open().await;
    let (id, _) = make(&harness, json!({"task": "count"})).await;
    let (bystander, _) = make(&harness, json!({"task": "sweep"})).await;
    begin(&harness, bystander);
    let run = begin(&harness, id);
    let path = format!("/api/v1/jobs/{id}/events");
    let response = harness.client.get(harness.url(&path)).send().await.unwrap();
    harness.store.fact(&run, EventKind::RunStarted { attempt: 1 });
    harness.work.change(id, |job| job.state = JobState::Completed);
    harness.store.fact(&run, changed(id, Some(JobState::InProgress), JobState::Completed));
    let kinds =
        |heard: Vec<(String, String, String)>| heard.into_iter().map(|(_, kind, _)| kind).collect::<Vec<String>>();
    let heard = kinds(events(response, usize::MAX).await);
    assert_eq!(heard, ["job_changed", "run_started", "job_changed"]);
    // Who comes behind the end hears nothing and is not kept.
    let response = harness.client.get(harness.url(&format!("{path}?since=4"))).send().await.unwrap();
    assert_eq!(kinds(events(response, usize::MAX).await), Vec::<String>::new());
}

#[tokio::test]
async fn what_cannot_be_done_with_jobs_is_told_as_everywhere() {
    let harness = Harness::open().await;
    let nobody = JobId::new();
    for (path, body, status, part) in [
        ("/api/v1/jobs".to_owned(), json!({"task": " "}), 422, "task: must not be empty"),
        ("/api/v1/jobs".into(), json!({"task": "x", "colour": 1}), 422, "colour"),
        ("/api/v1/jobs".into(), json!({"task": "x", "budget": {"max_stepps": 1}}), 422, "max_stepps"),
        ("/api/v1/jobs".into(), json!({"task": "x", "session": ""}), 422, "session"),
        ("/api/v1/jobs".into(), json!({"task": "x", "goal": {"until": {}}}), 422, "until CHECK"),
        ("/api/v1/jobs".into(), json!({"task": "x", "plan": true, "goal": {"until": {"judge": "ok"}}}), 422, "no goal"),
        (
            "/api/v1/jobs".into(),
            json!({"task": "x", "goal": {"until": {"judge": "ok"}, "budget": {"usd": 1}}}),
            422,
            "use the budget of the job",
        ),
        (
            "/api/v1/jobs".into(),
            json!({"task": "x", "goal": {"until": {"judge": "ok"}, "budget": {"attempts": 2, "seconds": 9}}}),
            422,
            "use the budget of the job",
        ),
        ("/api/v1/jobs".into(), json!({"task": "too many"}), 429, "20 jobs are open"),
        (format!("/api/v1/jobs/{nobody}/cancel"), json!({}), 404, "There is no job"),
        (format!("/api/v1/jobs/{nobody}/messages"), json!({"text": "hi"}), 404, "no such job"),
        (format!("/api/v1/jobs/{nobody}/messages"), json!({"text": ""}), 422, "text"),
        ("/api/v1/jobs/7/accept".into(), json!({}), 404, "not a UUID"),
    ] {
        let (got, answer) = harness.post(&path, body).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(got == status && message.contains(part), "{path}: {got} {answer}");
    }
    for (path, status) in [
        (format!("/api/v1/jobs/{nobody}"), 404),
        (format!("/api/v1/jobs/{nobody}/events"), 404),
        ("/api/v1/jobs?state=asleep".into(), 422),
        ("/api/v1/jobs?limit=501".into(), 422),
        ("/api/v1/jobs?colour=red".into(), 422),
    ] {
        assert_eq!(harness.get(&path).await.0, status, "{path}");
    }
    let locked = Harness::locked().await;
    assert_eq!(locked.get("/api/v1/jobs").await.0, 401);
}
