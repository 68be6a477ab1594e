//! Golden transcripts: a conversation as a readable text, compared with a file.
//!
//! ```text
//! prompt> You have tools.
//! tools> clock
//! user> what time is it?
//! --- request 1
//! model> call clock {}
//! clock> 12:00 UTC
//! --- request 2
//! model> It is noon.
//! end> Response("It is noon.")
//! ```
//!
//! The lines above a `request` line are the messages that this request has added. Messages of run scope are marked
//! `(run)`; a result that is no success has its status; `(no tools offered)` marks a request without tools.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use belay_protocol::{Message, MessageBody, MessageScope};

use crate::seen_request::SeenRequest;

/// Compares a transcript with `tests/golden/NAME.txt` of the calling crate. With `BELAY_UPDATE_GOLDEN=1` in the
/// environment it writes the file instead; read the difference as carefully as code.
#[macro_export]
macro_rules! assert_golden {
    ($name:expr, $transcript:expr) => {
        $crate::golden::check(env!("CARGO_MANIFEST_DIR"), $name, &$transcript)
    };
}

/// Implements [`assert_golden!`] for the crate with the manifest in `manifest_dir`.
///
/// # Panics
/// If the file is missing or different, or cannot be written.
#[track_caller]
pub fn check(manifest_dir: &str, name: &str, transcript: &str) {
    let update = std::env::var("BELAY_UPDATE_GOLDEN").is_ok_and(|value| value == "1");
    if let Err(difference) = compare(Path::new(manifest_dir), name, transcript, update) {
        panic!("{difference}");
    }
}

fn compare(manifest_dir: &Path, name: &str, transcript: &str, update: bool) -> Result<(), String> {
    let path = manifest_dir.join("tests/golden").join(format!("{name}.txt"));
    let transcript = format!("{}\n", transcript.trim_end());
    if update {
        let folder = path.parent().unwrap_or(manifest_dir);
        return std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, &transcript))
            .map_err(|error| format!("cannot write {}: {error}", path.display()));
    }
    let hint = "set BELAY_UPDATE_GOLDEN=1 to write it, then read the difference";
    let expected =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}; {hint}", path.display()))?;
    if expected == transcript {
        return Ok(());
    }
    let at = expected.lines().zip(transcript.lines()).take_while(|(a, b)| a == b).count();
    let line = |text: &str| text.lines().nth(at).unwrap_or("(the end)").to_owned();
    Err(format!(
        "{} differs from line {} on; {hint}\n  file: {}\n   now: {}\n\n{transcript}",
        path.display(),
        at + 1,
        line(&expected),
        line(&transcript),
    ))
}

/// The transcript of a run: every request to the model, the messages after the last request, and the end.
pub fn render(seen: &[SeenRequest], after: &[Arc<Message>], end: &str) -> String {
    let mut out = String::new();
    let mut shown: &[Arc<Message>] = &[];
    let mut asked: Option<(&str, &Option<Vec<String>>)> = None;
    for (at, request) in seen.iter().enumerate() {
        if asked != Some((&request.prompt, &request.tools)) {
            line(&mut out, "prompt", &request.prompt);
            match &request.tools {
                Some(tools) => line(&mut out, "tools", &tools.join(", ")),
                None => line(&mut out, "tools", "(no tools offered)"),
            }
            asked = Some((&request.prompt, &request.tools));
        }
        out.push_str(&render_new(shown, &request.messages));
        let _ = writeln!(out, "--- request {}", at + 1);
        shown = &request.messages;
    }
    out.push_str(&render_new(shown, after));
    line(&mut out, "end", end);
    out
}

/// The messages that are new since `shown`. If old messages have changed: all messages, and a line about it.
fn render_new(shown: &[Arc<Message>], messages: &[Arc<Message>]) -> String {
    match messages.strip_prefix(shown) {
        Some(new) => render_messages(new),
        None => format!("(the context was rebuilt)\n{}", render_messages(messages)),
    }
}

/// Messages in the readable form.
pub fn render_messages(messages: &[Arc<Message>]) -> String {
    let mut out = String::new();
    for message in messages {
        let run = if message.scope == MessageScope::Run { " (run)" } else { "" };
        match &message.body {
            MessageBody::System { text } => line(&mut out, &format!("system{run}"), text),
            MessageBody::User { .. } => line(&mut out, &format!("user{run}"), &message.for_model()),
            MessageBody::Data { text } => line(&mut out, &format!("data{run}"), text),
            MessageBody::Assistant { text, tool_calls } => {
                if !text.is_empty() || tool_calls.is_empty() {
                    line(&mut out, &format!("model{run}"), text);
                }
                for call in tool_calls {
                    let call = format!("call {} {}", call.name, call.arguments.canonical());
                    line(&mut out, &format!("model{run}"), &call);
                }
            }
            MessageBody::Tool(result) => {
                let status = serde_json::to_value(result.status).ok();
                let status = match status.as_ref().and_then(|status| status.as_str()) {
                    Some("success") | None => String::new(),
                    Some(status) => format!(" ({status})"),
                };
                line(&mut out, &format!("{}{status}{run}", result.name), &result.text);
            }
        }
    }
    out
}

/// Writes one message; its further lines are indented.
fn line(out: &mut String, who: &str, text: &str) {
    let text = text.trim_end().replace('\n', "\n  ");
    let _ = writeln!(out, "{}", format!("{who}> {text}").trim_end());
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Arguments, ToolCall, ToolResult, ToolStatus};

    use super::*;

    fn request(tools: Option<&[&str]>, messages: &[Arc<Message>]) -> SeenRequest {
        SeenRequest {
            prompt: "p".into(),
            tools: tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()),
            messages: messages.to_vec(),
            model: None,
            thinking: None,
            format: None,
            max_tokens: 1,
            max_attempts: 1,
        }
    }

    #[test]
    fn a_conversation_reads_as_it_went() {
        let call = ToolCall { id: "c".into(), name: "clock".into(), arguments: Arguments::parse(r#"{"b":1,"a":2}"#) };
        let result = ToolResult {
            call_id: "c".into(),
            name: "clock".into(),
            status: ToolStatus::NotExecuted,
            text: "no\nbattery".into(),
        };
        let messages: Vec<_> = [
            Message::user("time?"),
            Message::assistant_calls("Hm.", vec![call]),
            Message::tool(result),
            Message::user("answer").for_run(),
            Message::assistant(""),
        ]
        .map(Arc::new)
        .into();
        let seen =
            [request(Some(&["clock"]), &messages[..1]), request(None, &messages[..4]), request(None, &messages[3..4])];
        let expected = "prompt> p\ntools> clock\nuser> time?\n--- request 1\nprompt> p\ntools> (no tools offered)\n\
                        model> Hm.\nmodel> call clock {\"a\":2,\"b\":1}\nclock (not_executed)> no\n  battery\n\
                        user (run)> answer\n--- request 2\n(the context was rebuilt)\nuser (run)> answer\n\
                        --- request 3\nmodel>\nend> fine\n";
        assert_eq!(render(&seen, &messages[3..], "fine"), expected);
    }

    #[test]
    fn a_missing_or_different_file_is_a_failure_and_an_update_writes_it() {
        let folder = std::env::temp_dir().join(format!("belay-golden-{}", std::process::id()));
        assert!(compare(&folder, "x", "a", false).is_err(), "missing");
        assert_eq!(compare(&folder, "x", "a\nb", true), Ok(()));
        assert_eq!(compare(&folder, "x", "a\nb\n", false), Ok(()));
        let difference = compare(&folder, "x", "a\nc", false).expect_err("different");
        assert!(difference.contains("from line 2 on"), "{difference}");
        std::fs::remove_dir_all(&folder).expect("removes its own folder");
    }
}
