//! Calls that are stopped: the server hears of it before its connection is closed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use belay_protocol::{RunProcesses, ToolFailure};
use belay_tools::RunEnds;
use belay_tools::mcp::{EndLimits, SurveyMode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http::{serve, server};
use super::support::{Bench, PATIENCE, Run, no_background, until};

/// How often a stop is tried: it is a race between tasks.
const TIMES: usize = 20;

/// For ends that no busy machine cuts short.
const UNHURRIED: EndLimits = EndLimits { close: PATIENCE, tell: PATIENCE, read: Duration::from_secs(2) };

/// What a server was asked, with the id that the request has or names.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that answers no call. `streams`: it answers with the beginning of a stream; `hangs`: it does not answer
/// notifications either.
fn deaf(asked: Asked, streams: bool, hangs: bool) -> Router {
    let handle = async move |request: Request| -> Response {
        let method = request.method().clone();
        let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
        let message: Value = serde_json::from_slice(&body).unwrap_or_default();
        let name = message["method"].as_str().unwrap_or(method.as_str()).to_owned();
        let id = message.get("id").or(message["params"].get("requestId")).cloned().unwrap_or_default();
        asked.lock().unwrap().push((name.clone(), id));
        let result = match name.as_str() {
            "initialize" => json!({
                "protocolVersion": "2025-06-18", "capabilities": { "tools": {} }, "serverInfo": { "name": "x", "version": "1" },
            }),
            "tools/list" => json!({ "tools": [{ "name": "t", "inputSchema": { "type": "object" } }] }),
            "tools/call" if streams => {
                let nothing = futures_util::stream::pending::<Result<String, std::io::Error>>();
                return ([("content-type", "text/event-stream")], Body::from_stream(nothing)).into_response();
            }
            "tools/call" => std::future::pending().await,
            "notifications/cancelled" if hangs => std::future::pending().await,
            "GET" => return StatusCode::METHOD_NOT_ALLOWED.into_response(),
            _ => return StatusCode::ACCEPTED.into_response(),
        };
        let answer = axum::Json(json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }));
        ([("mcp-session-id", "1")], answer).into_response()
    };
    Router::new().route("/mcp", any(handle))
}

fn named(asked: &Asked, name: &str) -> Vec<Value> {
    asked.lock().unwrap().iter().filter(|(asked, _)| asked == name).map(|(_, id)| id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_tells_a_server_over_http_of_its_calls_before_the_session_ends() {
    for streams in [false, true] {
        let bench = Bench::with(|sessions| sessions.with_end_limits(UNHURRIED));
        let (mut tasks, asked) = (JoinSet::new(), Asked::default());
        let address = serve(&mut tasks, deaf(asked.clone(), streams, false)).await;
        let mcp = bench.of(vec![server(format!("http://{address}/mcp"), None)]);
        let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
        let (tools, ends) =
            (mcp.tools(&survey), RunEnds::new(bench.processes.clone(), bench.sessions.clone(), no_background()));
        for _ in 0..TIMES {
            let run = Run::new();
            asked.lock().unwrap().clear();
            let stop = async {
                until("both calls are at work", || named(&asked, "tools/call").len() == 2).await;
                run.generation.end();
                run.cancel.cancel();
                ends.end(run.id).await;
            };
            let call = async || run.call(&tools[0], json!({})).await;
            let (one, two, ()) = tokio::join!(call(), call(), stop);
            assert_eq!((one, two), (Err(ToolFailure::Cancelled), Err(ToolFailure::Cancelled)));
            let sorted = |name| {
                let mut ids = named(&asked, name);
                ids.sort_by_key(Value::to_string);
                ids
            };
            assert_eq!(sorted("notifications/cancelled"), sorted("tools/call"), "streams: {streams}");
            let asked = asked.lock().unwrap();
            assert_eq!(asked.last().map(|(name, _)| name.as_str()), Some("DELETE"), "{asked:?}");
        }
    }
}

#[tokio::test]
async fn a_call_over_http_that_reaches_its_limit_is_told_although_its_run_ends() {
    let bench = Bench::with(|sessions| sessions.with_end_limits(UNHURRIED));
    let (mut tasks, asked) = (JoinSet::new(), Asked::default());
    let address = serve(&mut tasks, deaf(asked.clone(), false, false)).await;
    let config = json!({ "url": format!("http://{address}/mcp"), "timeout_s": 1 });
    let mcp = bench.mcp(&[("s".to_owned(), serde_json::from_value(config).unwrap())]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let run = Run::new();
    let failure = run.failure(&mcp.tools(&survey)[0], json!({})).await;
    assert!(failure.contains("gave no answer within 1 s"), "{failure}");
    bench.sessions.end_run(run.id).await;
    assert_eq!(named(&asked, "notifications/cancelled"), named(&asked, "tools/call"));
}

#[tokio::test]
async fn a_server_that_does_not_listen_does_not_hold_up_the_stop() {
    let limits = EndLimits { close: PATIENCE, ..EndLimits::default() };
    let bench = Bench::with(|sessions| sessions.with_end_limits(limits));
    let (mut tasks, asked) = (JoinSet::new(), Asked::default());
    let address = serve(&mut tasks, deaf(asked.clone(), false, true)).await;
    let mcp = bench.of(vec![server(format!("http://{address}/mcp"), None)]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let (tools, run) = (mcp.tools(&survey), Run::new());
    let stop = async {
        until("the call is at work", || named(&asked, "tools/call").len() == 1).await;
        run.cancel.cancel();
        timeout(2 * PATIENCE, bench.sessions.end_run(run.id)).await.unwrap();
    };
    let (output, ()) = tokio::join!(run.call(&tools[0], json!({})), stop);
    assert_eq!((output, bench.sessions.open()), (Err(ToolFailure::Cancelled), 0));
    until("the session is ended all the same", || named(&asked, "DELETE").len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_tells_a_program_of_its_call_before_it_is_ended() {
    let bench = Bench::with(|sessions| sessions.with_end_limits(UNHURRIED));
    // It is asked to end at the same time, and reads on.
    let script = r#"
signal.signal(signal.SIGTERM, lambda *_: None)
serve([tool("t")], lambda message: note("called"))
"#;
    let tools = bench.one(script, json!({})).await;
    let ends = RunEnds::new(bench.processes.clone(), bench.sessions.clone(), no_background());
    for times in 1..=2 {
        let run = Run::new();
        let stop = async {
            until("the call is at work", || bench.notes().len() == 2 * times - 1).await;
            run.generation.end();
            run.cancel.cancel();
            ends.end(run.id).await;
        };
        let (output, ()) = tokio::join!(run.call(&tools[0], json!({})), stop);
        assert_eq!(output, Err(ToolFailure::Cancelled));
        assert_eq!(bench.notes(), ["called", "cancelled"].repeat(times));
    }
}
