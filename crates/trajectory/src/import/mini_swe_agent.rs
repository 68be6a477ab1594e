//! Imports mini-swe-agent's `.traj.json` files.
//!
//! Source: SWE-agent/mini-swe-agent, `agents/default.py`, `models/utils/actions_*.py` and the version 2 migration guide,
//! 2025 and 2026. A file is an object with `info` (`exit_status`, `mini_version`), `messages` and `trajectory_format`.
//!
//! - In version 1, the text contains the command as the only block fenced by `bash` or `mswea_bash_command`. The next
//!   user message is its observation, by default `<returncode>0</returncode>` and `<output>…</output>`. A reply without
//!   exactly one block executes nothing, and the next user message asks for the right form.
//! - In version 2, `extra.actions` lists the commands. An observation has the role `tool`, or is a user message with
//!   `extra.returncode`, or an item `function_call_output` of the Responses API. A message with `extra.interrupt_type`
//!   is not an observation. The last message has the role `exit`.

use belay_agent_loop::policies::CallOutcome;
use serde_json::{Value, json};

use super::InvalidItem;
use super::content::{field, text_or_json};
use super::parts::text_alone;
use super::recorder::Recorder;
use crate::event::CallArguments;

/// The only tool.
const TOOL: &str = "bash";

/// The delimiters of a command in the text of a reply.
const BLOCKS: &[(&str, &str)] =
    &[("```bash", "\n```"), ("```mswea_bash_command", "\n```"), ("<mswea_bash_command>", "</mswea_bash_command>")];

/// Whether a file has this format.
pub(super) fn is_typical(file: &Value) -> bool {
    let info = |key: &str| file.get("info").is_some_and(|info| info.get(key).is_some());
    file.get("messages").is_some_and(Value::is_array)
        && (field(file, "trajectory_format").starts_with("mini-swe-agent")
            || info("mini_version")
            || info("exit_status"))
}

/// Imports one file.
pub(super) fn read(file: &Value) -> Result<Recorder, InvalidItem> {
    let mut recorder = Recorder::default();
    let (mut asked, mut waiting) = (false, 0_usize);
    let messages = file.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, message) in messages.iter().enumerate() {
        let extra = |key: &str| message.get("extra").and_then(|extra| extra.get(key)).filter(|value| !value.is_null());
        let is_observation = extra("interrupt_type").is_none() && (extra("returncode").is_some() || waiting > 0);
        match role(message) {
            "system" | "exit" => {}
            "assistant" => waiting = reply(&mut recorder, message, extra("actions")),
            "user" if !asked => {
                asked = true;
                let text = text_alone(&mut recorder, message.get("content"));
                recorder.user(text);
            }
            "user" if !is_observation => match text_alone(&mut recorder, message.get("content")) {
                text if text.is_empty() => {} // the notice of an exceeded limit
                text => recorder.user_in_request(text),
            },
            "tool" | "user" => {
                waiting = waiting.saturating_sub(1);
                observation(&mut recorder, message, extra);
            }
            "" => return Err(InvalidItem { index, item_kind: "message", what: "has no `role`".into() }),
            role => {
                let what = format!("there is no role `{role}`; there are system, user, assistant, tool, exit");
                return Err(InvalidItem { index, item_kind: "message", what });
            }
        }
    }
    let status = file.get("info").map(|info| field(info, "exit_status")).unwrap_or_default();
    if !status.is_empty() {
        recorder.thought(format!("exit status: {status}"));
    }
    Ok(recorder)
}

/// The role. An item of the Responses API has a type instead.
fn role(message: &Value) -> &str {
    match (field(message, "role"), field(message, "type"), field(message, "object")) {
        ("", "function_call_output", _) => "tool",
        ("", _, "response") => "assistant",
        (role, ..) => role,
    }
}

/// Imports a reply of the model. Returns the number of its commands.
fn reply(recorder: &mut Recorder, message: &Value, actions: Option<&Value>) -> usize {
    recorder.turn();
    let response = message.get("extra").and_then(|extra| extra.get("response")).unwrap_or(message);
    if let Some(usage) = response.get("usage") {
        let tokens = |names: [&str; 2]| names.iter().find_map(|name| usage.get(name)?.as_u64()).unwrap_or(0);
        recorder.usage(tokens(["prompt_tokens", "input_tokens"]), tokens(["completion_tokens", "output_tokens"]));
    }
    recorder.thought(field(message, "reasoning_content").to_owned());
    let text = match message.get("output").and_then(Value::as_array) {
        Some(items) => items.iter().map(|item| item_text(recorder, item)).collect::<Vec<_>>().join(""),
        None => text_alone(recorder, message.get("content")),
    };
    let (text, commands) = match (actions.and_then(Value::as_array), only_block(&text)) {
        (Some(actions), block) => {
            let commands = actions.iter().map(|action| (id(action), field(action, "command").to_owned())).collect();
            (block.map_or(text.clone(), |(rest, _)| rest), commands)
        }
        (None, Some((rest, command))) => (rest, vec![(None, command)]),
        (None, None) => (text, Vec::new()),
    };
    recorder.assistant(text, !commands.is_empty());
    let count = commands.len();
    for (id, command) in commands {
        recorder.call(id, TOOL.to_owned(), CallArguments::parse(&json!({ "command": command }).to_string()));
    }
    count
}

/// The text of an item of the Responses API. The commands are in `extra.actions`.
fn item_text(recorder: &mut Recorder, item: &Value) -> String {
    match field(item, "type") {
        "" | "message" | "reasoning" | "function_call" => {}
        kind => recorder.skip(kind),
    }
    text_alone(recorder, item.get("content"))
}

/// The text without its only command, and the command. `None`: there is no command, or several.
fn only_block(text: &str) -> Option<(String, String)> {
    let mut found = BLOCKS.iter().flat_map(|(open, close)| {
        text.match_indices(open).filter_map(move |(at, _)| {
            let inside = at + open.len();
            let is_whole_word = !open.starts_with('`') || text[inside..].starts_with(char::is_whitespace);
            let end = inside + text[inside..].find(close)?;
            is_whole_word.then(|| (at, inside, end, end + close.len()))
        })
    });
    match (found.next(), found.next()) {
        (Some((at, inside, end, after)), None) => {
            let rest = format!("{}{}", text[..at].trim_end(), text[after..].trim_end());
            Some((rest.trim().to_owned(), text[inside..end].trim().to_owned()))
        }
        _ => None,
    }
}

fn observation<'a>(recorder: &mut Recorder, message: &'a Value, extra: impl Fn(&str) -> Option<&'a Value>) {
    let seen = text_or_json(message.get("content").or_else(|| message.get("output")));
    let tagged = || seen.split_once("<returncode>")?.1.split_once("</returncode>")?.0.trim().parse().ok();
    let timed_out = seen.starts_with("The last command") && seen.contains("timed out");
    let code: Option<i64> = extra("returncode").and_then(Value::as_i64).or_else(tagged).or(timed_out.then_some(-1));
    let text = inner_output(&seen).to_owned();
    let id = id(message);
    if extra("exception_info").and_then(Value::as_str) == Some("action was not executed") {
        return recorder.result_with_outcome(id.as_deref(), None, CallOutcome::NotExecuted, text);
    }
    recorder.result(id.as_deref(), None, code.map(|code| code == 0), text);
}

/// The output of the command, without the tags around it.
fn inner_output(seen: &str) -> &str {
    let tagged = seen.split_once("<output>").and_then(|(_, rest)| rest.rsplit_once("</output>"));
    let printed = tagged.map(|(printed, _)| printed).or_else(|| Some(seen.split_once("</returncode>")?.1));
    printed.map_or(seen, |printed| printed.trim_start_matches('\n'))
}

/// The id of a call, in an action or an observation.
fn id(value: &Value) -> Option<String> {
    ["tool_call_id", "call_id"].iter().find_map(|name| value.get(name)?.as_str()).map(str::to_owned)
}
