//! Exports conversations: as Markdown for people, as JSON Lines for programs. Pure.

use belay_protocol::{MessageBody, SessionKey, ThreadSummary, ToolResult, TranscriptLine};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// Longest tool result in an export for people, in characters. Programs get all of it.
const RESULT_SHOWN_CHARS: usize = 2000;

/// The format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ExportFormat"))]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// For people.
    #[default]
    Markdown,
    /// One JSON object per message and line.
    Jsonl,
}

impl Format {
    /// The media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Markdown => "text/markdown; charset=utf-8",
            Self::Jsonl => "application/jsonl; charset=utf-8",
        }
    }

    /// The text before everything.
    pub(crate) fn title(self, session: &SessionKey) -> String {
        match self {
            Self::Markdown => format!("# {session}\n"),
            Self::Jsonl => String::new(),
        }
    }

    /// The text before a conversation.
    pub(crate) fn head(self, thread: &ThreadSummary) -> String {
        let Self::Markdown = self else { return String::new() };
        let last = thread.last_active_at.to_rfc3339();
        let goes_on = if thread.active { ", goes on" } else { "" };
        format!("\n## Conversation {} (last used {last}{goes_on})\n", thread.thread)
    }

    /// One message.
    pub(crate) fn line(self, session: &SessionKey, thread: &ThreadSummary, line: &TranscriptLine) -> String {
        match self {
            Self::Markdown => markdown(line),
            Self::Jsonl => {
                // Pictures are left out: they are megabytes, and the text describes them.
                let mut object = json!({
                    "session": session, "thread": thread.thread, "id": line.id, "at": line.at, "run_id": line.run_id,
                });
                if let (Some(object), Ok(serde_json::Value::Object(said))) =
                    (object.as_object_mut(), serde_json::to_value(&line.message.body))
                {
                    object.extend(said);
                    object.insert("text".into(), line.message.for_people().into());
                }
                format!("{object}\n")
            }
        }
    }
}

fn markdown(line: &TranscriptLine) -> String {
    let at = line.at.to_rfc3339();
    let text = line.message.for_people();
    let said = |who: &str| format!("\n**{who}** · {at}\n\n{}\n", text.trim_end());
    match &line.message.body {
        MessageBody::System { .. } if line.message.is_notice() => said("notice"),
        MessageBody::System { .. } => said("instructions"),
        MessageBody::User { .. } => said("user"),
        MessageBody::Data { .. } => said("data"),
        MessageBody::Assistant { tool_calls, .. } => {
            let calls = tool_calls
                .iter()
                .map(|call| format!("\n- calls {}\n", code(&format!("{} {}", call.name, call.arguments.canonical()))));
            let calls: String = calls.collect();
            if line.message.says_nothing() { calls } else { said("assistant") + &calls }
        }
        MessageBody::Tool(result) => tool_result(result, &text),
    }
}

fn tool_result(result: &ToolResult, text: &str) -> String {
    let text = text.trim_end_matches('\n');
    let shown: String = text.chars().take(RESULT_SHOWN_CHARS).collect();
    let rest = if shown.len() < text.len() { "\n…" } else { "" };
    let fence = "`".repeat(longest_run(&shown).max(2) + 1);
    format!("\n- {} answers ({})\n\n{fence}\n{shown}{rest}\n{fence}\n", code(&result.name), result.status.word())
}

/// Inline code that may contain backticks.
fn code(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let fence = "`".repeat(longest_run(&line) + 1);
    let space = if line.starts_with('`') || line.ends_with('`') { " " } else { "" };
    format!("{fence}{space}{line}{space}{fence}")
}

/// Length of the longest sequence of backticks.
fn longest_run(text: &str) -> usize {
    text.split(|c| c != '`').map(str::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use belay_protocol::{Arguments, Message, RunId, ThreadId, ThreadState, ToolCall, ToolStatus, UnixMillis};

    use super::*;

    fn line(message: Message) -> TranscriptLine {
        TranscriptLine { id: 3, run_id: Some(RunId::new()), at: UnixMillis(0), message: Arc::new(message) }
    }

    fn thread() -> ThreadSummary {
        ThreadSummary {
            thread: ThreadId::new(),
            state: ThreadState::Idle,
            active: true,
            last_active_at: UnixMillis(0),
            summary: None,
        }
    }

    #[test]
    fn people_read_who_said_what_and_which_tools_were_used() {
        let call =
            ToolCall { id: "c".into(), name: "read_file".into(), arguments: Arguments::parse(r#"{"path":"a`b"}"#) };
        let result = ToolResult {
            call_id: "c".into(),
            name: "read_file".into(),
            status: ToolStatus::Success,
            text: "```\nfenced\n```".into(),
        };
        let written: String = [
            Message::user("what is in it?\n"),
            Message::assistant_calls("", vec![call]),
            Message::tool(result),
            Message::assistant("a fence"),
        ]
        .into_iter()
        .map(|message| markdown(&line(message)))
        .collect();
        let expected = "\n**user** · 1970-01-01T00:00:00.000Z\n\nwhat is in it?\n\
            \n- calls ``read_file {\"path\":\"a`b\"}``\n\
            \n- `read_file` answers (success)\n\n````\n```\nfenced\n```\n````\n\
            \n**assistant** · 1970-01-01T00:00:00.000Z\n\na fence\n";
        assert_eq!(written, expected);
        let long = ToolResult { text: "x".repeat(5000), ..result_of("t") };
        assert!(markdown(&line(Message::tool(long))).contains("x\n…\n```"));
    }

    fn result_of(name: &str) -> ToolResult {
        ToolResult { call_id: "c".into(), name: name.into(), status: ToolStatus::Success, text: String::new() }
    }

    #[test]
    fn programs_read_one_object_a_line_whatever_was_said() {
        let (thread, said) = (thread(), line(Message::user("two\nlines \"quoted\"")));
        let written = Format::Jsonl.line(&"s".into(), &thread, &said);
        assert_eq!(written.matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&written).expect("JSON");
        assert_eq!(object["text"], "two\nlines \"quoted\"");
        assert_eq!((&object["role"], &object["session"], &object["id"]), (&json!("user"), &json!("s"), &json!(3)));
        assert_eq!(object["thread"], json!(thread.thread));
        assert_eq!(Format::Jsonl.title(&"s".into()) + &Format::Jsonl.head(&thread), "");
    }
}
