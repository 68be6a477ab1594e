//! `belay memory`: lists, shows, searches, edits, exports and deletes notes.

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::input;
use belay_program::output::{Cell, Output, Tone};
use serde_json::{Value as Json, json};

use super::{Client, number, text};
use crate::args::{ClientArgs, MemoryCommand, MemoryListArgs, NoteArgs, NoteOwner};

/// Notes in one page of an export.
const PAGE: usize = 500;

/// Longest text of a note in a list, in characters.
const SHOWN_CHARS: usize = 80;

/// Runs another subcommand than the list.
pub async fn one(command: &MemoryCommand, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    match command {
        MemoryCommand::List(args) => list(args, env, out).await,
        MemoryCommand::Search { list, query } => search(list, &query.join(" "), env, out).await,
        MemoryCommand::Show(NoteArgs { client, id }) => {
            let note = Client::find(client, env)?.get(&["api", "v1", "memory", &id.to_string()], &[]).await?;
            show(&note, client, out);
            Ok(Exit::Fine)
        }
        MemoryCommand::Edit { note: NoteArgs { client, id }, text } => {
            let body = json!({ "text": input::message(text)? });
            let note = Client::find(client, env)?.put(&["api", "v1", "memory", &id.to_string()], &body).await?;
            show(&note, client, out);
            Ok(Exit::Fine)
        }
        MemoryCommand::Export { client, owner, output } => {
            let lines = export(&Client::find(client, env)?, owner).await?;
            match output {
                None if lines.is_empty() => {}
                None => out.line(lines.trim_end()),
                Some(file) => super::sessions::write(file, &lines)?,
            }
            Ok(Exit::Fine)
        }
        MemoryCommand::Delete { client, owner, all, id } => {
            let id = id.map(|id| id.to_string());
            let mut path = vec!["api", "v1", "memory"];
            path.extend(id.as_deref().filter(|_| !all));
            let answer = Client::find(client, env)?.delete_with(&path, &query_of(owner)).await?;
            match (client.json, number(&answer, "/deleted")) {
                (true, _) => out.json(&answer),
                (false, 1) => out.line("deleted 1 note"),
                (false, count) => out.line(&format!("deleted {count} notes")),
            }
            Ok(Exit::Fine)
        }
    }
}

/// Lists notes, oldest first.
pub async fn list(args: &MemoryListArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = notes(args, None, env).await?;
    match (args.client.json, notes_in(&answer)) {
        (true, _) => out.json(&answer),
        (false, []) => out.line("no notes"),
        (false, notes) => table(notes, out),
    }
    Ok(Exit::Fine)
}

/// Searches notes. Exit 1 if nothing is found, like `grep`.
async fn search(args: &MemoryListArgs, words: &str, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let answer = notes(args, Some(words), env).await?;
    let found = notes_in(&answer);
    match (args.client.json, found) {
        (true, _) => out.json(&answer),
        (false, []) => out.line("nothing was found"),
        (false, notes) => table(notes, out),
    }
    Ok(if found.is_empty() { Exit::Failed } else { Exit::Fine })
}

async fn notes(args: &MemoryListArgs, words: Option<&str>, env: &Environment) -> Result<Json, Failure> {
    let limit = args.limit.to_string();
    let mut query = query_of(&args.owner);
    query.push(("limit", &limit));
    query.extend(words.map(|words| ("q", words)));
    Client::find(&args.client, env)?.get(&["api", "v1", "memory"], &query).await
}

/// All notes as JSON lines.
async fn export(client: &Client, owner: &NoteOwner) -> Result<String, Failure> {
    let (limit, mut after, mut lines) = (PAGE.to_string(), 0, String::new());
    loop {
        let place = after.to_string();
        let mut query = query_of(owner);
        query.extend([("limit", limit.as_str()), ("after", place.as_str())]);
        let answer = client.get(&["api", "v1", "memory"], &query).await?;
        let page = notes_in(&answer);
        page.iter().for_each(|note| lines.push_str(&format!("{note}\n")));
        match page.last() {
            Some(last) if page.len() == PAGE => after = number(last, "/id"),
            _ => return Ok(lines),
        }
    }
}

fn query_of(owner: &NoteOwner) -> Vec<(&str, &str)> {
    let fields = [("person", &owner.person), ("group", &owner.group)];
    fields.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))).collect()
}

fn notes_in(answer: &Json) -> &[Json] {
    answer.pointer("/notes").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn table(notes: &[Json], out: Output<'_>) {
    let head = ["NOTE", "OWNER", "KEY", "DATE", "TEXT"].map(|name| Cell::new(name, Tone::Dim)).into();
    out.table(&std::iter::once(head).chain(notes.iter().map(row)).collect::<Vec<_>>());
}

fn row(note: &Json) -> Vec<Cell> {
    let words = text(note, "/text").split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = words.chars().take(SHOWN_CHARS).collect();
    if shown.len() < words.len() {
        shown.push('…');
    }
    vec![
        number(note, "/id").to_string().into(),
        owner(note).into(),
        text(note, "/key").into(),
        text(note, "/at").get(..10).unwrap_or_default().into(),
        shown.as_str().into(),
    ]
}

fn owner(note: &Json) -> String {
    match text(note, "/owner/kind") {
        "person" => format!("{}:{}", text(note, "/owner/channel"), text(note, "/owner/id")),
        _ => format!("group {}", text(note, "/owner/session")),
    }
}

fn show(note: &Json, args: &ClientArgs, out: Output<'_>) {
    if args.json {
        return out.json(note);
    }
    let mark = match note.pointer("/untrusted").and_then(Json::as_bool) {
        Some(true) => " · written under untrusted content",
        _ => "",
    };
    let key = match text(note, "/key") {
        "" => String::new(),
        key => format!(" · {key}"),
    };
    let (id, at, session) = (number(note, "/id"), text(note, "/at"), text(note, "/session"));
    out.line(&format!("note {id}{key} · {} · {at} · session {session}{mark}\n{}", owner(note), text(note, "/text")));
}
