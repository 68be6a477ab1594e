//! `belay heartbeat`: shows the state of the heartbeat, what it would do now, and its recent beats.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::{Value as Json, json};

use super::{Client, duration_text, number, since, text, until};
use crate::args::ClientArgs;

/// Shows the state of the heartbeat.
pub async fn show(args: &ClientArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let report = Client::find(args, env)?.get(&["api", "v1", "heartbeat"], &[]).await?;
    if args.json {
        out.json(&report);
        return Ok(Exit::Fine);
    }
    out.table(&details(&report));
    if let Some(beats) = report.pointer("/last").and_then(Json::as_array).filter(|beats| !beats.is_empty()) {
        out.line("");
        let head = ["BEAT", "STATUS", "BY", "SAYS"].map(|name| Cell::new(name, Tone::Dim)).into();
        out.table(&std::iter::once(head).chain(beats.iter().map(beat)).collect::<Vec<_>>());
    }
    Ok(Exit::Fine)
}

/// Starts a beat now.
pub async fn now(args: &ClientArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let path = ["api", "v1", "routines", "heartbeat", "fire"];
    let routine_run = Client::find(args, env)?.post(&path, Some(&json!({})), Duration::ZERO).await?;
    if args.json {
        out.json(&routine_run);
    } else {
        out.line(text(&routine_run, "/routine_run_id"));
    }
    Ok(Exit::Fine)
}

fn details(report: &Json) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let state = match (report.pointer("/enabled").and_then(Json::as_bool), number(report, "/failures")) {
        (Some(true), 0) => Cell::new("on", Tone::Good),
        (Some(true), failures) => Cell::new(format!("on, {failures} failed in a row"), Tone::Warn),
        _ => Cell::new("off", Tone::Dim),
    };
    let next = match until(text(report, "/next_at")) {
        Some(left) => format!("in {} ({})", duration_text(left), text(report, "/next_at")),
        None => String::new(),
    };
    let to = match text(report, "/deliver_to/channel") {
        "" => "nobody".to_owned(),
        channel => format!("{channel} {}", text(report, "/deliver_to/conversation")),
    };
    vec![
        row("heartbeat", state),
        row("beats", format!("{} ({})", text(report, "/when"), text(report, "/zone")).into()),
        row("quiet", text(report, "/quiet_hours").into()),
        row("list", text(report, "/file").into()),
        row("tells", to.into()),
        row("next", next.into()),
        row("now it would", text(report, "/would").into()),
    ]
}

fn beat(routine_run: &Json) -> Vec<Cell> {
    let status = text(routine_run, "/status");
    let tone = match status {
        "ok" => Tone::Good,
        "attention" => Tone::Warn,
        "failed" => Tone::Bad,
        _ => Tone::Dim,
    };
    vec![
        since(text(routine_run, "/claimed_at"))
            .map_or(String::new(), |ago| format!("{} ago", duration_text(ago)))
            .into(),
        Cell::new(status, tone),
        text(routine_run, "/by").into(),
        text(routine_run, "/summary").lines().next().unwrap_or_default().into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_shown_what_it_would_do_and_whom_it_tells() {
        let report = json!({
            "enabled": true, "when": "every 30m", "zone": "UTC", "quiet_hours": "22:00-07:00", "file": "HEARTBEAT.md",
            "deliver_to": {"channel": "telegram", "conversation": "42"}, "next_at": null, "would_skip": "idle",
            "would": "Skip the beat. Nobody has spoken.", "failures": 2, "last": [],
        });
        let cell = |at: usize, report: &Json| details(report)[at][1].clone();
        assert_eq!(cell(0, &report), Cell::new("on, 2 failed in a row", Tone::Warn));
        assert_eq!(cell(4, &report), Cell::from("telegram 42"));
        assert_eq!(cell(6, &report), Cell::from("Skip the beat. Nobody has spoken."));
        let off = json!({"enabled": false, "would": "Nothing: the heartbeat is disabled (heartbeat.enabled)."});
        assert_eq!((cell(0, &off), cell(4, &off)), (Cell::new("off", Tone::Dim), Cell::from("nobody")));
    }
}
