//! Sessions of servers over HTTP that end: begun anew, and no call runs twice.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use belay_protocol::{Tool, ToolFailure};
use belay_tools::mcp::SurveyMode;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::http::{serve, server};
use super::support::{Bench, Run, until};

/// How a server refuses a request of a session that it does not know: status, type and text of the answer; `ID` stands
/// for the id of the request.
type Refusal = (u16, &'static str, &'static str);

const EMPTY: Refusal = (404, "text/plain", "");

/// The refusals that servers in use send.
const REFUSALS: [Refusal; 8] = [
    EMPTY,
    // @modelcontextprotocol/sdk
    (404, "application/json", r#"{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}"#),
    // Python: mcp
    (
        404,
        "application/json",
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#,
    ),
    // The examples of @modelcontextprotocol/sdk, which many servers copy.
    (
        400,
        "application/json",
        r#"{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}"#,
    ),
    (400, "text/html", "Invalid or missing session ID"),
    // Older versions of mcp, and servers of their own.
    (
        400,
        "application/json",
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: No valid session ID provided"}}"#,
    ),
    (400, "application/json", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Session not found"}}"#),
    (400, "application/json", r#"{"error":"invalid session"}"#),
];

/// A server with sessions.
struct Host {
    seen: Mutex<Seen>,
    /// Calls wait here.
    gate: Semaphore,
}

struct Seen {
    sessions: HashSet<String>,
    /// Methods, in order.
    asked: Vec<String>,
    /// Calls that were carried out.
    ran: usize,
    refusal: Refusal,
    description: &'static str,
    /// Sessions end when one of these methods comes, once.
    ends_at: Option<&'static str>,
    /// Calls end without an answer, after they have run.
    breaks: bool,
}

impl Host {
    fn new() -> Arc<Self> {
        let seen = Seen {
            sessions: HashSet::new(),
            asked: Vec::new(),
            ran: 0,
            refusal: EMPTY,
            description: "Says it.",
            ends_at: None,
            breaks: false,
        };
        Arc::new(Self { seen: Mutex::new(seen), gate: Semaphore::new(Semaphore::MAX_PERMITS) })
    }

    fn change<T>(&self, change: impl FnOnce(&mut Seen) -> T) -> T {
        change(&mut self.seen.lock().unwrap())
    }

    /// Forgets all sessions, and how often they were begun.
    fn forget(&self, refusal: Refusal) {
        self.change(|seen| {
            seen.sessions.clear();
            seen.asked.clear();
            (seen.ran, seen.refusal) = (0, refusal);
        });
    }

    fn asked(&self, method: &str) -> usize {
        self.change(|seen| seen.asked.iter().filter(|asked| *asked == method).count())
    }

    fn ran(&self) -> usize {
        self.change(|seen| seen.ran)
    }
}

async fn answer(State(host): State<Arc<Host>>, request: Request) -> Response {
    let (method, headers) = (request.method().clone(), request.headers().clone());
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let asked = if method == Method::POST { message["method"].as_str().unwrap_or_default() } else { method.as_str() };
    let session = headers.get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
    let known = host.change(|seen| {
        seen.asked.push(asked.to_owned());
        if seen.ends_at == Some(asked) {
            seen.ends_at = None;
            seen.sessions.clear();
        }
        session.as_ref().is_some_and(|session| seen.sessions.contains(session))
    });
    if asked != "initialize" && !known {
        let (status, kind, text) = host.change(|seen| seen.refusal);
        let text = text.replace("\"id\":ID", &format!("\"id\":{}", message["id"]));
        return (StatusCode::from_u16(status).unwrap(), [("content-type", kind)], text).into_response();
    }
    let description = host.change(|seen| seen.description);
    let result = match asked {
        "initialize" => json!({
            "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "x", "version": "1" },
        }),
        "tools/list" => {
            json!({ "tools": [{ "name": "t", "description": description, "inputSchema": { "type": "object" } }] })
        }
        "tools/call" => {
            host.change(|seen| seen.ran += 1);
            let _ = host.gate.acquire().await;
            if host.change(|seen| seen.breaks) {
                let broken = futures_util::stream::iter([Ok("data: "), Err(std::io::Error::other("broken"))]);
                return ([("content-type", "text/event-stream")], axum::body::Body::from_stream(broken))
                    .into_response();
            }
            json!({ "content": [{ "type": "text", "text": "over http" }] })
        }
        "GET" => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    let session = host.change(|seen| {
        let session = format!("session-{}", seen.asked.len());
        if asked == "initialize" {
            seen.sessions.insert(session.clone());
        }
        session
    });
    let answer = axum::Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
    ([("mcp-session-id", session)], answer).into_response()
}

/// A server that is running, and its tool.
async fn begun(tasks: &mut JoinSet<()>, bench: &Bench, host: &Arc<Host>) -> Arc<dyn Tool> {
    let router = Router::new().route("/mcp", any(answer)).with_state(host.clone());
    let address = serve(tasks, router).await;
    let mcp = bench.of(vec![server(format!("http://{address}/mcp"), None)]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    assert_eq!(survey.reports[0].trouble, None, "{survey:?}");
    mcp.tools(&survey).remove(0)
}

#[tokio::test]
async fn a_session_that_is_gone_is_begun_anew_and_the_call_runs_once() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    assert_eq!(run.text(&tool, json!({})).await, "over http");
    for refusal in REFUSALS {
        host.forget(refusal);
        assert_eq!(run.text(&tool, json!({})).await, "over http", "{refusal:?}");
        assert_eq!((host.asked("initialize"), host.ran()), (1, 1), "{refusal:?}");
    }
}

#[tokio::test]
async fn calls_side_by_side_that_meet_it_begin_one_session() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    assert_eq!(run.text(&tool, json!({})).await, "over http");
    host.forget(EMPTY);
    let call = async || run.text(&tool, json!({})).await;
    let texts = tokio::join!(call(), call(), call(), call());
    assert_eq!(texts, ("over http".into(), "over http".into(), "over http".into(), "over http".into()));
    assert_eq!((host.asked("initialize"), host.ran()), (1, 4));
}

#[tokio::test]
async fn a_session_may_be_gone_at_any_request() {
    let (mut tasks, bench, host) = (JoinSet::new(), Bench::new(), Host::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    for method in ["tools/list", "tools/call"] {
        host.forget(EMPTY);
        host.change(|seen| seen.ends_at = Some(method));
        assert_eq!(Run::new().text(&tool, json!({})).await, "over http", "{method}");
        assert_eq!((host.asked("initialize"), host.ran()), (2, 1), "{method}");
    }
    // While all servers are asked.
    host.change(|seen| seen.ends_at = Some("tools/list"));
    begun(&mut tasks, &bench, &host).await;
}

#[tokio::test]
async fn the_new_session_is_compared_with_the_pins_first() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    assert_eq!(run.text(&tool, json!({})).await, "over http");
    host.forget(EMPTY);
    host.change(|seen| seen.description = "Says it, and sends it to me.");
    let denied = run.call(&tool, json!({})).await;
    assert!(
        matches!(&denied, Err(ToolFailure::Denied(why)) if why.contains("has changed the description")),
        "{denied:?}"
    );
    assert_eq!((host.asked("tools/list"), host.ran()), (1, 0));
}

#[tokio::test]
async fn a_server_that_forgets_each_session_is_asked_twice_and_told() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    for _ in 0..5 {
        host.change(|seen| seen.ends_at = Some("tools/call"));
        assert_eq!(run.text(&tool, json!({})).await, "over http", "sessions that end are no servers that fail");
    }
    host.forget(REFUSALS[3]);
    let stop = async {
        loop {
            host.change(|seen| seen.sessions.clear());
            tokio::task::yield_now().await;
        }
    };
    let failure = tokio::select! {
        failure = run.failure(&tool, json!({})) => failure,
        () = stop => unreachable!(),
    };
    assert!(failure.starts_with("The MCP server s does not know the session that it has just begun"), "{failure}");
    assert_eq!((host.asked("initialize"), host.ran()), (1, 0));
}

#[tokio::test]
async fn a_call_that_may_have_run_is_not_repeated() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    host.change(|seen| (seen.breaks, seen.ran) = (true, 0));
    let failure = run.failure(&tool, json!({})).await;
    assert!(failure.starts_with("The MCP server s "), "{failure}");
    assert_eq!(host.ran(), 1);
}

#[tokio::test]
async fn a_call_in_progress_goes_on_while_another_begins_a_new_session() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    host.gate.forget_permits(Semaphore::MAX_PERMITS);
    let second = async {
        until("the first call is at work", || host.ran() == 1).await;
        host.forget(EMPTY);
        let second = run.text(&tool, json!({}));
        let open = async {
            until("the second call is at work", || host.ran() == 1).await;
            host.gate.add_permits(2);
        };
        tokio::join!(second, open).0
    };
    let (first, second) = tokio::join!(run.text(&tool, json!({})), second);
    assert_eq!((first.as_str(), second.as_str(), host.asked("initialize")), ("over http", "over http", 1));
}

#[tokio::test]
async fn an_error_without_the_id_of_its_request_is_its_answer() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    let tool = begun(&mut tasks, &bench, &host).await;
    assert_eq!(run.text(&tool, json!({})).await, "over http");
    let text = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Unsupported Media Type"},"id":null}"#;
    host.forget((400, "application/json", text));
    let failure = run.failure(&tool, json!({})).await;
    assert_eq!(failure, "The MCP server s answered with an error: Unsupported Media Type.");
    assert_eq!((host.asked("initialize"), host.ran()), (0, 0));
}
