//! Assembles the pieces of an answer, within bounds, and passes them on to the readers.

mod routing;

use std::collections::HashSet;

use belay_protocol::{Arguments, CallId, DeltaSink, FinishReason, ModelError, ModelReply, ToolCall, Usage};
use uuid::Uuid;

use crate::bounds::{ALL_ARGUMENTS_MAX_BYTES, ARGUMENTS_MAX_BYTES, CALLS_MAX, NAME_MAX_BYTES, TEXT_MAX_BYTES};
use crate::failure::network;

pub(crate) use self::routing::CallHead;

/// An answer that is being received.
#[derive(Default)]
pub(crate) struct Collector {
    text: String,
    reasoning_bytes: usize,
    calls: Vec<PartialCall>,
    arguments_bytes: usize,
    /// Why the model stopped, if it has said so.
    finish: Option<FinishReason>,
    /// The usage, if it was reported completely.
    usage: Option<Usage>,
    /// Whether any part of an answer has arrived. Then the provider may charge for it.
    pub(crate) begun: bool,
}

/// Whether a usage report is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// Tokens read and tokens generated.
    All,
    /// One of them.
    Part,
}

/// The index of a call of an answer. Only the [`Collector`] with the call makes it, and it never removes a call.
#[derive(Clone, Copy)]
pub(crate) struct CallAt(usize);

/// A tool call that is being received.
#[derive(Default)]
struct PartialCall {
    /// The number that the server gave the call. It may be any number: it is compared, and never used as a size.
    key: u64,
    id: String,
    name: String,
    arguments: String,
}

impl Collector {
    /// Adds a piece of the answer's text.
    pub(crate) fn text(&mut self, piece: &str, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        if piece.is_empty() {
            return Ok(());
        }
        self.begun = true;
        if self.text.len() + piece.len() > TEXT_MAX_BYTES {
            return Err(network(format!("the answer's text is longer than {TEXT_MAX_BYTES} bytes")));
        }
        self.text.push_str(piece);
        sink.text(piece);
        Ok(())
    }

    /// Adds a piece of the model's reasoning. It is passed on to the readers but not stored.
    pub(crate) fn reasoning(&mut self, piece: &str, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        if piece.is_empty() {
            return Ok(());
        }
        self.begun = true;
        self.reasoning_bytes += piece.len();
        if self.reasoning_bytes > TEXT_MAX_BYTES {
            return Err(network(format!("the model's reasoning is longer than {TEXT_MAX_BYTES} bytes")));
        }
        sink.reasoning(piece);
        Ok(())
    }

    /// Sets why the model stopped. A reason for which the answer is incomplete is never replaced by a later one.
    pub(crate) fn stop(&mut self, reason: FinishReason) {
        if !matches!(self.finish, Some(FinishReason::Length | FinishReason::ContentFilter)) {
            self.finish = Some(reason);
        }
    }

    /// Whether the model has said why it stopped. Then all parts of the answer have arrived.
    pub(crate) fn has_stopped(&self) -> bool {
        self.finish.is_some()
    }

    /// Whether the complete usage has arrived too. Then nothing is missing but the end of the stream.
    pub(crate) fn is_counted(&self) -> bool {
        self.has_stopped() && self.usage.is_some()
    }

    /// Ends an answer whose server has said that it is the end, and not why.
    ///
    /// A server that loses its model ends its stream in the same way, so calls are never run. A text is complete if its
    /// usage was counted. Otherwise its end may be missing.
    ///
    /// # Errors
    /// There is no text, or there are calls.
    pub(crate) fn stop_unsaid(&mut self) -> Result<(), ModelError> {
        if self.has_stopped() {
            return Ok(());
        }
        if self.text.is_empty() || !self.calls.is_empty() {
            return Err(network("the answer ended without a reason to stop"));
        }
        self.finish = Some(if self.usage.is_some() { FinishReason::Stop } else { FinishReason::Unsaid });
        Ok(())
    }

    /// Begins a tool call and returns its index.
    pub(crate) fn open_call(
        &mut self,
        key: u64,
        id: &str,
        name: &str,
        sink: &mut dyn DeltaSink,
    ) -> Result<CallAt, ModelError> {
        self.begun = true;
        sink.call_bytes(name.len());
        if self.calls.len() == CALLS_MAX {
            return Err(network(format!("the answer has more than {CALLS_MAX} tool calls")));
        }
        self.calls.push(PartialCall { key, ..PartialCall::default() });
        let at = CallAt(self.calls.len() - 1);
        self.identify(at, id, name)?;
        Ok(at)
    }

    /// Finds the latest call with this key.
    pub(crate) fn call(&self, key: u64) -> Option<CallAt> {
        self.calls.iter().rposition(|call| call.key == key).map(CallAt)
    }

    /// Sets the id and the name of a call if they are not known yet. Some servers repeat them with each piece.
    pub(crate) fn identify(&mut self, at: CallAt, id: &str, name: &str) -> Result<(), ModelError> {
        if id.len().max(name.len()) > NAME_MAX_BYTES {
            return Err(network(format!("the name or id of a tool call is longer than {NAME_MAX_BYTES} bytes")));
        }
        let call = &mut self.calls[at.0];
        if call.id.is_empty() {
            call.id.push_str(id);
        }
        if call.name.is_empty() {
            call.name.push_str(name);
        }
        Ok(())
    }

    /// Adds a piece of the JSON arguments of a call.
    pub(crate) fn arguments(&mut self, at: CallAt, piece: &str, sink: &mut dyn DeltaSink) -> Result<(), ModelError> {
        sink.call_bytes(piece.len());
        let call = &mut self.calls[at.0];
        self.arguments_bytes += piece.len();
        for (bytes, max, what) in [
            (call.arguments.len() + piece.len(), ARGUMENTS_MAX_BYTES, "a tool call"),
            (self.arguments_bytes, ALL_ARGUMENTS_MAX_BYTES, "all tool calls"),
        ] {
            if bytes > max {
                return Err(network(format!("the arguments of {what} are longer than {max} bytes")));
            }
        }
        call.arguments.push_str(piece);
        Ok(())
    }

    /// Stores the usage that the provider reports, as a total so far. If a part is missing, the answer contains no
    /// usage: the sink gets the known part, and its owner estimates the rest.
    pub(crate) fn report(&mut self, usage: Usage, reported: Reported, sink: &mut dyn DeltaSink) {
        self.begun = true;
        self.usage = (reported == Reported::All).then_some(usage);
        sink.reported(&usage);
    }

    /// Whether no arguments of a call have arrived.
    pub(crate) fn has_no_arguments(&self, at: CallAt) -> bool {
        self.calls[at.0].arguments.is_empty()
    }

    /// Whether any text or call has arrived.
    pub(crate) fn has_content(&self) -> bool {
        !self.text.is_empty() || !self.calls.is_empty()
    }

    /// Returns the complete answer. Completely empty calls are left out. Missing and repeated ids are replaced, because
    /// only its call id identifies a result.
    pub(crate) fn into_reply(self) -> ModelReply {
        let mut seen = HashSet::new();
        let tool_calls: Vec<_> = self
            .calls
            .into_iter()
            .filter(|call| !(call.id.is_empty() && call.name.is_empty() && call.arguments.is_empty()))
            .map(|call| {
                let id = if call.id.is_empty() || seen.contains(&call.id) { made_up_id() } else { call.id };
                seen.insert(id.clone());
                ToolCall { id: CallId::from(id), name: call.name, arguments: Arguments::parse(&call.arguments) }
            })
            .collect();
        let finish = match (self.finish.unwrap_or_default(), tool_calls.is_empty()) {
            // Some compatible servers say `stop` when tools are to be run, and the reverse.
            (FinishReason::Stop, false) => FinishReason::ToolCalls,
            (FinishReason::ToolCalls, true) => FinishReason::Stop,
            (finish, _) => finish,
        };
        ModelReply { text: self.text, tool_calls, finish, usage: self.usage, attempts: 1, ..ModelReply::default() }
    }
}

/// Makes an id for a call without one. It is globally unique, because some providers refuse a conversation in which an
/// id occurs twice.
fn made_up_id() -> String {
    format!("call_{}", Uuid::now_v7().simple())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use belay_protocol::{ModelErrorKind, NoSink};

    use super::*;

    #[test]
    fn repeated_and_missing_ids_are_replaced_and_empty_calls_dropped() {
        let mut collector = Collector::default();
        for (key, id, name) in [(0, "a", "x"), (1, "a", "y"), (2, "", "z"), (3, "", "")] {
            collector.open_call(key, id, name, &mut NoSink).unwrap();
        }
        let reply = collector.into_reply();
        let names: Vec<_> = reply.tool_calls.iter().map(|call| call.name.as_str()).collect();
        let ids: HashSet<_> = reply.tool_calls.iter().map(|call| call.id.clone()).collect();
        assert_eq!(names, ["x", "y", "z"]);
        assert_eq!(ids.len(), 3);
        assert_eq!(reply.tool_calls[0].id.as_str(), "a");
    }

    #[test]
    fn what_a_model_stopped_for_agrees_with_what_it_asked() {
        use FinishReason::*;
        for (said, calls, finish) in [
            (Some(Stop), 0, Stop),
            (Some(Stop), 1, ToolCalls),
            (Some(ToolCalls), 0, Stop),
            (Some(Length), 1, Length),
            (Some(ContentFilter), 0, ContentFilter),
            (None, 1, ToolCalls),
        ] {
            let mut collector = Collector { finish: said, ..Collector::default() };
            for key in 0..calls {
                collector.open_call(key, "", "x", &mut NoSink).unwrap();
            }
            assert_eq!(collector.into_reply().finish, finish, "{said:?} {calls}");
        }
    }

    #[test]
    fn every_bound_is_a_network_error_that_names_it() {
        let megabyte = "x".repeat(1 << 20);
        let mut errors = Vec::new();
        let mut collector = Collector::default();
        errors.extend((0..5).find_map(|_| collector.text(&megabyte, &mut NoSink).err()));
        let mut collector = Collector::default();
        errors.extend((0..5).find_map(|_| collector.reasoning(&megabyte, &mut NoSink).err()));
        let mut collector = Collector::default();
        let at = collector.open_call(0, "", "x", &mut NoSink).unwrap();
        collector.arguments(at, &megabyte, &mut NoSink).unwrap();
        errors.extend(collector.arguments(at, "x", &mut NoSink).err());
        errors.extend((0..128).find_map(|key| collector.open_call(key, "", "x", &mut NoSink).err()));
        let mut collector = Collector::default();
        errors.extend((0..3).find_map(|key| {
            let at = collector.open_call(key, "", "x", &mut NoSink).unwrap();
            collector.arguments(at, &megabyte, &mut NoSink).err()
        }));
        errors.extend(Collector::default().open_call(0, "", &"x".repeat(1025), &mut NoSink).err());
        let details: Vec<_> = errors.iter().map(|error| error.detail.as_str()).collect();
        assert_eq!(
            details,
            [
                "the answer's text is longer than 4194304 bytes",
                "the model's reasoning is longer than 4194304 bytes",
                "the arguments of a tool call are longer than 1048576 bytes",
                "the answer has more than 128 tool calls",
                "the arguments of all tool calls are longer than 2097152 bytes",
                "the name or id of a tool call is longer than 1024 bytes",
            ]
        );
        assert!(errors.iter().all(|error| error.kind == ModelErrorKind::Network));
    }
}
