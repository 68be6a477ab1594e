//! `belay logs`: the stored events, one a line.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::Value as Json;
use tokio::time::timeout;

use super::facts::Facts;
use super::{Client, text};
use crate::args::LogsArgs;

/// The silence after which no earlier event is expected: the newest ones may belong to work that this principal may not
/// see.
const SILENCE: Duration = Duration::from_secs(2);

/// Longest line of details, in characters.
const DETAILS_MAX: usize = 300;

/// Fields that have a column of their own, or are of no use to people.
const SHOWN: [&str; 5] = ["seq", "at", "session", "run_id", "type"];

/// Prints the newest events, oldest first, and with `--follow` each further one.
pub async fn logs(args: &LogsArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let (mut facts, newest) = Facts::open_before(&client, args.last).await?;
    loop {
        let event = if args.follow {
            facts.next().await?
        } else if facts.cursor() >= newest {
            return Ok(Exit::Fine);
        } else {
            match timeout(SILENCE, facts.next()).await {
                Ok(event) => event?,
                Err(_elapsed) => return Ok(Exit::Fine),
            }
        };
        if !args.follow && event.pointer("/seq").and_then(Json::as_u64).is_some_and(|seq| seq > newest) {
            return Ok(Exit::Fine);
        }
        if args.session.as_deref().is_none_or(|session| session == text(&event, "/session")) {
            print(&event, args.client.json, out);
        }
    }
}

fn print(event: &Json, as_json: bool, out: Output<'_>) {
    if as_json {
        out.line(&event.to_string());
    } else {
        out.table(&[line(event)]);
    }
}

fn line(event: &Json) -> Vec<Cell> {
    let kind = text(event, "/type");
    let tone = match (kind, text(event, "/status")) {
        ("run_ended", "completed") => Tone::Good,
        ("run_ended", "failed") | ("tool_failing" | "server_needs_login", _) => Tone::Bad,
        ("run_ended", _) | ("guardrail_triggered" | "approval_requested" | "model_fallback", _) => Tone::Warn,
        _ => Tone::Plain,
    };
    vec![
        Cell::new(text(event, "/at"), Tone::Dim),
        Cell::from(text(event, "/session")).at_least(16),
        Cell::new(text(event, "/run_id").get(..13).unwrap_or_default(), Tone::Dim).at_least(13),
        Cell::new(kind, tone).at_least(18),
        details(event).into(),
    ]
}

/// The other fields: `name: value`, texts without quotes.
fn details(event: &Json) -> String {
    let fields = event.as_object().into_iter().flatten().filter(|(name, value)| {
        let empty = value.is_null() || value.as_object().is_some_and(|map| map.is_empty());
        !empty && !SHOWN.contains(&name.as_str())
    });
    let shown: Vec<_> = fields
        .map(|(name, value)| match value {
            Json::String(text) => format!("{name}: {text}"),
            other => format!("{name}: {other}"),
        })
        .collect();
    let mut line = shown.join(", ");
    if let Some((cut, _)) = line.char_indices().nth(DETAILS_MAX) {
        line.truncate(cut);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let event = json!({
            "seq": 7, "at": "2026-11-20T19:43:00.125Z", "session": "alice", "run_id": "0193e0e0-0000-7000-8000-000000000000",
            "type": "tool_finished", "name": "calculate", "took_ms": 3, "result": "two\nlines", "evidence": {}, "input": null,
        });
        let error = OnceLock::new();
        let lines = Output::plain(&error).aligned(&[line(&event)]);
        assert_eq!(
            lines,
            [
                "2026-11-20T19:43:00.125Z  alice             0193e0e0-0000  tool_finished       name: calculate, took_ms: 3, result: two lines"
            ]
        );
        let long = json!({"type": "notice", "text": "é".repeat(1000)});
        assert_eq!(details(&long).chars().count(), DETAILS_MAX + 1);
    }
}
