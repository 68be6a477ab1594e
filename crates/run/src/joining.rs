//! Messages that may join a running turn. The lane offers them. The turn takes them and reports when they are committed
//! as a part of it.
//!
//! A message is in the store and in the lane's queue before it is offered. It leaves the queue after the store has it
//! as a part of the turn. So if the turn ends before that commit, the message is still in the queue and gets a turn of
//! its own.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::{JoinedRun, RunId};
use tokio::sync::Notify;

use crate::live::LiveRun;

/// The state that the lane and the turn share. The lock is held for a few instructions, never across an await.
pub struct Joining {
    /// The run that messages may join.
    pub into: RunId,
    /// Wakes the lane.
    wake: Arc<Notify>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Messages to take, oldest first. At most as many as the lane's queue holds.
    offered: VecDeque<JoinOffer>,
    /// Messages that the turn took and has not committed yet.
    taken: Vec<RunId>,
    /// Messages that are committed as a part of the turn.
    joined: Vec<JoinedRun>,
}

/// A message that may join the turn. Its text is in the store.
pub struct JoinOffer {
    /// The run of the message.
    pub run: Arc<LiveRun>,
}

impl Joining {
    /// Starts without offers. `begins_with`: runs whose messages are part of the turn from its beginning.
    pub fn new(into: RunId, wake: Arc<Notify>, begins_with: Vec<RunId>) -> Arc<Self> {
        Arc::new(Self { into, wake, state: Mutex::new(State { taken: begins_with, ..State::default() }) })
    }

    /// Offers a message.
    pub fn offer(&self, offer: JoinOffer) {
        self.state().offered.push_back(offer);
    }

    /// Whether a message that was not stopped waits to be taken.
    pub(crate) fn is_offered(&self) -> bool {
        self.state().offered.iter().any(|offer| !offer.run.control.cancel.is_cancelled())
    }

    /// Takes the oldest message that was not stopped.
    pub fn take(&self) -> Option<JoinOffer> {
        let mut state = self.state();
        let at = state.offered.iter().position(|offer| !offer.run.control.cancel.is_cancelled())?;
        let offer = state.offered.remove(at)?;
        state.taken.push(offer.run.id);
        Some(offer)
    }

    /// Records that the store has these messages as a part of the turn, and wakes the lane.
    pub fn committed(&self, joined: &[JoinedRun]) {
        let mut state = self.state();
        state.taken.retain(|run| joined.iter().all(|joined| joined.run != *run));
        state.joined.extend_from_slice(joined);
        drop(state);
        self.wake.notify_one();
    }

    /// Returns messages that the turn took to the lane: they do not join the turn. Wakes the lane.
    pub fn give_back(&self, runs: &[RunId]) {
        self.state().taken.retain(|taken| !runs.contains(taken));
        self.wake.notify_one();
    }

    /// Withdraws an offer. Returns `false` if the turn has taken the message already.
    pub fn withdraw(&self, run: RunId) -> bool {
        let mut state = self.state();
        state.offered.retain(|offer| offer.run.id != run);
        !state.has(run)
    }

    /// Whether the turn has taken or committed this message.
    pub fn has(&self, run: RunId) -> bool {
        self.state().has(run)
    }

    /// The messages that have joined since the last call.
    pub fn joined(&self) -> Vec<JoinedRun> {
        std::mem::take(&mut self.state().joined)
    }

    /// Ends the offers. Returns the messages that the turn took and did not report as committed.
    pub fn close(&self) -> Vec<RunId> {
        let mut state = self.state();
        state.offered.clear();
        std::mem::take(&mut state.taken)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn has(&self, run: RunId) -> bool {
        self.taken.contains(&run) || self.joined.iter().any(|joined| joined.run == run)
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{StopReason, UnixMillis, Work};

    use super::*;
    use crate::live::{RunOrigin, StopCause};

    fn offer() -> (Arc<LiveRun>, JoinOffer) {
        let origin = RunOrigin { work: Work::Chat, source: None, channel: "test".into(), principal: "alice".into() };
        let run = LiveRun::new(RunId::new(), "alice".into(), origin, false);
        (run.clone(), JoinOffer { run })
    }

    fn joined(run: &LiveRun) -> JoinedRun {
        JoinedRun { run: run.id, how: "steer", at: UnixMillis(1) }
    }

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Stands {
        Offered,
        Taken,
        Joined,
        Unsure,
        Back,
    }

    #[test]
    fn a_message_stands_in_one_place_in_every_order_of_events() {
        use Stands::{Back, Joined, Offered, Taken, Unsure};
        let orders = (0..4_u32.pow(5)).map(|n| [n % 4, n / 4 % 4, n / 16 % 4, n / 64 % 4, n / 256]);
        for order in orders {
            let joining = Joining::new(RunId::new(), Arc::default(), Vec::new());
            let (run, offered) = offer();
            joining.offer(offered);
            let mut stands = Offered;
            for step in order {
                match step {
                    0 => {
                        let is_taken = joining.take().is_some();
                        assert_eq!(is_taken, stands == Offered, "{order:?}");
                        stands = if is_taken { Taken } else { stands };
                    }
                    1 => {
                        run.control.stop(StopCause::of(StopReason::UserStop));
                        let is_back = joining.withdraw(run.id);
                        assert_eq!(is_back, !matches!(stands, Taken | Joined), "{order:?}");
                        stands = if stands == Offered { Back } else { stands };
                    }
                    2 if stands == Taken => {
                        joining.committed(&[joined(&run)]);
                        stands = Joined;
                    }
                    2 => {}
                    _ => {
                        let is_unsure = joining.close() == [run.id];
                        assert_eq!(is_unsure, stands == Taken, "{order:?}");
                        stands = match stands {
                            Taken => Unsure,
                            Offered => Back,
                            other => other,
                        };
                    }
                }
            }
            assert_eq!(joining.joined().len(), usize::from(stands == Joined), "{order:?}");
        }
    }

    #[test]
    fn messages_are_taken_in_order_and_a_stopped_one_is_passed_over() {
        let joining = Joining::new(RunId::new(), Arc::default(), Vec::new());
        let (first, offered) = offer();
        joining.offer(offered);
        let (second, offered) = offer();
        joining.offer(offered);
        let (third, offered) = offer();
        joining.offer(offered);
        second.control.stop(StopCause::of(StopReason::UserStop));
        let order: Vec<RunId> = std::iter::from_fn(|| joining.take()).map(|offer| offer.run.id).collect();
        assert_eq!(order, [first.id, third.id]);
        assert!(!joining.is_offered() && !joining.withdraw(first.id) && joining.withdraw(second.id));
        joining.committed(&[joined(&first)]);
        assert_eq!((joining.joined(), joining.close()), (vec![joined(&first)], vec![third.id]));
    }
}
