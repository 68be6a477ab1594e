//! MCP servers that come after the agent has started: their tools join at the next run.

use std::sync::Arc;

use belay_protocol::{
    Ack, Control, MessageBody, PrincipalRole, Tool, ToolOff, ToolRequest, ToolStatus, ToolSwitch, ToolSwitches,
    UnixMillis,
};
use belay_testkit::faulty::{Fault, StoreOp};
use belay_testkit::scripted_model::{Scripted, ScriptedModel};
use serde_json::json;

use crate::support::{Setup, TestTool, end_of, faulty};

const READ: &str = "mcp_files_read";

fn late() -> Arc<dyn Tool> {
    Arc::new(TestTool::named("echo").called(READ).of_server("files"))
}

/// Whether each request offered the tool.
fn offered(setup: &Setup) -> Vec<bool> {
    let has = |tools: Option<Vec<String>>| tools.unwrap_or_default().iter().any(|tool| tool == READ);
    setup.model.seen().into_iter().map(|request| has(request.tools)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_tools_of_a_server_that_comes_late_join_at_the_next_run() {
    let read = |arguments| Scripted::call(READ, arguments);
    let model = ScriptedModel::new([
        Scripted::call("slow", json!({})),
        Scripted::text("first"),
        read(json!({ "text": "a" })),
        Scripted::text("second"),
        read(json!({ "path": "a" })),
        Scripted::text("third"),
    ]);
    let setup = Setup::new(model).tool(TestTool::named("slow"));
    let mut agent = setup.start().await;
    agent.reloader.show_server("files", None);
    let status = agent.one.command("alice", "/status").await;
    assert!(status.contains("The MCP server files is still starting."), "{status}");
    let first = agent.one.accepted("alice", "look around").await;
    agent.asked(1).await;
    agent.reloader.add_server("files", &[late()]).await;
    assert_eq!(agent.one.next().await, "first");
    end_of(first).await;
    assert!(!agent.one.command("alice", "/status").await.contains("files"));
    assert!(agent.one.command("alice", "/tools").await.contains(READ));
    assert_eq!(agent.one.ask("alice", "read it").await, "second");
    assert_eq!(agent.one.ask("bob", "read it").await, "third");
    assert_eq!(offered(&setup), [false, false, true, true, true, true]);
    let status = |request: usize| match &setup.model.seen()[request].messages.last().expect("a message").body {
        MessageBody::Tool(result) => result.status,
        other => panic!("{other:?}"),
    };
    assert_eq!(status(3), ToolStatus::Success);
    assert_eq!(status(5), ToolStatus::Error, "its arguments are checked like those of every tool");
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_disabled_before_it_came_is_not_offered_and_a_failed_one_is_shown() {
    let setup = Setup::new(ScriptedModel::new([Scripted::text("first"), Scripted::text("second")]));
    let mut agent = setup.start().await;
    agent.reloader.show_server("files", None);
    agent.reloader.show_server("mail", Some("has ended: exit code 3".into()));
    let status = agent.one.command("alice", "/status").await;
    assert!(status.contains("The MCP server mail has ended: exit code 3. Its tools are not offered."), "{status}");
    let Ack::Command(reply) = agent.one.text_as("bob", PrincipalRole::User, "/status").await else {
        panic!("no answer");
    };
    assert!(reply.reply.contains("The MCP server mail cannot be used. Its tools are not offered."), "{}", reply.reply);
    let Ack::Command(reply) = agent.one.text_as("bob", PrincipalRole::User, "/tools").await else {
        panic!("no answer");
    };
    assert!(reply.reply.contains("The MCP server mail cannot be used. Its tools are not offered."), "{}", reply.reply);
    assert!(!reply.reply.contains("exit code"), "{}", reply.reply);
    for (role, seen) in [(PrincipalRole::Operator, "has ended: exit code 3"), (PrincipalRole::User, "cannot be used")] {
        let Ack::Tools(tools) = agent.one.control_as(role, Control::Tools(ToolRequest::List)).await else {
            panic!("no list");
        };
        let details: Vec<_> = tools.iter().filter(|tool| tool.name == "mcp:mail").map(|tool| &*tool.detail).collect();
        assert_eq!(details, [seen]);
        let Ack::Status(status) = agent.one.control_as(role, Control::Status).await else { panic!("no status") };
        let details: Vec<_> =
            status.tools.iter().filter(|tool| tool.name == "mcp:mail").map(|tool| &*tool.detail).collect();
        assert_eq!(details, [seen]);
    }
    for _ in 0..2 {
        agent.one.next().await; // the answers to bob
    }
    let disable = ToolRequest::Disable { name: "mcp:files".into(), detail: "not today".into() };
    agent.one.control(Control::Tools(disable)).await;
    agent.reloader.add_server("files", &[late()]).await;
    assert_eq!(agent.one.ask("alice", "hello").await, "first");
    let enable = ToolRequest::Enable("mcp:files".into());
    agent.one.control(Control::Tools(enable)).await;
    assert_eq!(agent.one.ask("alice", "hello").await, "second");
    assert_eq!(offered(&setup), [false, true]);
    agent.shut_down().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_is_absent_until_the_store_says_which_of_its_tools_are_disabled() {
    let (setup, store) = faulty(ScriptedModel::new(["first", "second", "third"].map(Scripted::text)));
    let mut agent = setup.start().await;
    agent.reloader.show_server("files", None);
    // An operator has disabled it before this start, when it was there.
    let off = ToolOff {
        since: UnixMillis(1),
        until: None,
        for_s: 0,
        actor: "ops".into(),
        detail: "not today".into(),
        failures: 0,
        runs: 0,
    };
    let switch = ToolSwitch { name: READ.into(), revision: 1, off: Some(off) };
    assert!(store.switch(switch, Vec::new()).await.expect("stored"));
    store.plan().every(StoreOp::ReadSwitches, Fault::Fail);
    let (reloader, tools) = (agent.reloader.clone(), [late()]);
    let adding = async { reloader.add_server("files", &tools).await };
    let talking = async {
        assert_eq!(agent.one.ask("alice", "hello").await, "first");
        let status = agent.one.command("alice", "/status").await;
        assert!(status.contains("The MCP server files is still starting."), "{status}");
        store.plan().clear();
    };
    tokio::join!(adding, talking);
    assert_eq!(agent.one.ask("alice", "hello").await, "second");
    agent.one.control(Control::Tools(ToolRequest::Enable(READ.into()))).await;
    assert_eq!(agent.one.ask("alice", "hello").await, "third");
    assert_eq!(offered(&setup), [false, false, true]);
    agent.shut_down().await;
}
