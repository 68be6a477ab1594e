//! The official Python SDK as the other side, over standard input and output, and over streamable HTTP.
//!
//! `cargo test` leaves these out: `tests/run.py` installs the SDK, names its Python in `BELAY_MCP_PYTHON`, and runs them.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use belay_protocol::{Secret, Tool, ToolFailure};
use belay_tools::mcp::{Mcp, McpServerConfig, Server, ServerInputs, SurveyMode};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::support::{Bench, Run, is_alive, offered, until};

const TOKEN: &str = "token-of-the-interoperability-test";

fn python() -> String {
    std::env::var("BELAY_MCP_PYTHON").expect("BELAY_MCP_PYTHON names a Python with the official SDK: see tests/run.py")
}

fn script() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/mcp/official_server.py").to_str().unwrap().to_owned()
}

fn server(settings: Value, token: Option<&str>) -> Server {
    let config: McpServerConfig = serde_json::from_value(settings).unwrap();
    let token = token.map(|token| Secret::new(token.to_owned()));
    let variable = |name: &str| std::env::var_os(name);
    Server::new(
        "official",
        &config,
        ServerInputs { directory: Path::new("/"), variable: &variable, token, client_secret: None },
    )
    .unwrap()
}

fn over_pipes() -> Server {
    server(json!({ "command": [python(), script(), "stdio"], "sandbox": false }), None)
}

/// A server over HTTP, killed when it is dropped, and its address.
async fn over_http() -> (Child, String) {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default(); // another test may have been first
    let mut command = Command::new(python());
    command.args([&script(), "http", TOKEN]).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let port = lines.next_line().await.unwrap().expect("a port");
    (child, format!("http://127.0.0.1:{port}/mcp"))
}

async fn tools(mcp: &Mcp) -> Vec<Arc<dyn Tool>> {
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    assert_eq!(survey.reports[0].trouble, None, "{survey:?}");
    let names = ["add", "where", "fail", "sleep"].map(|name| format!("mcp_official_{name}"));
    assert_eq!(offered(mcp, &survey), names, "{survey:?}");
    mcp.tools(&survey)
}

/// What every server has to do, whatever the way to it.
async fn works(bench: &Bench, tools: &[Arc<dyn Tool>]) {
    let [add, whereabouts, fail, sleep] = tools else { panic!("four tools") };
    assert_eq!(add.spec().schema["required"], json!(["a", "b"]));
    assert!(add.spec().idempotent);
    let run = Run::new();
    assert_eq!(run.text(add, json!({ "a": 17, "b": 23 })).await, "40");
    let pid: Value = serde_json::from_str(&run.text(whereabouts, json!({})).await).unwrap();
    assert!(pid["pid"].is_u64(), "{pid}");
    let failure = run.failure(fail, json!({ "why": "no reason" })).await;
    assert!(failure.contains("no reason") || failure.contains("fail"), "{failure}");

    let file = bench.path("slept");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    let cancel = async {
        until("it sleeps", || read() == "began").await;
        run.cancel.cancel();
    };
    let (output, ()) = tokio::join!(run.call(sleep, json!({ "file": file })), cancel);
    assert_eq!(output, Err(ToolFailure::Cancelled));
    until("the server has cancelled its work", || read() == "cancelled").await;
}

#[tokio::test]
#[ignore = "needs the official Python SDK: make test runs it"]
async fn over_standard_input_and_output() {
    let bench = Bench::new();
    let mcp = bench.of(vec![over_pipes()]);
    let tools = tools(&mcp).await;
    works(&bench, &tools).await;
    bench.sessions.close().await;
}

#[tokio::test]
#[ignore = "needs the official Python SDK: make test runs it"]
async fn its_process_goes_with_the_run() {
    let bench = Bench::new();
    let mcp = bench.of(vec![over_pipes()]);
    let tools = tools(&mcp).await;
    let run = Run::new();
    let pid: Value = serde_json::from_str(&run.text(&tools[1], json!({})).await).unwrap();
    let pid = pid["pid"].to_string();
    assert!(is_alive(&pid));
    bench.sessions.end_run(run.id).await;
    until("it is gone", || !is_alive(&pid)).await;
}

#[tokio::test]
#[ignore = "needs the official Python SDK: make test runs it"]
async fn over_http_with_a_token() {
    let (_child, url) = over_http().await;
    let bench = Bench::new();
    let mcp = bench.of(vec![server(json!({ "url": url }), Some(TOKEN))]);
    let tools = tools(&mcp).await;
    works(&bench, &tools).await;
    bench.sessions.close().await;
}

#[tokio::test]
#[ignore = "needs the official Python SDK: make test runs it"]
async fn over_http_with_a_wrong_token() {
    let (_child, url) = over_http().await;
    let bench = Bench::new();
    let mcp = bench.of(vec![server(json!({ "url": url }), Some("wrong"))]);
    let survey = mcp.survey(SurveyMode::ToUse).await.unwrap();
    let trouble = survey.reports[0].trouble.as_deref().unwrap_or_default();
    assert!(trouble.starts_with("does not let us in"), "{trouble}");
}

#[tokio::test]
#[ignore = "needs the official Python SDK: make test runs it"]
async fn a_server_over_http_that_goes_away_is_a_failure_of_the_call() {
    let (child, url) = over_http().await;
    let bench = Bench::new();
    let mcp = bench.of(vec![server(json!({ "url": url, "timeout_s": 5 }), Some(TOKEN))]);
    let tools = tools(&mcp).await;
    let run = Run::new();
    assert_eq!(run.text(&tools[0], json!({ "a": 1, "b": 2 })).await, "3");
    drop(child);
    let failure = run.failure(&tools[0], json!({ "a": 1, "b": 2 })).await;
    assert!(failure.starts_with("The MCP server official "), "{failure}");
}
