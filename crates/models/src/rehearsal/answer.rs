//! Answers to plain requests: the calls that they need, and the text when the results have arrived.

use belay_protocol::{Attachment, ToolResult, ToolStatus};
use serde_json::{Map, Value};

use super::request::Ask;
use super::turn::Turn;

/// Most of a person's message that the answer repeats, in characters.
const MAX_ECHO_CHARS: usize = 500;

/// Most earlier messages that the answer repeats.
const MAX_EARLIER: usize = 5;

/// The help text for a newcomer.
pub(super) const HELP: &str = "\
I am a rehearsal: not a model, but a fixed set of answers that shows how Belay works. Plain requests become real tool calls:
- calculate 17*23
- what time is it, what time is it in Asia/Tokyo
- list files, list DIRECTORY, read FILE
- remember KEY: TEXT, recall WORD
- what did I say before?, what did the job find?
- call TOOL {\"argument\": \"value\"}, for any tool there is

Join several with \"and\", or put them on lines of their own. To see a guardrail act:
- rehearse loop | chant | intent | truncation | failures | storm | unknown tool
- rehearse stubborn | ping pong | unknown tools | invalid arguments | terminate | give up
- rehearse stall [SECONDS], rehearse stall silent [SECONDS]
- rehearse subagent [REQUEST], rehearse miss-output
- rehearse empty | silent | long CHARACTERS
- rehearse error auth | rate | overloaded | network | context | bad
- /plan ANYTHING makes a plan of three steps and works through it; /plan rehearse blocked-step blocks the second

For real answers, set a model: [llm] in the configuration, or OPENAI_API_KEY or ANTHROPIC_API_KEY in the environment.";

/// Makes the complete answer: one paragraph for each request, in order. Calls are answered by their results.
pub(super) fn compose(asks: &[Ask], turn: &Turn<'_>) -> String {
    let mut results = turn.last_results().into_iter();
    let called = turn.batches() > 0;
    let alone = asks.len() == 1;
    let paragraphs: Vec<String> = asks
        .iter()
        .map(|ask| match ask {
            Ask::Call { tool, arguments } => of_call(tool, arguments, results.next(), called),
            Ask::Help => HELP.to_owned(),
            Ask::Earlier => earlier(turn),
            Ask::Found => found(turn),
            Ask::Other(_) if alone && !turn.files.is_empty() => files(turn),
            Ask::Other(text) if alone && text.is_empty() => HELP.to_owned(),
            Ask::Other(text) if alone => echo(text),
            Ask::Other(text) => format!("You also said: \"{}\"", shortened(text)),
        })
        .collect();
    paragraphs.join("\n")
}

fn of_call(tool: &str, arguments: &Map<String, Value>, result: Option<&ToolResult>, called: bool) -> String {
    let Some(result) = result else {
        return if called {
            format!("There is no result of {tool}.")
        } else {
            format!("No tools are offered in this request, so {tool} was not called.")
        };
    };
    let text = &result.text;
    match result.status {
        ToolStatus::Success => success(tool, arguments, text),
        ToolStatus::Error => format!("{tool} failed: {text}"),
        ToolStatus::Denied => format!("{tool} was denied: {text}"),
        ToolStatus::Cancelled => format!("{tool} was cancelled: {text}"),
        ToolStatus::NotExecuted => format!("{tool} was not run: {text}"),
        ToolStatus::OutcomeUnknown => format!("Nobody knows whether {tool} did its work: {text}"),
    }
}

fn success(tool: &str, arguments: &Map<String, Value>, text: &str) -> String {
    match (tool, arguments.get("expression").and_then(Value::as_str)) {
        ("calculate", Some(expression)) if text.starts_with('≈') => format!("{expression} {text}"),
        ("calculate", Some(expression)) => format!("{expression} = {text}"),
        ("clock", _) => format!("It is {text}."),
        _ => text.to_owned(),
    }
}

fn earlier(turn: &Turn<'_>) -> String {
    let mut said: Vec<&str> = turn.earlier().rev().take(MAX_EARLIER).collect();
    said.reverse();
    match said.as_slice() {
        [] => "You have said nothing before in this conversation.".to_owned(),
        [one] => format!("Before this you said: \"{}\"", shortened(one)),
        many => {
            let lines: Vec<String> = many.iter().map(|text| format!("- \"{}\"", shortened(text))).collect();
            format!("Before this you said, oldest first:\n{}", lines.join("\n"))
        }
    }
}

/// The newest report of background work, without the line that introduces it.
fn found(turn: &Turn<'_>) -> String {
    let Some(notice) = turn.newest_notice() else {
        return "No background work has reported in this conversation.".to_owned();
    };
    let (_, report) = notice.split_once('\n').unwrap_or(("", notice));
    format!("It reported:\n{}", report.trim())
}

fn files(turn: &Turn<'_>) -> String {
    let line = |file: &Attachment| format!("- {}: {}", file.name, file.content.detail());
    let lines: Vec<String> = turn.files.iter().map(line).collect();
    format!("I am a rehearsal and see nothing, but a model would get this with your message:\n{}", lines.join("\n"))
}

fn echo(text: &str) -> String {
    format!(
        "I am a rehearsal, not a model, and know only plain requests; \"help\" lists them. You said: \"{}\"",
        shortened(text)
    )
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_ECHO_CHARS) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}
