//! Whom to ask next within one logical call: decisions alone, without a clock and without waiting.
//!
//! A **round** asks each candidate that may be asked at most once, in the order of preference, without a pause between
//! them. A server that has just failed fails for its other keys too, so those elsewhere come before them. When a round
//! has nobody left, the next one begins after a pause.

use belay_protocol::ModelErrorKind;
use tokio::time::Instant;

use crate::circuit::Availability;

/// What is fixed about a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    /// Which server it is: equal for the candidates of one.
    pub(crate) place: usize,
    /// Size of its context in tokens.
    pub(crate) context_tokens: u64,
}

/// What one logical call knows of its candidates.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    facts: &'a [Facts],
    /// The candidates that may be asked at all, in the order of preference.
    order: Vec<usize>,
    standing: Vec<Standing>,
    /// A delay that a server asked for in this call.
    delays: Vec<Option<Instant>>,
    /// Servers that failed in this round.
    broken: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not asked in this round.
    Fresh,
    /// Asked in this round, in vain.
    Tried,
    /// Not asked again in this call.
    Out,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Ask this one.
    Ask(usize),
    /// Begin a new round once this candidate may be asked. `Instant`: when that is, at the earliest; `bool`: whether its
    /// server asked for the delay.
    Wait(usize, Instant, bool),
    /// Nobody is left.
    Nobody,
}

impl<'a> Plan<'a> {
    /// A plan for candidates in this order of preference, of which none was asked.
    pub(crate) fn new(facts: &'a [Facts], order: Vec<usize>) -> Self {
        let standing = vec![Standing::Fresh; facts.len()];
        Self { facts, order, standing, delays: vec![None; facts.len()], broken: Vec::new() }
    }

    /// The one that is to answer.
    pub(crate) fn preferred(&self) -> usize {
        self.order.first().copied().unwrap_or_default()
    }

    /// Whom to ask now, by how each stands.
    pub(crate) fn next(&self, now: Instant, availability: impl Fn(usize) -> Availability) -> Choice {
        let fresh = || self.order.iter().copied().filter(|at| self.standing[*at] == Standing::Fresh);
        let now_free = |at: &usize| self.earliest(*at, now, availability(*at)) == (now, false);
        let elsewhere = |at: &usize| !self.broken.contains(&self.facts[*at].place);
        if let Some(at) = fresh().filter(now_free).find(elsewhere).or_else(|| fresh().find(now_free)) {
            return Choice::Ask(at);
        }
        let left = self.order.iter().copied().filter(|at| self.standing[*at] != Standing::Out);
        let earliest = left.map(|at| (self.earliest(at, now, availability(at)), at)).min_by_key(|((when, _), _)| *when);
        earliest.map_or(Choice::Nobody, |((when, asked), at)| Choice::Wait(at, when, asked))
    }

    /// When a candidate may be asked, and whether its server asked for that delay; now, where there is none.
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

    /// A request to this candidate has failed.
    pub(crate) fn failed(&mut self, at: usize, kind: ModelErrorKind, now: Instant) {
        use ModelErrorKind::{Auth, BadRequest, ContextTooLong, Network, Overloaded, RateLimited};
        self.standing[at] = match kind {
            RateLimited { .. } | Overloaded { .. } | Network => Standing::Tried,
            Auth | ContextTooLong | BadRequest => Standing::Out,
        };
        match kind {
            RateLimited { retry_after } => self.delays[at] = retry_after.map(|delay| now + delay),
            Overloaded { retry_after } => {
                self.delays[at] = retry_after.map(|delay| now + delay);
                self.broken.push(self.facts[at].place);
            }
            Network => self.broken.push(self.facts[at].place),
            ContextTooLong => {
                let tokens = self.facts[at].context_tokens;
                let too_small = |at: &&usize| self.facts[**at].context_tokens <= tokens;
                self.order.iter().filter(too_small).for_each(|at| self.standing[*at] = Standing::Out);
            }
            Auth | BadRequest => {}
        }
    }

    /// Whether this candidate takes less than the one that was to answer. Only then is a conversation that is too long for
    /// it offered to another one; what outgrows the model that was to answer is for the caller to shorten.
    pub(crate) fn is_smaller(&self, at: usize) -> bool {
        self.facts[at].context_tokens < self.facts[self.preferred()].context_tokens
    }

    /// Begins another round.
    pub(crate) fn new_round(&mut self) {
        self.broken.clear();
        for standing in self.standing.iter_mut().filter(|standing| **standing == Standing::Tried) {
            *standing = Standing::Fresh;
        }
    }
}

/// How soon to look again at a candidate that another call tries out.
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

    /// Two keys to one server, then two other servers, the second of them with the larger context.
    fn facts() -> [Facts; 4] {
        [(0, 100), (0, 100), (2, 50), (3, 200)].map(|(place, context_tokens)| Facts { place, context_tokens })
    }

    const ALL_FREE: [Availability; 4] = [Availability::Now; 4];

    #[test]
    fn what_failed_and_who_is_free_decide_whom_to_ask() {
        use Choice::{Ask, Nobody, Wait};
        let now = Instant::now();
        let at = |n| Availability::At(now + seconds(n), false);
        let asked_for = |n| Availability::At(now + seconds(n), true);
        let free = Availability::Now;
        for (failed, availability, expected) in [
            (vec![], ALL_FREE, Ask(0)),
            // A limit and a refusal are the key's own; a server that is down is down for each of its keys.
            (vec![(0, LIMITED)], ALL_FREE, Ask(1)),
            (vec![(0, Auth)], ALL_FREE, Ask(1)),
            (vec![(0, BUSY)], ALL_FREE, Ask(2)),
            (vec![(0, Network)], ALL_FREE, Ask(2)),
            (vec![(0, BUSY), (2, BUSY), (3, Network)], ALL_FREE, Ask(1)),
            (vec![(0, BUSY)], [free, free, at(9), at(9)], Ask(1)),
            // Whoever rests is passed over.
            (vec![], [at(9), at(9), free, free], Ask(2)),
            (vec![], [Availability::OnTrial, at(9), at(9), free], Ask(3)),
            // Nobody is free: the earliest.
            (vec![], [at(9), at(5), asked_for(3), at(7)], Wait(2, now + seconds(3), true)),
            (vec![(1, Auth)], [at(9), at(5), at(30), at(7)], Wait(3, now + seconds(7), false)),
            (vec![], [Availability::OnTrial, at(9), at(9), at(9)], Wait(0, now + LOOK_AGAIN, false)),
            // The round is over: whoever was tried may be tried again, at once as far as the choice is concerned.
            (vec![(0, BUSY), (1, BUSY), (2, Auth), (3, BUSY)], ALL_FREE, Wait(0, now, false)),
            (
                vec![(0, RateLimited { retry_after: Some(seconds(4)) }), (1, Auth), (2, Auth), (3, Auth)],
                ALL_FREE,
                Wait(0, now + seconds(4), true),
            ),
            (vec![(0, Auth), (1, Auth), (2, Auth), (3, Auth)], ALL_FREE, Nobody),
            // What is too long for one is too long for all that are no larger.
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
