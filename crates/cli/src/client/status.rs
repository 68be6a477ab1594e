//! `belay status`: what the running daemon is doing.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_protocol::Purpose;
use serde_json::Value as Json;

use super::approvals::waits_for;
use super::freeze::said;
use super::{Client, dollars, duration_text, number, since, text};
use crate::args::StatusArgs;

/// Prints the daemon's status report. With `--check` the exit code is 1 if a part does not work as it should.
pub async fn status(args: &StatusArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let report = client.get(&["api", "v1", "status"], &[]).await?;
    let troubles = degraded(&report);
    let exit = if args.check && !troubles.is_empty() { Exit::Failed } else { Exit::Fine };
    if args.client.json {
        out.json(&report);
        return Ok(exit);
    }
    out.lines(troubles.into_iter());
    let mut rows = rows(&report);
    if number(&report, "/paused") > 0 {
        rows.extend(questions(&client.get(&["api", "v1", "approvals"], &[]).await?));
    }
    out.table(&rows);
    Ok(exit)
}

/// The parts that do not work as they should: a line with all of them, and a line each. Empty: all do.
fn degraded(report: &Json) -> Vec<String> {
    let troubles = report.pointer("/degraded").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    if troubles.is_empty() {
        return Vec::new();
    }
    let mut parts: Vec<&str> = troubles.iter().map(|trouble| text(trouble, "/part")).collect();
    parts.dedup();
    let line = |trouble: &Json| {
        let since = match text(trouble, "/since") {
            // The words about a freeze have it already.
            "" => String::new(),
            _ if text(trouble, "/part") == "freeze" => String::new(),
            since => format!(" (since {since})"),
        };
        format!("  {}: {}{since}", text(trouble, "/part"), text(trouble, "/detail"))
    };
    std::iter::once(format!("degraded: {}", parts.join(", "))).chain(troubles.iter().map(line)).collect()
}

fn rows(report: &Json) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let up = since(text(report, "/started_at")).map_or(String::new(), |up| format!(", up {}", duration_text(up)));
    let drains = report.pointer("/draining").and_then(Json::as_bool).unwrap_or_default();
    let state = match degraded(report).is_empty() {
        _ if drains => Cell::new("draining", Tone::Warn),
        true => Cell::new("running", Tone::Good),
        false => Cell::new("degraded", Tone::Bad),
    };
    let mut rows = vec![
        row("belay", Cell::from(format!("{}{up}", text(report, "/version")))),
        row("state", state),
        row("model", model(report)),
        row("channels", Cell::from(words(report, "/channels"))),
        row("sessions", Cell::from(format!("{} awake", number(report, "/sessions_awake")))),
        row("queued", Cell::from(number(report, "/queued").to_string())),
        row("paused", paused(report)),
        row("jobs", jobs(report)),
        row("routines", routines(report)),
        row("spent", Cell::from(spent(report))),
    ];
    let frozen = report.pointer("/frozen").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    rows.extend(frozen.iter().map(|freeze| row("frozen", Cell::new(said(freeze), Tone::Bad))));
    rows.extend(cooling(report).into_iter().map(|words| row("not asked", Cell::new(words, Tone::Warn))));
    rows.extend(troubled(report).into_iter().map(|words| row("tool", Cell::new(words, Tone::Warn))));
    rows.extend(backups(report).map(|words| row("backup", words)));
    rows.extend(losses(report).into_iter().map(|words| row("database", Cell::new(words, Tone::Bad))));
    rows.extend(in_background(report).into_iter().map(|words| row("background", words)));
    rows.push(row("running", running(report)));
    rows
}

/// The row about backups. `None`: there are none, or the caller may not see it.
fn backups(report: &Json) -> Option<Cell> {
    let (last, next) = (text(report, "/backups/last_success_at"), text(report, "/backups/next_at"));
    let last = if last.is_empty() { "no backup has succeeded".to_owned() } else { format!("the last at {last}") };
    match text(report, "/backups/last_failure/at") {
        "" if next.is_empty() => report.pointer("/backups/last_success_at")?.is_string().then(|| Cell::from(last)),
        "" => Some(Cell::from(format!("{last}, the next at {next}"))),
        at => Some(Cell::new(
            format!("failed at {at}: {}; {last}", text(report, "/backups/last_failure/detail")),
            Tone::Bad,
        )),
    }
}

/// The losses of committed transactions.
fn losses(report: &Json) -> Vec<String> {
    let losses = report.pointer("/database_losses").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    losses.iter().map(|loss| format!("{} (noticed at {})", text(loss, "/detail"), text(loss, "/noticed_at"))).collect()
}

/// Tools that fail repeatedly or are disabled.
fn troubled(report: &Json) -> Vec<String> {
    let tools = report.pointer("/tools").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let words = |tool: &Json| {
        let (name, state, why) = (text(tool, "/name"), text(tool, "/state"), text(tool, "/detail"));
        match state {
            "failing" => format!("{name} has failed {} times in a row", number(tool, "/failures")),
            "starting" => format!("{name} is still starting"),
            "needs_login" => format!("{name} {why}"),
            "left_out" => format!("{name} {why}; its tools are not offered"),
            state => format!("{name} is disabled ({state}): {why}"),
        }
    };
    tools.iter().map(words).collect()
}

/// The models and keys that are in cooldown.
fn cooling(report: &Json) -> Vec<String> {
    let candidates = report.pointer("/candidates").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let words = |candidate: &Json| {
        let until = candidate.pointer("/cooling_until").and_then(Json::as_str)?;
        Some(format!("{} until {until} ({})", text(candidate, "/name"), text(candidate, "/reason")))
    };
    candidates.iter().filter_map(words).collect()
}

/// The row about jobs.
fn jobs(report: &Json) -> Cell {
    if !report.pointer("/jobs").is_some_and(Json::is_object) {
        return Cell::new("unknown: the store does not answer", Tone::Bad);
    }
    let of = |what: &str| number(report, &format!("/jobs/{what}"));
    let (pending, stuck) = (of("pending"), of("stuck"));
    let mut words = format!("{} of {} running", of("in_progress"), of("slots"));
    if stuck > 0 {
        words.push_str(&format!(", {stuck} stuck"));
    }
    if pending > 0 {
        let longest = since(text(report, "/jobs/oldest_pending_at"));
        let longest = longest.map_or(String::new(), |longest| format!(", the oldest for {}", duration_text(longest)));
        words.push_str(&format!(", {pending} waiting{longest}"));
    }
    Cell::new(words, if stuck > 0 { Tone::Warn } else { Tone::Plain })
}

/// The row about routines.
fn routines(report: &Json) -> Cell {
    if !report.pointer("/routines").is_some_and(Json::is_object) {
        return Cell::new("unknown: the store does not answer", Tone::Bad);
    }
    let of = |what: &str| number(report, &format!("/routines/{what}"));
    let next = match text(report, "/routines/next_at") {
        "" => String::new(),
        at => format!(", the next at {at}"),
    };
    Cell::from(format!("{} enabled, {} running{next}", of("enabled"), of("running")))
}

fn paused(report: &Json) -> Cell {
    match number(report, "/paused") {
        0 => Cell::new("none", Tone::Dim),
        1 => Cell::new("1 run waits for an answer", Tone::Warn),
        n => Cell::new(format!("{n} runs wait for an answer"), Tone::Warn),
    }
}

/// One row for each open approval request.
fn questions(answer: &Json) -> Vec<Vec<Cell>> {
    let questions = answer.pointer("/approvals").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let row = |question: &Json| {
        let words = format!("{} in {}: {}", text(question, "/id"), text(question, "/session"), waits_for(question));
        vec![Cell::new("question", Tone::Dim), Cell::new(words, Tone::Warn)]
    };
    questions.iter().map(row).collect()
}

fn model(report: &Json) -> Cell {
    let rehearsal = report.pointer("/model/rehearsal").and_then(Json::as_bool).unwrap_or_default();
    if rehearsal {
        Cell::new("rehearsal: a built-in stand-in, not a model", Tone::Warn)
    } else {
        Cell::from(format!("{} ({})", text(report, "/model/model"), text(report, "/model/provider")))
    }
}

fn spent(report: &Json) -> String {
    let spent = dollars(number(report, "/spent_today_micro_usd"));
    let all = match report.pointer("/limit_today_micro_usd").and_then(Json::as_u64) {
        Some(limit) => format!("{spent} of {} today (UTC)", dollars(limit)),
        None => format!("{spent} today (UTC)"),
    };
    // The rest is the cost of people's own messages. It gets no line unless it has a limit.
    let parts = Purpose::ALL.iter().filter_map(|purpose| {
        let of = number(report, &format!("/spent_today_for/{}", purpose.word()));
        match report.pointer(&format!("/limit_today_for/{}", purpose.word())).and_then(Json::as_u64) {
            Some(limit) => Some(format!("; {} of {} for {}", dollars(of), dollars(limit), purpose.name())),
            None => (of > 0 && purpose.is_autonomous()).then(|| format!("; {} for {}", dollars(of), purpose.name())),
        }
    });
    std::iter::once(all).chain(parts).collect()
}

fn running(report: &Json) -> Cell {
    let runs = report.pointer("/running").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let one = |run: &Json| {
        let for_how_long = duration_text(Duration::from_millis(number(run, "/for_ms")));
        format!("{} in {} for {for_how_long}", text(run, "/run_id"), text(run, "/session"))
    };
    match runs {
        [] => Cell::new("nothing", Tone::Dim),
        runs => Cell::from(runs.iter().map(one).collect::<Vec<_>>().join("; ")),
    }
}

/// The processes in the background, one for each row.
fn in_background(report: &Json) -> Vec<Cell> {
    let one = |process: &Json| {
        let for_how_long = duration_text(Duration::from_millis(number(process, "/for_ms")));
        let kept = if process["kept"] == true { ", kept by the conversation" } else { "" };
        let (id, session, command) = (text(process, "/id"), text(process, "/session"), text(process, "/command"));
        Cell::from(format!("{id} in {session} for {for_how_long}{kept}: {command}"))
    };
    report.pointer("/processes").and_then(Json::as_array).into_iter().flatten().map(one).collect()
}

fn words(report: &Json, pointer: &str) -> String {
    let words = report.pointer(pointer).and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_process_in_the_background_has_a_line_of_its_own() {
        let process = |id: &str, kept: bool| json!({"id": id, "session": "me", "command": "make serve", "kept": kept, "for_ms": 3000});
        let shown = in_background(&json!({"processes": [process("p1", true), process("p2", false)]}));
        let lines = ["p1 in me for 3 s, kept by the conversation: make serve", "p2 in me for 3 s: make serve"];
        assert_eq!(shown, lines.map(Cell::from));
        assert!(in_background(&json!({})).is_empty());
    }

    #[test]
    fn a_status_says_that_the_stand_in_is_no_model_and_what_runs() {
        let report = json!({
            "version": "0.1.0", "started_at": "", "draining": false, "sessions_awake": 2, "queued": 1, "paused": 1,
            "model": {"provider": "rehearsal", "model": "rehearsal", "rehearsal": true},
            "channels": ["stdin", "http"], "spent_today_micro_usd": 1200, "limit_today_micro_usd": 5_000_000,
            "spent_today_for": {"chat": 700, "job": 500, "heartbeat": 0}, "limit_today_for": {"heartbeat": 100_000},
            "jobs": {"pending": 2, "in_progress": 5, "stuck": 1, "oldest_pending_at": null, "slots": 6},
            "routines": {"enabled": 3, "running": 1, "next_at": "2026-01-01T12:00:00Z"},
            "running": [{"run_id": "r1", "session": "me", "for_ms": 3000}], "model_trouble": null,
            "candidates": [
                {"name": "a by openai", "cooling_until": "2026-01-01T12:00:00Z", "reason": "rate_limited"},
                {"name": "b by anthropic", "cooling_until": null, "reason": null},
            ],
            "tools": [
                {"name": "web_search", "state": "failing", "failures": 5, "runs": 2},
                {"name": "mcp:files", "state": "trial", "failures": 0, "runs": 0, "detail": "it is down"},
                {"name": "mcp:slow", "state": "starting", "failures": 0, "runs": 0},
                {"name": "mcp:mail", "state": "left_out", "failures": 0, "runs": 0, "detail": "has ended: exit code 3"},
            ],
        });
        let shown: Vec<_> = rows(&report).into_iter().flatten().collect();
        for cell in [
            Cell::new("rehearsal: a built-in stand-in, not a model", Tone::Warn),
            Cell::from("stdin, http"),
            Cell::from("$0.0012 of $5.00 today (UTC); $0.0005 for jobs; $0.0000 of $0.1000 for the heartbeat"),
            Cell::from("r1 in me for 3 s"),
            Cell::new("5 of 6 running, 1 stuck, 2 waiting", Tone::Warn),
            Cell::from("3 enabled, 1 running, the next at 2026-01-01T12:00:00Z"),
            Cell::new("1 run waits for an answer", Tone::Warn),
            Cell::new("a by openai until 2026-01-01T12:00:00Z (rate_limited)", Tone::Warn),
            Cell::new("web_search has failed 5 times in a row", Tone::Warn),
            Cell::new("mcp:files is disabled (trial): it is down", Tone::Warn),
            Cell::new("mcp:slow is still starting", Tone::Warn),
            Cell::new("mcp:mail has ended: exit code 3; its tools are not offered", Tone::Warn),
        ] {
            assert!(shown.contains(&cell), "{cell:?} in {shown:?}");
        }
    }

    #[test]
    fn a_loss_of_transactions_is_shown_with_what_may_come_again() {
        let loss = json!({"noticed_at": "2026-01-01T03:30:00.000Z", "kept_until": null, "detail": "It is lost."});
        assert_eq!(losses(&json!({"database_losses": [loss]})), ["It is lost. (noticed at 2026-01-01T03:30:00.000Z)"]);
        assert!(losses(&json!({})).is_empty());
    }

    #[test]
    fn a_failed_backup_is_shown_and_no_row_without_backups() {
        let shown = |given: Json| backups(&json!({ "backups": given }));
        let (at, next) = ("2026-01-01T03:30:00.000Z", "2026-01-02T03:30:00.000Z");
        for (given, expected) in [
            (json!(null), None),
            (json!({"last_success_at": null, "next_at": null, "last_failure": null}), None),
            (json!({"last_success_at": at, "next_at": null}), Some(Cell::from(format!("the last at {at}")))),
            (
                json!({"last_success_at": at, "next_at": next, "last_failure": null}),
                Some(Cell::from(format!("the last at {at}, the next at {next}"))),
            ),
            (
                json!({"last_success_at": null, "next_at": next, "last_failure": {"at": at, "detail": "full"}}),
                Some(Cell::new(format!("failed at {at}: full; no backup has succeeded"), Tone::Bad)),
            ),
        ] {
            assert_eq!(shown(given.clone()), expected, "{given}");
        }
    }
}
