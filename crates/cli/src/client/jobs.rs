//! `belay jobs`: work in the background.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::{Value as Json, json};
use uuid::Uuid;

use super::grants;
use super::ids::{IdKind, short, shown_chars, whole_id};
use super::watch::{Progress, watch};
use super::{Client, dollars, duration_text, number, since, text};
use crate::args::{ClientArgs, CreateJobArgs, JobArgs, JobsCommand, JobsListArgs};

/// Runs another subcommand than the list.
pub async fn one(command: &JobsCommand, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match command {
        JobsCommand::List(args) => list(args, env, out).await,
        JobsCommand::Show(args) => show(args, env, out).await,
        JobsCommand::Create(args) => create(args, env, out).await,
        JobsCommand::Tell { job, text } => tell(job, text, env, out).await,
        JobsCommand::Cancel(args) => change(args, "cancel", env, out).await,
        JobsCommand::Accept(args) => change(args, "accept", env, out).await,
        JobsCommand::Watch(args) => {
            let (client, id) = found(args, env).await?;
            watch(&client, &id, Progress::Shown, args.client.json, out).await
        }
    }
}

/// Lists jobs, newest first.
pub async fn list(args: &JobsListArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let mut query: Vec<(&str, &str)> = args.state.as_deref().map(|state| ("state", state)).into_iter().collect();
    query.extend(args.session.as_deref().map(|session| ("session", session)));
    let client = Client::find(&args.client, env)?;
    let answer = client.list(&["api", "v1", "jobs"], &query, "jobs", args.limit).await?;
    if args.client.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    match answer.pointer("/jobs").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default() {
        [] => out.line("no jobs"),
        jobs => {
            let ids = jobs.iter().map(|job| text(job, "/job_id"));
            let chars = shown_chars(&client, IdKind::Job, ids, args.full).await?;
            out.table(&std::iter::once(head()).chain(jobs.iter().map(|job| row(job, chars))).collect::<Vec<_>>());
        }
    }
    Ok(Exit::Fine)
}

/// Connects to the daemon, and resolves the job's id.
async fn found(args: &JobArgs, env: &Environment) -> Result<(Client, String), Failure> {
    let client = Client::find(&args.client, env)?;
    let id = whole_id(&client, IdKind::Job, &args.id).await?;
    Ok((client, id))
}

async fn show(args: &JobArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let (client, id) = found(args, env).await?;
    let job = client.get(&["api", "v1", "jobs", &id], &[]).await?;
    shown(&job, &args.client, out);
    Ok(Exit::Fine)
}

async fn create(args: &CreateJobArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let task = belay_program::input::message(&args.task)?;
    let allow = grants::parsed(&args.allow)?;
    grants::confirm(&allow, args.yes).await?;
    let client = Client::find(&args.client, env)?;
    let mut order = json!({
        // Made here, so that a repeated request creates no second job.
        "job_id": Uuid::now_v7(),
        "task": task,
        "plan": args.plan,
        "runs_in": if args.worker { "worker" } else { "local" },
        "allow": allow,
        "budget": {
            "max_steps": args.max_steps,
            "max_tokens": args.max_tokens,
            "max_time_ms": u64::from(args.max_minutes) * 60_000,
        },
    });
    for (field, value) in [("title", &args.title), ("session", &args.session)] {
        if let Some(value) = value {
            order[field] = json!(value);
        }
    }
    let job = client.post(&["api", "v1", "jobs"], Some(&order), Duration::ZERO).await?;
    let id = text(&job, "/job_id");
    match (args.watch, args.client.json) {
        (true, json) => return watch(&client, id, Progress::Shown, json, out).await,
        (false, true) => out.json(&job),
        (false, false) => out.line(id),
    }
    Ok(Exit::Fine)
}

async fn tell(args: &JobArgs, said: &str, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let said = json!({ "text": belay_program::input::message(said)?, "idempotency_key": Uuid::now_v7().to_string() });
    let (client, id) = found(args, env).await?;
    let path = ["api", "v1", "jobs", &id, "messages"];
    let answer = client.post(&path, Some(&said), Duration::ZERO).await?;
    if args.client.json {
        out.json(&answer)
    } else {
        out.line(text(&answer, "/reply"))
    }
    Ok(Exit::Fine)
}

async fn change(args: &JobArgs, verb: &str, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let (client, id) = found(args, env).await?;
    let path = ["api", "v1", "jobs", &id, verb];
    let job = client.post(&path, None, Duration::ZERO).await?;
    if args.client.json {
        out.json(&job)
    } else {
        out.line(&format!("{} is {}", text(&job, "/job_id"), text(&job, "/state")))
    }
    Ok(Exit::Fine)
}

fn shown(job: &Json, args: &ClientArgs, out: Output<'_>) {
    if args.json {
        out.json(job);
        return;
    }
    out.table(&details(job));
    if let Some(result) = job.pointer("/result").and_then(Json::as_str) {
        out.line(&format!("\n{result}"));
    }
}

fn head() -> Vec<Cell> {
    ["JOB", "STATE", "MADE", "ATTEMPT", "STEP", "CALLS", "TOKENS", "COST", "LAST ACTION", "TITLE"]
        .map(|name| Cell::new(name, Tone::Dim))
        .into()
}

fn row(job: &Json, id_chars: usize) -> Vec<Cell> {
    vec![
        short(text(job, "/job_id"), id_chars).into(),
        state(job),
        since(text(job, "/created_at")).map_or(String::new(), |ago| format!("{} ago", duration_text(ago))).into(),
        number(job, "/attempt").to_string().into(),
        job.pointer("/steps").map_or(String::new(), Json::to_string).into(),
        number(job, "/usage/model_calls").to_string().into(),
        tokens(job).to_string().into(),
        dollars(number(job, "/cost_micro_usd")).into(),
        last_action(job).unwrap_or_default().into(),
        text(job, "/title").into(),
    ]
}

fn details(job: &Json) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let mut rows = vec![
        row("job", text(job, "/job_id").into()),
        row("title", text(job, "/title").into()),
        row("state", state(job)),
        row("attempt", number(job, "/attempt").to_string().into()),
        row("step", number(job, "/steps").to_string().into()),
        row("tokens", tokens(job).to_string().into()),
        row("cost", dollars(number(job, "/cost_micro_usd")).into()),
        row("session", text(job, "/session").into()),
        row("asked in", text(job, "/asked_in").into()),
        row("made", text(job, "/created_at").into()),
        row("begun", text(job, "/started_at").into()),
        row("ended", text(job, "/ended_at").into()),
    ];
    if let Some(action) = last_action(job) {
        rows.push(row("last action", action.into()));
    }
    if let Some(run) = job.pointer("/run_id").and_then(Json::as_str) {
        rows.push(row("run", run.into()));
    }
    if !text(job, "/detail").is_empty() {
        rows.push(row("detail", text(job, "/detail").into()));
    }
    rows
}

/// The state of a job, with its colour.
pub(super) fn state(job: &Json) -> Cell {
    let state = text(job, "/state");
    let tone = match state {
        "completed" | "submitted" | "accepted" => Tone::Good,
        "failed" => Tone::Bad,
        "stuck" | "cancelled" => Tone::Warn,
        _ => Tone::Plain,
    };
    Cell::new(state, tone)
}

/// The newest tool call with its status.
pub(super) fn last_action(job: &Json) -> Option<String> {
    let action = job.pointer("/last_action").filter(|action| action.is_object())?;
    Some(format!("{} ({})", text(action, "/tool"), text(action, "/status")))
}

/// Input and output tokens.
pub(super) fn tokens(job: &Json) -> u64 {
    number(job, "/usage/input") + number(job, "/usage/output")
}
