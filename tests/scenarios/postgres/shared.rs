//! What is a file of one daemon, at two nodes of a cluster: long outputs of tools, and approved MCP tools.

use anyhow::{Context, Result};
use belay_testkit::postgres::{PostgresServer, Programs, TestDatabase};
use belay_tests::daemon::{Home, Output};
use belay_tests::model_server::{Answer, ModelServer};
use serde_json::{Value, json};

/// A server with one tool, which returns 100,000 bytes.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}},
        "tools/list": {"tools": [{"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "".join(f"{n:09}\n" for n in range(10000))}]},
    }
    if message.get("method") in results:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": results[message["method"]]}), flush=True)
"#;

/// A node with this name.
fn node(name: &str, url: &str, shared: &std::path::Path, model: &ModelServer) -> Home {
    let (workspace, server) = (shared.join("workspace"), shared.join("server.py"));
    let settings = format!(
        "[cluster]\nenabled = true\nname = \"{name}\"\n[channels.stdin]\nenabled = false\n\
         [tools]\nworkspace = {workspace:?}\n\
         [tools.mcp.files]\ncommand = [\"python3\", {server:?}]\nsandbox = false\ntrust = \"approved\"\napproval = \"never\"\n"
    );
    // The output is not summarized: the calls of the model are scripted.
    Home::new().openai(&model.base_url).set("llm.context_tokens", 1_000_000).store(url).settings(&settings)
}

/// The standing of the tool.
async fn standing(home: &Home) -> Result<Value> {
    let listed = home.run(&["mcp", "list", "--json"], "").await?;
    assert!(listed.status.success(), "{listed:?}");
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    Ok(listed["servers"][0]["tools"][0]["standing"].clone())
}

/// The text of the newest result of a tool that the model has seen.
fn newest_result(model: &ModelServer) -> Result<String> {
    let requests = model.requests();
    // The newest request may be one for a title.
    let result = requests
        .iter()
        .rev()
        .find_map(|request| request["messages"].as_array()?.iter().rev().find(|message| message["role"] == "tool"));
    let result = result.context("a result")?;
    Ok(result["content"].as_str().context("a text")?.to_owned())
}

#[tokio::test]
async fn a_tool_that_is_approved_at_one_node_and_its_long_output_are_known_at_the_other() -> Result<()> {
    let Some(programs) = Programs::for_test()? else { return Ok(()) };
    let database = TestDatabase::new(PostgresServer::shared(&programs)?)?;
    let (url, shared) = (format!("{}?sslmode=disable", database.url()), tempfile::tempdir()?);
    std::fs::write(shared.path().join("server.py"), SERVER)?;
    let model = ModelServer::start(Vec::new(), Answer::text("done")).await;
    let [a, b] = ["a", "b"].map(|name| node(name, &url, shared.path(), &model));

    let check = |output: &Output, words: &str| assert!(format!("{output:?}").contains(words), "{output:?}");
    check(&a.run(&["mcp", "list"], "").await?, "the database of the cluster has no tables yet");
    check(&a.run(&["check"], "").await?, "the first node creates them");
    let first = a.start().await?;
    std::fs::create_dir_all(b.path().join("data/belay"))?;
    std::fs::copy(a.path().join("data/belay/secret.key"), b.path().join("data/belay/secret.key"))?;
    assert_eq!((standing(&a).await?, standing(&b).await?), (json!("new"), json!("new")));
    let approved = b.run(&["mcp", "approve", "files", "count"], "").await?;
    assert!(approved.status.success() && approved.stdout.starts_with("approved count: Counts."), "{approved:?}");
    assert_eq!((standing(&a).await?, standing(&b).await?), (json!("offered"), json!("offered")));

    // The second node offers the tool, and keeps its output.
    let second = b.start().await?;
    model.then(Answer::call("mcp_files_count", json!({})));
    assert_eq!(second.ask("alice", "count").await?["reply"], "done");
    let result = newest_result(&model)?;
    let (_, name) = result.split_once("under the name ").with_context(|| result.clone())?;
    let name = name.split(']').next().context("a name")?.to_owned();
    second.shut_down().await?;

    // The first one reads it in the same conversation.
    model.then(Answer::call("read_output", json!({ "name": name, "offset": 50_000, "limit": 20 })));
    assert_eq!(first.ask("alice", "and then?").await?["reply"], "done");
    let result = newest_result(&model)?;
    assert!(result.contains("bytes 50000 to 50020 of 100000]\n000005000\n000005001\n"), "{result}");
    for home in [&a, &b] {
        let data = home.path().join("data/belay");
        assert!(!data.join("outputs").exists() && !data.join("mcp-pins.json").exists(), "{data:?}");
    }

    // A deleted conversation takes its outputs with it.
    assert_eq!(database.sql("SELECT count(*) FROM belay.kept_outputs")?.trim(), "1");
    let deleted = first.request("DELETE", "/api/v1/sessions/alice", None).await?;
    assert_eq!(deleted.0, 200, "{deleted:?}");
    assert_eq!(database.sql("SELECT count(*) FROM belay.kept_outputs")?.trim(), "0");
    first.shut_down().await?;
    Ok(())
}
