//! `belay runs --follow`: the runs that the list has, and then each run that ends.

use std::collections::HashSet;

use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output};
use serde_json::Value as Json;
use tokio::time::{Duration, sleep};

use super::{head, row};
use crate::args::RunsArgs;
use crate::client::facts::Facts;
use crate::client::{Client, text};

/// Pause before a run is asked for again.
const AGAIN: Duration = Duration::from_secs(1);

/// Shown characters of an id: the date of its creation in milliseconds.
const ID_CHARS: usize = 13;

/// The width of each column but the last, in characters: later rows cannot widen the earlier ones.
const WIDTHS: [usize; 7] = [ID_CHARS, 9, 22, 20, 14, 5, 7];

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
        out.table(&[padded(head())]);
    }
    let listed = answer.pointer("/runs").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    listed.iter().rev().for_each(|run| print(run, args, out));
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
            print(&run, args, out);
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

fn print(run: &Json, args: &RunsArgs, out: Output<'_>) {
    if args.client.json {
        out.line(&run.to_string());
    } else {
        out.table(&[padded(row(run, if args.full { usize::MAX } else { ID_CHARS }))]);
    }
}

fn padded(cells: Vec<Cell>) -> Vec<Cell> {
    cells.into_iter().zip(WIDTHS.into_iter().chain([0])).map(|(cell, width)| cell.at_least(width)).collect()
}
