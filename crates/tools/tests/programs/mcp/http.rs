//! Servers over HTTP that misbehave; the official SDK's is in `official.rs`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use belay_protocol::{RunProcesses, Secret};
use belay_tools::RunEnds;
use belay_tools::mcp::{Server, ServerInputs, SurveyMode};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::support::{Bench, Run, no_background, offered};

/// Serves until the set is dropped.
pub(super) async fn serve(tasks: &mut JoinSet<()>, router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

pub(super) fn server(url: String, token: Option<&str>) -> Server {
    // Another test of this process may have chosen it before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = serde_json::from_value(json!({ "url": url, "timeout_s": 5 })).unwrap();
    let token = token.map(|token| Secret::new(token.to_owned()));
    let surroundings = ServerInputs { directory: Path::new("/"), variable: &|_| None, token, client_secret: None };
    Server::new("s", &config, surroundings).unwrap()
}

async fn trouble(url: String) -> String {
    let bench = Bench::new();
    let mcp = bench.of(vec![server(url, Some("hush"))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    survey.reports[0].trouble.clone().unwrap_or_default()
}

/// The stream of the old transport, which stays open.
async fn old() -> Response {
    let first =
        futures_util::stream::iter([Ok::<_, std::io::Error>(": hello\n\nevent: endpoint\ndata: /messages?id=1\n\n")]);
    let body = Body::from_stream(first.chain(futures_util::stream::pending()));
    ([(header::CONTENT_TYPE, "text/event-stream; charset=utf-8")], body).into_response()
}

#[tokio::test]
async fn each_way_to_misbehave_is_told_apart() {
    let mut tasks = JoinSet::new();
    let answer = |status: u16, kind: &'static str, body: &'static str| {
        let status = StatusCode::from_u16(status).unwrap();
        any(async move || (status, [(header::CONTENT_TYPE, kind)], body))
    };
    let router = Router::new()
        .route("/401", any(async || (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")])))
        .route("/401-bare", answer(401, "text/plain", "no"))
        .route("/403", answer(403, "text/plain", "no"))
        .route("/500", answer(500, "text/plain", "oh"))
        .route("/html", answer(200, "text/html", "<p>hello"))
        .route("/broken", answer(200, "application/json", "{"))
        .route("/sse", get(old))
        .route("/sse-404", get(old).post(async || StatusCode::NOT_FOUND))
        .route(
            "/sse-400",
            get(old).post(async || (StatusCode::BAD_REQUEST, [(header::CONTENT_TYPE, "application/json")], "{}")),
        )
        .route("/events", get(async || ([(header::CONTENT_TYPE, "text/event-stream")], "event: other\ndata: /x\n\n")))
        .route(
            "/never",
            any(async || {
                Response::new(Body::from_stream(futures_util::stream::pending::<Result<String, std::io::Error>>()))
            }),
        );
    let address = serve(&mut tasks, router).await;
    for (path, expected) in [
        ("/401", "does not let us in"),
        ("/401-bare", "does not let us in"),
        ("/403", "does not let us in"),
        ("/404", "cannot be reached: "),
        ("/500", "cannot be reached: "),
        ("/html", "cannot be reached: "),
        ("/broken", "cannot be reached: "),
        ("/sse", "speaks only the old transport of MCP 2024-11-05, HTTP+SSE, which Belay does not. Set its address"),
        ("/sse-404", "speaks only the old transport"),
        ("/sse-400", "speaks only the old transport"),
        ("/events", "cannot be reached: "),
        ("/never", "cannot be reached: "),
    ] {
        let trouble = trouble(format!("http://{address}{path}")).await;
        assert!(trouble.starts_with(expected) && !trouble.contains("hush"), "{path}: {trouble}");
    }
    drop(tasks);
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    assert!(trouble(format!("http://{closed}/")).await.starts_with("cannot be reached: "));
}

#[tokio::test]
async fn a_redirect_to_somebody_else_is_not_followed() {
    let mut tasks = JoinSet::new();
    let reached = Arc::new(AtomicUsize::new(0));
    let count = reached.clone();
    let elsewhere = Router::new().fallback(any(async move || {
        count.fetch_add(1, Ordering::SeqCst);
        StatusCode::OK
    }));
    let elsewhere = serve(&mut tasks, elsewhere).await;
    let router = Router::new()
        .route(
            "/away",
            any(async move || (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, format!("http://{elsewhere}/"))])),
        )
        .route("/round", any(async || (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, "/round")])));
    let address = serve(&mut tasks, router).await;
    for path in ["/away", "/round"] {
        let trouble = trouble(format!("http://{address}{path}")).await;
        assert!(trouble.starts_with("cannot be reached: ") && trouble.contains("307"), "{path}: {trouble}");
    }
    assert_eq!(reached.load(Ordering::SeqCst), 0);
}

/// A small server that answers with JSON, or with the status that a call asks for, and keeps what it was asked and with
/// which token.
fn small(asked: Arc<Mutex<Vec<(String, String)>>>) -> Router {
    Router::new().route(
        "/mcp",
        any(async move |request: Request| -> Response {
            let token = request.headers().get(header::AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
            let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
            let Ok(message) = serde_json::from_slice::<Value>(&body) else { return StatusCode::METHOD_NOT_ALLOWED.into_response() };
            let method = message["method"].as_str().unwrap_or_default().to_owned();
            asked.lock().unwrap().push((method.clone(), token.unwrap_or_default()));
            let result = match method.as_str() {
                "initialize" => json!({
                    "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "x", "version": "1" },
                }),
                "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object", "properties": { "status": {} } } }] }),
                "tools/call" => match message["params"]["arguments"]["status"].as_u64() {
                    Some(status) => return StatusCode::from_u16(status as u16).unwrap().into_response(),
                    None => json!({ "content": [{ "type": "text", "text": "over http" }] }),
                },
                _ => return StatusCode::ACCEPTED.into_response(),
            };
            let answer = axum::Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
            ([("mcp-session-id", "1")], answer).into_response()
        }),
    )
}

#[tokio::test]
async fn a_server_behind_an_address_is_called_with_its_token_and_once_for_each_run() {
    let mut tasks = JoinSet::new();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let address = serve(&mut tasks, small(asked.clone())).await;
    let bench = Bench::new();
    let mcp = bench.of(vec![server(format!("http://{address}/mcp"), Some("hush"))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    assert_eq!(offered(&mcp, &survey), ["mcp_s_t"]);
    let tools = mcp.tools(&survey);
    let (one, two) = (Run::new(), Run::new());
    for run in [&one, &one, &two] {
        assert_eq!(run.text(&tools[0], json!({})).await, "over http");
    }
    let ends = RunEnds::new(bench.processes.clone(), bench.sessions.clone(), no_background());
    let alive = |run: &Run| ends.alive(run.id).into_iter().map(|still| still.what).collect::<Vec<_>>();
    assert_eq!(alive(&one), ["mcp server s, elsewhere"]);
    ends.end(one.id).await;
    assert_eq!((alive(&one), alive(&two).len(), bench.sessions.open()), (vec![], 1, 1));
    bench.sessions.close().await;

    let asked = asked.lock().unwrap();
    let count = |method: &str| asked.iter().filter(|(found, _)| found == method).count();
    assert_eq!([count("initialize"), count("tools/list"), count("tools/call")], [3, 3, 3]);
    assert!(asked.iter().all(|(_, token)| token == "Bearer hush"), "{asked:?}");
}

#[tokio::test]
async fn a_busy_server_keeps_its_session_and_one_that_refuses_each_session_is_told() {
    let mut tasks = JoinSet::new();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let address = serve(&mut tasks, small(asked.clone())).await;
    let bench = Bench::new();
    let mcp = bench.of(vec![server(format!("http://{address}/mcp"), None)]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let (tools, run) = (mcp.tools(&survey), Run::new());
    let begun = || asked.lock().unwrap().iter().filter(|(method, _)| method == "initialize").count();
    for (status, begun_then, words) in
        [(500, 2, "cannot be reached: "), (404, 4, "does not know the session that it has just begun.")]
    {
        let failure = run.failure(&tools[0], json!({ "status": status })).await;
        assert!(failure.starts_with(&format!("The MCP server s {words}")), "{failure}");
        assert!(!failure.contains(&address.to_string()), "{failure}");
        assert_eq!(run.text(&tools[0], json!({})).await, "over http");
        assert_eq!(begun(), begun_then, "{status}");
    }
}
