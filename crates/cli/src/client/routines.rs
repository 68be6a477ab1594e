//! `belay routines`: rules that start work by time or event.

mod fire;

use std::path::Path;
use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use belay_protocol::{RoutineSpec, WorkGrant};
use serde_json::{Value as Json, json};

use super::{Client, dollars, duration_text, grants, number, since, text, until};
use crate::args::{ClientArgs, CreateRoutineArgs, RoutineArgs, RoutinesCommand};

/// Longest file of a routine, in bytes: four times its longest text.
const FILE_MAX_BYTES: u64 = 256 * 1024;

/// Tests whether a routine would fire at a date, without a daemon, as the route of the API does.
///
/// # Errors
/// The routine or the date cannot be used.
pub type RoutineTester = fn(&RoutineSpec, &str) -> Result<Json, String>;

/// Runs another subcommand than the list. `tester`: for a routine in a file.
pub async fn one(
    command: &RoutinesCommand,
    tester: RoutineTester,
    env: &Environment,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    match command {
        RoutinesCommand::List(client) => list(client, env, out).await,
        RoutinesCommand::Show(args) => show(args, env, out).await,
        RoutinesCommand::Create(args) => create(args, env, out).await,
        RoutinesCommand::Revoke { routine, grant } => revoke(routine, *grant, env, out).await,
        RoutinesCommand::Enable(args) => switch(args, "enable", env, out).await,
        RoutinesCommand::Disable(args) => switch(args, "disable", env, out).await,
        RoutinesCommand::Delete(args) => delete(args, env, out).await,
        RoutinesCommand::Fire { routine, payload, wait } => {
            fire::fire(routine, payload.as_deref(), *wait, env, out).await
        }
        RoutinesCommand::Runs { routine, status, limit } => runs(routine, status.as_deref(), *limit, env, out).await,
        RoutinesCommand::Next { client, count, name } => next(client, *count, name.as_deref(), env, out).await,
        RoutinesCommand::Test { client, name, file, at } => {
            let tested = match (name, file) {
                (_, Some(file)) => tester(&read(file)?, at).map_err(|what| Failure::new(Exit::UnusableInput, what))?,
                (name, None) => {
                    let path = ["api", "v1", "routines", name.as_deref().unwrap_or_default(), "test"];
                    Client::find(client, env)?.post(&path, Some(&json!({ "at": at })), Duration::ZERO).await?
                }
            };
            Ok(print_test(&tested, client.json, out))
        }
    }
}

/// Lists routines by name.
pub async fn list(args: &ClientArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(args, env)?;
    let (mut routines, mut after) = (Vec::new(), None::<String>);
    loop {
        let query: Vec<_> = after.as_deref().map(|name| ("after", name)).into_iter().collect();
        let mut page = client.get(&["api", "v1", "routines"], &query).await?;
        after = page.pointer("/next").and_then(Json::as_str).map(str::to_owned);
        if let Some(Json::Array(rows)) = page.pointer_mut("/routines").map(Json::take) {
            routines.extend(rows);
        }
        if after.is_none() {
            break;
        }
    }
    match (args.json, routines.as_slice()) {
        (true, _) => out.json(&json!({ "routines": routines })),
        (false, []) => out.line("no routines"),
        (false, routines) => {
            let head = ["ROUTINE", "STATE", "NEXT", "FIRED", "ROUTINE_RUNS", "TRIGGERED BY"];
            let head = head.map(|name| Cell::new(name, Tone::Dim)).into();
            out.table(&std::iter::once(head).chain(routines.iter().map(row)).collect::<Vec<_>>());
        }
    }
    Ok(Exit::Fine)
}

async fn show(args: &RoutineArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let routine = Client::find(&args.client, env)?.get(&["api", "v1", "routines", &args.name], &[]).await?;
    if args.client.json {
        out.json(&routine);
        return Ok(Exit::Fine);
    }
    out.table(&details(&routine));
    print_grants(&routine, out);
    let said = match text(&routine, "/action/mode") {
        "full_job" => text(&routine, "/action/task"),
        _ => text(&routine, "/action/prompt"),
    };
    out.line(&format!("\n{said}"));
    Ok(Exit::Fine)
}

async fn create(args: &CreateRoutineArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let CreateRoutineArgs { client: args, file, replace, allow, yes } = args;
    let mut spec = read(file)?;
    spec.allow.extend(grants::parsed(allow)?);
    grants::confirm(&spec.allow, *yes).await?;
    let body = json!(spec);
    let client = Client::find(args, env)?;
    let routine = if *replace {
        client.put(&["api", "v1", "routines", &spec.name], &body).await?
    } else {
        client.post(&["api", "v1", "routines"], Some(&body), Duration::ZERO).await?
    };
    if args.json {
        out.json(&routine);
    } else {
        out.line(&format!("{}: {}", spec.name, set_off_by(&routine)));
        if let Some(next) = routine.pointer("/next_at").and_then(Json::as_str) {
            out.line(&format!("fires next at {next}"));
        }
        print_grants(&routine, out);
    }
    Ok(Exit::Fine)
}

/// Prints the calls that a routine may make without a question.
fn print_grants(routine: &Json, out: Output<'_>) {
    let grants: Vec<WorkGrant> =
        routine.pointer("/allow").and_then(|allow| serde_json::from_value(allow.clone()).ok()).unwrap_or_default();
    if !grants.is_empty() {
        out.line(&format!("without a question it may call:{}", grants::lines(&grants)));
    }
}

async fn revoke(args: &RoutineArgs, grant: usize, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let path = ["api", "v1", "routines", &args.name, "revoke"];
    let body = json!({ "grant": grant });
    let routine = Client::find(&args.client, env)?.post(&path, Some(&body), Duration::ZERO).await?;
    match args.client.json {
        true => out.json(&routine),
        false => print_grants(&routine, out),
    }
    Ok(Exit::Fine)
}

/// Reads a routine from a TOML file.
///
/// # Errors
/// 65: the file cannot be read, or is no routine.
fn read(file: &Path) -> Result<RoutineSpec, Failure> {
    let refuse = |what: String| Failure::new(Exit::UnusableInput, format!("{}: {what}", file.display()));
    let size = std::fs::metadata(file).map_err(|error| refuse(error.to_string()))?.len();
    if size > FILE_MAX_BYTES {
        return Err(refuse(format!("longer than {} KiB", FILE_MAX_BYTES / 1024)));
    }
    let written = std::fs::read_to_string(file).map_err(|error| refuse(error.to_string()))?;
    toml::from_str(&written).map_err(|error| refuse(error.to_string().trim_end().to_owned()))
}

async fn switch(args: &RoutineArgs, verb: &str, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let path = ["api", "v1", "routines", &args.name, verb];
    let routine = Client::find(&args.client, env)?.post(&path, None, Duration::ZERO).await?;
    match (args.client.json, routine.pointer("/next_at").and_then(Json::as_str)) {
        (true, _) => out.json(&routine),
        (false, Some(next)) => out.line(&format!("{} fires next at {next}", args.name)),
        (false, None) => out.line(&format!("{} is {verb}d", args.name)),
    }
    Ok(Exit::Fine)
}

async fn delete(args: &RoutineArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = Client::find(&args.client, env)?.delete(&["api", "v1", "routines", &args.name]).await?;
    if args.client.json {
        out.json(&answer)
    } else {
        out.line(&format!("{} is deleted", args.name))
    }
    Ok(Exit::Fine)
}

async fn runs(
    args: &RoutineArgs,
    status: Option<&str>,
    limit: u32,
    env: &Environment,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    let query: Vec<(&str, &str)> = status.map(|status| ("status", status)).into_iter().collect();
    let path = ["api", "v1", "routines", &args.name, "runs"];
    let answer = Client::find(&args.client, env)?.list(&path, &query, "routine_runs", limit).await?;
    if args.client.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    match answer.pointer("/routine_runs").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default() {
        [] => out.line("it has not fired"),
        routine_runs => {
            let head = ["ROUTINE_RUN", "STATUS", "BY", "SCHEDULED", "CLAIMED", "COST", "SAYS"];
            let head = head.map(|name| Cell::new(name, Tone::Dim)).into();
            out.table(&std::iter::once(head).chain(routine_runs.iter().map(routine_run_row)).collect::<Vec<_>>());
        }
    }
    Ok(Exit::Fine)
}

async fn next(
    args: &ClientArgs,
    count: u32,
    name: Option<&str>,
    env: &Environment,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    let count = count.to_string();
    let mut query = vec![("count", count.as_str())];
    query.extend(name.map(|name| ("routine", name)));
    let answer = Client::find(args, env)?.get(&["api", "v1", "routine-runs", "next"], &query).await?;
    if args.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    match answer.pointer("/next").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default() {
        [] => out.line("nothing is scheduled"),
        times => {
            let head = ["ROUTINE", "WHEN", "THERE", "ZONE"].map(|name| Cell::new(name, Tone::Dim)).into();
            let row = |time: &Json| {
                let left =
                    until(text(time, "/at")).map_or("now".to_owned(), |left| format!("in {}", duration_text(left)));
                vec![
                    Cell::from(text(time, "/routine")),
                    left.into(),
                    text(time, "/local").into(),
                    text(time, "/zone").into(),
                ]
            };
            out.table(&std::iter::once(head).chain(times.iter().map(row)).collect::<Vec<_>>());
        }
    }
    Ok(Exit::Fine)
}

/// Prints whether the routine would fire, and when it fires next. Exit 1 if it would not.
fn print_test(tested: &Json, as_json: bool, out: Output<'_>) -> Exit {
    let fires = tested.pointer("/fires").and_then(Json::as_bool).unwrap_or(false);
    if as_json {
        out.json(tested);
    } else {
        tested_lines(tested, fires).iter().for_each(|line| out.line(line));
    }
    if fires { Exit::Fine } else { Exit::Failed }
}

fn tested_lines(tested: &Json, fires: bool) -> Vec<String> {
    let time = |place: &str| {
        let time = tested.pointer(place)?;
        Some(format!("{} ({}, {})", text(time, "/local"), text(time, "/zone"), text(time, "/at")))
    };
    let verb = if fires { "fires" } else { "does not fire" };
    let mode = if fires { format!(", as {}", text(tested, "/mode")) } else { String::new() };
    let at = time("/at").unwrap_or_default();
    let mut lines = vec![format!("{} {verb} at {at}{mode}", text(tested, "/routine"))];
    lines.push(match tested.pointer("/next").filter(|next| next.is_object()).and_then(|_| time("/next")) {
        Some(next) => format!("it fires next at {next}"),
        None => "it does not fire after that".to_owned(),
    });
    if let Some(why) = tested.pointer("/disabled_detail").and_then(Json::as_str) {
        lines.push(format!("it is disabled now{}{why}", if why.is_empty() { "" } else { ": " }));
    }
    lines
}

fn row(routine: &Json) -> Vec<Cell> {
    let next = until(text(routine, "/next_at")).map_or(String::new(), |left| format!("in {}", duration_text(left)));
    let fired = since(text(routine, "/fired_at")).map_or(String::new(), |ago| format!("{} ago", duration_text(ago)));
    vec![
        text(routine, "/name").into(),
        state(routine),
        next.into(),
        fired.into(),
        number(routine, "/routine_runs").to_string().into(),
        set_off_by(routine).into(),
    ]
}

fn state(routine: &Json) -> Cell {
    match (routine.pointer("/enabled").and_then(Json::as_bool), number(routine, "/failures")) {
        (Some(false), _) => Cell::new("off", Tone::Dim),
        (_, 0) => Cell::new("on", Tone::Good),
        (_, failures) => Cell::new(format!("on, {failures} failed"), Tone::Warn),
    }
}

/// The trigger of a routine, for people.
fn set_off_by(routine: &Json) -> String {
    let part = |name: &str| text(routine, &format!("/trigger/{name}")).to_owned();
    match text(routine, "/trigger/kind") {
        "schedule" => format!("{} ({})", part("when"), part("zone")),
        "event" => format!("messages with {}", part("pattern")),
        "webhook" => format!("POST /hooks/{}", part("path")),
        "system" => format!("{} {}", part("source"), part("event")),
        _ => "hand".to_owned(),
    }
}

fn details(routine: &Json) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let mut rows = vec![
        row("routine", text(routine, "/name").into()),
        row("state", state(routine)),
        row("triggered by", set_off_by(routine).into()),
        row("does", text(routine, "/action/mode").into()),
        row("next", text(routine, "/next_at").into()),
        row("fired", text(routine, "/fired_at").into()),
        row("routine_runs", number(routine, "/routine_runs").to_string().into()),
        row("made in", text(routine, "/made_in").into()),
        row("revision", number(routine, "/revision").to_string().into()),
    ];
    for (name, place) in [("off because", "/disabled_detail"), ("is", "/description")] {
        if !text(routine, place).is_empty() {
            rows.push(row(name, text(routine, place).into()));
        }
    }
    rows
}

fn routine_run_row(routine_run: &Json) -> Vec<Cell> {
    let status = text(routine_run, "/status");
    let tone = match status {
        "ok" => Tone::Good,
        "attention" | "missed" => Tone::Warn,
        "failed" => Tone::Bad,
        _ => Tone::Plain,
    };
    let summary = text(routine_run, "/summary").lines().next().unwrap_or_default();
    vec![
        text(routine_run, "/routine_run_id").into(),
        Cell::new(status, tone),
        text(routine_run, "/by").into(),
        text(routine_run, "/scheduled_at").into(),
        since(text(routine_run, "/claimed_at"))
            .map_or(String::new(), |ago| format!("{} ago", duration_text(ago)))
            .into(),
        dollars(number(routine_run, "/cost_micro_usd")).into(),
        summary.into(),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_example_of_the_documents_is_a_routine() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/routines");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
        assert!(files.len() >= 3, "{files:?}");
        for file in files {
            let spec = read(&file).unwrap();
            assert_eq!(Some(spec.name.as_str()), file.file_stem().and_then(|name| name.to_str()));
            assert_eq!(belay_automation::routines::problems(&spec), Vec::<String>::new());
        }
    }

    #[test]
    fn a_file_that_is_no_routine_is_refused_with_the_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.toml");
        for (written, part) in [
            ("name = \"x\"", "trigger"),
            (
                "name = \"x\"\ntrigger = { kind = \"moon\" }\naction = { mode = \"lightweight\", prompt = \"p\" }",
                "moon",
            ),
            ("name = ", "line 1"),
        ] {
            std::fs::write(&file, written).unwrap();
            let failure = read(&file).unwrap_err();
            assert_eq!(failure.exit, Exit::UnusableInput);
            assert!(failure.what.contains(part) && failure.what.contains("r.toml"), "{}", failure.what);
        }
    }

    #[test]
    fn a_test_says_where_and_when_it_fires_and_what_comes_after() {
        let time = |at: &str| json!({"at": at, "local": format!("there {at}"), "zone": "Z"});
        let tested = json!({"routine": "tick", "fires": true, "mode": "full_job", "at": time("1"), "next": time("2")});
        assert_eq!(
            tested_lines(&tested, true),
            ["tick fires at there 1 (Z, 1), as full_job", "it fires next at there 2 (Z, 2)"]
        );
        let over =
            json!({"routine": "tick", "fires": false, "at": time("1"), "next": null, "disabled_detail": "5 failures"});
        assert_eq!(
            tested_lines(&over, false),
            ["tick does not fire at there 1 (Z, 1)", "it does not fire after that", "it is disabled now: 5 failures"]
        );
    }
}
