//! Room for a run's model calls: its context is shortened before a call that would not fit, and after one that did not.
//!
//! The threshold is an estimate, so it never ends a run: what cannot be shortened is sent as it is. When the provider says
//! that a context is too long, it is shortened and the call repeated; where that wins little, large results lose their
//! middle, once; then the run ends and says so. A conversation is never begun anew by itself.
//!
//! Runs that a run starts have room made in the same way. Their messages are nobody's history: nothing of the cut is
//! stored, and they go on with what is left.

use belay_agent_loop::policies::Observation;
use belay_agent_loop::{LlmTurn, LoopContext, LoopError, Reasoning};
use belay_protocol::{Durability, EventKind, ModelErrorKind, RunEnd, StopReason, TurnCut};

use crate::compaction::cut::tokens;
use crate::compaction::{Cut, How, Shortened, Shortener, oversized, shorten};
use crate::core::{Asked, CallPurpose, RunCore};
use crate::estimate::tokens_of;
use crate::outage::OutageWait;

/// A run, as far as its context is kept short enough for its model.
pub struct ModelCall<'a> {
    /// The run that it serves.
    pub core: &'a mut RunCore,
    /// What makes room in the context.
    pub shortener: &'a mut Shortener,
    /// Where its own messages begin in the context, with what it was asked for. Moves when older ones leave.
    pub start: &'a mut usize,
}

/// Why a context is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Threshold,
    Overflow,
}

impl Why {
    /// The word in facts.
    fn word(self) -> &'static str {
        match self {
            Self::Threshold => "threshold",
            Self::Overflow => "overflow",
        }
    }
}

/// What a shortening that was begun has come to.
enum Made {
    /// So many messages have left, and an account of them is in their place.
    Shorter(u32),
    /// What would be left is no shorter.
    Nothing,
    /// The run was told to stop.
    Stopped(StopReason),
}

/// What a shortening has won.
enum Won {
    Nothing,
    Little,
    Enough,
    Ended(RunEnd),
}

/// What came of a call that did not fit.
enum Fit {
    /// The context is shorter: the call is worth repeating.
    Made,
    /// Nothing helps.
    None,
    /// The run ends here.
    Ended(RunEnd),
}

impl ModelCall<'_> {
    /// One logical call as a step of the loop, with room made for it; for a job, a model that is away is waited for.
    ///
    /// # Errors
    /// The call failed after all retries, or was refused by the cost guard; or what leaves could not be stored, and nothing
    /// has left then.
    ///
    /// # Cancel safety
    /// Dropped midway, the context is as it was or shortened as a whole; what was said to begin is not said to have ended.
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
            let until = self.core.deadline(context, CallPurpose::Step);
            // Boxed: a call that is answered, as nearly all are, does not carry it.
            if !Box::pin(outage.wait(self.core, &error, until)).await {
                return Err(error.into());
            }
            if let Some(reason) = self.core.stopped() {
                return Ok(LlmTurn::Stopped(reason.into()));
            }
        }
    }

    /// The same, where the model is asked once.
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
                // Nobody has heard a word of it, or it would be said twice.
                Asked::Failed(error) if error.kind == ModelErrorKind::ContextTooLong && !error.heard => error,
                Asked::Reply(reply) => {
                    if let Some(usage) = &reply.usage {
                        self.shortener.calibration.learn(estimated, usage.input);
                    }
                    return Ok(LlmTurn::Reply(reply));
                }
                asked => return self.core.turn_of(asked, context),
            };
            // The shortened request is another one: it is sent at least once, whatever the first has used up.
            attempts_left = attempts_left.saturating_sub(error.attempts).max(1);
            match self.make_room(context).await? {
                Fit::Made => {}
                Fit::None => return Err(error.into()),
                Fit::Ended(end) => return Ok(LlmTurn::Stopped(end)),
            }
        }
    }

    /// Shortens a context that is about to outgrow the model. Returns how the run ends here, if it does.
    async fn keep_room(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
    ) -> Result<Option<RunEnd>, LoopError> {
        let (config, calibration) = (&self.core.services.compaction, self.shortener.calibration);
        let size = self.core.services.model.info().context_tokens;
        let full = calibration.counted(tokens_of(&reasoning.request(context))) > config.limit(size);
        // What stays in any case is not worth shortening: then it is the prompt that is long.
        let worth_it = calibration.counted(tokens(&context.messages)) > config.keep(size);
        if !(config.enabled && full && worth_it && self.core.closing.is_none()) {
            return Ok(None);
        }
        Ok(match Box::pin(self.shorten(context, Why::Threshold)).await? {
            Won::Ended(end) => Some(end),
            Won::Nothing | Won::Little | Won::Enough => None,
        })
    }

    /// Makes room for a call that did not fit.
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

    /// Shortens once, if something can leave and it was worth it so far. What it says to begin it says to have ended,
    /// whatever comes of it.
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
        self.begin(calibration.counted(before), why, context.messages.len());
        let made = self.replace(context, &cut, how, why).await;
        self.end(&made, context.messages.len());
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

    /// Says that a shortening begins, of a context of so many tokens and messages.
    fn begin(&mut self, tokens: u64, why: Why, messages: usize) {
        self.core.journal.note(EventKind::CompactionStarted { tokens, reason: why.word().into() });
        let (hooks, live) = (&self.core.services.hooks, &self.core.live);
        hooks.before_compaction(&live.session, Some(live.id), messages);
    }

    /// Says that it has ended: the one that has changed something says so where that is stored.
    fn end(&mut self, made: &Result<Made, LoopError>, messages: usize) {
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
        hooks.after_compaction(&live.session, Some(live.id), messages, dropped);
    }

    /// Has an account written of what leaves, and puts it in its place.
    async fn replace(
        &mut self,
        context: &mut LoopContext,
        cut: &Cut,
        how: How<'_>,
        why: Why,
    ) -> Result<Made, LoopError> {
        // Everything that leaves must be in the store first.
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

    /// Stores what is left of a conversation, and goes on with it. A run that another one started has it in its hands alone.
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
            let (services, live, lease) = (&self.core.services, &self.core.live, self.core.journal.lease());
            let events = vec![services.event(&live.session, live.id, fact)];
            let (keep, summary) = (left.kept_of_earlier_turns, left.summary);
            if left.left_of_turn.is_empty() {
                services.threads.compact(lease, keep, summary, events).await?
            } else {
                let cut = TurnCut { run: live.id, left: left.left_of_turn, keep, summary, events };
                services.threads.compact_turn(lease, cut).await?;
            }
        }
        context.messages = left.messages;
        *self.start = left.turn_start;
        self.core.journal.rebase(context.messages.len());
        Ok(())
    }

    /// Leaves out the middle of large results, once in a run.
    async fn truncate(&mut self, context: &mut LoopContext) -> Result<bool, LoopError> {
        if !self.shortener.truncate() {
            return Ok(false);
        }
        // Whole in the store, before they are not whole any more here.
        self.core.journal.write(context, Durability::Relaxed).await?;
        let truncated = oversized::truncate(&mut context.messages, self.core.services.model.info().context_tokens);
        tracing::info!(run = %self.core.live.id, truncated, "large results lose their middle in this context");
        Ok(truncated > 0)
    }
}
