//! `belay sessions`: lists, shows, searches, exports, hides and deletes sessions.

use std::path::Path;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Output, Tone};
use serde_json::{Value as Json, json};

use super::{Client, duration_text, number, since, text};
use crate::args::{ClientArgs, ExportArgs, SearchArgs, SessionArgs, SessionsCommand, SessionsListArgs};

/// Number of messages that `show` prints.
const SHOWN: &str = "500";

/// Runs another subcommand than the list.
pub async fn one(command: &SessionsCommand, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match command {
        SessionsCommand::List(args) => list(args, env, out).await,
        SessionsCommand::Show(args) => show(args, env, out).await,
        SessionsCommand::Search(args) => search(args, env, out).await,
        SessionsCommand::Export(args) => export(args, env, out).await,
        SessionsCommand::Hide { session, restore } => hide(session, *restore, env, out).await,
        SessionsCommand::Delete(args) => delete(args, env, out).await,
        SessionsCommand::Prune { client, dry_run } => prune(client, *dry_run, env, out).await,
        SessionsCommand::ForgetSecrets { session, name } => forget(session, name.as_deref(), env, out).await,
    }
}

/// Lists sessions, most recently used first.
pub async fn list(args: &SessionsListArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let asked = [(args.all, "all"), (args.hidden, "hidden")].into_iter().filter(|(is_asked, _)| *is_asked);
    let query: Vec<(&str, &str)> = asked.map(|(_, name)| (name, "true")).collect();
    let client = Client::find(&args.client, env)?;
    let answer = client.list(&["api", "v1", "sessions"], &query, "sessions", args.limit).await?;
    if args.client.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    match list_in(&answer, "/sessions") {
        [] => out.line("no sessions"),
        sessions => {
            let head = ["SESSION", "STATE", "OPEN", "USED", "TITLE"].map(|name| Cell::new(name, Tone::Dim)).into();
            out.table(&std::iter::once(head).chain(sessions.iter().map(row)).collect::<Vec<_>>());
        }
    }
    Ok(Exit::Fine)
}

fn row(session: &Json) -> Vec<Cell> {
    let used =
        since(text(session, "/last_active_at")).map_or(String::new(), |since| format!("{} ago", duration_text(since)));
    vec![
        text(session, "/session").into(),
        text(session, "/state").into(),
        number(session, "/open_runs").to_string().into(),
        used.into(),
        text(session, "/title").into(),
    ]
}

/// Shows the messages of the current conversation.
async fn show(args: &SessionArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let path = ["api", "v1", "sessions", &args.key, "messages"];
    let answer = client.get(&path, &[("limit", SHOWN)]).await?;
    if args.client.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    let messages = list_in(&answer, "/messages");
    if messages.is_empty() {
        out.line("nothing was said yet");
    }
    for message in messages {
        out.line(&format!("{} · {}\n{}\n", text(message, "/role"), text(message, "/at"), text(message, "/text")));
    }
    if answer.pointer("/next").is_some() {
        out.line(&format!("There is more: `belay sessions export {}`.", args.key));
    }
    Ok(Exit::Fine)
}

/// Searches messages. Exit 1 if nothing is found, like `grep`.
async fn search(args: &SearchArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let words = args.query.join(" ");
    let mut query = vec![("q", words.as_str())];
    query.extend(args.session.as_deref().map(|session| ("session", session)));
    let path = ["api", "v1", "search"];
    let answer = Client::find(&args.client, env)?.list(&path, &query, "found", args.limit).await?;
    let found = list_in(&answer, "/found");
    if args.client.json {
        out.json(&answer);
    } else if found.is_empty() {
        out.line("nothing was found");
    } else {
        for hit in found {
            let place = format!("{} · {} · {}", text(hit, "/session"), text(hit, "/role"), text(hit, "/at"));
            out.line(&format!("{place}\n  {}", text(hit, "/snippet")));
        }
    }
    Ok(if found.is_empty() { Exit::Failed } else { Exit::Fine })
}

/// Exports a session.
async fn export(args: &ExportArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let threads = if args.all_threads { "all" } else { "active" };
    let query = [("format", args.format.word()), ("threads", threads)];
    let path = ["api", "v1", "sessions", &args.key, "export"];
    let written = Client::find(&args.client, env)?.get_text(&path, &query).await?;
    match &args.file {
        None => out.line(written.trim_end()),
        Some(file) => write(file, &written)?,
    }
    Ok(Exit::Fine)
}

pub(super) fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text).map_err(|error| {
        Failure::new(Exit::Failed, format!("{} cannot be written: {error}", file.display()))
            .next("name another file with -o, or leave it out")
    })
}

/// Leaves a session out of lists, or lists it again.
async fn hide(args: &SessionArgs, restore: bool, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let body = json!({ "hidden": !restore });
    let answer = Client::find(&args.client, env)?.put(&["api", "v1", "sessions", &args.key], &body).await?;
    if args.client.json {
        out.json(&answer);
    } else if restore {
        out.line(&format!("{} is listed again", args.key));
    } else {
        out.line(&format!("{} is left out of lists until its next message", args.key));
    }
    Ok(Exit::Fine)
}

/// Deletes a session.
async fn delete(args: &SessionArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = Client::find(&args.client, env)?.delete(&["api", "v1", "sessions", &args.key]).await?;
    print_removed(&answer, "Deleted", &args.client, out);
    if !args.client.json {
        out.line("Notes of persons stay; `belay memory` lists and deletes them.");
    }
    Ok(Exit::Fine)
}

/// Deletes data that is older than the settings allow.
async fn prune(args: &ClientArgs, dry_run: bool, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(args, env)?;
    let query = [("dry_run", if dry_run { "true" } else { "false" })];
    let answer = client.post_with(&["api", "v1", "prune"], &query).await?;
    print_removed(&answer, if dry_run { "Would delete" } else { "Deleted" }, args, out);
    Ok(Exit::Fine)
}

fn print_removed(answer: &Json, what: &str, args: &ClientArgs, out: Output<'_>) {
    if args.json {
        return out.json(answer);
    }
    let counts = answer.pointer("/removed").and_then(Json::as_object).into_iter().flatten();
    let counts: Vec<String> =
        counts.filter_map(|(name, n)| n.as_u64().filter(|n| *n > 0).map(|n| format!("{name}: {n}"))).collect();
    if counts.is_empty() {
        out.line(&format!("{what} nothing."))
    } else {
        out.line(&format!("{what} {}.", counts.join(", ")))
    }
}

/// Deletes secrets of a session.
async fn forget(args: &SessionArgs, name: Option<&str>, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let mut path = vec!["api", "v1", "sessions", args.key.as_str(), "secrets"];
    path.extend(name);
    let answer = Client::find(&args.client, env)?.delete(&path).await?;
    if args.client.json {
        out.json(&answer);
    } else {
        match number(&answer, "/forgotten") {
            0 => out.line("there was none"),
            1 => out.line("forgot 1 secret; it is asked for again when it is needed"),
            n => out.line(&format!("forgot {n} secrets; they are asked for again when they are needed")),
        }
    }
    Ok(Exit::Fine)
}

fn list_in<'a>(answer: &'a Json, pointer: &str) -> &'a [Json] {
    answer.pointer(pointer).and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}
