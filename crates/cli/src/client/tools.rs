//! `belay tools`: the tools that runs can call, and their health.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::{Value as Json, json};

use super::{Client, duration_text, number, since, text, until};
use crate::args::{ClientArgs, ToolsCommand};

/// Longest description in the list, in characters.
const DESCRIBED: usize = 60;

/// Runs another subcommand than the list.
pub async fn one(command: &ToolsCommand, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match command {
        ToolsCommand::List(client) => list(client, env, out).await,
        ToolsCommand::Show { client, name } => show(client, name, env, out).await,
        ToolsCommand::Disable { client, name, detail: why } => {
            let path = ["api", "v1", "tools", name, "disable"];
            let why = json!({ "detail": why });
            switched(Client::find(client, env)?.post(&path, Some(&why), Duration::ZERO).await?, client, out)
        }
        ToolsCommand::Enable { client, name } => {
            let path = ["api", "v1", "tools", name, "enable"];
            switched(Client::find(client, env)?.post(&path, None, Duration::ZERO).await?, client, out)
        }
    }
}

/// Lists all tools by name.
pub async fn list(args: &ClientArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = Client::find(args, env)?.get(&["api", "v1", "tools"], &[]).await?;
    if args.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    match tools(&answer) {
        [] => out.line("no tools"),
        tools => out.table(&std::iter::once(head()).chain(tools.iter().map(row)).collect::<Vec<_>>()),
    }
    Ok(Exit::Fine)
}

async fn show(args: &ClientArgs, name: &str, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = Client::find(args, env)?.get(&["api", "v1", "tools"], &[]).await?;
    let Some(tool) = tools(&answer).iter().find(|tool| text(tool, "/name") == name) else {
        let what = format!("there is no tool {name:?}");
        return Err(Failure::new(Exit::WrongUsage, what).next("`belay tools` lists them; a server is named mcp:NAME"));
    };
    if args.json {
        out.json(tool);
    } else {
        out.table(&details(tool));
    }
    Ok(Exit::Fine)
}

fn switched(tool: Json, args: &ClientArgs, out: Output<'_>) -> Result<Exit, Failure> {
    if args.json {
        out.json(&tool);
    } else {
        out.line(&format!("{} is {}", text(&tool, "/name"), words(&tool)));
    }
    Ok(Exit::Fine)
}

fn tools(answer: &Json) -> &[Json] {
    answer.pointer("/tools").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn head() -> Vec<Cell> {
    ["TOOL", "STATE", "FAILED", "DESCRIPTION"].map(|name| Cell::new(name, Tone::Dim)).into()
}

fn row(tool: &Json) -> Vec<Cell> {
    let failed = match number(tool, "/failures") {
        0 => String::new(),
        n => n.to_string(),
    };
    let described = text(tool, "/description").lines().next().unwrap_or_default();
    let described: String = described.chars().take(DESCRIBED).collect();
    vec![text(tool, "/name").into(), state(tool), failed.into(), described.into()]
}

/// The state of a tool, with its colour.
fn state(tool: &Json) -> Cell {
    let tone = match text(tool, "/state") {
        "ok" => Tone::Good,
        "off" => Tone::Bad,
        _ => Tone::Warn,
    };
    Cell::new(words(tool), tone)
}

fn words(tool: &Json) -> String {
    match (text(tool, "/state"), until(text(tool, "/until"))) {
        ("ok", _) => "on".to_owned(),
        ("off", Some(left)) => format!("off for {}", duration_text(left)),
        ("trial", _) => "off; the next call is let through".to_owned(),
        (state, _) => state.to_owned(),
    }
}

fn details(tool: &Json) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let mut rows = vec![row("tool", text(tool, "/name").into()), row("state", state(tool))];
    let failures = format!("{} in a row, in {} runs", number(tool, "/failures"), number(tool, "/runs"));
    rows.push(row("failures", failures.into()));
    for (name, place) in [("since", "/since"), ("until", "/until"), ("by", "/actor"), ("detail", "/detail")] {
        if !text(tool, place).is_empty() {
            rows.push(row(name, text(tool, place).into()));
        }
    }
    for fault in tool.pointer("/last").and_then(Json::as_array).into_iter().flatten() {
        let ago = since(text(fault, "/at")).map_or(String::new(), |ago| format!("{} ago, ", duration_text(ago)));
        let (kind, print) = (text(fault, "/kind").replace('_', " "), text(fault, "/fingerprint"));
        let said = format!("{ago}run {}: {kind} [{print}] {}", text(fault, "/run_id"), text(fault, "/quote"));
        rows.push(row("failure", said.trim_end().into()));
    }
    rows.push(row("description", text(tool, "/description").into()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_off_says_for_how_long_and_why() {
        let tool = json!({
            "name": "web_search", "description": "Searches.\nMuch more.", "state": "off", "failures": 10, "runs": 3,
            "since": "2026-01-01T12:00:00Z", "until": "2999-01-01T12:00:00Z", "actor": "rule", "detail": "it failed",
            "last": [{ "at": "", "run_id": "r1", "kind": "timed_out", "fingerprint": "0123456789ab", "quote": "no result" }],
        });
        assert!(words(&tool).starts_with("off for "), "{}", words(&tool));
        let row = row(&tool);
        assert_eq!((&row[2], &row[3]), (&Cell::from("10"), &Cell::from("Searches.")));
        let shown: Vec<_> = details(&tool).into_iter().flatten().collect();
        for cell in ["10 in a row, in 3 runs", "it failed", "run r1: timed out [0123456789ab] no result"] {
            assert!(shown.contains(&Cell::from(cell)), "{cell:?} in {shown:?}");
        }
        let forever = json!({ "name": "web_search", "state": "off", "actor": "ann" });
        assert_eq!(words(&forever), "off");
        assert_eq!(words(&json!({ "state": "ok" })), "on");
    }
}
