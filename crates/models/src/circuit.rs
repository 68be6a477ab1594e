//! Circuit breaker of a candidate: decides when a failing candidate is not asked, and for how long. It never awaits,
//! and the caller passes the time.
//!
//! ```text
//! closed ── a failure of its own ──▶ open until … ── time passes ──▶ half open ── one request ──▶ trial
//!   ▲                                  ▲                               ▲                          │ │
//!   │                                  └──────── it fails: for twice as long ────────────────────┘ │
//!   └──────────────────────────────────────────── it answers ──────────────────────────────────────┘
//! ```
//!
//! A request that began before the circuit last opened or closed changes nothing. So only one of many concurrent
//! failures opens it, and an answer to an older request does not close it.

use std::time::Duration;

use belay_protocol::{Cooling, ModelErrorKind};
use tokio::time::Instant;

/// How long the circuit is open after a key was refused or is out of credit. 30 min: a person has to act.
const KEY_COOLDOWN: Duration = Duration::from_secs(30 * 60);

/// First open time after a rate limit, if the provider names no delay. 60 s: providers count limits by the minute.
const RATE_COOLDOWN: Duration = Duration::from_secs(60);

/// First open time for a server that is overloaded or unreachable.
const SERVER_COOLDOWN: Duration = Duration::from_secs(30);

/// Failures of a server in a row that open the circuit. A single failure may be chance.
const SERVER_FAILURES: u32 = 3;

/// Longest open time after doubling.
const COOLDOWN_MAX: Duration = Duration::from_secs(5 * 60);

/// Longest delay of a provider that is respected. 1 h: after that, it is better to ask again.
const DELAY_MAX: Duration = Duration::from_secs(60 * 60);

/// The circuit of one candidate.
#[derive(Debug, Default)]
pub(crate) struct Circuit {
    state: State,
    /// Failures of the server in a row while closed.
    failures: u32,
    /// How often in a row the circuit has opened.
    openings: u32,
    /// Counts openings and closings, to recognise requests that began before the last one.
    epoch: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Closed,
    /// Becomes half open when the time is reached.
    Open(Cooldown),
    /// One request tests whether the candidate answers again.
    Trial(Cooldown),
}

#[derive(Clone, Copy, Debug)]
struct Cooldown {
    until: Instant,
    /// Whether the provider requested the delay.
    asked: bool,
    why: ModelErrorKind,
}

/// Whether a candidate may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    /// It may be asked.
    Now,
    /// It may not be asked before this time. The flag says whether the provider requested the delay.
    At(Instant, bool),
    /// Another request is testing it now.
    OnTrial,
}

/// A request that has begun. The caller returns it with the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticket(u32);

impl Circuit {
    /// Whether the candidate may be asked now.
    pub(crate) fn availability(&self, now: Instant) -> Availability {
        match self.state {
            State::Closed => Availability::Now,
            State::Open(cooldown) if cooldown.until <= now => Availability::Now,
            State::Open(cooldown) => Availability::At(cooldown.until, cooldown.asked),
            State::Trial(_) => Availability::OnTrial,
        }
    }

    /// Records that a request begins. If the circuit is half open, this request is the trial.
    pub(crate) fn begin(&mut self) -> Ticket {
        if let State::Open(cooldown) = self.state {
            self.state = State::Trial(cooldown);
        }
        Ticket(self.epoch)
    }

    /// Records an answer. Returns whether the circuit closed.
    pub(crate) fn answered(&mut self, ticket: Ticket) -> bool {
        if ticket.0 != self.epoch {
            return false;
        }
        self.failures = 0;
        let was_trial = matches!(self.state, State::Trial(_));
        if was_trial {
            self.state = State::Closed;
            self.openings = 0;
            self.epoch += 1;
        }
        was_trial
    }

    /// Records a failure. Returns the open time if this failure opened the circuit.
    pub(crate) fn failed(&mut self, ticket: Ticket, kind: ModelErrorKind, now: Instant) -> Option<Duration> {
        use ModelErrorKind::{Auth, BadRequest, ContextTooLong, Network, Overloaded, RateLimited};
        if ticket.0 != self.epoch {
            return None;
        }
        let doubled = |first: Duration| first.saturating_mul(1 << self.openings.min(16)).min(COOLDOWN_MAX);
        let (cooldown, asked) = match kind {
            // The cause is the request, not the candidate. The state does not change.
            ContextTooLong | BadRequest => {
                self.dropped(ticket);
                return None;
            }
            Auth => (KEY_COOLDOWN, false),
            RateLimited { retry_after: Some(delay) } | Overloaded { retry_after: Some(delay) } => {
                (delay.min(DELAY_MAX), true)
            }
            RateLimited { retry_after: None } => (doubled(RATE_COOLDOWN), false),
            Overloaded { retry_after: None } | Network => {
                self.failures += 1;
                if matches!(self.state, State::Closed) && self.failures < SERVER_FAILURES {
                    return None;
                }
                (doubled(SERVER_COOLDOWN), false)
            }
        };
        self.state = State::Open(Cooldown { until: now + cooldown, asked, why: kind });
        self.failures = 0;
        self.openings = self.openings.saturating_add(1);
        self.epoch += 1;
        Some(cooldown)
    }

    /// Records that a request was dropped, or that its result says nothing about the candidate. A new trial is allowed.
    pub(crate) fn dropped(&mut self, ticket: Ticket) {
        if ticket.0 == self.epoch
            && let State::Trial(cooldown) = self.state
        {
            self.state = State::Open(cooldown);
        }
    }

    /// The reason why the circuit is open and the remaining time; zero during a trial.
    pub(crate) fn cooling(&self, now: Instant) -> Option<Cooling> {
        match self.state {
            State::Closed => None,
            State::Open(cooldown) | State::Trial(cooldown) => {
                Some(Cooling { left: cooldown.until.saturating_duration_since(now), why: cooldown.why })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ModelErrorKind::*;
    use proptest::prelude::*;

    use super::*;

    const BUSY: ModelErrorKind = Overloaded { retry_after: None };
    const LIMITED: ModelErrorKind = RateLimited { retry_after: None };

    fn after(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    /// Fails with each kind in turn, the next one as soon as the candidate may be asked again. Returns the open times
    /// in seconds, 0 if the circuit stays closed.
    fn cooldowns(kinds: &[ModelErrorKind]) -> Vec<u64> {
        let mut circuit = Circuit::default();
        let mut now = Instant::now();
        let mut cooldowns = Vec::new();
        for kind in kinds {
            let ticket = circuit.begin();
            let cooldown = circuit.failed(ticket, *kind, now).unwrap_or_default();
            if !cooldown.is_zero() {
                let almost = now + cooldown - Duration::from_millis(1);
                assert!(matches!(circuit.availability(almost), Availability::At(..)), "{kind:?}");
            }
            now += cooldown;
            assert_eq!(circuit.availability(now), Availability::Now, "{kind:?}");
            cooldowns.push(cooldown.as_secs());
        }
        cooldowns
    }

    #[test]
    fn each_kind_of_failure_has_its_rest() {
        for (kinds, expected) in [
            (vec![Auth, Auth], vec![1800, 1800]),
            (vec![LIMITED; 5], vec![60, 120, 240, 300, 300]),
            (vec![RateLimited { retry_after: after(7) }, LIMITED], vec![7, 120]),
            (vec![RateLimited { retry_after: after(90_000) }], vec![3600]),
            (vec![Overloaded { retry_after: after(5) }], vec![5]),
            (vec![BUSY, Network, BUSY], vec![0, 0, 30]),
            (vec![Network; 8], vec![0, 0, 30, 60, 120, 240, 300, 300]),
            (vec![BadRequest, ContextTooLong, BadRequest, BadRequest], vec![0; 4]),
            (vec![Network, BadRequest, Network, ContextTooLong, Network], vec![0, 0, 0, 0, 30]),
        ] {
            assert_eq!(cooldowns(&kinds), expected, "{kinds:?}");
        }
    }

    /// A circuit that is half open now.
    fn half_open() -> (Circuit, Instant) {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        let ticket = circuit.begin();
        circuit.failed(ticket, LIMITED, now);
        (circuit, now + RATE_COOLDOWN)
    }

    #[test]
    fn one_request_tries_out_a_candidate_that_has_rested() {
        let (mut circuit, now) = half_open();
        assert_eq!(circuit.availability(now), Availability::Now);
        let trial = circuit.begin();
        assert_eq!(circuit.availability(now), Availability::OnTrial);
        assert!(circuit.answered(trial));
        assert_eq!((circuit.availability(now), circuit.cooling(now)), (Availability::Now, None));
        // It has forgotten how often it opened.
        let ticket = circuit.begin();
        assert_eq!(circuit.failed(ticket, LIMITED, now), after(60));
    }

    #[test]
    fn a_trial_that_is_dropped_or_says_nothing_leaves_the_circuit_half_open() {
        for kind in [None, Some(BadRequest), Some(ContextTooLong)] {
            let (mut circuit, now) = half_open();
            let trial = circuit.begin();
            match kind {
                None => circuit.dropped(trial),
                Some(kind) => assert_eq!(circuit.failed(trial, kind, now), None),
            }
            assert_eq!(circuit.availability(now), Availability::Now, "{kind:?}");
            let trial = circuit.begin();
            assert_eq!(circuit.failed(trial, BUSY, now), after(60), "a trial has one chance, and twice the rest");
        }
    }

    #[test]
    fn requests_that_began_before_it_opened_change_nothing() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        let (first, second, third) = (circuit.begin(), circuit.begin(), circuit.begin());
        assert_eq!(circuit.failed(first, LIMITED, now), after(60));
        assert_eq!(circuit.failed(second, LIMITED, now), None);
        assert!(!circuit.answered(third));
        circuit.dropped(third);
        assert_eq!(circuit.availability(now), Availability::At(now + RATE_COOLDOWN, false));
        let cooling = circuit.cooling(now + Duration::from_secs(20));
        assert_eq!(cooling, Some(Cooling { left: Duration::from_secs(40), why: LIMITED }));
    }

    proptest! {
        /// Requests begin, succeed, fail and are dropped in any order while time passes.
        #[test]
        fn whatever_happens_one_trial_is_out_at_most_and_every_rest_ends(
            steps in proptest::collection::vec((0_u8..5, 0_usize..4, 0_u64..400), 0..60),
        ) {
            const KINDS: [ModelErrorKind; 4] = [BUSY, LIMITED, Auth, BadRequest];
            let (mut circuit, mut now) = (Circuit::default(), Instant::now());
            let mut under_way: Vec<(Ticket, bool)> = Vec::new();
            for (what, which, seconds) in steps {
                match (what, under_way.is_empty()) {
                    (0 | 1, _) if circuit.availability(now) == Availability::Now => {
                        let is_open = circuit.cooling(now).is_some();
                        under_way.push((circuit.begin(), is_open));
                    }
                    (2, false) => drop(circuit.answered(under_way.swap_remove(which % under_way.len()).0)),
                    (3, false) => {
                        let (ticket, _) = under_way.swap_remove(which % under_way.len());
                        circuit.failed(ticket, KINDS[which], now);
                    }
                    (4, false) => circuit.dropped(under_way.swap_remove(which % under_way.len()).0),
                    _ => now += Duration::from_secs(seconds),
                }
                let trials = under_way.iter().filter(|(ticket, trial)| *trial && ticket.0 == circuit.epoch).count();
                prop_assert!(trials <= 1);
                prop_assert_eq!(trials == 1, circuit.availability(now) == Availability::OnTrial);
                if let Some(cooling) = circuit.cooling(now) {
                    prop_assert!(cooling.left <= KEY_COOLDOWN);
                }
            }
            under_way.into_iter().for_each(|(ticket, _)| circuit.dropped(ticket));
            prop_assert_eq!(circuit.availability(now + KEY_COOLDOWN), Availability::Now);
        }
    }

    #[test]
    fn an_answer_between_failures_forgets_them() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        for _ in 0..4 {
            for _ in 0..2 {
                let ticket = circuit.begin();
                assert_eq!(circuit.failed(ticket, Network, now), None);
            }
            let ticket = circuit.begin();
            assert!(!circuit.answered(ticket));
        }
        assert_eq!(circuit.cooling(now), None);
    }
}
