//! Gauges of the present state. They are set when `/metrics` is read, so that a message costs nothing for them.

use std::time::Duration;

use belay_protocol::{Purpose, Spent, StatusReport, Trouble, TroubledPart};
use metrics::{Unit, describe_gauge, gauge};

/// Runs that have not ended, by state: `running`, `queued` or `paused`. Each run is in one state.
pub(super) const RUNS: &str = "belay_runs";
/// Processes that commands have left in the background, and that are alive.
const BACKGROUND_PROCESSES: &str = "belay_background_processes";
/// Age in seconds of the oldest message whose run has not started; 0: none waits.
pub(super) const OLDEST_WAITING: &str = "belay_oldest_waiting_message_seconds";
/// Model calls in progress for which money is reserved.
pub(super) const RESERVATIONS: &str = "belay_open_reservations";
/// The reserved money, in US dollars.
pub(super) const RESERVED: &str = "belay_open_reservations_usd";
/// The money of the day (UTC), by purpose, in US dollars. Open reservations are part of it. All nodes of a cluster show the
/// same money, that of all of them.
pub(super) const SPENT_TODAY: &str = "belay_spent_today_usd";
/// 1 if the last model call did not fail and a candidate may be used, else 0.
pub(super) const MODEL_UP: &str = "belay_model_up";

/// The parts that do not work as they should, by part: 1 if it is in trouble, else 0.
pub(super) const TROUBLES: &str = "belay_troubles";

/// The runs that have not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunNumbers {
    /// Runs that work, also while a part of them waits for a person.
    pub running: usize,
    /// Runs that have not started.
    pub queued: usize,
    /// Runs that wait for a person.
    pub paused: usize,
    /// The age of the oldest message whose run has not started; zero: none waits.
    pub oldest_waiting: Duration,
}

pub(super) fn describe() {
    describe_gauge!(RUNS, "Runs that have not ended, by state");
    describe_gauge!(BACKGROUND_PROCESSES, "Processes that commands have left in the background");
    describe_gauge!(
        OLDEST_WAITING,
        Unit::Seconds,
        "Age of the oldest message whose run has not started; 0: none waits"
    );
    describe_gauge!(RESERVATIONS, "Model calls in progress for which money is reserved");
    describe_gauge!(RESERVED, "Money that is reserved for model calls in progress, in US dollars");
    describe_gauge!(SPENT_TODAY, "Money of the day (UTC) by purpose, reservations included, in US dollars");
    describe_gauge!(TROUBLES, "Whether a part of the daemon does not work as it should, by part");
    describe_gauge!(MODEL_UP, "Whether the last model call did not fail and a model may be used");
}

/// Sets the gauges of runs, reservations and the model.
pub fn set_state_gauges(runs: RunNumbers, status: &StatusReport) {
    for (state, number) in [("running", runs.running), ("queued", runs.queued), ("paused", runs.paused)] {
        gauge!(RUNS, "state" => state).set(number as f64);
    }
    gauge!(BACKGROUND_PROCESSES).set(status.beside.processes.len() as f64);
    gauge!(OLDEST_WAITING).set(runs.oldest_waiting.as_secs_f64());
    gauge!(RESERVATIONS).set(status.open_reservations.calls);
    gauge!(RESERVED).set(usd(status.open_reservations.cost_micro_usd));
    gauge!(MODEL_UP).set(f64::from(u8::from(is_model_up(status))));
}

/// Sets the gauges of troubles.
pub fn set_trouble_gauges(troubles: &[Trouble]) {
    for part in TroubledPart::ALL {
        let is_troubled = troubles.iter().any(|trouble| trouble.part == part);
        gauge!(TROUBLES, "part" => part.word()).set(f64::from(u8::from(is_troubled)));
    }
}

/// Sets the gauge of the money of the day: that of all nodes of a cluster.
pub fn set_spent_gauge(spent: &Spent) {
    for purpose in Purpose::ALL {
        gauge!(SPENT_TODAY, "purpose" => purpose.word()).set(usd(spent.of(*purpose)));
    }
}

/// Whether the last model call did not fail, and not every candidate's circuit breaker is open.
fn is_model_up(status: &StatusReport) -> bool {
    let all_cooling = !status.candidates.is_empty() && status.candidates.iter().all(|one| one.cooling_until.is_some());
    status.model_trouble.is_none() && !all_cooling
}

/// Millionths of a US dollar in US dollars.
fn usd(micro_usd: u64) -> f64 {
    micro_usd as f64 / 1e6
}
