//! What names a run, a session, a question, a job, a routine or a routine run says of a hidden one what it says of one that is not
//! there. The routes are read from the source of the router, and the methods and tools are asked for their names, so that a new
//! one is looked at here too.

use belay_protocol::{ApprovalId, JobId, RoutineRunId, RunId};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{Harness, SECRET, read};
use crate::mcp;
use crate::routines::spec;
use crate::websocket::client::Socket;

const ROUTER: &str = include_str!("../../src/router.rs");

/// The names of what an operator has, and the holder of the token is not shown; or of what nobody has.
struct Names {
    job: String,
    session: String,
    run: String,
    approval: String,
    routine_run: String,
    routine: &'static str,
    note: &'static str,
    sign_in: String,
    response: String,
}

impl Names {
    fn of_nothing() -> Self {
        let job = JobId::new().to_string();
        let session = format!("job:{job}");
        let (run, approval) = (RunId::new().to_string(), ApprovalId::new().to_string());
        Self {
            job,
            session,
            run,
            approval,
            routine_run: RoutineRunId::new().to_string(),
            routine: "of-nobody",
            note: "99",
            sign_in: "none".to_owned(),
            response: "resp_of_nobody".to_owned(),
        }
    }

    async fn of_an_operator(harness: &Harness) -> Self {
        let post = async |path: &str, body: Value| {
            let (status, answer) =
                read(harness.client.post(harness.url(path)).bearer_auth("operator").json(&body)).await;
            assert!((200..300).contains(&status), "{path}: {answer}");
            answer
        };
        let word = |value: &Value| value.as_str().unwrap().to_owned();
        let job = word(&post("/api/v1/jobs", json!({ "task": "secret" })).await["job_id"]);
        let hourly = spec("theirs", json!({ "kind": "schedule", "when": "@hourly" }));
        post("/api/v1/routines", hourly).await;
        let routine_run = word(&post("/api/v1/routines/theirs/fire", json!({})).await["routine_run_id"]);
        let session = format!("job:{job}");
        let responds = json!({ "input": "hello", "conversation": session });
        let response = word(&post("/v1/responses", responds).await["id"]);
        let asks = json!({ "session": session, "text": "ask secretly", "wait_ms": 30_000 });
        let run = post("/api/v1/messages", asks).await;
        let approval = word(&run["waiting_for"]["approval"]);
        let proof = harness.client.post(harness.url("/console/sign-in")).header("x-belay-csrf", "1");
        assert_eq!(read(proof.json(&json!({ "token": "operator" }))).await.0, 200);
        let sign_ins = harness.client.get(harness.url("/console/sessions")).bearer_auth("operator");
        let sign_in = word(&read(sign_ins).await.1["sessions"][0]["id"]);
        Self {
            job,
            session,
            run: word(&run["run_id"]),
            approval,
            routine_run,
            routine: "theirs",
            note: "2",
            sign_in,
            response,
        }
    }

    /// An answer without these names.
    fn anonymous(&self, answer: &Value) -> String {
        let Self { job, run, approval, routine_run, routine, response, .. } = self;
        let names = [job.as_str(), run, approval, routine_run, routine, response];
        names.into_iter().fold(answer.to_string(), |text, name| text.replace(name, "NAME"))
    }

    /// What a parameter of a path stands for, and a body that the route takes.
    fn filled_in(&self, path: &str) -> (String, Value) {
        let fill = |parameter: &str, name: &str| path.replace(parameter, name).replace("{name}", "mail");
        if path.starts_with("/api/v1/runs/{id}") {
            (fill("{id}", &self.run), json!({}))
        } else if path.starts_with("/api/v1/sessions/{key}") {
            (fill("{key}", &self.session), json!({}))
        } else if path.starts_with("/api/v1/approvals/{id}") {
            (fill("{id}", &self.approval), json!({ "decision": "approve" }))
        } else if path.starts_with("/api/v1/jobs/{id}") {
            let body = if path.ends_with("/messages") { json!({ "text": "hi" }) } else { json!({}) };
            (fill("{id}", &self.job), body)
        } else if path == "/api/v1/memory/{id}" {
            (fill("{id}", self.note), json!({ "text": "x" }))
        } else if path.starts_with("/api/v1/routine-runs/{id}") {
            (fill("{id}", &self.routine_run), json!({}))
        } else if path.starts_with("/api/v1/routines/{name}") {
            let body = if path.ends_with("/test") { json!({ "at": "60" }) } else { json!({}) };
            (fill("{name}", self.routine), body)
        } else if path.starts_with("/api/v1/tools/{name}") {
            (path.replace("{name}", "web_search"), json!({ "detail": "so" })) // shown to everybody, changed by operators
        } else if path.starts_with("/api/v1/mcp/{name}/login") {
            (path.replace("{name}", "tickets"), json!({ "port": 1, "answer": "x" })) // for operators alone
        } else if path == "/api/v1/people/{person}" {
            (path.replace("{person}", "telegram:42"), json!({})) // for operators alone
        } else if path == "/v1/models/{name}" {
            (path.replace("{name}", "nothing"), json!({})) // shown to everybody
        } else if path.starts_with("/v1/responses/{response}") {
            (fill("{response}", &self.response), json!({}))
        } else if path == "/api/v1/files/{token}" {
            (path.replace("{token}", "AAAA"), json!({})) // the token is the permission
        } else if path == "/console/sessions/{id}" {
            (fill("{id}", &self.sign_in), json!({}))
        } else if path == "/hooks/{name}" {
            (path.replace("{name}", "ci"), json!({})) // has a secret of its own
        } else {
            panic!(
                "what does {path} name? Say so here, and take it as VisibleRun or VisibleSession, or find it by Sight"
            )
        }
    }
}

/// The paths of the router that have parameters.
fn paths() -> Vec<&'static str> {
    let literals = ROUTER.split('"').skip(1).step_by(2);
    let paths: Vec<_> = literals.filter(|text| text.starts_with('/') && text.contains('{')).collect();
    let paths: Vec<_> = paths.into_iter().filter(|path| !path.ends_with("{*rest}")).collect();
    assert!(paths.len() > 25, "the source is read another way than it is written: {paths:?}");
    paths
}

async fn harness() -> Harness {
    Harness::with(|parts| {
        parts.config.mcp = true;
        let secret = |text: &str| Some(text.to_owned().into());
        (parts.secrets.token, parts.secrets.operator_token) = (secret("client"), secret("operator"));
        parts.secrets.webhook_secret = secret(SECRET);
    })
    .await
}

#[tokio::test]
async fn every_route_that_names_something_says_of_a_hidden_one_what_it_says_of_none() {
    let harness = harness().await;
    let hidden = Names::of_an_operator(&harness).await;
    let none = Names::of_nothing();
    let said = async |names: &Names, method: &Method, path: &str| {
        let (path, body) = names.filled_in(path);
        let request = harness.client.request(method.clone(), harness.url(&path)).bearer_auth("client");
        let request = if *method == Method::GET { request } else { request.json(&body) };
        let (status, answer) = read(request).await;
        (status, names.anonymous(&answer))
    };
    for path in paths() {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
            let (of_hidden, of_none) = (said(&hidden, &method, path).await, said(&none, &method, path).await);
            assert!([403, 404, 405, 422].contains(&of_hidden.0), "{method} {path}: {of_hidden:?}");
            assert_eq!(of_hidden, of_none, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn every_route_that_takes_a_session_as_a_parameter_or_a_field_does_too() {
    let harness = harness().await;
    let hidden = Names::of_an_operator(&harness).await;
    let none = Names::of_nothing();
    let key = |names: &Names| names.session.clone();
    type Asks = fn(String) -> Value;
    let posts: [(&str, Asks); 5] = [
        ("/api/v1/messages", |key| json!({ "session": key, "text": "hi" })),
        ("/api/v1/agent", |key| json!({ "sessionKey": key, "message": "hi", "idempotencyKey": "k" })),
        (
            "/v1/chat/completions",
            |key| json!({ "conversation": key, "messages": [{ "role": "user", "content": "hi" }] }),
        ),
        ("/v1/responses", |key| json!({ "conversation": key, "input": "hi" })),
        ("/api/v1/jobs", |key| json!({ "session": key, "task": "hi" })),
    ];
    for (path, body) in posts {
        let said = async |names: &Names| {
            let request = harness.client.post(harness.url(path)).bearer_auth("client").json(&body(key(names)));
            let (status, answer) = read(request).await;
            (status, names.anonymous(&answer))
        };
        assert_eq!((said(&hidden).await.0, said(&hidden).await), (404, said(&none).await), "{path}");
    }
    let wait = async |names: &Names| {
        let body = json!({ "runId": names.run, "timeoutMs": 0 });
        let request = harness.client.post(harness.url("/api/v1/agent/wait")).bearer_auth("client").json(&body);
        names.anonymous(&read(request).await.1)
    };
    assert_eq!(wait(&hidden).await, wait(&none).await);
    for path in ["/api/v1/runs", "/api/v1/approvals", "/api/v1/search?q=tea"] {
        let separator = if path.contains('?') { '&' } else { '?' };
        let said = async |names: &Names| {
            let url = harness.url(&format!("{path}{separator}session={}", key(names)));
            let (status, answer) = read(harness.client.get(url).bearer_auth("client")).await;
            (status, names.anonymous(&answer))
        };
        assert_eq!((said(&hidden).await.0, said(&hidden).await), (404, said(&none).await), "{path}");
    }
    let (_, list) = read(harness.client.get(harness.url("/api/v1/approvals")).bearer_auth("client")).await;
    assert_eq!(list, json!({ "approvals": [] }), "of lists they are left out");
}

#[tokio::test]
async fn every_method_of_the_websocket_does_too() {
    let harness = harness().await;
    let hidden = Names::of_an_operator(&harness).await;
    let none = Names::of_nothing();
    let (mut socket, hello) = Socket::hello(&harness, Some("client")).await;
    for method in hello["features"]["methods"].as_array().unwrap() {
        let method = method.as_str().unwrap();
        let params = |names: &Names| match method {
            "health" | "status" | "models.list" | "sessions.list" | "approvals.list" => vec![],
            "agent" => vec![json!({ "sessionKey": names.session, "message": "hi", "idempotencyKey": "k" })],
            "chat.send" => vec![json!({ "sessionKey": names.session, "message": "hi", "idempotencyKey": "c" })],
            "agent.wait" => vec![json!({ "runId": names.run, "timeoutMs": 0 })],
            "chat.abort" => vec![
                json!({ "sessionKey": names.session }),
                json!({ "sessionKey": names.session, "runId": names.run }),
                json!({ "sessionKey": "s", "runId": names.run }),
            ],
            "sessions.patch" => vec![json!({ "sessionKey": names.session, "thinking": "low" })],
            "approvals.decide" => vec![json!({ "id": names.approval, "decision": "approve" })],
            "chat.history" | "sessions.get" | "sessions.create" | "sessions.reset" | "sessions.stop" => {
                vec![json!({ "sessionKey": names.session })]
            }
            // Who subscribes to what is hidden reads nothing: the reading ends with the connection, as for no such session.
            "chat.subscribe" | "sessions.subscribe" | "chat.unsubscribe" | "sessions.unsubscribe" => vec![],
            other => panic!("what does {other} name? Say so here, and take it by Caller::run or Caller::session"),
        };
        for (of_hidden, of_none) in params(&hidden).into_iter().zip(params(&none)) {
            let mut answers = Vec::new();
            for (names, params) in [(&hidden, of_hidden), (&none, of_none)] {
                let mut answer = socket.call(method, params).await;
                answer["id"] = Value::Null;
                answers.push(names.anonymous(&answer));
            }
            assert_eq!(answers[0], answers[1], "{method}");
            assert!(answers[0].contains("\"ok\":false"), "{method}: {}", answers[0]);
        }
    }
    let listed = socket.payload("approvals.list", json!({})).await;
    assert_eq!(listed, json!({ "approvals": [] }));
}

#[tokio::test]
async fn every_tool_of_the_model_context_protocol_does_too() {
    let harness = harness().await;
    let hidden = Names::of_an_operator(&harness).await;
    let none = Names::of_nothing();
    let (client, _progress) = mcp::client(&harness, Some("client")).await;
    for tool in client.list_all_tools().await.unwrap() {
        let given = |names: &Names| match &*tool.name {
            "list_sessions" => None,
            "send_message" => Some(json!({ "session": names.session, "text": "hi" })),
            "run_status" | "stop_run" => Some(json!({ "run_id": names.run })),
            "read_conversation" => Some(json!({ "session": names.session })),
            other => panic!("what does {other} name? Say so here, and take it as VisibleRun or VisibleSession"),
        };
        let (Some(of_hidden), Some(of_none)) = (given(&hidden), given(&none)) else { continue };
        let name: &'static str = Box::leak(tool.name.to_string().into_boxed_str());
        let of_hidden = hidden.anonymous(&json!(mcp::refusal(&client, name, of_hidden).await));
        let of_none = none.anonymous(&json!(mcp::refusal(&client, name, of_none).await));
        assert_eq!(of_hidden, of_none, "{name}");
    }
}

#[tokio::test]
async fn who_may_not_do_a_thing_hears_so_whatever_else_is_wrong_with_the_request() {
    let harness = harness().await;
    let operators = [
        (Method::POST, "/api/v1/events"),
        (Method::GET, "/api/v1/heartbeat"),
        (Method::GET, "/api/v1/principals"),
        (Method::POST, "/api/v1/stop?wait_ms=x&nonsense"),
        (Method::POST, "/api/v1/prune?nonsense"),
        (Method::POST, "/api/v1/shutdown"),
        (Method::GET, "/api/v1/backups"),
        (Method::POST, "/api/v1/backups"),
        (Method::POST, "/api/v1/judge"),
        (Method::GET, "/api/v1/settings"),
        (Method::POST, "/api/v1/tools/web_search/disable"),
        (Method::POST, "/api/v1/tools/web_search/enable"),
        (Method::DELETE, "/api/v1/sessions/alice"),
        (Method::DELETE, "/api/v1/sessions/alice/secrets"),
        (Method::DELETE, "/api/v1/sessions/alice/secrets/mail"),
    ];
    for (method, path) in operators {
        for body in ["", "{", "[]", "{\"nonsense\":1}"] {
            let request = harness.client.request(method.clone(), harness.url(path)).bearer_auth("client");
            let (status, answer) = read(request.header("content-type", "application/json").body(body)).await;
            assert_eq!((status, &answer["error"]["code"]), (403, &json!("forbidden")), "{method} {path} {body}");
        }
    }
}

#[tokio::test]
async fn what_is_hidden_takes_no_place_in_a_list() {
    let harness = harness().await;
    let as_client = |request: reqwest::RequestBuilder| read(request.bearer_auth("client"));
    let asks = json!({ "session": "mine", "text": "ask mine", "wait_ms": 30_000 });
    let (_, mine) = as_client(harness.client.post(harness.url("/api/v1/messages")).json(&asks)).await;
    Names::of_an_operator(&harness).await;
    let (_, runs) = as_client(harness.client.get(harness.url("/api/v1/runs?limit=1"))).await;
    assert_eq!((&runs["runs"][0]["run_id"], runs["runs"].as_array().unwrap().len()), (&mine["run_id"], 1), "{runs}");
    let (_, approvals) = as_client(harness.client.get(harness.url("/api/v1/approvals?limit=1"))).await;
    assert_eq!(approvals["approvals"][0]["id"], mine["waiting_for"]["approval"], "{approvals}");
}
