//! Decides which candidate a logical call asks next. It never waits, and the caller passes the time.
//!
//! In a **round**, each available candidate is asked at most once, in the order of preference, without a pause in
//! between. If a server has just failed, its other keys fail too, so candidates on other servers come first. When no
//! candidate is left in a round, the next round begins after a pause.

use belay_protocol::ModelErrorKind;
use tokio::time::Instant;

use crate::circuit::Availability;

/// The constant facts about a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// The index of its server: equal for candidates on the same server.
    pub(crate) server: usize,
    /// Size of its context in tokens.
    pub(crate) context_tokens: u64,
}

/// The state of the candidates in one logical call.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    facts: &'a [Facts],
    /// The candidates that may be asked, in the order of preference.
    order: Vec<usize>,
    states: Vec<CandidateState>,
    /// The delays that servers requested in this call.
    delays: Vec<Option<Instant>>,
    /// Servers that failed in this round.
    broken: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CandidateState {
    /// Not asked in this round.
    Fresh,
    /// Asked in this round, without success.
    Tried,
    /// Not asked again in this call.
    Excluded,
}

/// The next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Ask this candidate.
    Ask(usize),
    /// Begin a new round when this candidate is available. `Instant`: the earliest time; `bool`: whether its server
    /// requested the delay.
    Wait(usize, Instant, bool),
    /// No candidate is left.
    NoneLeft,
}

impl<'a> Plan<'a> {
    /// Makes a plan for candidates in this order of preference. None was asked yet.
    pub(crate) fn new(facts: &'a [Facts], order: Vec<usize>) -> Self {
        let states = vec![CandidateState::Fresh; facts.len()];
        Self { facts, order, states, delays: vec![None; facts.len()], broken: Vec::new() }
    }

    /// The first candidate in the order of preference.
    pub(crate) fn preferred(&self) -> usize {
        self.order.first().copied().unwrap_or_default()
    }

    /// Returns the next action for the current availability of the candidates.
    pub(crate) fn next(&self, now: Instant, availability: impl Fn(usize) -> Availability) -> Choice {
        let fresh = || self.order.iter().copied().filter(|at| self.states[*at] == CandidateState::Fresh);
        let now_free = |at: &usize| self.earliest(*at, now, availability(*at)) == (now, false);
        let elsewhere = |at: &usize| !self.broken.contains(&self.facts[*at].server);
        if let Some(at) = fresh().filter(now_free).find(elsewhere).or_else(|| fresh().find(now_free)) {
            return Choice::Ask(at);
        }
        let left = self.order.iter().copied().filter(|at| self.states[*at] != CandidateState::Excluded);
        let earliest = left.map(|at| (self.earliest(at, now, availability(at)), at)).min_by_key(|((when, _), _)| *when);
        earliest.map_or(Choice::NoneLeft, |((when, asked), at)| Choice::Wait(at, when, asked))
    }

    /// The earliest time at which a candidate may be asked, and whether its server requested the delay. `now` if there
    /// is no delay.
    fn earliest(&self, at: usize, now: Instant, availability: Availability) -> (Instant, bool) {
        let own = match availability {
            Availability::Now => (now, false),
            Availability::At(when, asked) => (when.max(now), asked),
            Availability::OnTrial => (now + LOOK_AGAIN, false),
        };
        match self.delays[at] {
            Some(delay) if delay > own.0 => (delay, true),
            _ => own,
        }
    }

    /// Records that a request to this candidate failed.
    pub(crate) fn failed(&mut self, at: usize, kind: ModelErrorKind, now: Instant) {
        use ModelErrorKind::{Auth, BadRequest, ContextTooLong, Network, Overloaded, RateLimited};
        self.states[at] = match kind {
            RateLimited { .. } | Overloaded { .. } | Network => CandidateState::Tried,
            Auth | ContextTooLong | BadRequest => CandidateState::Excluded,
        };
        match kind {
            RateLimited { retry_after } => self.delays[at] = retry_after.map(|delay| now + delay),
            Overloaded { retry_after } => {
                self.delays[at] = retry_after.map(|delay| now + delay);
                self.broken.push(self.facts[at].server);
            }
            Network => self.broken.push(self.facts[at].server),
            ContextTooLong => {
                let tokens = self.facts[at].context_tokens;
                let too_small = |at: &&usize| self.facts[**at].context_tokens <= tokens;
                self.order.iter().filter(too_small).for_each(|at| self.states[*at] = CandidateState::Excluded);
            }
            Auth | BadRequest => {}
        }
    }

    /// Whether this candidate has a smaller context than the preferred one. Only then is a conversation that is too
    /// long for it offered to another candidate. If it exceeds the preferred model, the caller must shorten it.
    pub(crate) fn is_smaller(&self, at: usize) -> bool {
        self.facts[at].context_tokens < self.facts[self.preferred()].context_tokens
    }

    /// Begins another round.
    pub(crate) fn new_round(&mut self) {
        self.broken.clear();
        for state in self.states.iter_mut().filter(|state| **state == CandidateState::Tried) {
            *state = CandidateState::Fresh;
        }
    }
}

/// The delay before a candidate is examined again while another call tries it out.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ModelErrorKind::*;

    use super::*;

    const BUSY: ModelErrorKind = Overloaded { retry_after: None };
    const LIMITED: ModelErrorKind = RateLimited { retry_after: None };

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    /// Two keys for one server, then two other servers. The second of those has the larger context.
    fn facts() -> [Facts; 4] {
        [(0, 100), (0, 100), (2, 50), (3, 200)].map(|(server, context_tokens)| Facts { server, context_tokens })
    }

    const ALL_FREE: [Availability; 4] = [Availability::Now; 4];

    #[test]
    fn what_failed_and_who_is_free_decide_whom_to_ask() {
        use Choice::{Ask, NoneLeft, Wait};
        let now = Instant::now();
        let at = |n| Availability::At(now + seconds(n), false);
        let asked_for = |n| Availability::At(now + seconds(n), true);
        let free = Availability::Now;
        for (failed, availability, expected) in [
            (vec![], ALL_FREE, Ask(0)),
            // A rate limit or a refused key concerns one key. A server that is down is down for all of its keys.
            (vec![(0, LIMITED)], ALL_FREE, Ask(1)),
            (vec![(0, Auth)], ALL_FREE, Ask(1)),
            (vec![(0, BUSY)], ALL_FREE, Ask(2)),
            (vec![(0, Network)], ALL_FREE, Ask(2)),
            (vec![(0, BUSY), (2, BUSY), (3, Network)], ALL_FREE, Ask(1)),
            (vec![(0, BUSY)], [free, free, at(9), at(9)], Ask(1)),
            // A candidate whose circuit is open is skipped.
            (vec![], [at(9), at(9), free, free], Ask(2)),
            (vec![], [Availability::OnTrial, at(9), at(9), free], Ask(3)),
            // None is available: wait for the earliest.
            (vec![], [at(9), at(5), asked_for(3), at(7)], Wait(2, now + seconds(3), true)),
            (vec![(1, Auth)], [at(9), at(5), at(30), at(7)], Wait(3, now + seconds(7), false)),
            (vec![], [Availability::OnTrial, at(9), at(9), at(9)], Wait(0, now + LOOK_AGAIN, false)),
            // The round is over. Every candidate that was tried may be tried again, without a delay from this module.
            (vec![(0, BUSY), (1, BUSY), (2, Auth), (3, BUSY)], ALL_FREE, Wait(0, now, false)),
            (
                vec![(0, RateLimited { retry_after: Some(seconds(4)) }), (1, Auth), (2, Auth), (3, Auth)],
                ALL_FREE,
                Wait(0, now + seconds(4), true),
            ),
            (vec![(0, Auth), (1, Auth), (2, Auth), (3, Auth)], ALL_FREE, NoneLeft),
            // A conversation that is too long for one candidate is too long for all that are not larger.
            (vec![(2, ContextTooLong)], ALL_FREE, Ask(0)),
            (vec![(0, BUSY), (2, ContextTooLong)], ALL_FREE, Ask(3)),
            (vec![(0, BUSY), (2, BUSY), (1, ContextTooLong)], ALL_FREE, Ask(3)),
        ] {
            let facts = facts();
            let mut plan = Plan::new(&facts, vec![0, 1, 2, 3]);
            for (at, kind) in &failed {
                plan.failed(*at, *kind, now);
            }
            assert_eq!(plan.next(now, |at| availability[at]), expected, "{failed:?} {availability:?}");
        }
    }

    #[test]
    fn a_new_round_asks_again_in_order_whoever_is_not_out() {
        let (now, facts) = (Instant::now(), facts());
        let mut plan = Plan::new(&facts, vec![3, 0, 1, 2]);
        plan.failed(3, Auth, now);
        plan.failed(0, BUSY, now);
        plan.failed(1, BUSY, now);
        plan.failed(2, LIMITED, now);
        assert!(matches!(plan.next(now, |_| Availability::Now), Choice::Wait(..)));
        plan.new_round();
        assert_eq!(plan.next(now, |_| Availability::Now), Choice::Ask(0));
    }

    #[test]
    fn only_what_stands_in_with_a_smaller_context_can_be_too_small() {
        let facts = facts();
        let plan = Plan::new(&facts, vec![0, 1, 2, 3]);
        assert_eq!([0, 1, 2, 3].map(|at| plan.is_smaller(at)), [false, false, true, false]);
        let plan = Plan::new(&facts, vec![3, 0]);
        assert_eq!([0, 3].map(|at| plan.is_smaller(at)), [true, false]);
    }
}
