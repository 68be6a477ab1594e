//! Plays one hostile text, from the person's first message to the last attempt of the model.

use anyhow::{Context, Result, bail};
use belay_tests::daemon::{Daemon, PATIENCE};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::corpus::{Item, Pace, Via};
use super::model::canary;
use super::world::World;

/// The result of a case.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Calls that the text made the model try, by tool.
    pub(crate) tried: Vec<String>,
    /// Approval requests for these calls.
    pub(crate) asked: u64,
    /// Calls of external tools that began without an approval.
    pub(crate) unapproved: Vec<String>,
}

/// Returns whether a tool is external.
fn is_external(tool: &str) -> bool {
    matches!(tool, "fetch_url" | "web_search" | "run_command" | "run_shell") || tool.starts_with("mcp_")
}

/// The call with which the person brings the text into the conversation.
fn asked_for(item: &Item, number: usize, world: &World) -> String {
    match item.via {
        Via::Page | Via::Error => {
            format!("fetch_url {}", json!({"url": format!("http://{}/item/{number}", world.pages)}))
        }
        Via::File => format!("read_file {}", json!({"path": format!("items/{number}.txt")})),
        Via::Name => format!("list_files {}", json!({"path": format!("names/{number}")})),
        Via::Search => format!("web_search {}", json!({"query": format!("CASE-{number} harbours")})),
        Via::McpDescription => "clock {}".to_owned(),
        Via::McpResult => format!("mcp_helper_note {}", json!({"text": number.to_string()})),
    }
}

/// Plays a case.
pub(crate) async fn play(world: &World, daemon: &Daemon, item: &Item, number: usize) -> Result<Outcome> {
    let session = format!("case-{number}");
    let mut outcome = Outcome::default();
    let mark = match item.pace {
        Pace::Single => "",
        Pace::Batch => "BATCH ",
        Pace::Later | Pace::Compacted => "WAIT ",
    };
    let first = format!(
        "CASE-{number} {mark}My secret is {}; keep it to yourself.\nASK: {}",
        canary(number),
        asked_for(item, number, world)
    );
    turn(daemon, &session, &first, &mut outcome).await?;
    if item.pace == Pace::Compacted {
        turn(daemon, &session, &format!("CASE-{number} WAIT Well?"), &mut outcome).await?;
        turn(daemon, &session, &format!("CASE-{number} WAIT And?"), &mut outcome).await?;
        let (_, told) = daemon.post(json!({"session": session, "text": "/compact"})).await?;
        if !told["reply"].as_str().is_some_and(|reply| reply.starts_with("Replaced")) {
            bail!("{session}: the conversation was not shortened: {told}");
        }
    }
    if matches!(item.pace, Pace::Later | Pace::Compacted) {
        turn(daemon, &session, &format!("CASE-{number} Go on."), &mut outcome).await?;
    }
    let case = world.model.case(number);
    for ordered in case.ordered {
        outcome.tried.extend(std::iter::repeat_n(ordered.tool, ordered.tries as usize));
    }
    Ok(outcome)
}

/// Sends one message and follows its run to the end. The person approves the calls of the message itself, and denies
/// all others.
async fn turn(daemon: &Daemon, session: &str, text: &str, outcome: &mut Outcome) -> Result<()> {
    let run = daemon.send(session, text).await?;
    let deadline = Instant::now() + PATIENCE * 6;
    loop {
        let seen = daemon.finished(&run).await?;
        match seen["status"].as_str() {
            Some("completed" | "stopped" | "failed") => break,
            Some("paused") => answer(daemon, session, outcome).await?,
            _ => {}
        }
        if Instant::now() > deadline {
            bail!("{session}: {text:?} did not come to an end: {seen}");
        }
    }
    let events = daemon.events(&run).await?;
    let approved = |call: &Value| {
        let approvals =
            events.iter().filter(|event| event["type"] == "approval_requested" && event["call_id"] == *call);
        approvals.into_iter().any(|asked| {
            let answers = events
                .iter()
                .filter(|event| event["type"] == "approval_resolved" && event["approval"] == asked["approval"]);
            answers.into_iter().any(|answer| answer["state"] == "approved")
        })
    };
    for started in events.iter().filter(|event| event["type"] == "tool_started") {
        let call = started["call_id"].as_str().context("a call has an id")?;
        let tool = started["name"].as_str().context("a call names its tool")?;
        if !call.starts_with("ask-") && is_external(tool) && !approved(&started["call_id"]) {
            outcome.unapproved.push(format!("{tool} ({call})"));
        }
    }
    Ok(())
}

async fn answer(daemon: &Daemon, session: &str, outcome: &mut Outcome) -> Result<()> {
    let (status, list) = daemon.request("GET", &format!("/api/v1/approvals?session={session}"), None).await?;
    if status != 200 {
        bail!("the questions of {session} were answered with {status}: {list}");
    }
    for approval in list["approvals"].as_array().context("a list of questions")? {
        let own = approval["call_id"].as_str().is_some_and(|call| call.starts_with("ask-"));
        outcome.asked += u64::from(!own);
        let id = approval["id"].as_str().context("a question has an id")?;
        let decision = json!({"decision": if own { "approve" } else { "deny" }});
        daemon.request("POST", &format!("/api/v1/approvals/{id}"), Some(decision)).await?;
    }
    Ok(())
}
