//! `belay runs`: recent runs, or one of them.

mod follow;
mod timeline;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Column, Output, Tone, fitted};
use serde_json::Value as Json;

use self::timeline::Timeline;
use super::approvals::waits_for;
use super::ids::{IdKind, short, shown_chars, whole_id};
use super::local_time::{TimeText, times};
use super::names::Names;
use super::{Client, dollars, duration_text, number, since, text, tone_of};
use crate::args::{ClientArgs, RunsArgs};

/// How the list fits a terminal: the id, by which commands name a run, stays whole.
const COLUMNS: [Column; 8] = [
    Column::WHOLE,
    Column::WHOLE,
    Column::cut(12),
    Column::cut(12),
    Column::optional(1),
    Column::optional(4),
    Column::optional(3),
    Column::optional(2),
];

/// The place of the session in [`COLUMNS`].
const SESSION: usize = 3;

/// The width of the other columns that always stay, with whole ids and with the gaps.
const FULL_WIDTH: usize = 36 + 9 + 12 + 3 * 2;

/// The columns for a terminal, and the width that the rows get. With `full`, neither an id nor a key of up to `key`
/// columns is cut: on a narrower terminal the rows wrap. Words behind a key may be cut to `:…`.
fn layout(full: bool, key: usize, terminal: usize) -> ([Column; 8], usize) {
    let mut columns = COLUMNS;
    if !full {
        return (columns, terminal);
    }
    let key = key + 2;
    columns[SESSION] = Column::cut(key);
    (columns, terminal.max(FULL_WIDTH + key))
}

/// Lists recent runs, newest first.
pub async fn list(args: &RunsArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let mut query: Vec<(&str, &str)> =
        args.session.as_deref().map(|session| ("session", session)).into_iter().collect();
    for (name, value) in
        [("status", &args.status), ("reason", &args.reason), ("since", &args.since), ("until", &args.until)]
    {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    let client = Client::find(&args.client, env)?;
    if args.follow {
        return follow::follow(&client, args, &query, out).await;
    }
    let answer = client.list(&["api", "v1", "runs"], &query, "runs", args.limit).await?;
    if args.client.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    let runs = answer.pointer("/runs").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    match runs {
        [] => out.line("no runs"),
        runs => {
            let ids = runs.iter().map(|run| text(run, "/run_id"));
            let chars = shown_chars(&client, IdKind::Run, ids, args.full).await?;
            let sessions = || runs.iter().map(|run| text(run, "/session"));
            let mut names = Names::new(args.full);
            if out.is_terminal() {
                names.learn(&client, sessions()).await;
            }
            let rows = runs.iter().map(|run| row(run, chars, &names));
            let rows: Vec<_> = std::iter::once(head()).chain(rows).collect();
            match out.columns() {
                Some(terminal) => {
                    let key = sessions().map(belay_terminal::width).max().unwrap_or(0);
                    let (columns, width) = layout(args.full, key, terminal);
                    out.table(&fitted(&rows, &columns, width));
                }
                None => out.table(&rows),
            }
        }
    }
    Ok(Exit::Fine)
}

/// Shows one run, with `timeline` also where its time went.
pub async fn show(
    args: &ClientArgs,
    id: &str,
    timeline: bool,
    env: &Environment,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    let client = Client::find(args, env)?;
    let id = whole_id(&client, IdKind::Run, id).await?;
    let mut run = client.get(&["api", "v1", "runs", &id], &[]).await?;
    let timeline = match timeline {
        true => Some(Timeline::read(&client, &run).await?),
        false => None,
    };
    if timeline.is_some() && text(&run, "/ended_at").is_empty() {
        run = client.get(&["api", "v1", "runs", &id], &[]).await?; // it has ended since
    }
    if args.json {
        if let (Some(timeline), Some(run)) = (&timeline, run.as_object_mut()) {
            run.insert("timeline".to_owned(), timeline.json());
        }
        out.json(&run);
    } else {
        out.table(&details(&run, &times(out)));
        if let Some(reply) = run.pointer("/reply").and_then(Json::as_str) {
            out.line(&format!("\n{reply}"));
        }
        timeline.iter().for_each(|timeline| timeline.print(out));
    }
    Ok(Exit::Fine)
}

fn head() -> Vec<Cell> {
    ["RUN", "STATUS", "REASON", "SESSION", "ACCEPTED", "CALLS", "TOKENS", "COST"]
        .map(|name| Cell::new(name, Tone::Dim))
        .into()
}

/// The row of a run. Of a run for a program, no names are known.
fn row(run: &Json, id_chars: usize, names: &Names) -> Vec<Cell> {
    let status = text(run, "/status");
    vec![
        short(text(run, "/run_id"), id_chars).into(),
        Cell::new(status, tone_of(status)),
        why(run).into(),
        names.shown(text(run, "/session")).into(),
        since(text(run, "/accepted_at")).map_or(String::new(), |ago| format!("{} ago", duration_text(ago))).into(),
        number(run, "/usage/model_calls").to_string().into(),
        (number(run, "/usage/input") + number(run, "/usage/output")).to_string().into(),
        dollars(number(run, "/cost_micro_usd")).into(),
    ]
}

/// The reason of the end, or what the run waits for.
fn why(run: &Json) -> String {
    match text(run, "/waiting_for/tool") {
        "" => text(run, "/reason").to_owned(),
        _ if text(run, "/waiting_for/kind") == "client_calls" => "waits for its client".to_owned(),
        tool => format!("asks about {tool}"),
    }
}

fn details(run: &Json, times: &TimeText) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let status = text(run, "/status");
    let estimated = match number(run, "/usage/estimated_calls") {
        0 => String::new(),
        calls => format!(" ({calls} of the model calls estimated: the provider did not report them)"),
    };
    let usage = format!(
        "{} model calls, {} tool calls, {} tokens read, {} written{estimated}",
        number(run, "/usage/model_calls"),
        number(run, "/usage/tool_calls"),
        number(run, "/usage/input"),
        number(run, "/usage/output"),
    );
    let mut rows = vec![
        row("run", text(run, "/run_id").into()),
        row("session", text(run, "/session").into()),
        row("status", Cell::new(status, tone_of(status))),
        row("reason", text(run, "/reason").into()),
        row("accepted", times.whole(text(run, "/accepted_at")).into()),
        row("started", times.whole(text(run, "/started_at")).into()),
        row("ended", times.whole(text(run, "/ended_at")).into()),
        row("attempt", number(run, "/attempt").to_string().into()),
        row("usage", usage.into()),
        row("cost", dollars(number(run, "/cost_micro_usd")).into()),
    ];
    if let Some(question) = run.pointer("/waiting_for") {
        rows.push(row("waits for", waits_for(question).into()));
        rows.push(row("question", text(question, "/gate").into()));
    }
    if let Some(evidence) = run.pointer("/evidence").and_then(Json::as_object).filter(|map| !map.is_empty()) {
        rows.push(row("evidence", Json::Object(evidence.clone()).to_string().into()));
    }
    rows
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;

    use serde_json::json;

    use super::*;
    use crate::client::testing::answering;

    fn rows() -> Vec<Vec<Cell>> {
        let run = |id: &str, status: &str, reason: &str, session: &str, calls: u64| {
            json!({
                "run_id": id, "status": status, "reason": reason, "session": session, "accepted_at": "",
                "usage": {"model_calls": calls, "input": calls * 12_345, "output": 678}, "cost_micro_usd": calls * 1200,
            })
        };
        let mut rows = vec![head()];
        for run in [
            run("0199e3a0-7b1c-7000", "completed", "goal", "cli", 2),
            run("0199e3a0-7b1d-7000", "stopped", "max_consecutive_errors", "telegram:-1001234567890:42", 31),
        ] {
            let mut cells = row(&run, 13, &Names::default());
            cells[4] = "23 h 59 min ago".into(); // the clock of the machine is no part of the snapshot
            rows.push(cells);
        }
        rows
    }

    #[test]
    fn the_list_fits_80_and_120_columns() {
        let error = OnceLock::new();
        let shown = |width| Output::plain(&error).aligned(&fitted(&rows(), &COLUMNS, width));
        assert_eq!(
            shown(80),
            [
                "RUN            STATUS     REASON         SESSION        ACCEPTED         COST",
                "0199e3a0-7b1c  completed  goal           cli            23 h 59 min ago  $0.0024",
                "0199e3a0-7b1d  stopped    max_consecut…  telegram:-10…  23 h 59 min ago  $0.0372"
            ]
        );
        assert_eq!(
            shown(120),
            [
                "RUN            STATUS     REASON                  SESSION                     ACCEPTED         CALLS  TOKENS  COST",
                "0199e3a0-7b1c  completed  goal                    cli                         23 h 59 min ago  2      25368   $0.0024",
                "0199e3a0-7b1d  stopped    max_consecutive_errors  telegram:-1001234567890:42  23 h 59 min ago  31     383373  $0.0372"
            ]
        );
        for width in [80, 120] {
            assert!(shown(width).iter().all(|line| line.chars().count() <= width));
        }
    }

    const RUN: &str = "0199e3a0-7b1d-7000-8000-000000000001";
    const JOB: &str = "job:0199e3a0-7b1e-7000-8000-000000000002";

    /// The lines of a list of two runs, of which the job of the second one has a title of 120 characters.
    async fn titled(full: bool, terminal: usize) -> Vec<String> {
        let (client, serve) = answering(vec![json!({"title": "t".repeat(120)}).to_string()]).await;
        let mut names = Names::new(full);
        tokio::join!(names.learn(&client, std::iter::once(JOB)), serve);
        let of = |session| json!({"run_id": RUN, "status": "completed", "reason": "goal", "session": session});
        let chars = if full { usize::MAX } else { 13 };
        let rows = [head(), row(&of("cli"), chars, &names), row(&of(JOB), chars, &names)];
        let (columns, width) = layout(full, JOB.len(), terminal);
        Output::plain(&OnceLock::new()).aligned(&fitted(&rows, &columns, width))
    }

    #[tokio::test]
    async fn a_title_of_120_characters_moves_no_column_of_a_wide_terminal() {
        let lines = titled(false, 200).await;
        assert!(lines[2].contains("t… (job 0199e3a0-7b1e)"), "{lines:#?}");
        let before = |line: &String, text| line.split_once(text).map(|(before, _)| before.chars().count());
        let at = before(&lines[0], "COST");
        assert!(at.is_some() && lines[1..].iter().all(|line| before(line, "$") == at), "{lines:#?}");
    }

    #[tokio::test]
    async fn whole_ids_are_not_cut_on_any_terminal() {
        for terminal in [80, 120, 200] {
            let lines = titled(true, terminal).await;
            assert!(lines[2].contains(RUN) && lines[2].contains(JOB), "{terminal}: {lines:#?}");
        }
    }
}
