//! The updates of an editor for a run's events. Pure.

use std::collections::{BTreeSet, HashSet};

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, SessionUpdate, StopReason, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, UsageUpdate,
};
use belay_cli::client::{Place, Said, number, text};
use serde_json::{Value as Json, json};

use crate::link::said;
use crate::plan::{Steps, tokens};
use crate::{ending, tools};

/// Something to tell, or to do.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// An update of the session.
    Update(Box<SessionUpdate>),
    /// The run waits for the answer to this question.
    Ask(String),
    /// This question was answered, here or elsewhere, or withdrawn.
    Answered(String),
    /// The run has ended, in the protocol's words.
    Ended(StopReason),
    /// The message has become part of another run, which answers it.
    Joined,
}

impl Step {
    fn update(update: SessionUpdate) -> Self {
        Self::Update(Box::new(update))
    }
}

/// Reads the events of a run in their order, over any number of connections. Nothing is told twice.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) place: Place,
    text: Said,
    thought: Said,
    /// The number of the text that was told last; 0: none.
    told: (u32, u32),
    /// The calls that were told.
    calls: HashSet<String>,
    /// Those of them that have no result yet.
    unfinished: BTreeSet<String>,
    steps: Steps,
    /// The length of the model's context in tokens; 0: unknown.
    context_tokens: u64,
}

impl Turn {
    pub(crate) fn new(context_tokens: u64) -> Self {
        Self {
            place: Place::default(),
            text: Said::default(),
            thought: Said::default(),
            told: (0, 0),
            calls: HashSet::new(),
            unfinished: BTreeSet::new(),
            steps: Steps::default(),
            context_tokens,
        }
    }

    /// Takes the next event.
    pub(crate) fn event(&mut self, event: &Json) -> Vec<Step> {
        if !self.place.takes(event) {
            return Vec::new();
        }
        let data = &event["data"];
        let update = match (text(event, "/stream"), text(data, "/phase")) {
            ("lifecycle", "end" | "error") => return self.ended(data),
            ("lifecycle", "step") if self.context_tokens > 0 => {
                Some(SessionUpdate::UsageUpdate(UsageUpdate::new(tokens(data), self.context_tokens)))
            }
            ("assistant", _) if data.get("final").is_some() => {
                let piece = self.text.answers(text(data, "/text"));
                self.text_update(piece)
            }
            ("assistant", _) => {
                let piece = self.text.says(number(data, "/step"), text(data, "/text"));
                self.text_update(piece)
            }
            ("reasoning", _) => self.thought_update(data),
            ("tool", "start") => Some(self.begun(data)),
            ("tool", "result") => Some(self.result(data)),
            ("plan", _) => self.steps.event(data),
            ("file", _) => sent_file(data),
            ("approval", "requested") => {
                let known = self.asked(data).map(Step::update);
                return known.into_iter().chain([Step::Ask(text(data, "/approvalId").to_owned())]).collect();
            }
            ("approval", "resolved") => return vec![Step::Answered(text(data, "/approvalId").to_owned())],
            _ => None,
        };
        update.map(Step::update).into_iter().collect()
    }

    /// Passes over a text that was told before.
    fn text_update(&mut self, piece: Option<(u32, String)>) -> Option<SessionUpdate> {
        let (number, piece) = piece?;
        let before = std::mem::replace(&mut self.told.0, number);
        Some(said(&parted(before, number, piece)))
    }

    fn thought_update(&mut self, data: &Json) -> Option<SessionUpdate> {
        let (number, piece) = self.thought.says(number(data, "/step"), text(data, "/text"))?;
        let before = std::mem::replace(&mut self.told.1, number);
        let words = parted(before, number, piece);
        Some(SessionUpdate::AgentThoughtChunk(ContentChunk::new(ContentBlock::from(words))))
    }

    /// The call of a question, which has not begun. `None`: it was told.
    fn asked(&mut self, data: &Json) -> Option<SessionUpdate> {
        let (id, tool) = (text(data, "/toolCallId"), text(data, "/name"));
        self.unfinished.insert(id.to_owned());
        self.calls.insert(id.to_owned()).then(|| {
            let call = ToolCall::new(id.to_owned(), tools::title(tool, text(data, "/summary"))).kind(tools::kind(tool));
            SessionUpdate::ToolCall(call.status(ToolCallStatus::Pending))
        })
    }

    fn begun(&mut self, data: &Json) -> SessionUpdate {
        let (id, tool) = (text(data, "/toolCallId"), text(data, "/name"));
        self.unfinished.insert(id.to_owned());
        if !self.calls.insert(id.to_owned()) {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::InProgress);
            return SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.to_owned(), fields));
        }
        let arguments = text(data, "/arguments");
        let call = ToolCall::new(id.to_owned(), tools::title(tool, arguments)).kind(tools::kind(tool));
        let input = (!arguments.is_empty()).then(|| json!(arguments));
        SessionUpdate::ToolCall(call.status(ToolCallStatus::InProgress).raw_input(input))
    }

    fn result(&mut self, data: &Json) -> SessionUpdate {
        let (id, tool) = (text(data, "/toolCallId"), text(data, "/name"));
        self.unfinished.remove(id);
        let is_error = data.pointer("/isError").and_then(Json::as_bool).unwrap_or_default();
        // The protocol has no word for a call that was denied or cancelled.
        let status = if is_error { ToolCallStatus::Failed } else { ToolCallStatus::Completed };
        let output = json!({ "status": data["status"], "tookMs": data["tookMs"] });
        let mut fields = ToolCallUpdateFields::new().status(status).raw_output(output);
        let result = text(data, "/result");
        // The content of an edit is its change, which a list would replace.
        if !result.is_empty() && (is_error || !matches!(tool, "write_file" | "edit_file")) {
            fields = fields.content(vec![ToolCallContent::from(result)]);
        }
        if self.calls.insert(id.to_owned()) {
            fields = fields.title(tools::title(tool, "")).kind(tools::kind(tool));
        }
        SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.to_owned(), fields))
    }

    /// The calls that were told and have got no result when the run has ended, such as one that was stopped at its question.
    pub(crate) fn left_over(&mut self) -> Vec<SessionUpdate> {
        let failed = |id| {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Failed);
            SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id, fields))
        };
        std::mem::take(&mut self.unfinished).into_iter().map(failed).collect()
    }

    /// The end: the run's line, where it has one, and the reason.
    fn ended(&mut self, data: &Json) -> Vec<Step> {
        let reason = ending::from_word(text(data, "/stopReason"));
        if reason == Some(belay_protocol::StopReason::Joined) {
            return vec![Step::Joined];
        }
        let line = Some(text(data, "/error")).filter(|line| !line.is_empty());
        let piece = line.and_then(|line| self.text.answers(line));
        let update = self.text_update(piece).map(Step::update);
        let end = Step::Ended(reason.map_or(StopReason::EndTurn, ending::stop_reason));
        update.into_iter().chain([end]).collect()
    }
}

/// A piece of a text. A text that does not continue the one before it begins a paragraph, since editors show one text.
fn parted(before: u32, number: u32, piece: String) -> String {
    if before != 0 && before != number { format!("\n\n{piece}") } else { piece }
}

/// A file that was sent to this conversation.
fn sent_file(data: &Json) -> Option<SessionUpdate> {
    if data.pointer("/place").is_some_and(Json::is_string) {
        return None;
    }
    let size = belay_protocol::size_text(number(data, "/bytes"));
    Some(said(&format!(
        "\n\nFile: {} ({size}): {} {}\n\n",
        text(data, "/name"),
        text(data, "/url"),
        text(data, "/caption")
    )))
}

#[cfg(test)]
mod tests;
