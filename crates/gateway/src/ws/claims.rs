//! Records which follower of a connection sends which run.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_protocol::{RunId, Seq};

/// Number of runs whose follower and last event number a connection remembers. Above it, the oldest is forgotten.
const RUNS: usize = 1024;

/// A kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// `agent`: the progress of a run.
    Agent,
    /// `chat`: the text of a run.
    Chat,
}

/// Records which follower of a connection sends which run. Each run has one follower for each kind of events, so that no
/// event is sent twice.
#[derive(Default)]
pub(super) struct Claims(Mutex<Claimed>);

#[derive(Default)]
struct Claimed {
    runs: BTreeMap<(RunId, Kind), Claim>,
    /// The number of the newest follower; numbers start at 1.
    newest: u64,
}

#[derive(Default)]
struct Claim {
    /// The follower; `None`: it has ended.
    owner: Option<u64>,
    /// The number of the last event of this run.
    seq: u64,
    /// The last fact of this run that was handled.
    fact: Seq,
    /// The facts up to this one were sent by the follower before the owner, which does not send them again.
    sent_before: Seq,
    /// The end of the run has been sent: followers up to this number do not send it again. A follower that began after
    /// the owner had ended was asked for past events, and may send it.
    over: Option<u64>,
}

impl Claims {
    /// Returns the number of a new follower.
    pub(super) fn next_follower(&self) -> u64 {
        let mut claims = self.claims();
        claims.newest += 1;
        claims.newest
    }

    /// Sends news of a run, unless another follower has the run or all of it has been sent. `send` gets the number of the
    /// run's last event, and returns the new one and whether the end of the run has been sent. `fact` is the fact behind the
    /// news, if there is one. Returns whether `send` was called.
    ///
    /// The claims are locked meanwhile, so that a run is never handed over between an event and the record of it.
    pub(super) fn deliver(
        &self,
        kind: Kind,
        run: RunId,
        follower: u64,
        fact: Option<Seq>,
        send: impl FnOnce(u64) -> (u64, bool),
    ) -> bool {
        let claims = &mut *self.claims();
        let newest = claims.newest;
        let Some(claim) = claims.take(kind, run, follower) else { return false };
        if fact.is_some_and(|fact| fact <= claim.sent_before) {
            return false;
        }
        let (seq, is_over) = send(claim.seq);
        claim.seq = seq;
        claim.fact = fact.unwrap_or(claim.fact);
        claim.over = is_over.then_some(newest);
        true
    }

    /// Hands a run from its follower to another one, which sends the facts after the last handled one. Returns whether
    /// `from` had it and has not sent its end.
    pub(super) fn hand_over(&self, kind: Kind, run: RunId, from: u64, to: u64) -> bool {
        let claims = &mut *self.claims();
        let claim = claims.of(kind, run);
        let is_handed = claim.owner.is_none_or(|owner| owner == from) && claim.over.is_none();
        if is_handed {
            (claim.owner, claim.sent_before) = (Some(to), claim.fact);
        }
        is_handed
    }

    /// The last handled fact of a run; `None`: the end of the run has been sent. 0 if no fact of it was handled.
    pub(super) fn handled(&self, kind: Kind, run: RunId) -> Option<Seq> {
        let runs = &self.claims().runs;
        match runs.get(&(run, kind)) {
            Some(claim) => claim.over.is_none().then_some(claim.fact),
            // Ids are in the order of time: a run before all remembered ones was forgotten, as the oldest is.
            None => runs.keys().next().is_none_or(|(oldest, _)| run > *oldest || runs.len() < RUNS).then_some(Seq(0)),
        }
    }

    /// Releases the runs of a follower that has ended. Another follower may continue them. But it does not repeat ended
    /// runs whose end it may not have reached yet.
    pub(super) fn release(&self, follower: u64) {
        let claims = &mut *self.claims();
        for claim in claims.runs.values_mut().filter(|claim| claim.owner == Some(follower)) {
            (claim.owner, claim.sent_before) = (None, Seq(0));
            claim.over = claim.over.map(|_| claims.newest);
        }
    }

    fn claims(&self) -> MutexGuard<'_, Claimed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claimed {
    /// The claim of a run, remembered from now on.
    fn of(&mut self, kind: Kind, run: RunId) -> &mut Claim {
        if self.runs.len() >= RUNS && !self.runs.contains_key(&(run, kind)) {
            self.runs.pop_first(); // ids are in the order of time
        }
        self.runs.entry((run, kind)).or_default()
    }

    /// Claims a run for `follower`. `None`: another follower has the run, or all of it has been sent.
    fn take(&mut self, kind: Kind, run: RunId, follower: u64) -> Option<&mut Claim> {
        let claim = self.of(kind, run);
        if claim.over.is_some_and(|last| claim.owner.is_some() || follower <= last) {
            return None;
        }
        claim.over = None;
        let owner = *claim.owner.get_or_insert(follower);
        (owner == follower).then_some(claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends this number of events as a follower. Returns the number of the last event before.
    fn send(claims: &Claims, kind: Kind, run: RunId, follower: u64, events: u64, is_over: bool) -> Option<u64> {
        let mut before = None;
        claims.deliver(kind, run, follower, None, |seq| {
            before = Some(seq);
            (seq + events, is_over)
        });
        before
    }

    #[test]
    fn a_run_is_followed_once_for_each_kind_and_keeps_its_numbers() {
        let claims = Claims::default();
        let run = RunId::new();
        let take = |kind, follower| send(&claims, kind, run, follower, 0, false);
        assert_eq!(send(&claims, Kind::Agent, run, 1, 7, false), Some(0));
        assert_eq!((take(Kind::Agent, 2), take(Kind::Agent, 1)), (None, Some(7)));
        assert_eq!(take(Kind::Chat, 2), Some(0), "another kind");
        claims.release(1);
        assert_eq!(take(Kind::Agent, 2), Some(7), "numbers go on");
        for _ in 0..2 * RUNS {
            send(&claims, Kind::Agent, RunId::new(), 3, 0, false);
        }
        assert_eq!(claims.claims().runs.len(), RUNS);
    }

    #[test]
    fn an_end_is_sent_once_to_live_followers_and_again_to_a_follower_that_asks_for_past_events() {
        let claims = Claims::default();
        let run = RunId::new();
        let take = |follower| send(&claims, Kind::Chat, run, follower, 0, false);
        let [first, second] = [claims.next_follower(), claims.next_follower()];
        assert_eq!((take(first), take(second)), (Some(0), None));
        send(&claims, Kind::Chat, run, first, 3, true);
        assert_eq!(take(first), None, "nothing follows the end");
        let third = claims.next_follower();
        assert_eq!(take(third), None, "who said it is there");
        claims.release(first);
        for (follower, expected) in [(second, None), (third, None), (claims.next_follower(), Some(3)), (second, None)] {
            assert_eq!(take(follower), expected, "{follower}");
        }
    }

    #[test]
    fn a_run_is_handed_over_at_the_last_handled_fact_unless_it_is_over() {
        let claims = Claims::default();
        let run = RunId::new();
        let [first, second] = [claims.next_follower(), claims.next_follower()];
        let fact = |follower, fact| claims.deliver(Kind::Agent, run, follower, Some(Seq(fact)), |seq| (seq + 1, false));
        assert!(fact(first, 4));
        assert!(claims.hand_over(Kind::Agent, run, first, second));
        let facts =
            [(first, 5), (second, 3), (second, 4), (second, 5)].map(|(follower, number)| fact(follower, number));
        assert_eq!(facts, [false, false, false, true]);
        assert!(!claims.hand_over(Kind::Agent, run, first, second), "it has another follower");
        send(&claims, Kind::Agent, run, second, 1, true);
        assert!(!claims.hand_over(Kind::Agent, run, second, claims.next_follower()), "it is over");
    }
}
