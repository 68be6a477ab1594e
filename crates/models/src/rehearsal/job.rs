//! The rehearsal in a job: it answers as in a conversation, and submits its answer as the result of the job.

use belay_protocol::{Arguments, ModelRequest, ToolCall};
use serde_json::json;

use super::plan::{Ending, Script, Segment, call_id, plan};
use super::turn::Turn;

/// The beginning of the section of a job's prompt that describes the role.
const ROLE_HEAD: &str = "You work on a job, by yourself";
const TERMINATE: &str = "terminate";

/// The script for a step of a job; `None` if the request does not belong to a job.
pub(super) fn script(request: &ModelRequest<'_>) -> Option<Script> {
    let ends = request.tools.is_some_and(|tools| tools.get(TERMINATE).is_some());
    (ends && request.prompt.text.contains(ROLE_HEAD))
        .then(|| handing_over(plan(request.messages, request.tools), &Turn::of(request.messages)))
}

/// Turns the text of a script into the summary of `terminate`. A script without text, or with another ending, is not
/// changed.
fn handing_over(script: Script, turn: &Turn<'_>) -> Script {
    let (waits, says): (Vec<Segment>, Vec<Segment>) =
        script.segments.iter().cloned().partition(|segment| matches!(segment, Segment::Wait(_)));
    let words = says.into_iter().filter_map(|segment| if let Segment::Say(text) = segment { Some(text) } else { None });
    let text: String = words.collect();
    if script.ending != Ending::Stop || text.trim().is_empty() {
        return script;
    }
    let arguments = Arguments::parse(&json!({ "status": "success", "summary": text }).to_string());
    let call = ToolCall { id: call_id(turn, 0), name: TERMINATE.to_owned(), arguments };
    Script { segments: waits, ending: Ending::Calls(vec![call]) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use belay_protocol::Message;

    use super::*;

    #[test]
    fn an_answer_becomes_the_result_and_everything_else_stays() {
        let messages = [Arc::new(Message::user("hello"))];
        let turn = Turn::of(&messages);
        let wait = Segment::Wait(Duration::from_secs(1));
        let said = Script {
            segments: vec![Segment::Say("4".into()), wait.clone(), Segment::Say("2".into())],
            ending: Ending::Stop,
        };
        let Script { segments, ending: Ending::Calls(calls) } = handing_over(said, &turn) else { panic!("no call") };
        assert_eq!(segments, [wait]);
        assert_eq!(calls[0].arguments.canonical(), r#"{"status":"success","summary":"42"}"#);
        for script in [Script::text(" ".into()), Script::calls(Vec::new())] {
            assert_eq!(handing_over(script.clone(), &turn), script);
        }
    }
}
