//! A model call as a step of a run. The context is shortened before a call that would not fit, and after one that did
//! not.
//!
//! The threshold is an estimate, so it never ends a run: a context that cannot be shortened is sent as it is. If the
//! provider rejects a context as too long, the context is shortened and the call repeated. If that gains too little,
//! the middle of large results is cut out, once. If that does not help either, the run ends with that reason.
//! Compaction never starts a new conversation.
//!
//! Child runs shorten their contexts in the same way. Their messages are not part of a stored conversation, so nothing
//! of the cut is stored, and they continue with the shortened context.

use std::sync::Arc;

use belay_agent_loop::policies::Observation;
use belay_agent_loop::{LlmTurn, LoopContext, LoopError, Reasoning};
use belay_protocol::{Durability, EventKind, Message, ModelErrorKind, RunEnd, StopReason, TurnCompaction};

use crate::compaction::cut::tokens;
use crate::compaction::{Cut, How, Shortened, Shortener, is_pinned, oversized, shorten};
use crate::core::{Asked, CallPurpose, RunCore};
use crate::estimate::tokens_of;
use crate::outage::OutageWait;

/// Calls the model for a run and keeps its context within the model's limit.
pub struct ModelCall<'a> {
    /// The run.
    pub core: &'a mut RunCore,
    /// The bookkeeping of its compactions.
    pub shortener: &'a mut Shortener,
    /// Index of the run's first own message in the context, which contains its request. It moves when older messages
    /// are removed.
    pub start: &'a mut usize,
}

/// Reason of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Threshold,
    Overflow,
}

impl Why {
    /// The word in events.
    fn word(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::Overflow => "overflow",
        }
    }
}

/// Result of a compaction that was begun.
enum Made {
    /// This many messages were replaced by a summary.
    Shorter(u32),
    /// The shortened context would not be shorter.
    Nothing,
    /// The run was stopped.
    Stopped(StopReason),
}

/// Gain of a compaction.
enum Won {
    Nothing,
    Little,
    Enough,
    Ended(RunEnd),
}

/// Result of the attempt to make a rejected context fit.
enum Fit {
    /// The context is shorter; the call should be repeated.
    Made,
    /// The context cannot be shortened.
    None,
    /// The run has ended.
    Ended(RunEnd),
}

impl ModelCall<'_> {
    /// One logical call as a step of the loop, with compaction if necessary. In background work it also waits for a
    /// model that is unavailable.
    ///
    /// # Errors
    /// The call failed after all retries, or the cost guard refused it. Or the messages to remove could not be stored;
    /// then none was removed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the context is unchanged or completely shortened. A compaction that was reported as
    /// begun is then not reported as ended.
    pub async fn call(
        mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        step: u32,
    ) -> Result<LlmTurn, LoopError> {
        let mut outage = OutageWait::default();
        loop {
            let error = match self.once(reasoning, context, step).await {
                Err(LoopError::Model(error)) => error,
                answered => return answered,
            };
            let until = self.core.deadlines(context, CallPurpose::Step).earliest();
            // Boxed, because nearly all calls are answered and need not hold this future.
            if !Box::pin(outage.wait(self.core, &error, until)).await {
                return Err(error.into());
            }
            if let Some(reason) = self.core.stopped() {
                return Ok(LlmTurn::Stopped(reason.into()));
            }
        }
    }

    /// The same, without the wait for an outage.
    async fn once(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        step: u32,
    ) -> Result<LlmTurn, LoopError> {
        if let Some(end) = self.keep_room(reasoning, context).await? {
            return Ok(LlmTurn::Stopped(end));
        }
        let mut attempts_left = self.core.services.max_attempts.max(1);
        loop {
            let allowance = self.core.allowance(attempts_left);
            let estimated = tokens_of(&reasoning.request(context));
            let error = match self.core.ask(reasoning, context, step, allowance).await? {
                // Only if no text was shown: a repeated call would show it twice.
                Asked::Failed(error) if error.kind == ModelErrorKind::ContextTooLong && !error.heard => error,
                Asked::Reply(reply) => {
                    if let Some(usage) = &reply.usage {
                        self.shortener.calibration.learn(estimated, usage.input);
                    }
                    return Ok(LlmTurn::Reply(reply));
                }
                asked => return self.core.turn_of(asked, context),
            };
            // The shortened request is a new one: it is sent at least once, whatever the first one used of the budget.
            attempts_left = attempts_left.saturating_sub(error.attempts).max(1);
            match self.make_room(context).await? {
                Fit::Made => {}
                Fit::None => return Err(error.into()),
                Fit::Ended(end) => return Ok(LlmTurn::Stopped(end)),
            }
        }
    }

    /// Shortens a context that is about to exceed the model's limit. Returns the end of the run, if it ends here.
    async fn keep_room(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
    ) -> Result<Option<RunEnd>, LoopError> {
        let (config, calibration) = (&self.core.services.compaction, self.shortener.calibration);
        let size = self.core.services.model.info().context_tokens;
        let full = calibration.counted(tokens_of(&reasoning.request(context))) > config.limit(size);
        // If nearly all messages stay anyway, the prompt is what is long, and a compaction is not worthwhile.
        let worth_it = calibration.counted(tokens(&context.messages)) > config.keep(size);
        if !(config.enabled && full && worth_it && self.core.closing.is_none()) {
            return Ok(None);
        }
        Ok(match Box::pin(self.shorten(context, Why::Threshold)).await? {
            Won::Ended(end) => Some(end),
            Won::Nothing | Won::Little | Won::Enough => None,
        })
    }

    /// Shortens the context after the provider rejected it as too long.
    async fn make_room(&mut self, context: &mut LoopContext) -> Result<Fit, LoopError> {
        let won = Box::pin(self.shorten(context, Why::Overflow)).await?;
        Ok(match won {
            Won::Ended(end) => Fit::Ended(end),
            Won::Enough => Fit::Made,
            Won::Little | Won::Nothing => {
                let truncated = self.truncate(context).await?;
                if truncated || matches!(won, Won::Little) { Fit::Made } else { Fit::None }
            }
        })
    }

    /// Shortens the context once, if messages can be removed and the last compaction was worthwhile. Reports the start
    /// and, whatever the result, the end.
    async fn shorten(&mut self, context: &mut LoopContext, why: Why) -> Result<Won, LoopError> {
        let services = self.core.services.clone();
        let calibration = self.shortener.calibration;
        let keep = calibration.estimated(services.compaction.keep(services.model.info().context_tokens));
        if !self.shortener.may_begin(services.compaction.max_per_turn) {
            return Ok(Won::Nothing);
        }
        let Some(cut) = Cut::of(&context.messages, *self.start, keep) else { return Ok(Won::Nothing) };
        let notes = self.shortener.begin(&mut context.state);
        let by_model = self.core.closing.is_none();
        let how = How { calibration, by_model, notes, wish: None };
        let before = tokens(&context.messages);
        self.begin(calibration.counted(before), why, &cut);
        let made = self.replace(context, &cut, how, why).await;
        self.end(&made, &context.messages);
        if let Made::Stopped(reason) = made? {
            return Ok(Won::Ended(reason.into()));
        }
        let after = tokens(&context.messages);
        let worth_it = self.shortener.end(before, after, &mut context.state);
        let verdict = context.state.stops.observe(&self.core.rules, Observation::Compacted { before, after });
        Ok(match context.apply_verdict(verdict) {
            Some(end) => Won::Ended(end),
            None if after == before => Won::Nothing,
            None if worth_it => Won::Enough,
            None => Won::Little,
        })
    }

    /// Reports the start of a compaction, of a context with this many tokens.
    fn begin(&mut self, tokens: u64, why: Why, cut: &Cut) {
        self.core.journal.note(EventKind::CompactionStarted { tokens, reason: why.word().into() });
        let (hooks, live) = (&self.core.services.hooks, &self.core.live);
        hooks.before_compaction(&live.session, Some(live.id), cut.messages().len(), cut.leaving());
    }

    /// Reports the end of a compaction. One that changed the context reports its event in [`Self::store`].
    fn end(&mut self, made: &Result<Made, LoopError>, messages: &[Arc<Message>]) {
        let (dropped, why) = match made {
            Ok(Made::Shorter(dropped)) => (*dropped, None),
            Ok(Made::Nothing) => (0, Some("nothing_won")),
            Ok(Made::Stopped(_)) => (0, Some("stopped")),
            Err(_) => (0, Some("failed")),
        };
        if let Some(why) = why {
            self.core.journal.note(EventKind::CompactionAbandoned { reason: why.into() });
        }
        let (hooks, live) = (&self.core.services.hooks, &self.core.live);
        let summary = messages.first().filter(|first| is_pinned(first)).map(|first| first.text());
        hooks.after_compaction(&live.session, Some(live.id), messages.len(), dropped, summary);
    }

    /// Replaces the messages to remove by a summary.
    async fn replace(
        &mut self,
        context: &mut LoopContext,
        cut: &Cut,
        how: How<'_>,
        why: Why,
    ) -> Result<Made, LoopError> {
        // All messages to remove must be in the store first.
        self.core.journal.write(context, Durability::Relaxed).await?;
        let shorter = shorten(self.core, context, cut, how).await;
        if let Some(reason) = self.core.stopped() {
            return Ok(Made::Stopped(reason)); // and nothing has changed
        }
        if !shorter.gains() {
            return Ok(Made::Nothing);
        }
        let (run, dropped, why_word) = (self.core.live.id, shorter.context.dropped, why.word());
        let Shortened { before, after, by, .. } = shorter;
        self.store(context, shorter, why == Why::Overflow).await?;
        tracing::info!(%run, dropped, before, after, by = by.word(), why = why_word, "context compacted");
        Ok(Made::Shorter(dropped))
    }

    /// Stores the shortened conversation and continues with it. A child run has its context only in memory.
    async fn store(
        &mut self,
        context: &mut LoopContext,
        shorter: Shortened,
        will_retry: bool,
    ) -> Result<(), LoopError> {
        let fact = shorter.fact(will_retry);
        let left = shorter.context;
        if self.core.child {
            self.core.journal.note(fact)
        } else {
            let (journal, live) = (&self.core.journal, &self.core.live);
            let fact = self.core.services.event(&live.session, live.id, fact);
            let (keep, summary) = (left.kept_of_earlier_turns, left.summary);
            if left.left_of_turn.is_empty() {
                journal.compact(keep, summary, fact).await?
            } else {
                let (left, events) = (left.left_of_turn, vec![fact]);
                journal.compact_turn(TurnCompaction { run: live.id, left, keep, summary, events }).await?;
            }
        }
        context.messages = left.messages;
        *self.start = left.turn_start;
        self.core.journal.rebase(context.messages.len());
        Ok(())
    }

    /// Cuts the middle out of large results, once in a run.
    async fn truncate(&mut self, context: &mut LoopContext) -> Result<bool, LoopError> {
        if !self.shortener.truncate() {
            return Ok(false);
        }
        // The whole results must be in the store before they are shortened here.
        self.core.journal.write(context, Durability::Relaxed).await?;
        let truncated = oversized::truncate(&mut context.messages, self.core.services.model.info().context_tokens);
        tracing::info!(run = %self.core.live.id, truncated, "large tool results are truncated in this context");
        Ok(truncated > 0)
    }
}
