//! `sessions.*`.

use belay_protocol::{
    Ack, Body, CommandReply, Inbound, QueueMode, ReasoningShown, RunOptions, SessionFilter, SessionKey, SessionSummary,
    Thinking,
};
use futures_util::future::join_all;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Caller;
use super::chat::stopped;
use crate::checks::check_limit;
use crate::cursor;
use crate::error::ApiError;
use crate::routes::{Stop, list_sessions, stop_and_wait};
use crate::submit::check_options;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SessionsListParams"))]
#[serde(deny_unknown_fields)]
pub(super) struct ListParams {
    /// The `next` of the page before.
    after: Option<String>,
    limit: Option<u32>,
    /// Include ephemeral sessions.
    #[serde(default)]
    all: bool,
    /// List the hidden sessions instead of the others.
    #[serde(default)]
    hidden: bool,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SessionKeyParams"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KeyParams {
    session_key: String,
}

pub(super) async fn list(caller: &Caller, params: ListParams) -> Result<Value, ApiError> {
    let filter = SessionFilter {
        limit: check_limit(params.limit)?,
        ephemeral: params.all,
        hidden: params.hidden,
        after: cursor::session(params.after.as_deref())?,
        since: None,
    };
    let page = list_sessions(&caller.app, &caller.principal, filter).await?;
    let mut answer = json!({ "sessions": page.rows.iter().map(described).collect::<Vec<_>>() });
    if let Some(next) = page.next {
        answer["next"] = json!(next);
    }
    Ok(answer)
}

pub(super) async fn get(caller: &Caller, params: KeyParams) -> Result<Value, ApiError> {
    let key = caller.session(&params.session_key).await?.into_key();
    let session = caller.app.sessions.session(&key).await?;
    let session = session.ok_or_else(|| ApiError::not_found(format!("no such session: {key}")))?;
    Ok(described(&session))
}

/// The first message creates the session. Before it, only the key exists.
pub(super) async fn create(caller: &Caller, params: KeyParams) -> Result<Value, ApiError> {
    let key = caller.session(&params.session_key).await?.into_key();
    let session = caller.app.sessions.session(&key).await?;
    Ok(session.as_ref().map_or_else(|| json!({ "sessionKey": key, "state": "new", "openRuns": 0 }), described))
}

fn described(session: &SessionSummary) -> Value {
    let mut described = json!({
        "sessionKey": session.session, "state": session.state, "openRuns": session.open_runs,
        "lastActiveAt": session.last_active_at.0,
    });
    if !session.lifetime.is_lasting() {
        described["lifetime"] = json!(session.lifetime);
    }
    if session.hidden {
        described["hidden"] = json!(true);
    }
    described
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SessionsPatchParams"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PatchParams {
    session_key: String,
    queue_mode: Option<QueueMode>,
    thinking: Option<Thinking>,
    reasoning: Option<ReasoningShown>,
    verbose: Option<bool>,
    model: Option<String>,
    /// An empty text ends the callbacks of the session.
    callback_url: Option<String>,
}

/// Changes the run options of a session, by the commands that a person would use, so that the same rules apply.
pub(super) async fn patch(caller: &Caller, params: PatchParams) -> Result<Value, ApiError> {
    let key = caller.session(&params.session_key).await?.into_key();
    let asked = RunOptions { model: params.model, ..RunOptions::default() };
    check_options(&asked, "timeout", &caller.principal)?;
    if asked.model.as_ref().is_some_and(|name| name.trim().is_empty() || name.contains(char::is_control)) {
        return Err(ApiError::invalid("model: the name of a model, in one line"));
    }
    let commands = [
        ("queueMode", params.queue_mode.map(|mode| format!("/queue {}", mode.word()))),
        ("thinking", params.thinking.map(|level| format!("/think {}", level.word()))),
        ("reasoning", params.reasoning.map(|shown| format!("/reasoning {}", shown.word()))),
        ("verbose", params.verbose.map(|on| format!("/verbose {}", if on { "on" } else { "off" }))),
        ("model", asked.model.map(|name| format!("/model {name}"))),
        (
            "callbackUrl",
            params.callback_url.map(|url| format!("/callback {}", if url.is_empty() { "default" } else { &url })),
        ),
    ];
    let commands = commands.into_iter().filter_map(|(field, command)| Some((field, command?)));
    let (fields, commands): (Vec<_>, Vec<_>) = commands.unzip();
    if fields.is_empty() {
        return Err(ApiError::invalid(
            "name at least one of queueMode, thinking, reasoning, verbose, model and callbackUrl",
        ));
    }
    // All commands are sent at once: a later message finds all changes made.
    let answers = join_all(commands.into_iter().map(|command| say(caller, key.clone(), command))).await;
    let replies = all_made(fields.into_iter().zip(answers).collect())?;
    Ok(json!({ "ok": true, "sessionKey": key, "replies": replies }))
}

/// The replies to all changes. If one failed, the result is its error, with its field, the cause, and the fields that
/// were changed.
fn all_made(changes: Vec<(&'static str, Result<String, ApiError>)>) -> Result<Vec<String>, ApiError> {
    let made: Vec<_> = changes.iter().filter(|(_, answer)| answer.is_ok()).map(|(field, _)| *field).collect();
    let made = if made.is_empty() { String::new() } else { format!(" (changed all the same: {})", made.join(", ")) };
    let why =
        |field, error: ApiError| ApiError { message: format!("{field}: {}{made}", error.message).into(), ..error };
    changes.into_iter().map(|(field, answer)| answer.map_err(|error| why(field, error))).collect()
}

pub(super) async fn reset(caller: &Caller, params: KeyParams) -> Result<Value, ApiError> {
    let key = caller.session(&params.session_key).await?.into_key();
    let reply = say(caller, key.clone(), "/new".into()).await?;
    Ok(json!({ "ok": true, "sessionKey": key, "reply": reply }))
}

pub(super) async fn stop(caller: &Caller, params: KeyParams) -> Result<Value, ApiError> {
    let session = caller.session(&params.session_key).await?;
    let report = stop_and_wait(&caller.app, caller.principal.clone(), Stop::Session(session)).await?;
    Ok(stopped(&report))
}

/// Sends a command in a session and returns its answer. A refusal is an error.
async fn say(caller: &Caller, session: SessionKey, command: String) -> Result<String, ApiError> {
    let inbound = Inbound::new(caller.app.channel.clone(), session, caller.principal.clone(), Body::Text(command));
    match caller.app.ask(inbound).await? {
        Ack::Command(CommandReply { refused: true, reply, .. }) => Err(ApiError::invalid(reply)),
        Ack::Command(reply) => Ok(reply.reply),
        other => Err(ApiError::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_change_is_the_answer_and_names_the_changes_that_were_made() {
        let made = || Ok("Thinking: low.".to_owned());
        let unknown = || Err(ApiError::invalid("I know no model x."));
        for (changes, expected) in [
            (vec![("thinking", made())], Ok(vec!["Thinking: low.".to_owned()])),
            (vec![("model", unknown())], Err("model: I know no model x.")),
            (
                vec![("thinking", made()), ("verbose", made()), ("model", unknown())],
                Err("model: I know no model x. (changed all the same: thinking, verbose)"),
            ),
        ] {
            let told = all_made(changes).map_err(|error| error.message.into_owned());
            assert_eq!(told, expected.map_err(str::to_owned));
        }
    }
}
