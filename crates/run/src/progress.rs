//! The progress of a run: the values that change from checkpoint to checkpoint. The queue entry owns it, lends it to
//! the turn, and gets it back when the turn ends.

use std::sync::Arc;

use belay_agent_loop::LoopState;
use belay_protocol::{PendingRun, RunStatus, RunUsage, UnixMillis};

use crate::approvals::Answers;

/// The progress of a run.
#[derive(Debug, Default)]
pub struct RunProgress {
    /// Number of attempts that have begun; 0 before the first.
    pub attempt: u32,
    /// When the first attempt began.
    pub started_at: Option<UnixMillis>,
    /// When the store recorded the beginning of this attempt; `None`: it has not begun.
    pub begun_at: Option<UnixMillis>,
    /// Whether the thread in the store contains messages of the run, because an earlier attempt began.
    pub in_thread: bool,
    /// Whether the run continues after a pause. That does not count as a new attempt.
    pub resumed: bool,
    /// The state of the loop; `None`: the run is at its beginning, or the state is lent to the running turn. Boxed
    /// because it is large.
    pub state: Option<Box<LoopState>>,
    /// The usage of all attempts together.
    pub usage: RunUsage,
    /// The cost of all attempts together, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// The model that answered its last step; `None`: none has answered since the last restart.
    pub model: Option<Arc<str>>,
    /// The answers of people to approval requests of the run.
    pub answers: Answers,
}

impl RunProgress {
    /// The progress of a message that is about to be accepted. `state`: the initial state of the loop.
    pub fn accepted(state: Option<Box<LoopState>>) -> Self {
        Self { state, ..Self::default() }
    }

    /// The progress of a run that an earlier boot, or an earlier task of its lane, left unfinished. Takes the state out
    /// of `pending`.
    pub fn restored(pending: &mut PendingRun, answers: Answers) -> Self {
        Self {
            attempt: pending.attempt,
            started_at: pending.started_at,
            begun_at: None,
            in_thread: !pending.messages.is_empty(),
            resumed: pending.status == RunStatus::Paused,
            state: pending.state.take().map(|state| Box::new(state_of(pending, state))),
            usage: pending.usage,
            cost_micro_usd: pending.cost_micro_usd,
            model: None,
            answers,
        }
    }

    /// Lends the progress to a turn. The owner keeps the figures, because it needs them if the turn panics.
    pub fn lend(&mut self) -> Self {
        let Self { attempt, started_at, begun_at, in_thread, resumed, usage, cost_micro_usd, .. } = *self;
        let (state, answers) = (self.state.take(), std::mem::take(&mut self.answers));
        let model = self.model.clone();
        Self { attempt, started_at, begun_at, in_thread, resumed, state, usage, cost_micro_usd, model, answers }
    }

    /// Records that this attempt begins.
    pub fn begin(&mut self, at: UnixMillis) {
        if self.begun_at.is_none() {
            self.begun_at = Some(at);
            self.attempt += u32::from(!std::mem::take(&mut self.resumed));
            self.started_at.get_or_insert(at);
        }
    }

    /// Records that the run continues after a pause.
    pub fn resume(&mut self) {
        (self.begun_at, self.resumed) = (None, true);
    }

    /// Whether an earlier attempt began, or the run was paused.
    pub fn has_begun(&self) -> bool {
        self.attempt > 0 || self.in_thread
    }
}

/// Parses the stored state of the loop. If that fails, the run starts again from its beginning.
fn state_of(pending: &PendingRun, state: serde_json::Value) -> LoopState {
    serde_json::from_value(state).unwrap_or_else(|error| {
        tracing::error!(run = %pending.run_id, %error, "the state of a run cannot be read; the run starts from the beginning");
        LoopState::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_begins_once_and_a_pause_is_no_new_attempt() {
        let mut progress = RunProgress::accepted(None);
        progress.begin(UnixMillis(1));
        progress.begin(UnixMillis(2));
        assert_eq!((progress.attempt, progress.begun_at), (1, Some(UnixMillis(1))));
        progress.resume();
        progress.begin(UnixMillis(3));
        assert_eq!((progress.attempt, progress.begun_at), (1, Some(UnixMillis(3))));
        progress.begun_at = None; // a restart
        progress.begin(UnixMillis(4));
        assert_eq!((progress.attempt, progress.started_at), (2, Some(UnixMillis(1))));
    }

    #[test]
    fn the_owner_keeps_the_figures_of_what_it_lends() {
        let mut own = RunProgress { attempt: 2, cost_micro_usd: 7, ..RunProgress::accepted(Some(Box::default())) };
        let lent = own.lend();
        assert!(lent.state.is_some() && own.state.is_none());
        assert_eq!((lent.attempt, lent.cost_micro_usd), (own.attempt, own.cost_micro_usd));
    }
}
