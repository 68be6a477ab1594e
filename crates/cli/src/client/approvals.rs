//! `belay approvals`: lists, shows and answers approval requests.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Cell, Column, Output, Tone};
use belay_protocol::Decision;
use serde_json::{Map, Value as Json, json};

use super::ids::{IdKind, end_chars, end_of, whole_id};
use super::{Client, duration_text, since, text, until};
use crate::args::{ApprovalArgs, ApprovalsListArgs, ApproveArgs};

/// How the list fits a terminal: the id, by which commands name a question, stays whole.
const COLUMNS: [Column; 5] = [Column::WHOLE, Column::cut(12), Column::optional(1), Column::cut(10), Column::cut(20)];

/// Lists approval requests, newest first.
pub async fn list(args: &ApprovalsListArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let mut query = vec![("all", if args.all { "true" } else { "false" })];
    query.extend(args.session.as_deref().map(|session| ("session", session)));
    let client = Client::find(&args.client, env)?;
    let answer = client.get(&["api", "v1", "approvals"], &query).await?;
    if args.client.json {
        out.json(&answer);
        return Ok(Exit::Fine);
    }
    let questions = answer.pointer("/approvals").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    match questions {
        [] if args.all => out.line("no questions"),
        [] => out.line("nothing waits for an answer"),
        questions => {
            let chars = end_chars(questions.iter().map(|question| text(question, "/id")), args.full);
            let rows = questions.iter().map(|question| row(question, chars));
            out.fitted_table(&std::iter::once(head()).chain(rows).collect::<Vec<_>>(), &COLUMNS);
        }
    }
    Ok(Exit::Fine)
}

/// Shows one approval request.
pub async fn show(args: &ApprovalArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let id = whole_id(&client, IdKind::Question, &args.id).await?;
    let question = client.get(&["api", "v1", "approvals", &id], &[]).await?;
    if args.client.json {
        out.json(&question);
        return Ok(Exit::Fine);
    }
    out.table(&details(&question));
    if text(&question, "/state") == "waiting" {
        out.line(&format!("\n{}", how_to_answer(&question, &id)));
    }
    Ok(Exit::Fine)
}

/// Answers one approval request. Exit 1 if it was answered before, or if this caller may not answer it.
pub async fn answer(
    args: &ApprovalArgs,
    decision: Decision,
    env: &Environment,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    send(args, &json!({ "decision": decision }), env, out).await
}

/// Approves one request, or fills in its form.
pub async fn approve(args: &ApproveArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let value = |pair: &String| match pair.split_once('=') {
        Some((field, value)) => Ok((field.to_owned(), Json::from(value))),
        None => Err(Failure::new(Exit::WrongUsage, format!("--set {pair}: must be FIELD=VALUE"))),
    };
    let values: Map<String, Json> = args.set.iter().map(value).collect::<Result<_, _>>()?;
    let mut body = json!({ "decision": Decision::Approve });
    if !values.is_empty() {
        body["values"] = values.into();
    }
    send(&args.question, &body, env, out).await
}

async fn send(args: &ApprovalArgs, body: &Json, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    let id = whole_id(&client, IdKind::Question, &args.id).await?;
    let path = ["api", "v1", "approvals", &id];
    let answer = client.post(&path, Some(body), Duration::ZERO).await?;
    if args.client.json {
        out.json(&answer)
    } else {
        out.line(text(&answer, "/reply"))
    }
    Ok(Exit::Fine)
}

/// The subject of an approval request, in one line. Takes the request itself or a run's `waiting_for`.
pub fn waits_for(question: &Json) -> String {
    let (tool, summary) = (text(question, "/tool"), text(question, "/summary"));
    match text(question, "/kind") {
        "credential" => format!("the secret {} for {tool}: {summary}", text(question, "/name")),
        "form" => format!("the MCP server {} asks, for {tool}: {summary}", text(question, "/server")),
        "client_calls" => summary.to_owned(),
        _ if summary.starts_with(tool) => summary.to_owned(),
        _ => format!("{tool}: {summary}"),
    }
}

/// How an open approval request is answered on the command line.
pub fn how_to_answer(question: &Json, id: &str) -> String {
    match text(question, "/kind") {
        // Not as an argument: everybody on the machine can read the arguments of a command.
        "credential" => {
            "the next message of the conversation is taken as the secret: `belay send --session KEY -` reads \
                         it from standard input"
                .to_owned()
        }
        "form" if question.pointer("/fields/0").is_some() => {
            // Without a name of the server: people copy this line into a shell.
            format!(
                "`belay approvals approve {id} --set FIELD=VALUE` fills in the form, one --set for each field; `belay \
                 approvals deny {id}` gives the server nothing"
            )
        }
        "client_calls" => "its client answers it, with the results of its tools".to_owned(),
        _ => format!("`belay approvals approve {id}` says yes, `belay approvals deny {id}` no"),
    }
}

fn head() -> Vec<Cell> {
    ["QUESTION", "STATE", "ASKED", "SESSION", "ABOUT"].map(|name| Cell::new(name, Tone::Dim)).into()
}

fn row(question: &Json, id_chars: usize) -> Vec<Cell> {
    vec![
        end_of(text(question, "/id"), id_chars).into(),
        state(question),
        since(text(question, "/asked_at")).map_or(String::new(), |ago| format!("{} ago", duration_text(ago))).into(),
        text(question, "/session").into(),
        waits_for(question).into(),
    ]
}

/// The state of a request. For an open one, with the remaining time.
fn state(question: &Json) -> Cell {
    let state = text(question, "/state");
    let given = match question.pointer("/second/given").and_then(Json::as_u64) {
        Some(given) => format!(", {given} of 2"),
        None => String::new(),
    };
    match (state, until(text(question, "/expires_at"))) {
        ("waiting", Some(left)) => Cell::new(format!("waiting{given}, {} left", duration_text(left)), Tone::Warn),
        ("waiting", None) => Cell::new(format!("waiting{given}"), Tone::Warn),
        ("approved" | "used", _) => Cell::new(state, Tone::Good),
        ("denied", _) => Cell::new(state, Tone::Bad),
        // Somebody answered, and the run ended before a call used that.
        ("withdrawn", _) if question.pointer("/decided_by").is_some_and(Json::is_string) => {
            Cell::new("answered, not used", Tone::Dim)
        }
        _ => Cell::new(state, Tone::Dim),
    }
}

fn details(question: &Json) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let mut rows = vec![
        row("question", text(question, "/id").into()),
        row("state", state(question)),
        row("about", Cell::exact(&waits_for(question))),
        row("detail", text(question, "/detail").into()),
        row("arguments", question.pointer("/arguments").map(Json::to_string).unwrap_or_default().into()),
    ];
    rows.extend(form(question));
    for pair in question.pointer("/bound").and_then(Json::as_array).into_iter().flatten() {
        rows.push(row(text(pair, "/0"), Cell::exact(text(pair, "/1"))));
    }
    if let Some(covers) = question.pointer("/covers").and_then(Json::as_str) {
        rows.push(row("always covers", Cell::exact(covers)));
    }
    rows.extend([
        row("session", text(question, "/session").into()),
        row("run", text(question, "/run_id").into()),
        row("asked by", text(question, "/asker/principal").into()),
        row("asked", text(question, "/asked_at").into()),
        row("expires", text(question, "/expires_at").into()),
    ]);
    if let Some(by) = question.pointer("/second/first_by").and_then(Json::as_str) {
        rows.push(row("first approval", format!("by {by}, {}", text(question, "/second/first_at")).into()));
    }
    if let Some(by) = question.pointer("/decided_by").and_then(Json::as_str) {
        rows.push(row("decided", format!("by {by}, {}", text(question, "/decided_at")).into()));
    }
    rows
}

/// The fields that the form of an MCP server asks for. Its words are shown as they are.
fn form(question: &Json) -> Vec<Vec<Cell>> {
    let row = |name: &str, value: Cell| vec![Cell::new(name, Tone::Dim), value];
    let mut rows = Vec::new();
    if text(question, "/kind") != "form" {
        return rows;
    }
    rows.push(row("its words", Cell::exact(text(question, "/message"))));
    for field in question.pointer("/fields").and_then(Json::as_array).into_iter().flatten() {
        let words = ["/title", "/description"].map(|part| text(field, part));
        let is_required = field.pointer("/required").and_then(Json::as_bool) == Some(true);
        let need = if is_required { "required" } else { "optional" };
        let mut shown = vec![text(field, "/name").to_owned(), format!("{}, {need}", text(field, "/type"))];
        shown.extend(words.into_iter().filter(|words| !words.is_empty()).map(str::to_owned));
        let options: Vec<_> = field.pointer("/options").and_then(Json::as_array).into_iter().flatten().collect();
        if !options.is_empty() {
            let values: Vec<_> = options.into_iter().map(|option| text(option, "/value")).collect();
            shown.push(format!("one of {}", values.join(", ")));
        }
        shown.extend(
            field.pointer("/default").filter(|value| !value.is_null()).map(|value| format!("otherwise {value}")),
        );
        rows.push(row("field", Cell::exact(&shown.join("; "))));
    }
    if question.pointer("/url").is_some_and(|url| !url.is_null()) {
        rows.push(row("host", Cell::exact(text(question, "/url/host"))));
        rows.push(row("address", Cell::exact(text(question, "/url/address"))));
    }
    if question.pointer("/asks_for_secret").and_then(Json::as_bool) == Some(true) {
        let warning = "it seems to ask for a password or a key, which MCP forbids: do not enter any";
        rows.push(row("warning", Cell::new(warning, Tone::Bad)));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(state: &str) -> Json {
        json!({
            "id": "q1", "run_id": "r1", "session": "me", "call_id": "c1", "tool": "run_command", "kind": "approval",
            "summary": "git push", "arguments": {"argv": ["git", "push"]}, "detail": "it asks before it acts",
            "bound": [["argv", "git push"]], "covers": "git push …", "asker": {"principal": "ann"},
            "asked_at": "2026-11-20T19:43:00.000Z", "expires_at": "2026-11-20T20:13:00.000Z", "state": state,
            "decided_by": null, "decided_at": null,
        })
    }

    #[test]
    fn a_question_says_what_it_is_about_and_a_secret_which_one() {
        let same = json!({"kind": "approval", "tool": "calculate", "summary": "calculate 1+1"});
        assert_eq!(waits_for(&same), "calculate 1+1", "nothing is said twice");
        let secret = json!({"kind": "credential", "name": "github", "tool": "http_request", "summary": "logs in"});
        assert_eq!(waits_for(&question("waiting")), "run_command: git push");
        assert_eq!(waits_for(&secret), "the secret github for http_request: logs in");
        assert!(how_to_answer(&question("waiting"), "q1").contains("belay approvals approve q1"));
        assert!(how_to_answer(&secret, "q1").contains("belay send"), "a secret is no yes");
    }

    #[test]
    fn an_answer_that_no_call_has_used_is_no_question_that_was_withdrawn() {
        let mut asked = question("withdrawn");
        assert_eq!(state(&asked), Cell::new("withdrawn", Tone::Dim), "nobody has answered");
        asked["decided_by"] = "ann".into();
        assert_eq!(state(&asked), Cell::new("answered, not used", Tone::Dim));
        asked["state"] = "denied".into();
        assert_eq!(state(&asked), Cell::new("denied", Tone::Bad));
    }

    #[test]
    fn a_form_is_shown_with_its_fields_and_no_word_of_its_server_in_a_command() {
        let mut asked = question("waiting");
        asked["kind"] = "form".into();
        asked["message"] = "Which\nsize?".into();
        asked["asks_for_secret"] = true.into();
        asked["fields"] = json!([{
            "name": "a;rm -rf ~\u{202e}", "title": "Size", "required": true, "default": "s", "type": "choice",
            "options": [{"value": "s"}, {"value": "m"}],
        }]);
        let how = how_to_answer(&asked, "q1");
        assert!(how.contains("approve q1 --set FIELD=VALUE`") && !how.contains("rm -rf"), "{how}");
        let shown: Vec<_> = details(&asked).into_iter().flatten().collect();
        for cell in [
            Cell::exact("Which\nsize?"),
            Cell::exact("a;rm -rf ~\u{202e}; choice, required; Size; one of s, m; otherwise \"s\""),
            Cell::new("warning", Tone::Dim),
        ] {
            assert!(shown.contains(&cell), "{cell:?} in {shown:?}");
        }
        asked["url"] = json!({"address": "https://a.example/x", "host": "a.example"});
        let shown: Vec<_> = details(&asked).into_iter().flatten().collect();
        assert!(shown.contains(&Cell::exact("a.example")) && shown.contains(&Cell::exact("https://a.example/x")));
    }

    #[test]
    fn the_details_hold_what_the_answer_is_bound_to_and_who_gave_it() {
        let shown: Vec<_> = details(&question("waiting")).into_iter().flatten().collect();
        for cell in [
            Cell::from("{\"argv\":[\"git\",\"push\"]}"),
            Cell::from("git push …"),
            Cell::from("it asks before it acts"),
            Cell::from("ann"),
        ] {
            assert!(shown.contains(&cell), "{cell:?} in {shown:?}");
        }
        let mut decided = question("denied");
        decided["decided_by"] = "bob".into();
        decided["decided_at"] = "2026-11-20T19:44:00.000Z".into();
        let shown: Vec<_> = details(&decided).into_iter().flatten().collect();
        assert!(shown.contains(&Cell::from("by bob, 2026-11-20T19:44:00.000Z")), "{shown:?}");
        assert!(shown.contains(&Cell::new("denied", Tone::Bad)), "{shown:?}");
    }
}
