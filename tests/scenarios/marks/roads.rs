//! Roads by which stored texts reach people: routes, commands of the program, commands in a conversation.

use anyhow::Result;
use belay_tests::model_server::Answer;
use serde_json::json;

use super::world::{Roads, World};

/// Routes of a run; `true`: they show the content of each run here.
const OF_RUN: [(&str, bool); 4] = [("", true), ("/events", true), ("/stream", true), ("/trajectory", true)];

/// Routes of a session.
const OF_SESSION: [(&str, bool); 4] = [
    ("/messages", false),
    ("/threads", false),
    ("/export?format=markdown", true),
    ("/export?format=jsonl&threads=all", true),
];

/// Routes of the daemon.
const ROUTES: [(&str, bool); 12] = [
    ("/api/v1/runs?limit=100", true),
    ("/api/v1/search?q=gate", false),
    ("/api/v1/sessions?limit=100", false),
    ("/api/v1/approvals?all=true", false),
    ("/api/v1/jobs", false),
    ("/api/v1/routine-runs", false),
    ("/api/v1/memory", false),
    ("/api/v1/tools", false),
    ("/api/v1/status", false),
    ("/api/v1/ends", false),
    ("/api/v1/costs", false),
    ("/metrics", false),
];

/// Commands of the program.
const COMMANDS: [(&[&str], bool); 13] = [
    (&["logs", "-n", "500"], true),
    (&["logs", "-n", "500", "--json"], true),
    (&["runs", "--limit", "100"], false),
    (&["runs", "--json"], true),
    (&["sessions"], false),
    (&["sessions", "search", "read"], false),
    (&["approvals", "--all"], false),
    (&["jobs"], false),
    (&["tools"], false),
    (&["tools", "show", "read_file"], false),
    (&["status"], false),
    (&["top", "--once"], false),
    (&["memory", "export"], false),
];

/// Sessions in which an error, the thinking or the beginning of an answer has the content, which not each road shows.
const ASIDE: [&str; 3] = ["refused", "thinks", "stopped"];

/// Commands in a conversation.
const CHAT: [&str; 7] = ["/status", "/sessions", "/tools", "/jobs", "/plan", "/goal", "/routine"];

/// Reads what is stored on every road.
pub(super) async fn stored(w: &World, roads: &mut Roads) -> Result<()> {
    for (route, says) in ROUTES {
        see(w, roads, route, says).await?;
    }
    for (session, run) in &w.runs {
        let has_answer = !ASIDE.contains(&session.as_str());
        for (route, says) in OF_RUN {
            see(w, roads, &format!("/api/v1/runs/{run}{route}"), says && has_answer).await?;
        }
        for (route, says) in OF_SESSION {
            see(w, roads, &format!("/api/v1/sessions/{session}{route}"), says && has_answer).await?;
        }
        for (args, says) in [
            (["runs", "show", run], true),
            (["stops", "check", run], false),
            (["sessions", "show", session], false),
            (["sessions", "export", session], true),
        ] {
            let args: Vec<&str> = if args[0] == "stops" { vec!["stops", "check", "--run", run] } else { args.to_vec() };
            printed(w, roads, &args, says && has_answer).await?;
        }
    }
    for (args, says) in COMMANDS {
        printed(w, roads, args, says).await?;
    }
    for command in CHAT {
        roads.clean(command, w.command("reads", command).await?);
    }
    Ok(())
}

async fn see(w: &World, roads: &mut Roads, route: &str, says: bool) -> Result<()> {
    let (status, read) = w.daemon.request("GET", route, None).await?;
    if status != 200 {
        roads.fault(route, read);
    } else if says {
        roads.says(route, read)
    } else {
        roads.clean(route, read)
    }
    Ok(())
}

async fn printed(w: &World, roads: &mut Roads, args: &[&str], says: bool) -> Result<()> {
    let printed = w.home.run(args, "").await?;
    let is_open = printed.status.success();
    let (road, text) = (args.join(" "), printed.stdout + &printed.stderr);
    if !is_open {
        roads.fault(road, text);
    } else if says {
        roads.says(road, text)
    } else {
        roads.clean(road, text)
    }
    Ok(())
}

/// Lines of a daemon that reads its standard input.
pub(super) async fn standard_input(w: &mut World, roads: &mut Roads) -> Result<()> {
    w.model.then(Answer::call("read_file", json!({"path": "page.txt"})));
    w.daemon.type_line("look at the gate").await?;
    roads.says("standard output", w.daemon.printed("there.").await?.join("\n"));
    Ok(())
}
