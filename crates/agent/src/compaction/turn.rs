//! Shortening within a turn: before a call that would not fit, and after one that did not.
//!
//! The threshold is an estimate, so it never ends a run: what cannot be shortened is sent as it is. When the provider says
//! that a context is too long, it is shortened and the call repeated; where that wins little, large results lose their
//! middle, once; then the run ends and says so. A conversation is never begun anew by itself.

use belay_agent_loop::policies::Observation;
use belay_agent_loop::{LoopContext, LoopError, LoopState, Reasoning};
use belay_protocol::{Durability, EventKind, ModelRequest, RunEnd, TurnCut, Usage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::cut::{Compacted, Cut, tokens};
use super::estimate::{Calibration, tokens_of};
use super::oversized;
use super::shorten::{How, shorten};
use crate::chat::ChatDelegate;

/// What a turn knows of its shortenings.
#[derive(Debug, Default)]
pub(crate) struct Shortener {
    /// What is known of the provider's way of counting.
    pub(crate) calibration: Calibration,
    /// What holds for the whole turn.
    count: Count,
    /// Large results have lost their middle. Only here: taken up again, the turn has them whole.
    truncated: bool,
}

/// The shortenings of a turn. Part of the run's state, so that it holds over questions and restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Count {
    times: u32,
    /// The last one won too little: there is no other in this turn.
    in_vain: bool,
    /// Notes were made.
    noted: bool,
}

/// Where in the state it is kept, beside what others keep there.
const KEY: &str = "compaction";

impl Shortener {
    /// That of a turn with this state.
    pub(crate) fn of(state: &LoopState, calibration: Calibration) -> Self {
        let count = state.delegate.get(KEY).and_then(|kept| serde_json::from_value(kept.clone()).ok());
        Self { calibration, count: count.unwrap_or_default(), truncated: false }
    }

    /// Puts it where the next checkpoint takes it along.
    fn keep(&self, state: &mut LoopState) {
        let Ok(count) = serde_json::to_value(self.count) else { return }; // plain data: it always serialises
        match state.delegate.as_object_mut() {
            Some(others) => {
                others.insert(KEY.to_owned(), count);
            }
            None => state.delegate = Value::Object(Map::from_iter([(KEY.to_owned(), count)])),
        }
    }
}

/// What came of a call that did not fit.
pub(crate) enum Room {
    /// The context is shorter: the call is worth repeating.
    Made,
    /// Nothing helps.
    None,
    /// The run ends here.
    Ended(RunEnd),
}

/// Why a context is shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Threshold,
    Overflow,
}

/// What a shortening has won.
enum Won {
    Nothing,
    Little,
    Enough,
    Ended(RunEnd),
}

impl ChatDelegate {
    /// Shortens a context that is about to outgrow the model. Returns how the run ends here, if it does.
    ///
    /// # Errors
    /// What leaves could not be stored. Nothing has changed then.
    pub(crate) async fn keep_room(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
    ) -> Result<Option<RunEnd>, LoopError> {
        let (config, calibration) = (&self.core.house.compaction, self.shortener.calibration);
        let size = self.core.house.model.info().context_tokens;
        let request: ModelRequest<'_> = reasoning.request(context);
        let full = calibration.counted(tokens_of(&request)) > config.limit(size);
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
    ///
    /// # Errors
    /// What leaves could not be stored. Nothing has changed then.
    pub(crate) async fn make_room(&mut self, context: &mut LoopContext) -> Result<Room, LoopError> {
        let won = Box::pin(self.shorten(context, Why::Overflow)).await?;
        Ok(match won {
            Won::Ended(end) => Room::Ended(end),
            Won::Enough => Room::Made,
            Won::Little | Won::Nothing => {
                let truncated = self.truncate(context).await?;
                if truncated || matches!(won, Won::Little) { Room::Made } else { Room::None }
            }
        })
    }

    /// Learns from a call that was estimated at so many tokens.
    pub(crate) fn learn(&mut self, estimated: u64, usage: Option<&Usage>) {
        if let Some(usage) = usage {
            self.shortener.calibration.learn(estimated, usage.input);
        }
    }

    async fn shorten(&mut self, context: &mut LoopContext, why: Why) -> Result<Won, LoopError> {
        let house = self.core.house.clone();
        let calibration = self.shortener.calibration;
        let keep = calibration.estimated(house.compaction.keep(house.model.info().context_tokens));
        if self.shortener.count.in_vain || self.shortener.count.times >= house.compaction.max_per_turn {
            return Ok(Won::Nothing);
        }
        let Some(cut) = Cut::of(&context.messages, self.turn_start, keep) else { return Ok(Won::Nothing) };
        self.shortener.count.times += 1;
        let notes = !std::mem::replace(&mut self.shortener.count.noted, true);
        self.shortener.keep(&mut context.state);
        let before = tokens(&context.messages);
        let word = if why == Why::Overflow { "overflow" } else { "threshold" };
        let started = EventKind::CompactionStarted { tokens: calibration.counted(before), why: word.into() };
        self.core.journal.note(started);
        // Everything that leaves must be in the store first.
        self.core.journal.write(context, Durability::Relaxed).await?;
        let (session, run) = (&self.core.live.session, self.core.live.id);
        house.hooks.before_compaction(session, Some(run), context.messages.len());
        let how = How { calibration, by_model: self.core.closing.is_none(), notes, wish: None };
        let (shorter, by) = shorten(&self.core, context, &cut, how).await;
        if let Some(reason) = self.core.stopped() {
            return Ok(Won::Ended(reason.into())); // and nothing has changed
        }
        let after = tokens(&shorter.messages).min(before);
        let left = shorter.messages.len();
        let dropped = shorter.dropped;
        if after < before {
            let fact = EventKind::Compacted {
                messages: dropped,
                before: calibration.counted(before),
                after: calibration.counted(after),
                by: by.word().into(),
                will_retry: why == Why::Overflow,
            };
            self.store(context, shorter, fact).await?;
            tracing::info!(%run, dropped, before, after, by = by.word(), why = word, "context compacted");
        }
        let (session, run) = (&self.core.live.session, self.core.live.id);
        house.hooks.after_compaction(session, Some(run), left, dropped);
        // Less than a fifth is filled again by the next step.
        self.shortener.count.in_vain = u128::from(after) * 10 > u128::from(before) * 8;
        self.shortener.keep(&mut context.state);
        let verdict = context.state.stops.observe(&self.core.rules, Observation::Compacted { before, after });
        Ok(match context.heed(verdict) {
            Some(end) => Won::Ended(end),
            None if after == before => Won::Nothing,
            None if self.shortener.count.in_vain => Won::Little,
            None => Won::Enough,
        })
    }

    /// Stores what is left of the context, and goes on with it.
    async fn store(&mut self, context: &mut LoopContext, shorter: Compacted, fact: EventKind) -> Result<(), LoopError> {
        let Compacted { messages, summary, left_of_turn, kept_of_earlier_turns: keep, turn_start, .. } = shorter;
        let (house, live) = (&self.core.house, &self.core.live);
        let events = vec![house.event(&live.session, live.id, fact)];
        let (threads, lease) = (&house.store.threads, self.core.journal.lease());
        match left_of_turn.is_empty() {
            true => threads.compact(lease, keep, summary, events).await?,
            false => {
                let cut = TurnCut { run: live.id, left: left_of_turn, keep, summary, events };
                threads.compact_turn(lease, cut).await?;
            }
        }
        context.messages = messages;
        self.turn_start = turn_start;
        self.core.journal.rebase(context.messages.len());
        Ok(())
    }

    /// Leaves out the middle of large results, once in a turn.
    async fn truncate(&mut self, context: &mut LoopContext) -> Result<bool, LoopError> {
        if std::mem::replace(&mut self.shortener.truncated, true) {
            return Ok(false);
        }
        // Whole in the store, before they are not whole any more here.
        self.core.journal.write(context, Durability::Relaxed).await?;
        let truncated = oversized::truncate(&mut context.messages, self.core.house.model.info().context_tokens);
        tracing::info!(run = %self.core.live.id, truncated, "large results lose their middle in this context");
        Ok(truncated > 0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_turn_has_shortened_holds_when_it_is_taken_up_again() {
        let mut state = LoopState { delegate: json!({"hooks": {}}), ..LoopState::default() };
        let mut shortener = Shortener::of(&state, Calibration::default());
        assert_eq!(shortener.count, Count::default());
        shortener.count = Count { times: 2, in_vain: true, noted: true };
        shortener.keep(&mut state);
        assert_eq!(Shortener::of(&state, Calibration::default()).count, shortener.count);
        assert_eq!(state.delegate["hooks"], json!({}), "beside what others keep");
    }
}
