//! Tools that a request offers once the model has asked for them.

use std::sync::atomic::Ordering;

use belay_protocol::FIND_TOOLS;
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, TestTool};

/// An agent with more tools of an MCP server than a request offers at once.
fn with_many_tools(scripts: impl IntoIterator<Item = Scripted>) -> Setup {
    let of_server = |n: usize| TestTool::named("echo").called(&format!("mcp_tracker_{n:02}")).described_by("tracker");
    (0..13).fold(Setup::new(ScriptedModel::new(scripts)), |setup, n| setup.tool(of_server(n)))
}

#[tokio::test(start_paused = true)]
async fn a_found_tool_of_a_server_acts_without_the_question_that_untrusted_content_brings() {
    let post = TestTool::named("echo").called("mcp_mail_post").writing().described_by("mail").of_outside();
    let posted = post.calls.clone();
    let setup = with_many_tools([
        Scripted::call(FIND_TOOLS, json!({"query": "post"})),
        Scripted::call(FIND_TOOLS, json!({"names": ["mcp_mail_post"]})),
        Scripted::call("mcp_mail_post", json!({"text": "hello"})),
        Scripted::text("it is sent"),
    ])
    .tool(post);
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "post it").await, "it is sent");
    assert_eq!(posted.load(Ordering::SeqCst), 1);
    let offered: Vec<_> = agent.model.seen().iter().map(|request| request.tools.clone().expect("tools")).collect();
    let has = |at: usize, name: &str| offered[at].iter().any(|tool| tool == name);
    assert!(has(0, FIND_TOOLS) && has(0, "echo") && !has(0, "mcp_mail_post"), "{:?}", offered[0]);
    assert_eq!(offered[1], offered[0], "words alone bring nothing in");
    assert!(has(2, "mcp_mail_post") && !has(2, "mcp_tracker_00"), "{:?}", offered[2]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_subagent_finds_tools_among_those_that_it_may_use() {
    let setup = with_many_tools([
        Scripted::call("spawn_subagent", json!({"task": "look"})),
        Scripted::call(FIND_TOOLS, json!({"names": ["mcp_tracker_03"]})),
        Scripted::call("mcp_tracker_03", json!({"text": "seven"})),
        Scripted::text("it says seven"),
        Scripted::text("seven"),
    ]);
    let mut agent = setup.start().await;
    assert_eq!(agent.one.ask("alice", "how many?").await, "seven");
    let seen = agent.model.seen();
    let has = |at: usize, name: &str| seen[at].tools.iter().flatten().any(|tool| tool == name);
    assert!(has(1, FIND_TOOLS) && !has(1, "mcp_tracker_03"), "{:?}", seen[1].tools);
    assert!(has(3, "mcp_tracker_03"), "{:?}", seen[3].tools);
    assert!(!has(4, "mcp_tracker_03"), "the parent has not asked: {:?}", seen[4].tools);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_disabled_tool_is_not_brought_in() {
    let setup = with_many_tools([
        Scripted::call(FIND_TOOLS, json!({"names": ["mcp_tracker_03", "mcp_tracker_04"]})),
        Scripted::text("seven"),
    ]);
    let mut agent = setup.start().await;
    agent.one.command("alice", "/tools disable mcp_tracker_03 it lies").await;
    assert_eq!(agent.one.ask("alice", "how many?").await, "seven");
    let seen = agent.model.seen();
    let has = |at: usize, name: &str| seen[at].tools.iter().flatten().any(|tool| tool == name);
    assert!(has(0, FIND_TOOLS) && !has(0, "mcp_tracker_04"), "still deferred: {:?}", seen[0].tools);
    assert!(has(1, "mcp_tracker_04") && !has(1, "mcp_tracker_03"), "{:?}", seen[1].tools);
    let said = seen[1].messages.last().expect("a result").text().to_owned();
    assert!(
        said.contains("- mcp_tracker_04: ") && said.contains("mcp_tracker_03 is disabled: an operator says"),
        "{said}"
    );
    agent.shut_down().await;
}
