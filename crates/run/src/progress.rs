//! How far a run has come: what changes from checkpoint to checkpoint. Its queue entry owns it, lends it to the turn,
//! and gets it back whole.

use belay_agent_loop::LoopState;
use belay_protocol::{PendingRun, RunStatus, RunUsage, UnixMillis};

use crate::approvals::Answers;

/// How far a run has come.
#[derive(Debug, Default)]
pub struct RunProgress {
    /// Attempts that have begun; 0 before the first.
    pub attempt: u32,
    /// When the first attempt began.
    pub started_at: Option<UnixMillis>,
    /// When the store was told that this attempt begins; `None`: it has not begun.
    pub begun_at: Option<UnixMillis>,
    /// Whether the thread in the store has its messages: an earlier attempt began.
    pub in_thread: bool,
    /// Whether it continues after a pause: that is no new attempt.
    pub resumed: bool,
    /// Where its loop continues; `None`: at its beginning, or lent to the running turn. Boxed, for it is large.
    pub state: Option<Box<LoopState>>,
    /// What it has used, all attempts together.
    pub usage: RunUsage,
    /// What it has cost, all attempts together, in millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// What people have answered about its calls.
    pub answers: Answers,
}

impl RunProgress {
    /// The progress of a message that is about to be accepted. `state`: what its loop begins with.
    pub fn accepted(state: Option<Box<LoopState>>) -> Self {
        Self { state, ..Self::default() }
    }

    /// The progress of a run that an earlier boot, or an earlier task of its lane, left unfinished. Takes the state out of
    /// `pending`.
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
            answers,
        }
    }

    /// What the turn is lent. The owner keeps the figures: it needs them if the turn panics.
    pub fn lend(&mut self) -> Self {
        let Self { attempt, started_at, begun_at, in_thread, resumed, usage, cost_micro_usd, .. } = *self;
        let (state, answers) = (self.state.take(), std::mem::take(&mut self.answers));
        Self { attempt, started_at, begun_at, in_thread, resumed, state, usage, cost_micro_usd, answers }
    }

    /// Notes that this attempt has begun.
    pub fn begin(&mut self, at: UnixMillis) {
        if self.begun_at.is_none() {
            self.begun_at = Some(at);
            self.attempt += u32::from(!std::mem::take(&mut self.resumed));
            self.started_at.get_or_insert(at);
        }
    }

    /// Notes that it continues after a pause.
    pub fn resume(&mut self) {
        (self.begun_at, self.resumed) = (None, true);
    }

    /// Whether an earlier attempt began, or the run was paused.
    pub fn has_begun(&self) -> bool {
        self.attempt > 0 || self.in_thread
    }
}

/// The state of the loop as it was stored; the beginning, if it cannot be read.
fn state_of(pending: &PendingRun, state: serde_json::Value) -> LoopState {
    serde_json::from_value(state).unwrap_or_else(|error| {
        tracing::error!(run = %pending.run_id, %error, "the state of a run cannot be read, it begins anew");
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
