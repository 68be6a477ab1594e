//! Calls that the client of a run carries out: their results, and the request for those that have none.

use std::sync::Arc;

use belay_agent_loop::{AdmittedCall, LoopContext};
use belay_protocol::{ApprovalKind, Durability, EventKind, Message, StoreError, ToolCall, ToolStatus};

use super::RunCore;
use crate::client_tools::{ClientSide, gone_spec};
use crate::effect_gate::Asking;
use crate::live::bounded;

/// Why a call is not passed to the client.
const ENDING: &str = "not executed: this run is ending, so the client is asked for no more results";

/// Why a call that waited for its turn is not passed to the client.
const WRITTEN: &str = "not executed: the user has written before the client was asked for it";

/// Why a text of the user is left out.
const REMOVED: &str = "the operator's hooks removed all of its text";

impl RunCore {
    /// What the user has written behind results, as the hooks for incoming messages let it pass. If they do not, a line
    /// about that takes its place: the results count, and the run goes on.
    async fn as_hooks_say(&mut self, said: String) -> Message {
        let mut facts = Vec::new();
        let decided = self.services.hooks.joined_text(&self.request, said, &mut facts).await;
        facts.into_iter().for_each(|fact| self.journal.note(fact));
        let why = match decided {
            Ok(text) if !text.trim().is_empty() => return Message::user(text),
            Ok(_) => REMOVED.to_owned(),
            Err(refusal) => refusal.to_string(),
        };
        Message::data(format!("The user has also written a message, which was not delivered: {why}. Tell the user."))
    }

    /// Separates the calls that the client carries out from the others. Refused calls stay with the others, which get
    /// their results at the gate.
    pub fn split(&self, calls: Vec<AdmittedCall>) -> (Vec<AdmittedCall>, Vec<ToolCall>) {
        if self.client.is_none() && self.answers.values().all(|answer| answer.client.is_none()) {
            return (calls, Vec::new()); // most runs: nothing is moved
        }
        let is_clients = |admitted: &AdmittedCall| admitted.refused.is_none() && self.is_of_client(&admitted.call);
        let (clients, ours): (Vec<_>, Vec<_>) = calls.into_iter().partition(is_clients);
        (ours, clients.into_iter().map(|admitted| admitted.call).collect())
    }

    /// Whether the client carries out this call: it has given the result, or it offers the tool.
    pub fn is_of_client(&self, call: &ToolCall) -> bool {
        let has_result = self.answers.get(&call.id).is_some_and(|answer| answer.client.is_some());
        has_result || self.client.as_ref().is_some_and(|client| client.has(&call.name))
    }

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
        let client = self.client.take(); // the results count, whatever the client offers now
        let asking = self.answer_or_ask(client.as_deref(), calls, context).await;
        self.client = client;
        asking
    }

    async fn answer_or_ask(
        &mut self,
        client: Option<&ClientSide>,
        calls: Vec<ToolCall>,
        context: &mut LoopContext,
    ) -> Result<Option<Asking>, StoreError> {
        let mut open = Vec::new();
        let (mut is_new, mut said) = (false, String::new());
        // Taken, because a later call may have the same id.
        let given = calls.into_iter().map(|call| {
            let given = self.answers.get_mut(&call.id).and_then(|answer| answer.client.take());
            (call, given)
        });
        for (call, given) in given.collect::<Vec<_>>() {
            let (result, status) = match given {
                Some((request, result)) => {
                    self.journal.use_up_once(request);
                    said.push_str(&result.said);
                    (result.text, ToolStatus::Success)
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
            self.record_client_result(client, context, &call, (status, result)).await;
        }
        if !said.is_empty() {
            self.tally.give_back_tools(open.len());
            for call in std::mem::take(&mut open) {
                let result = (ToolStatus::NotExecuted, WRITTEN.to_owned());
                self.record_client_result(client, context, &call, result).await;
            }
            let said = self.as_hooks_say(said).await;
            context.messages.push(Arc::new(said));
        }
        if is_new {
            self.journal.write(context, Durability::Committed).await?;
        }
        let asking = client.and_then(|client| client.request(&open));
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

    async fn record_client_result(
        &mut self,
        client: Option<&ClientSide>,
        context: &mut LoopContext,
        call: &ToolCall,
        result: (ToolStatus, String),
    ) {
        let spec = client.and_then(|client| client.spec(&call.name)).unwrap_or_else(|| gone_spec(&call.name));
        let gate = &self.services.clone().gate;
        gate.record_client_result(&mut self.journal, context, call, &spec, result).await;
    }
}

/// Characters of the arguments in an event.
const EVENT_CHARS: usize = 1_000;
