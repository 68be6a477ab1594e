//! `belay runs --follow`: the runs that the list has, and then each run that ends.

use std::collections::HashSet;

use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, fitted, widened};
use serde_json::Value as Json;
use tokio::time::{Duration, sleep};

use super::{SESSION, head, layout, row};
use crate::args::RunsArgs;
use crate::client::facts::Facts;
use crate::client::names::Names;
use crate::client::{Client, text};

/// Pause before a run is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Shown characters of an id: the date of its creation in milliseconds.
const ID_CHARS: usize = 13;

/// Characters of a whole id.
const FULL_ID_CHARS: usize = 36;

/// The width of each column: later rows cannot widen the earlier ones.
const WIDTHS: [usize; 8] = [ID_CHARS, 9, 22, 20, 15, 5, 7, 7];

/// Characters of the longest key with a whole id: `routine:` and the id.
const FULL_KEY_CHARS: usize = 44;

/// Prints the listed runs, the oldest first, and then each run that ends and fits the filters, for ever.
pub(super) async fn follow(
    client: &Client,
    args: &RunsArgs,
    query: &[(&str, &str)],
    out: Output<'_>,
) -> Result<Exit, Failure> {
    // Opened before the list is read, so that no end is missed in between.
    let mut facts = Facts::open(client, None).await?;
    let answer = client.list(&["api", "v1", "runs"], query, "runs", args.limit).await?;
    if !args.client.json {
        show(head(), "", args, out);
    }
    let listed = answer.pointer("/runs").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut names = Names::new(args.full);
    if out.is_terminal() && !args.client.json {
        names.learn(client, listed.iter().map(|run| text(run, "/session"))).await;
    }
    listed.iter().rev().for_each(|run| print(run, &names, args, out));
    let ended = listed.iter().filter(|run| !text(run, "/ended_at").is_empty());
    let shown: HashSet<_> = ended.map(|run| text(run, "/run_id").to_owned()).collect();
    loop {
        let event = facts.next().await?;
        let id = text(&event, "/run_id");
        if text(&event, "/type") != "run_ended" || shown.contains(id) {
            continue;
        }
        let run = loop {
            match client.get(&["api", "v1", "runs", id], &[]).await {
                // The daemon may be restarting: its end must not be missing.
                Err(failure) if matches!(failure.exit, Exit::OutOfReach | Exit::Busy) => sleep(AGAIN).await,
                answer => break answer,
            }
        };
        // A run that was deleted since then is left out.
        if let Ok(run) = run
            && fits(&run, args)
        {
            if out.is_terminal() && !args.client.json {
                names.learn(client, std::iter::once(text(&run, "/session"))).await;
            }
            print(&run, &names, args, out);
        }
    }
}

/// Whether the run passes the filters of the list. Its date does: it ends now.
fn fits(run: &Json, args: &RunsArgs) -> bool {
    let among = |field, words: &Option<String>| {
        words.as_deref().is_none_or(|words| words.split(',').any(|word| word.trim() == text(run, field)))
    };
    among("/status", &args.status)
        && among("/reason", &args.reason)
        && args.session.as_deref().is_none_or(|session| session == text(run, "/session"))
}

fn print(run: &Json, names: &Names, args: &RunsArgs, out: Output<'_>) {
    if args.client.json {
        out.line(&run.to_string());
    } else {
        show(row(run, id_chars(args), names), text(run, "/session"), args, out);
    }
}

fn id_chars(args: &RunsArgs) -> usize {
    if args.full { FULL_ID_CHARS } else { ID_CHARS }
}

/// Prints a row with this session key. On a terminal it fits, and each row has the same columns.
fn show(cells: Vec<Cell>, key: &str, args: &RunsArgs, out: Output<'_>) {
    match out.columns() {
        Some(terminal) => out.table(&on_terminal(cells, args.full.then(|| key_chars(key)), terminal)),
        None => out.table(&[padded(cells)]),
    }
}

/// The columns of a whole key: those of an id, so that most rows have the same columns. A longer key moves only its row.
fn key_chars(key: &str) -> usize {
    belay_terminal::width(key).max(FULL_KEY_CHARS)
}

/// The row with exactly the widths of its columns, so that each row gives way in the same columns of a terminal. The
/// session gets what is left of a wide one. `key`: the columns of its key, if ids and keys are shown whole.
fn on_terminal(cells: Vec<Cell>, key: Option<usize>, terminal: usize) -> Vec<Vec<Cell>> {
    let (columns, terminal) = layout(key.is_some(), key.unwrap_or_default(), terminal);
    let mut widths = WIDTHS;
    if let Some(key) = key {
        (widths[0], widths[SESSION]) = (FULL_ID_CHARS, key + 2); // `:…` for words that are cut
    }
    let filled = widths.iter().sum::<usize>() + 2 * (widths.len() - 1); // two columns between each of them and the next
    widths[SESSION] = widened(widths[SESSION], terminal.saturating_sub(filled));
    let even = cells.into_iter().zip(widths).map(|(cell, width)| cell.at_most(width).at_least(width)).collect();
    fitted(&[even], &columns, terminal)
}

/// The cells, all but the last one at least as wide as their columns.
fn padded(cells: Vec<Cell>) -> Vec<Cell> {
    let widths = WIDTHS.into_iter().take(WIDTHS.len() - 1).chain([0]);
    cells.into_iter().zip(widths).map(|(cell, width)| cell.at_least(width)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;

    #[test]
    fn each_row_has_the_same_columns_and_a_wide_terminal_shows_whole_sessions() {
        let run = json!({
            "run_id": "0199e3a0-7b1d-7000-8000-000000000001", "status": "stopped", "reason": "max_consecutive_errors",
            "session": "telegram:-1001234567890:42", "usage": {"model_calls": 31},
        });
        let error = OnceLock::new();
        let shown = |width| {
            let fit = |cells| on_terminal(cells, None, width);
            let rows = [fit(head()), fit(row(&run, ID_CHARS, &Names::default()))].concat();
            let lines = Output::plain(&error).aligned(&rows);
            lines.into_iter().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            shown(80),
            [
                "RUN            STATUS     REASON         SESSION        ACCEPTED         COST",
                "0199e3a0-7b1d  stopped    max_consecut…  telegram:-10…                   $0.0000"
            ]
        );
        assert_eq!(
            shown(120),
            [
                "RUN            STATUS     REASON                  SESSION                       ACCEPTED         CALLS  TOKENS   COST",
                "0199e3a0-7b1d  stopped    max_consecutive_errors  telegram:-1001234567890:42                     31     0        $0.0000"
            ]
        );
        let long = json!({"run_id": "0199e3a0-7b1d-7000", "session": "s".repeat(64)});
        let cells = on_terminal(row(&long, ID_CHARS, &Names::default()), None, 160);
        assert!(Output::plain(&error).aligned(&cells)[0].contains(&"s".repeat(64)), "{cells:?}");
        assert!(
            Output::plain(&error).aligned(&[padded(row(&long, ID_CHARS, &Names::default()))])[0]
                .contains(&"s".repeat(64))
        );
        let longer = format!("telegram:{}", "7".repeat(90));
        for (key, width) in [80, 120]
            .into_iter()
            .flat_map(|width| [("routine:0199e3a0-7b1d-7000-8000-000000000002", width), (longer.as_str(), width)])
        {
            let whole = json!({"run_id": run["run_id"], "session": key});
            let cells = on_terminal(row(&whole, FULL_ID_CHARS, &Names::new(true)), Some(key_chars(key)), width);
            let line = Output::plain(&error).aligned(&cells).concat();
            assert!(line.contains(key) && line.starts_with("0199e3a0-7b1d-7000-8000-000000000001 "), "{width}: {line}");
        }
    }
}
