//! `belay top`: the running runs, again and again. On a terminal the table is redrawn in place; elsewhere each picture
//! is some lines.

use std::collections::HashMap;
use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Column, Output, Tone, fitted};
use belay_terminal::LiveArea;
use serde_json::{Value as Json, json};
use tokio::time::{MissedTickBehavior, interval};

use super::names::Names;
use super::{Client, dollars, duration_text, number, text};
use crate::args::TopArgs;

/// Most runs of a picture: the table must fit a terminal of 24 rows to be redrawn.
const RUNS_MAX: usize = 20;

/// How the table fits a terminal.
const COLUMNS: [Column; 7] = [
    Column::WHOLE,
    Column::WHOLE,
    Column::optional(1),
    Column::optional(3),
    Column::optional(2),
    Column::cut(12),
    Column::cut(12),
];

/// Shows the running runs until it is interrupted. It ends when the daemon does.
pub async fn top(args: &TopArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let (mut area, mut names) = (LiveArea::default(), Names::default());
    let mut ticks = interval(Duration::from_secs(args.interval));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let picture = picture(&client).await?;
        if args.client.json {
            out.line(&picture.to_string());
        } else {
            if out.is_terminal() {
                let running = list(&picture, "/running").iter().take(RUNS_MAX);
                names.learn(&client, running.map(|run| text(run, "/session"))).await;
            }
            out.redraw(&mut area, &tables(&picture, &names, out.columns()));
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
    let row = |process: &Json| -> Vec<Cell> {
        let time = duration_text(Duration::from_millis(number(process, "/for_ms")));
        let printed = format!("{} bytes", number(process, "/printed_bytes"));
        let kept = if process["kept"] == true { "kept" } else { "of its run" };
        let (id, command, session) = (text(process, "/id"), text(process, "/command"), text(process, "/session"));
        [id.to_owned(), time, kept.to_owned(), printed, String::new(), command.to_owned(), session.to_owned()]
            .map(Cell::from)
            .into()
    };
    list(picture, "/processes").iter().take(RUNS_MAX).map(row).collect()
}

/// A line of numbers, and the table of running runs and of processes, for a terminal of this width; `None`: for a program.
fn tables(picture: &Json, names: &Names, width: Option<usize>) -> [Vec<Vec<Cell>>; 2] {
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
    let row = |run: &Json| -> Vec<Cell> {
        vec![
            text(run, "/run_id").get(..13).unwrap_or_default().into(),
            duration_text(Duration::from_millis(number(run, "/for_ms"))).into(),
            number(run, "/step").to_string().into(),
            number(run, "/tokens").to_string().into(),
            dollars(number(run, "/cost_micro_usd")).into(),
            text(run, "/tool").into(),
            names.shown(text(run, "/session")).into(),
        ]
    };
    let mut rows: Vec<_> = std::iter::once(head.into()).chain(running.iter().take(RUNS_MAX).map(row)).collect();
    if running.len() > RUNS_MAX {
        rows.push(vec![Cell::new(format!("and {} more", running.len() - RUNS_MAX), Tone::Dim)]);
    }
    rows.extend(processes);
    [summary, if let Some(width) = width { fitted(&rows, &COLUMNS, width) } else { rows }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_of_many_runs_fits_a_terminal() {
        let run = json!({"run_id": "0193e0e0-0000-7000", "session": "s".repeat(99), "for_ms": 61_000});
        let [summary, rows] = tables(&json!({"running": vec![run; 50], "queued": 3}), &Names::default(), None);
        assert_eq!(summary, [[Cell::from("50 running, 3 queued, 0 paused, $0.0000 today")]]);
        assert_eq!(rows.len(), RUNS_MAX + 2);
        assert_eq!(rows[21], [Cell::new("and 30 more", Tone::Dim)]);
        assert!(tables(&json!({}), &Names::default(), None)[1].is_empty());
        let process = json!({"id": "p1", "session": "s", "command": "sleep 9", "kept": true, "for_ms": 61_000});
        let [summary, rows] = tables(&json!({"processes": [process]}), &Names::default(), None);
        assert_eq!(summary, [[Cell::from("0 running, 1 in the background, 0 queued, 0 paused, $0.0000 today")]]);
        assert_eq!((rows.len(), &rows[1][0], &rows[1][5]), (2, &Cell::from("p1"), &Cell::from("sleep 9")));
    }

    #[test]
    fn a_picture_fits_80_and_120_columns() {
        let picture = json!({
            "running": [
                {"run_id": "0193e0e0-0000-7000", "session": "cli", "for_ms": 5000, "step": 2, "tool": "calculate", "tokens": 900},
                {
                    "run_id": "0193e0e0-0001-7000", "session": "telegram:-1001234567890:42", "for_ms": 86_390_000, "step": 31,
                    "tool": "mcp_tickets_search_everything", "tokens": 1_234_567, "cost_micro_usd": 4_200_000,
                },
            ],
            "processes": [{
                "id": "p1", "session": "cli", "command": "python3 -m http.server --directory public 8000", "kept": true,
                "for_ms": 61_000, "printed_bytes": 1_048_576,
            }],
        });
        let error = std::sync::OnceLock::new();
        let shown = |width| Output::plain(&error).aligned(&tables(&picture, &Names::default(), width)[1]);
        assert_eq!(
            shown(Some(80)),
            [
                "RUN            TIME         STEP  COST     TOOL                SESSION",
                "0193e0e0-0000  5 s          2     $0.0000  calculate           cli",
                "0193e0e0-0001  23 h 59 min  31    $4.20    mcp_tickets_searc…  telegram:-100123…",
                "p1             1 min        kept           python3 -m http.s…  cli"
            ]
        );
        assert_eq!(
            shown(Some(120)),
            [
                "RUN            TIME         STEP  TOKENS         COST     TOOL                                SESSION",
                "0193e0e0-0000  5 s          2     900            $0.0000  calculate                           cli",
                "0193e0e0-0001  23 h 59 min  31    1234567        $4.20    mcp_tickets_search_everything       telegram:-1001234567890:42",
                "p1             1 min        kept  1048576 bytes           python3 -m http.server --director…  cli"
            ]
        );
        assert!(shown(None)[3].contains("python3 -m http.server --directory public 8000"), "a program reads all of it");
    }
}
