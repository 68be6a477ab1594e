//! `belay logs`: the stored events, one a line.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Column, Output, Tone, fitted, widened};
use serde_json::Value as Json;
use tokio::time::timeout;

use super::facts::Facts;
use super::local_time::{TimeText, times};
use super::names::Names;
use super::{Client, text};
use crate::args::LogsArgs;

/// The silence after which no earlier event is expected: the newest ones may belong to work that this principal may not
/// see.
const SILENCE: Duration = Duration::from_secs(2);

/// The width of each column but the last. Lines are printed one by one, so none can widen the others.
const WIDTHS: [usize; 4] = [14, 16, 13, 19];

/// The place of the session in [`WIDTHS`].
const SESSION: usize = 1;

/// The terminal that the columns just fill: with two columns between each of them and the next.
const FILLED: usize = 14 + 16 + 13 + 19 + 4 * 2 + DETAILS_LEAST;

/// How a line fits a terminal: the details get what the others leave.
const COLUMNS: [Column; 5] =
    [Column::WHOLE, Column::cut(12), Column::optional(1), Column::WHOLE, Column::cut(DETAILS_LEAST)];

/// Fewest columns for the details before the id of the run is left out.
const DETAILS_LEAST: usize = 29;

/// Fields that have a column of their own, or are of no use to people.
const SHOWN: [&str; 5] = ["seq", "at", "session", "run_id", "type"];

/// Prints the newest events, oldest first, and with `--follow` each further one.
pub async fn logs(args: &LogsArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let (client, times, mut names) = (Client::find(&args.client, env)?, times(out), Names::default());
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
            if out.is_terminal() && !args.client.json {
                names
                    .learn(&client, std::iter::once(text(&event, "/session")).filter(|session| !session.is_empty()))
                    .await;
            }
            print(&event, args.client.json, &times, &names, out);
        }
    }
}

fn print(event: &Json, as_json: bool, times: &TimeText, names: &Names, out: Output<'_>) {
    if as_json {
        out.line(&event.to_string());
    } else {
        out.table(&[line(event, times, names, out.columns())]);
    }
}

/// The line of an event, for a terminal of this width; `None`: for a program, of which no names are known.
fn line(event: &Json, times: &TimeText, names: &Names, width: Option<usize>) -> Vec<Cell> {
    let cells = cells(event, times, names);
    let Some(width) = width else { return cells };
    let mut widths = WIDTHS;
    // On a wider terminal, the session and the details share what is left.
    widths[SESSION] = widened(WIDTHS[SESSION], width.saturating_sub(FILLED) / 2);
    let (details, others) = (cells.last().cloned(), cells.into_iter().zip(widths));
    let mut even: Vec<Cell> = others.map(|(cell, width)| cell.at_most(width).at_least(width)).collect();
    // Each line gives way in the same columns, however long its details are.
    even.extend(details.map(|details| details.at_least(DETAILS_LEAST)));
    fitted(&[even], &COLUMNS, width).pop().unwrap_or_default()
}

fn cells(event: &Json, times: &TimeText, names: &Names) -> Vec<Cell> {
    let kind = text(event, "/type");
    let tone = match (kind, text(event, "/status")) {
        ("run_ended", "completed") => Tone::Good,
        ("run_ended", "failed") | ("tool_failing" | "server_needs_login", _) => Tone::Bad,
        ("run_ended", _) | ("guardrail_triggered" | "approval_requested" | "model_fallback", _) => Tone::Warn,
        _ => Tone::Plain,
    };
    vec![
        Cell::new(times.brief(text(event, "/at")), Tone::Dim),
        Cell::from(names.shown(text(event, "/session"))).at_least(16),
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
    shown.join(", ")
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;
    use crate::client::testing::answering;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let event = json!({
            "seq": 7, "at": "2026-11-20T19:43:00.125Z", "session": "alice", "run_id": "0193e0e0-0000-7000-8000-000000000000",
            "type": "tool_finished", "name": "calculate", "took_ms": 3, "result": "two\nlines", "evidence": {}, "input": null,
        });
        let error = OnceLock::new();
        let plain = TimeText::of_program();
        let lines = Output::plain(&error).aligned(&[line(&event, &plain, &Names::default(), None)]);
        assert_eq!(
            lines,
            [
                "2026-11-20T19:43:00.125Z  alice             0193e0e0-0000  tool_finished       name: calculate, took_ms: 3, result: two lines"
            ]
        );
        let long = json!({"type": "notice", "text": "é".repeat(1000)});
        assert_eq!(details(&long).chars().count(), 1006, "a program reads the whole text");
    }

    #[tokio::test]
    async fn a_terminal_shows_the_title_of_a_job() {
        let session = "job:0193e0e0-0000-7000-8000-000000000000";
        let (client, serve) = answering(vec![json!({"title": "Count the words"}).to_string()]).await;
        let mut names = Names::default();
        tokio::join!(names.learn(&client, std::iter::once(session)), serve);
        let event =
            json!({"at": "2026-11-20T23:43:00.125Z", "session": session, "type": "run_ended", "status": "completed"});
        let error = OnceLock::new();
        for (width, shown) in [(80, "Count the w…"), (160, "Count the words (job 0193e0e0-0000)")] {
            let line =
                Output::plain(&error).aligned(&[line(&event, &TimeText::of_program(), &names, Some(width))]).concat();
            assert!(line.contains(&format!("  {shown}  ")), "{width}: {line}");
        }
    }

    #[test]
    fn a_line_fits_each_terminal_with_a_local_time_and_a_wide_one_shows_whole_sessions() {
        let event = |session: &str, kind: &str, words: &str| {
            json!({
                "seq": 7, "at": "2026-11-20T23:43:00.125Z", "session": session, "run_id": "0193e0e0-0000-7000",
                "type": kind, "text": words,
            })
        };
        let events = [
            event("cli", "run_ended", "short"),
            event("telegram:-1001234567890:42", "guardrail_triggered", &"words ".repeat(99)),
        ];
        let (error, times) = (OnceLock::new(), TimeText::of_zone(jiff::tz::TimeZone::fixed(jiff::tz::offset(1))));
        let shown = |width| {
            let lines = events.iter().flat_map(|event| {
                let row = line(event, &times, &Names::default(), Some(width));
                Output::plain(&error).aligned(&[row])
            });
            lines.map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(80),
            [
                "11-21 00:43:00  cli           run_ended            text: short",
                "11-21 00:43:00  telegram:-1…  guardrail_triggered  text: words words words word…"
            ]
        );
        assert_eq!(
            shown(120),
            [
                "11-21 00:43:00  cli                         0193e0e0-0000  run_ended            text: short",
                "11-21 00:43:00  telegram:-1001234567890:42  0193e0e0-0000  guardrail_triggered  text: words words words words words wor…"
            ]
        );
        let job = event("job:0193e0e0-0000-7000-8000-000000000000", "run_ended", "short");
        let row = line(&job, &times, &Names::default(), Some(160));
        assert_eq!(
            Output::plain(&error).aligned(&[row])[0].trim_end(),
            "11-21 00:43:00  job:0193e0e0-0000-7000-8000-000000000000        0193e0e0-0000  run_ended            text: short"
        );
        let long = event(&"s".repeat(99), "run_ended", "short");
        assert!(
            Output::plain(&error).aligned(&[line(&long, &times, &Names::default(), None)])[0].contains(&"s".repeat(99)),
            "in a pipe"
        );
    }
}
