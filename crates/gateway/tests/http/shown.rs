//! Whose jobs, routines and routine runs are shown to whom: an operator sees all of them, the holder of the API token their own.

use belay_protocol::status::LiveRun;
use belay_protocol::{
    EventKind, JobId, JobState, RoutineRunId, RoutineRunStatus, RunId, RunRecord, job_session, routine_run_session,
};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Harness, blank, read};
use crate::routines::spec;
use crate::streams::events;

/// What is asked with this token.
async fn asked(harness: &Harness, token: &str, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
    let request = harness.client.request(method, harness.url(path)).bearer_auth(token);
    read(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

async fn got(harness: &Harness, token: &str, path: &str) -> (u16, Value) {
    asked(harness, token, Method::GET, path, None).await
}

async fn posted(harness: &Harness, token: &str, path: &str, body: Value) -> Value {
    let (status, answer) = asked(harness, token, Method::POST, path, Some(body)).await;
    assert!((200..300).contains(&status), "{path}: {status} {answer}");
    answer
}

/// A job, a routine and a routine run of each of both.
struct Work {
    jobs: [String; 2],
    routine_runs: [String; 2],
}

/// The operator's are `theirs`, those of the token `mine`.
async fn work(harness: &Harness) -> Work {
    let (mut jobs, mut routine_runs) = (Vec::new(), Vec::new());
    for (token, name) in [("operator", "theirs"), ("client", "mine")] {
        let job = posted(harness, token, "/api/v1/jobs", json!({ "task": name })).await;
        jobs.push(job["job_id"].as_str().unwrap().to_owned());
        let hourly = spec(name, json!({ "kind": "schedule", "when": "@hourly" }));
        posted(harness, token, "/api/v1/routines", hourly).await;
        let routine_run = posted(harness, token, &format!("/api/v1/routines/{name}/fire"), json!({})).await;
        routine_runs.push(routine_run["routine_run_id"].as_str().unwrap().to_owned());
    }
    Work { jobs: jobs.try_into().unwrap(), routine_runs: routine_runs.try_into().unwrap() }
}

/// What a list says in this field, sorted.
fn names(list: &Value, of: &str, field: &str) -> Vec<String> {
    let mut names: Vec<_> =
        list[of].as_array().unwrap().iter().map(|row| row[field].as_str().unwrap().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn lists_have_what_is_ones_own_and_an_operators_have_all() {
    let harness = Harness::locked().await;
    work(&harness).await;
    for (path, of, field) in [
        ("/api/v1/jobs", "jobs", "task"),
        ("/api/v1/jobs?state=pending", "jobs", "task"),
        ("/api/v1/routines", "routines", "name"),
        ("/api/v1/routine-runs", "routine_runs", "routine"),
        ("/api/v1/routine-runs?status=running", "routine_runs", "routine"),
        ("/api/v1/routine-runs/next", "next", "routine"),
    ] {
        for (token, expected) in [("client", vec!["mine"]), ("operator", vec!["mine", "theirs"])] {
            let (status, list) = got(&harness, token, path).await;
            assert_eq!(
                (status, names(&list, of, field)),
                (200, expected.iter().map(|it| it.to_string()).collect()),
                "{token} {path}"
            );
        }
    }
    let (_, first) = got(&harness, "client", "/api/v1/routines?limit=1").await;
    assert_eq!((names(&first, "routines", "name"), &first["next"]), (vec!["mine".to_owned()], &Value::Null));
}

#[tokio::test]
async fn the_digest_of_a_webhooks_secret_is_taken_and_shown_to_nobody() {
    let harness = Harness::locked().await;
    let hook = spec("build", json!({"kind": "webhook", "path": "ci", "secret_sha256": "0123".repeat(16)}));
    let shown = json!({"kind": "webhook", "path": "ci"});
    for token in ["client", "operator"] {
        let (_, put) = asked(&harness, token, Method::PUT, "/api/v1/routines/build", Some(hook.clone())).await;
        assert_eq!(put["trigger"], shown, "{token}");
    }
    let (_, one) = got(&harness, "operator", "/api/v1/routines/build").await;
    let (_, list) = got(&harness, "operator", "/api/v1/routines").await;
    assert_eq!((&one["trigger"], &list["routines"][0]["trigger"]), (&shown, &shown));
    // What was read back can be put as it is.
    let again = json!({"name": "build", "trigger": one["trigger"], "action": one["action"]});
    assert_eq!(asked(&harness, "operator", Method::PUT, "/api/v1/routines/build", Some(again)).await.0, 200);
}

#[tokio::test]
async fn what_is_not_ones_own_is_not_there() {
    let harness = Harness::locked().await;
    let Work { jobs, routine_runs } = work(&harness).await;
    let nobody = JobId::new();
    let paths = |job: &str, name: &str, routine_run: &str| {
        [
            (Method::GET, format!("/api/v1/jobs/{job}"), None),
            (Method::POST, format!("/api/v1/jobs/{job}/messages"), Some(json!({"text": "hi"}))),
            (Method::GET, format!("/api/v1/routines/{name}"), None),
            (Method::POST, format!("/api/v1/routines/{name}/test"), Some(json!({"at": "60"}))),
            (Method::GET, format!("/api/v1/routines/{name}/runs"), None),
            (Method::GET, format!("/api/v1/routine-runs?routine={name}"), None),
            (Method::GET, format!("/api/v1/routine-runs/next?routine={name}"), None),
            (Method::GET, format!("/api/v1/routine-runs/{routine_run}"), None),
        ]
    };
    let theirs = paths(&jobs[0], "theirs", &routine_runs[0]);
    let mine = paths(&jobs[1], "mine", &routine_runs[1]);
    for (method, path, body) in mine.iter().chain(&theirs) {
        let (status, answer) = asked(&harness, "operator", method.clone(), path, body.clone()).await;
        assert_eq!(status, 200, "operator {path}: {answer}");
    }
    for (method, path, body) in mine {
        let (status, answer) = asked(&harness, "client", method, &path, body).await;
        assert_eq!(status, 200, "client {path}: {answer}");
    }
    for (method, path, body) in theirs {
        let (status, answer) = asked(&harness, "client", method, &path, body).await;
        assert_eq!(status, 404, "client {path}: {answer}");
    }
    let absent = got(&harness, "client", &format!("/api/v1/jobs/{nobody}")).await.1;
    let theirs = got(&harness, "client", &format!("/api/v1/jobs/{}", jobs[0])).await.1;
    let named = |answer: &Value, id: &str| answer.to_string().replace(id, "ID");
    assert_eq!(named(&absent, &nobody.to_string()), named(&theirs, &jobs[0]), "nothing tells that there is one");
    let stream = harness.client.get(harness.url(&format!("/api/v1/jobs/{}/events", jobs[0]))).bearer_auth("client");
    assert_eq!(stream.send().await.unwrap().status().as_u16(), 404);
}

#[tokio::test]
async fn facts_about_work_are_read_by_those_whose_it_is_however_many_of_others_are_between() {
    let harness = Harness::locked().await;
    let Work { jobs, routine_runs } = work(&harness).await;
    let job = |id: &str| -> JobId { id.parse().unwrap() };
    let routine_run = |id: &str| -> RoutineRunId { id.parse().unwrap() };
    let fact_of_job = |id: JobId| {
        let run = RunRecord { session: job_session(id), ..blank() };
        let kind =
            EventKind::JobChanged { job: id, from: None, to: JobState::Pending, attempt: 0, detail: String::new() };
        harness.store.fact(&run, kind);
    };
    let fact_of_routine_run = |id: RoutineRunId| {
        let run = RunRecord { session: routine_run_session(id), ..blank() };
        let (routine, status) = ("x".to_owned(), RoutineRunStatus::Ok);
        harness.store.fact(&run, EventKind::RoutineRunEnded { routine_run: id, routine, status, disabled: false });
    };
    // More than a page of what the token is not shown.
    for _ in 0..300 {
        fact_of_job(job(&jobs[0]));
        fact_of_routine_run(routine_run(&routine_runs[0]));
    }
    fact_of_job(job(&jobs[1]));
    fact_of_job(JobId::new());
    fact_of_routine_run(routine_run(&routine_runs[1]));
    harness.store.fact(&blank(), EventKind::RunAccepted);
    let facts = async |token: &str, enough: usize| {
        let request = harness.client.get(harness.url("/api/v1/events?since=0")).bearer_auth(token);
        events(request.send().await.unwrap(), enough).await
    };
    let shown = facts("client", 3).await;
    let sessions: Vec<_> = shown
        .iter()
        .map(|(_, _, data)| serde_json::from_str::<Value>(data).unwrap()["session"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(sessions, [format!("job:{}", jobs[1]), format!("routine:{}", routine_runs[1]), "s".to_owned()]);
    assert_eq!(facts("operator", 604).await.len(), 604);
}

#[tokio::test]
async fn what_happens_in_the_sessions_of_work_is_shown_with_the_work() {
    let harness = Harness::locked().await;
    let Work { jobs, routine_runs } = work(&harness).await;
    let chat = blank();
    harness.store.put(chat.clone());
    let mut runs = vec![("s".to_owned(), chat.run_id, true)];
    for (at, shown) in [(0, false), (1, true)] {
        for session in [format!("job:{}", jobs[at]), format!("routine:{}", routine_runs[at])] {
            let run = RunRecord { session: session.as_str().into(), run_id: RunId::new(), ..blank() };
            harness.store.put(run.clone());
            runs.push((session, run.run_id, shown));
        }
    }
    let live = |(session, run_id, _): &(String, RunId, bool)| LiveRun {
        run_id: *run_id,
        session: session.as_str().into(),
        for_ms: 1,
        step: 0,
        tools: Vec::new(),
    };
    *harness.agent.running.lock().unwrap() = runs.iter().map(live).collect();
    for (session, run, shown) in &runs {
        let paths = [
            format!("/api/v1/runs/{run}"),
            format!("/api/v1/runs/{run}/trajectory"),
            format!("/api/v1/runs/{run}/wait?timeout_ms=0"),
            format!("/api/v1/sessions/{session}"),
            format!("/api/v1/sessions/{}", session.replace(':', "%3A")),
            format!("/api/v1/sessions/{session}/messages"),
        ];
        for path in paths {
            assert_eq!(got(&harness, "operator", &path).await.0, 200, "operator {path}");
            assert_eq!(got(&harness, "client", &path).await.0, if *shown { 200 } else { 404 }, "client {path}");
        }
        let waited = json!({"runId": run, "timeoutMs": 0});
        let (status, _) = asked(&harness, "client", Method::POST, "/api/v1/agent/wait", Some(waited)).await;
        assert_eq!(status, if *shown { 200 } else { 404 }, "{session}");
    }
    let mut expected: Vec<_> =
        runs.iter().filter(|(_, _, shown)| *shown).map(|(session, ..)| session.clone()).collect();
    expected.sort();
    for (path, of) in [("/api/v1/runs", "runs"), ("/api/v1/sessions", "sessions"), ("/api/v1/status", "running")] {
        let (_, list) = got(&harness, "client", path).await;
        assert_eq!(names(&list, of, "session"), expected, "{path}");
        assert_eq!(names(&got(&harness, "operator", path).await.1, of, "session").len(), 5, "{path}");
    }
    let backups = async |token| got(&harness, token, "/api/v1/status").await.1["backups"].clone();
    assert_eq!(backups("client").await, json!(null), "the failure may name paths");
    assert_eq!(backups("operator").await["last_failure"]["detail"], "the disk is full");
    // Of an absent run and of one that is not shown the same is said.
    let (absent, hidden) = (RunId::new(), runs[1].1);
    let said = async |run: RunId| {
        let answer = got(&harness, "client", &format!("/api/v1/runs/{run}")).await.1;
        answer.to_string().replace(&run.to_string(), "ID")
    };
    assert_eq!(said(absent).await, said(hidden).await);
}

#[tokio::test]
async fn whoever_takes_the_name_of_a_deleted_routine_is_not_shown_what_it_did() {
    let harness = Harness::locked().await;
    let Work { routine_runs, .. } = work(&harness).await;
    assert_eq!(asked(&harness, "operator", Method::DELETE, "/api/v1/routines/theirs", None).await.0, 200);
    let hourly = spec("theirs", json!({ "kind": "schedule", "when": "@hourly" }));
    posted(&harness, "client", "/api/v1/routines", hourly).await;
    let run = RunRecord { session: format!("routine:{}", routine_runs[0]).as_str().into(), ..blank() };
    harness.store.put(run.clone());
    let of_before = [
        format!("/api/v1/routine-runs/{}", routine_runs[0]),
        format!("/api/v1/runs/{}", run.run_id),
        format!("/api/v1/sessions/{}/messages", run.session),
    ];
    for path in &of_before {
        assert_eq!(got(&harness, "operator", path).await.0, 200, "operator {path}");
        assert_eq!(got(&harness, "client", path).await.0, 404, "client {path}");
    }
    let again = posted(&harness, "client", "/api/v1/routines/theirs/fire", json!({})).await;
    for (token, count) in [("client", 1), ("operator", 2)] {
        for path in ["/api/v1/routines/theirs/runs", "/api/v1/routine-runs?routine=theirs"] {
            let (_, list) = got(&harness, token, path).await;
            let shown = list["routine_runs"].as_array().unwrap();
            assert_eq!(
                (shown.len(), &shown[0]["routine_run_id"]),
                (count, &again["routine_run_id"]),
                "{token} {path}: {list}"
            );
        }
    }
    assert_eq!(
        names(&got(&harness, "client", "/api/v1/routine-runs").await.1, "routine_runs", "routine"),
        ["mine", "theirs"]
    );
}
