//! `belay top`: the running runs, again and again. On a terminal the table is redrawn in place; elsewhere each picture
//! is some lines.

use std::collections::HashMap;
use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_terminal::LiveArea;
use serde_json::{Value as Json, json};
use tokio::time::{MissedTickBehavior, interval};

use super::{Client, dollars, duration_text, number, text};
use crate::args::TopArgs;

/// Most runs of a picture: the table must fit a terminal of 24 rows to be redrawn.
const RUNS_MAX: usize = 20;

/// Longest text of a cell, in characters.
const CELL_MAX: usize = 24;

/// Shows the running runs until it is interrupted. It ends when the daemon does.
pub async fn top(args: &TopArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let mut area = LiveArea::default();
    let mut ticks = interval(Duration::from_secs(args.interval));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let picture = picture(&client).await?;
        if args.client.json {
            out.line(&picture.to_string());
        } else {
            out.redraw(&mut area, &tables(&picture));
        }
        if args.once {
            if out.is_terminal() && !args.client.json {
                out.line("");
            }
            return Ok(Exit::Fine);
        }
    }
}

/// The running runs, the longest first, and the numbers of the others.
async fn picture(client: &Client) -> Result<Json, Failure> {
    let status = client.get(&["api", "v1", "status"], &[]).await?;
    let stored = client.get(&["api", "v1", "runs"], &[("status", "running"), ("limit", "500")]).await?;
    let stored: HashMap<&str, &Json> = list(&stored, "/runs").iter().map(|run| (text(run, "/run_id"), run)).collect();
    let running = list(&status, "/running").iter().map(|live| {
        let (id, none) = (text(live, "/run_id"), Json::Null);
        let run = stored.get(id).copied().unwrap_or(&none);
        json!({
            "run_id": id,
            "session": text(live, "/session"),
            "for_ms": number(live, "/for_ms"),
            "step": number(live, "/step"),
            "tool": list(live, "/tools").last().and_then(Json::as_str).unwrap_or_default(),
            "tokens": number(run, "/usage/input") + number(run, "/usage/output"),
            "cost_micro_usd": number(run, "/cost_micro_usd"),
        })
    });
    Ok(json!({
        "running": running.collect::<Vec<_>>(),
        "processes": list(&status, "/processes"),
        "queued": number(&status, "/queued"),
        "paused": number(&status, "/paused"),
        "spent_today_micro_usd": number(&status, "/spent_today_micro_usd"),
    }))
}

fn list<'a>(of: &'a Json, pointer: &str) -> &'a [Json] {
    of.pointer(pointer).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The processes in the background, oldest first, below the runs.
fn process_rows(picture: &Json) -> Vec<Vec<Cell>> {
    let short = |words: &str| words.chars().take(CELL_MAX).collect::<String>();
    let row = |process: &Json| -> Vec<Cell> {
        let time = duration_text(Duration::from_millis(number(process, "/for_ms")));
        let printed = format!("{} bytes", number(process, "/printed_bytes"));
        let kept = if process["kept"] == true { "kept" } else { "of its run" };
        let (id, command, session) = (text(process, "/id"), text(process, "/command"), text(process, "/session"));
        [id.to_owned(), time, kept.to_owned(), printed, String::new(), short(command), short(session)]
            .map(Cell::from)
            .into()
    };
    list(picture, "/processes").iter().take(RUNS_MAX).map(row).collect()
}

/// A line of numbers, and the table of running runs and of processes.
fn tables(picture: &Json) -> [Vec<Vec<Cell>>; 2] {
    let running = list(picture, "/running");
    let processes = match list(picture, "/processes").len() {
        0 => String::new(),
        n => format!(", {n} in the background"),
    };
    let summary = format!(
        "{} running{processes}, {} queued, {} paused, {} today",
        running.len(),
        number(picture, "/queued"),
        number(picture, "/paused"),
        dollars(number(picture, "/spent_today_micro_usd")),
    );
    let summary = vec![vec![Cell::from(summary)]];
    let processes = process_rows(picture);
    if running.is_empty() && processes.is_empty() {
        return [summary, Vec::new()];
    }
    let head = ["RUN", "TIME", "STEP", "TOKENS", "COST", "TOOL", "SESSION"].map(|name| Cell::new(name, Tone::Dim));
    let short = |words: &str| words.chars().take(CELL_MAX).collect::<String>();
    let row = |run: &Json| -> Vec<Cell> {
        vec![
            text(run, "/run_id").get(..13).unwrap_or_default().into(),
            duration_text(Duration::from_millis(number(run, "/for_ms"))).into(),
            number(run, "/step").to_string().into(),
            number(run, "/tokens").to_string().into(),
            dollars(number(run, "/cost_micro_usd")).into(),
            short(text(run, "/tool")).into(),
            short(text(run, "/session")).into(),
        ]
    };
    let mut rows: Vec<_> = std::iter::once(head.into()).chain(running.iter().take(RUNS_MAX).map(row)).collect();
    if running.len() > RUNS_MAX {
        rows.push(vec![Cell::new(format!("and {} more", running.len() - RUNS_MAX), Tone::Dim)]);
    }
    rows.extend(processes);
    [summary, rows]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_many_runs_fits_a_terminal() {
        let run = json!({"run_id": "0193e0e0-0000-7000", "session": "s".repeat(99), "for_ms": 61_000});
        let [summary, rows] = tables(&json!({"running": vec![run; 50], "queued": 3}));
        assert_eq!(summary, [[Cell::from("50 running, 3 queued, 0 paused, $0.0000 today")]]);
        assert_eq!(rows.len(), RUNS_MAX + 2);
        assert_eq!(rows[21], [Cell::new("and 30 more", Tone::Dim)]);
        assert!(tables(&json!({}))[1].is_empty());
        let process = json!({"id": "p1", "session": "s", "command": "sleep 9", "kept": true, "for_ms": 61_000});
        let [summary, rows] = tables(&json!({"processes": [process]}));
        assert_eq!(summary, [[Cell::from("0 running, 1 in the background, 0 queued, 0 paused, $0.0000 today")]]);
        assert_eq!((rows.len(), &rows[1][0], &rows[1][5]), (2, &Cell::from("p1"), &Cell::from("sleep 9")));
    }
}
