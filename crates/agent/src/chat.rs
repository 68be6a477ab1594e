//! The chat delegate: what the shared loop does differently for a conversation.
//!
//! The first text that is not nudged ends the turn. N is `max_tool_iterations`: a notice at N−1, no tools from N on, and
//! the loop's own limit is N+1.

use std::sync::Arc;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, BrakeAction, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Reasoning,
    TextAction,
};
use belay_protocol::{
    Durability, EventKind, FinishReason, Message, ModelError, ModelErrorKind, ModelReply, ModelRequest, StopReason,
};

use crate::compaction;
use crate::cost_guard::Refused;
use crate::effect_gate::Caller;
use crate::house::House;
use crate::journal::RunJournal;
use crate::live::{LiveRun, LiveSink};
use crate::reply::{self, Reply};

const NOTICE: &str = "You are close to the limit of steps for this request. Answer the user now, in text, with what you \
have. Do not call any more tools.";
const CUT_OFF: &str = "\n\n[cut off: the answer reached its length limit]";
const WITHHELD: &str = "\n\n[the model provider withheld the rest]";
const ONLY_ECHOES: &str = "I could not complete that. Please put it another way.";

/// Adapts the loop to one turn of a conversation.
pub(crate) struct ChatDelegate<'a> {
    pub(crate) house: &'a House,
    pub(crate) run: &'a LiveRun,
    pub(crate) journal: RunJournal,
    /// Where this turn's user message stands in the context.
    pub(crate) turn_start: usize,
    /// The model's choice to say nothing.
    pub(crate) silent: bool,
    /// Why the final text is not whole: what the reason would be if nothing had been said.
    pub(crate) cut_off: Option<StopReason>,
    /// Whether the context was shortened already.
    pub(crate) compacted: bool,
}

impl ChatDelegate<'_> {
    fn stopped(&self) -> Option<StopReason> {
        self.run.stopped_by().map(|cause| cause.reason)
    }

    /// One logical call, guarded and metered; dropped at once when the run is told to stop.
    async fn ask(&mut self, request: ModelRequest<'_>, step: u32) -> Result<Asked, LoopError> {
        let reservation = match self.house.cost.reserve(self.run.id, &request).await {
            Ok(reservation) => reservation,
            Err(Refused::Limit { spent, limit, needed }) => {
                return Err(LoopError::CostRefused {
                    spent_micro_usd: spent,
                    limit_micro_usd: limit,
                    needed_micro_usd: needed,
                });
            }
            Err(Refused::Store(error)) => return Err(error.into()),
        };
        if let Some(reason) = self.stopped() {
            self.house.cost.release(reservation).await; // no request was sent
            return Ok(Asked::Stopped(reason));
        }
        let request = ModelRequest { max_attempts: reservation.attempts(), ..request };
        let mut sink = LiveSink { run: self.run, step };
        let result = tokio::select! {
            biased; // a stop that has arrived is never answered by one more word of the model
            () = self.run.cancel.cancelled() => {
                // What was generated may be charged to us and nobody will say how much: the estimate is.
                self.journal.usage.model_calls += 1;
                self.journal.cost_micro_usd += self.house.cost.settle(reservation, 1, None).await;
                return Ok(Asked::Stopped(self.stopped().unwrap_or(StopReason::UserStop)));
            }
            result = self.house.model.call(request, &mut sink) => result,
        };
        match result {
            Ok(reply) => {
                self.house.model_answered();
                let charged = self.house.cost.settle(reservation, reply.abandoned, Some(reply.usage.as_ref())).await;
                self.journal.cost_micro_usd += charged;
                self.journal.usage.add_call(reply.attempts, reply.usage.as_ref());
                let (input, output) = reply.usage.map_or((None, None), |u| (Some(u.input), Some(u.output)));
                self.journal.note(EventKind::ModelCalled { step, attempts: reply.attempts, input, output });
                Ok(Asked::Reply(reply))
            }
            Err(error) => {
                self.journal.usage.add_call(error.attempts, None);
                self.journal.note(EventKind::ModelCalled { step, attempts: error.attempts, input: None, output: None });
                self.journal.cost_micro_usd += self.house.cost.settle(reservation, error.abandoned, None).await;
                self.house.model_failed(&error);
                Ok(Asked::Failed(error))
            }
        }
    }

    /// Makes the context shorter, in memory and in the store. `false`: nothing could leave.
    async fn compact(&mut self, context: &mut LoopContext) -> Result<bool, LoopError> {
        let Some(shorter) = compaction::compact(&context.messages, self.turn_start) else { return Ok(false) };
        // Everything that leaves must be in the store first.
        self.journal.write(context, Durability::Relaxed).await?;
        let event =
            self.house.event(&self.run.session, self.run.id, EventKind::Compacted { messages: shorter.dropped });
        let keep = shorter.kept_of_earlier_turns;
        let lease = self.journal.lease();
        self.house.store.threads.compact(lease, keep, shorter.summary, vec![event]).await?;
        tracing::info!(run = %self.run.id, dropped = shorter.dropped, "context compacted");
        context.messages = shorter.messages;
        self.turn_start = shorter.turn_start;
        self.journal.rebase(context.messages.len());
        self.compacted = true;
        Ok(true)
    }
}

enum Asked {
    Reply(ModelReply),
    Failed(ModelError),
    Stopped(StopReason),
}

#[async_trait]
impl LoopDelegate for ChatDelegate<'_> {
    async fn check_signals(&mut self) -> LoopSignal {
        self.stopped().map_or(LoopSignal::Continue, LoopSignal::Stop)
    }

    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome> {
        let limit = self.house.config.max_tool_iterations;
        if iteration + 1 == limit && !context.state.force_text {
            context.messages.push(Arc::new(Message::system(NOTICE).for_run()));
            self.journal.note(EventKind::Brake {
                brake: "iteration_notice".into(),
                count: iteration,
                force_text: false,
            });
        }
        if iteration >= limit {
            context.state.force_text = true;
        }
        None
    }

    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        let mut attempts_left = self.house.max_attempts.max(1);
        loop {
            let request = ModelRequest { max_attempts: attempts_left, ..reasoning.request(context) };
            match self.ask(request, iteration).await? {
                Asked::Reply(reply) => return Ok(LlmTurn::Reply(reply)),
                Asked::Stopped(reason) => return Ok(LlmTurn::Stopped(reason)),
                Asked::Failed(error) => {
                    // The shortened request is another one: it is sent at least once, whatever the first has used up.
                    attempts_left = attempts_left.saturating_sub(error.attempts).max(1);
                    let again = error.kind == ModelErrorKind::ContextTooLong && !self.compacted;
                    if !again || !self.compact(context).await? {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        let mut text = match reply::shape(&text) {
            Reply::Text(text) => text,
            Reply::OnlyEchoes => ONLY_ECHOES.to_owned(),
            Reply::Empty => String::new(),
            Reply::Silent => {
                self.silent = true;
                String::new()
            }
        };
        self.cut_off = match context.state.last_finish {
            FinishReason::Length => Some(StopReason::LengthLimit),
            FinishReason::ContentFilter => Some(StopReason::ContentFilter),
            FinishReason::Stop | FinishReason::ToolCalls => None,
        };
        if !text.is_empty() {
            text.push_str(match self.cut_off {
                Some(StopReason::LengthLimit) => CUT_OFF,
                Some(_) => WITHHELD,
                None => "",
            });
        }
        let said = if self.silent { reply::SILENT_TOKEN } else { &text };
        if !said.is_empty() {
            context.messages.push(Arc::new(Message::assistant(said)));
        }
        TextAction::Return(LoopOutcome::Response(text))
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        let unavailable = calls.iter().filter(|admitted| admitted.refused.is_some()).count() as u32;
        if unavailable > 0 {
            let force_text = context.state.force_text;
            self.journal.note(EventKind::Brake { brake: "unavailable_tool".into(), count: unavailable, force_text });
        }
        let caller = Caller {
            session: &self.run.session,
            run: self.run.id,
            tools: self.house.reasoning.tools(),
            cancel: &self.run.cancel,
            journal: &mut self.journal,
        };
        self.house.gate.execute(caller, context, calls).await?;
        Ok(self.stopped().map(LoopOutcome::Stopped))
    }

    async fn after_iteration(&mut self, _iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        if let Some(BrakeAction { brake, count }) = context.state.braked {
            let force_text = context.state.force_text;
            self.journal.note(EventKind::Brake { brake: brake.word().into(), count, force_text });
        }
        Ok(())
    }
}
