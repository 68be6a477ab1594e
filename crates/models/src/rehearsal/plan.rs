//! Decides the answer of the rehearsal: a pure function of the request.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Arguments, CallId, Message, ModelErrorKind, ToolCall};

use super::outputs::Offered;
use super::request::{self, Ask};
use super::turn::Turn;
use super::{LABEL, answer, misbehave, outputs};

/// The script of one answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Script {
    /// Texts, and the pauses between them.
    pub(super) segments: Vec<Segment>,
    /// The ending of the answer.
    pub(super) ending: Ending,
}

/// A piece of a script.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Segment {
    /// Streams this text, word by word, without delay.
    Say(String),
    /// Sends nothing for a while.
    Wait(Duration),
}

/// The ending of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ending {
    /// The text is the answer.
    Stop,
    /// Tool calls.
    Calls(Vec<ToolCall>),
    /// Tool calls that the length limit has cut off.
    Cut(Vec<ToolCall>),
    /// An error of the provider.
    Fail(ModelErrorKind),
}

impl Script {
    pub(super) fn text(text: String) -> Self {
        Self { segments: vec![Segment::Say(text)], ending: Ending::Stop }
    }

    pub(super) fn calls(calls: Vec<ToolCall>) -> Self {
        Self { segments: Vec::new(), ending: Ending::Calls(calls) }
    }

    /// The complete text.
    fn joined_text(&self) -> String {
        let texts = self.segments.iter().filter_map(|segment| match segment {
            Segment::Say(text) => Some(text.as_str()),
            Segment::Wait(_) => None,
        });
        texts.collect()
    }

    /// Puts the label before the text, if there is a text that a person will see.
    pub(super) fn labelled(mut self) -> Self {
        if let Some(Segment::Say(text)) = self.segments.iter_mut().find(|segment| matches!(segment, Segment::Say(_)))
            && text != "NO_REPLY"
        {
            *text = format!("{LABEL}\n{text}");
        }
        self
    }
}

/// Decides the answer. Makes no tool calls if no tools are offered, whatever the request is. If outputs are declared,
/// it submits the answer as their values.
pub(super) fn plan(messages: &[Arc<Message>], offered: impl Into<Offered>) -> Script {
    let turn = Turn::of(messages);
    let offered = offered.into();
    let act = misbehave::read(turn.asked);
    let script = match &act {
        Some(act) => misbehave::script(act, &turn, &offered),
        None => behave(&turn, offered.tools),
    };
    if let (Some(schema), Ending::Stop) = (&offered.completion, &script.ending)
        && act.as_ref().is_none_or(misbehave::Act::hands_over)
    {
        return Script::calls(vec![outputs::completion(&turn, schema, &script.joined_text())]);
    }
    // Labels every text of the first turn, because the loop may discard all but the last one.
    if turn.is_first() { script.labelled() } else { script }
}

/// Makes all requested calls in one batch, then answers from the results.
fn behave(turn: &Turn<'_>, tools_offered: bool) -> Script {
    let asks = request::read(turn.asked);
    let calls = calls_for(&asks, turn);
    if tools_offered && turn.batches() == 0 && !calls.is_empty() {
        return Script::calls(calls);
    }
    Script::text(answer::compose(&asks, turn))
}

fn calls_for(asks: &[Ask], turn: &Turn<'_>) -> Vec<ToolCall> {
    asks.iter()
        .filter_map(|ask| match ask {
            Ask::Call { tool, arguments } => Some((tool, arguments)),
            _ => None,
        })
        .zip(0..)
        .map(|((tool, arguments), at)| ToolCall {
            id: call_id(turn, at),
            name: tool.clone(),
            arguments: Arguments::Object(arguments.clone()),
        })
        .collect()
}

/// An id that no other call of the conversation has, unless the context is compacted.
pub(super) fn call_id(turn: &Turn<'_>, at: u64) -> CallId {
    CallId::from(format!("rehearsal-{}-{at}", turn.length()))
}
