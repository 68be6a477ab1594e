//! `belay context show`: shows what the model of a session would read now, and how many tokens it takes.

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::Value as Json;

use super::{Client, number, text};
use crate::args::ContextArgs;

/// Shows the context of a session.
pub async fn show(args: &ContextArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let query: &[(&str, &str)] = if args.full { &[("full", "true")] } else { &[] };
    let report = client.get(&["api", "v1", "sessions", &args.session, "context"], query).await?;
    if args.client.json {
        out.json(&report);
        return Ok(Exit::Fine);
    }
    out.table(&table(&report));
    for (heading, lines) in [("files", files(&report)), ("skills", skills(&report)), ("not used", skipped(&report))] {
        if !lines.is_empty() {
            out.line(&format!("\n{heading}"));
            out.table(&lines);
        }
    }
    if args.full {
        texts(&report).iter().for_each(|text| out.line(text));
    }
    Ok(Exit::Fine)
}

fn items<'a>(report: &'a Json, pointer: &str) -> &'a [Json] {
    report.pointer(pointer).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn row(name: &str, chars: u64, tokens: u64, tone: Tone) -> Vec<Cell> {
    vec![Cell::new(name, tone), chars.to_string().into(), tokens.to_string().into()]
}

/// The parts of the context, and their sum against the model's limit.
fn table(report: &Json) -> Vec<Vec<Cell>> {
    let of = |name: &str, part: &Json| row(name, number(part, "/chars"), number(part, "/tokens"), Tone::Plain);
    let mut rows = vec![["PART", "CHARS", "TOKENS"].map(|name| Cell::new(name, Tone::Dim)).into()];
    rows.extend(items(report, "/prompt").iter().map(|part| of(&format!("prompt: {}", text(part, "/name")), part)));
    let tools = items(report, "/tools");
    let sum = |field: &str| tools.iter().map(|tool| number(tool, field)).sum();
    rows.push(row(&format!("tools: {}", tools.len()), sum("/chars"), sum("/tokens"), Tone::Plain));
    rows.extend(report.get("summary").map(|part| of("summary", part)));
    if let Some(part) = report.get("conversation") {
        rows.push(of(&format!("messages: {}", number(report, "/messages")), part));
    }
    let (used, most) = (number(report, "/used_tokens"), number(report, "/context_tokens"));
    let share = (used * 100).checked_div(most).unwrap_or_default();
    let tone = if share < 80 { Tone::Good } else { Tone::Warn };
    let all = format!("{used} of {most} ({share} %)");
    rows.push(vec![Cell::new("all", Tone::Dim), "".into(), Cell::new(all, tone)]);
    rows
}

fn files(report: &Json) -> Vec<Vec<Cell>> {
    let row = |file: &Json| {
        let (chars, told) = (number(file, "/chars"), number(file, "/told_chars"));
        let cut = file.get("cut").and_then(Json::as_bool).unwrap_or_default();
        let size = if cut {
            Cell::new(format!("{told} of {chars} characters"), Tone::Warn)
        } else {
            Cell::from(format!("{chars} characters"))
        };
        vec![text(file, "/name").into(), size]
    };
    items(report, "/files").iter().map(row).collect()
}

fn skills(report: &Json) -> Vec<Vec<Cell>> {
    let row = |skill: &Json| {
        let place = Some(text(skill, "/path")).filter(|path| !path.is_empty()).unwrap_or("outside of the workspace");
        let listed = skill.get("listed").and_then(Json::as_bool).unwrap_or_default();
        let told = if listed { "" } else { "not shown to the model" };
        vec![text(skill, "/name").into(), text(skill, "/command").into(), place.into(), Cell::new(told, Tone::Dim)]
    };
    items(report, "/skills").iter().map(row).collect()
}

fn skipped(report: &Json) -> Vec<Vec<Cell>> {
    let row = |skipped: &Json| vec![Cell::new(text(skipped, "/what"), Tone::Warn), text(skipped, "/why").into()];
    items(report, "/skipped").iter().map(row).collect()
}

/// The texts, each under its name.
fn texts(report: &Json) -> Vec<String> {
    let parts = items(report, "/prompt").iter().chain(items(report, "/tools"));
    let parts = parts.chain(report.get("summary")).chain(report.get("conversation"));
    parts.map(|part| format!("\n--- {}\n{}", text(part, "/name"), text(part, "/text"))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_report_shows_the_size_of_each_part_of_the_context() {
        let report = json!({
            "context_tokens": 1000, "used_tokens": 850, "messages": 2,
            "prompt": [{"name": "identity", "chars": 40, "tokens": 10, "text": "You are Belay."}],
            "tools": [{"name": "a", "chars": 8, "tokens": 2}, {"name": "b", "chars": 12, "tokens": 3}],
            "conversation": {"name": "messages", "chars": 100, "tokens": 25},
            "files": [{"name": "AGENTS.md", "chars": 5, "told_chars": 5, "cut": false},
                      {"name": "MEMORY.md", "chars": 9000, "told_chars": 500, "cut": true}],
            "skills": [{"name": "web", "command": "/web", "listed": true, "path": "skills/web/SKILL.md"},
                       {"name": "own", "listed": false}],
            "skipped": [{"what": "SOUL.md", "why": "it is not UTF-8"}],
        });
        let shown = table(&report);
        for expected in [
            row("prompt: identity", 40, 10, Tone::Plain),
            row("tools: 2", 20, 5, Tone::Plain),
            row("messages: 2", 100, 25, Tone::Plain),
            vec![Cell::new("all", Tone::Dim), "".into(), Cell::new("850 of 1000 (85 %)", Tone::Warn)],
        ] {
            assert!(shown.contains(&expected), "{expected:?} in {shown:?}");
        }
        let files = files(&report);
        assert_eq!(files[0][1], Cell::from("5 characters"));
        assert_eq!(files[1][1], Cell::new("500 of 9000 characters", Tone::Warn));
        assert_eq!(skills(&report)[1][2], Cell::from("outside of the workspace"));
        assert_eq!(skipped(&report)[0][1], Cell::from("it is not UTF-8"));
        assert_eq!(texts(&report)[0], "\n--- identity\nYou are Belay.");
    }
}
