//! A server that uses one transport for all sessions: it takes the first one and refuses all others.

use serde_json::json;
use tokio::task::JoinSet;

use super::session_host::{EMPTY, Host, Refusal};
use super::sessions::begun;
use super::support::{Bench, Run};

/// The refusal of the SDK for TypeScript.
const REFUSAL: Refusal = (
    400,
    "application/json",
    r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request: Server already initialized"},"id":null}"#,
);

#[tokio::test]
async fn a_server_with_one_transport_is_named_as_the_cause_and_a_restart_lets_one_client_in() {
    let (mut tasks, bench, host, run) = (JoinSet::new(), Bench::new(), Host::new(), Run::new());
    host.change(|seen| seen.refuses_more = Some(REFUSAL));
    let tool = begun(&mut tasks, &bench, &host).await; // the session in which it is asked for its tools
    let failure = run.failure(&tool, json!({})).await;
    let cause =
        "The MCP server s takes one session in its life and has had it (already initialized): it uses one transport";
    assert!(failure.starts_with(cause) && failure.lines().count() == 1, "{failure}");
    assert_eq!(host.ran(), 0);
    host.forget(EMPTY);
    assert_eq!(Run::new().text(&tool, json!({})).await, "over http", "after a restart");
}
