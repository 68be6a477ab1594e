//! Results of calls that the client of a run carries out. They are no effects of Belay, so the gate only prepares them for
//! the model.

use std::sync::Arc;

use belay_agent_loop::LoopContext;
use belay_protocol::{EventKind, Message, ToolCall, ToolReply, ToolSpec, ToolStatus};

use super::{EVENT_CHARS, EffectGate, clean, result_of};
use crate::journal::RunJournal;
use crate::live::bounded;
use crate::metrics;

impl EffectGate {
    /// Cleans, bounds and marks the result of such a call, and appends it to the context.
    pub(crate) async fn record_client_result(
        &self,
        journal: &mut RunJournal,
        context: &mut LoopContext,
        call: &ToolCall,
        spec: &ToolSpec,
        (status, text): (ToolStatus, String),
    ) {
        let (run, keeper) = (journal.run(), self.outputs.as_deref());
        let is_clients = status == ToolStatus::Success;
        let text = match is_clients {
            true => clean::clean(ToolReply::from(text), spec, run, &call.id, keeper).await.text,
            false => text,
        };
        let result = result_of(call, status, text);
        metrics::tool_called(status, None);
        journal.note(EventKind::ToolFinished {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            status,
            took_ms: 0, // the client knows it
            result: bounded(&belay_text::untrusted::without(&result.text), EVENT_CHARS),
        });
        if is_clients {
            journal.tally().note_untrusted();
        }
        context.messages.push(Arc::new(Message::tool(result).with_untrusted(is_clients)));
    }
}
