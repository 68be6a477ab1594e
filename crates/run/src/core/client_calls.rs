//! Calls that the client of a run carries out: their results, and the request for those that have none.

use belay_agent_loop::LoopContext;
use belay_protocol::{ApprovalKind, Durability, EventKind, StoreError, ToolCall, ToolStatus};

use super::RunCore;
use crate::client_tools::ClientSide;
use crate::effect_gate::Asking;
use crate::live::bounded;

/// Why a call is not passed to the client.
const ENDING: &str = "not executed: this run is ending, so the client is asked for no more results";

impl RunCore {
    /// Gives calls of the client's tools the results that the client has sent. Returns the request for those that have
    /// none.
    ///
    /// # Errors
    /// The results could not be stored.
    pub async fn ask_client(
        &mut self,
        calls: Vec<ToolCall>,
        context: &mut LoopContext,
    ) -> Result<Option<Asking>, StoreError> {
        let Some(client) = self.client.take() else { return Ok(None) };
        let asking = self.answer_or_ask(&client, calls, context).await;
        self.client = Some(client);
        asking
    }

    async fn answer_or_ask(
        &mut self,
        client: &ClientSide,
        calls: Vec<ToolCall>,
        context: &mut LoopContext,
    ) -> Result<Option<Asking>, StoreError> {
        let mut open = Vec::new();
        let mut is_new = false;
        for call in calls {
            let (result, status) = match self.answers.get(&call.id).and_then(|answer| answer.client.clone()) {
                Some((request, text)) => {
                    self.journal.use_up_once(request);
                    (text, ToolStatus::Success)
                }
                None if self.closing.is_some() => (ENDING.to_owned(), ToolStatus::NotExecuted),
                None => match self.tally.admit_tool(self.rules.limits(), &call.name) {
                    Some(limit) => {
                        let text = format!(
                            "not executed: the run has used up its tool calls (limit {limit}); give your final answer as text"
                        );
                        (text, ToolStatus::NotExecuted)
                    }
                    None => {
                        open.push(call);
                        continue;
                    }
                },
            };
            is_new = true;
            let Some(spec) = client.spec(&call.name) else { continue };
            let gate = &self.services.clone().gate;
            gate.record_client_result(&mut self.journal, context, &call, &spec, (status, result)).await;
        }
        if is_new {
            self.journal.write(context, Durability::Committed).await?;
        }
        let asking = client.request(&open);
        let asked = match asking.as_ref().map(|asking| &asking.wanted.kind) {
            Some(ApprovalKind::ClientCalls { calls, .. }) => calls.as_slice(),
            _ => &[],
        };
        for call in open.iter().filter(|call| asked.iter().any(|asked| asked.id == call.id)) {
            self.journal.note(EventKind::ToolStarted {
                call_id: call.id.clone(),
                name: call.name.clone(),
                arguments: bounded(&call.arguments.to_wire_object().to_string(), EVENT_CHARS),
            });
        }
        // Those that wait for their turn are counted when they are asked for.
        self.tally.give_back_tools(open.len() - asked.len());
        self.live.activity.touch();
        Ok(asking)
    }
}

/// Characters of the arguments in an event.
const EVENT_CHARS: usize = 1_000;
