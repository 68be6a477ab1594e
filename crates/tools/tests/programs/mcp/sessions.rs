//! Sessions of servers over HTTP that end: begun anew, and no call runs twice.

use std::sync::Arc;

use axum::Router;
use axum::routing::any;
use belay_protocol::{Tool, ToolFailure};
use belay_tools::mcp::SurveyMode;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::http::{serve, server};
use super::session_host::{EMPTY, Host, REFUSALS, answer};
use super::support::{Bench, Run, until};

/// A server that is running, and its tool.
pub(super) async fn begun(tasks: &mut JoinSet<()>, bench: &Bench, host: &Arc<Host>) -> Arc<dyn Tool> {
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
    // The stream for notifications, which is opened beside the first requests.
    host.forget(EMPTY);
    host.change(|seen| seen.ends_at = Some("GET"));
    assert_eq!(Run::new().text(&tool, json!({})).await, "over http");
    assert_eq!((host.asked("initialize") <= 2, host.ran()), (true, 1));
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
    host.change(|seen| seen.breaks = false);
    // A tool may speak of sessions of its own: of a browser, a shell, a terminal.
    let ours = r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Session not found"}}"#;
    let foreign = r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32000,"message":"Session not found"}}"#;
    let nobody = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Session not found"}}"#;
    for (status, text) in
        [200, 500, 502, 422].into_iter().flat_map(|status| [ours, foreign, nobody].map(|text| (status, text)))
    {
        assert_eq!(run.text(&tool, json!({})).await, "over http");
        let begun = host.asked("initialize");
        host.change(|seen| (seen.ran, seen.fails) = (0, Some((status, "application/json", text))));
        let failure = run.failure(&tool, json!({})).await;
        assert_eq!(failure, "The MCP server s answered with an error: Session not found.", "{status} {text}");
        host.change(|seen| seen.fails = None);
        assert_eq!(run.text(&tool, json!({})).await, "over http");
        assert_eq!((host.asked("initialize"), host.ran()), (begun, 2), "{status} {text}");
    }
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
