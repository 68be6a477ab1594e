//! Settings of routines: `[routines]`.

use std::collections::BTreeSet;
use std::time::Duration;

use belay_protocol::{RoutineSpec, UnixMillis};
use serde::{Deserialize, Serialize};

use super::check;
use belay_schedule::misfire::GRACE;

/// Most model calls of a lightweight routine run, whatever the settings and the routine say.
pub const MOST_ITERATIONS: u32 = 5;

/// Longest retention of routine runs: a hundred years.
const MOST_DAYS: u32 = 36_500;

/// `[routines]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoutinesConfig {
    /// Whether routines start and can be created. Routine runs in progress continue when this is `false`.
    pub enabled: bool,
    /// Most routine runs of all routines at the same time. 1 to 1000.
    pub max_concurrent: u32,
    /// Seconds by which a scheduled time may be late and still count as on time.
    #[serde(skip)]
    pub grace_s: u64,
    /// Most model calls of a lightweight routine run; the last one has no tools. 1 to 5; 1: no tools.
    pub lightweight_max_iterations: u32,
    /// Most tokens of one answer of a lightweight routine run.
    #[serde(skip)]
    pub max_tokens: u32,
    /// Most routines of one person in one channel; operators have no limit. 1 to 10000.
    pub max_per_person: u32,
    /// Webhook calls that are accepted per minute, for each routine. 1 to 100000.
    pub webhooks_per_minute: u32,
    /// Days that a routine run and its conversation are kept after its end. At most 36500. 0: `sessions.keep_days`
    /// applies.
    pub keep_routine_runs_days: u32,
    /// Routines of the configuration.
    pub define: Vec<RoutineSpec>,
}

impl Default for RoutinesConfig {
    /// Ten at once, three model calls and ten webhook calls a minute are figures that similar engines use. A minute of
    /// grace: the engine looks at least every 15 s, and a loaded machine may miss several of these looks. 4096 tokens:
    /// a report of several pages.
    fn default() -> Self {
        Self {
            enabled: true,
            max_concurrent: 10,
            grace_s: GRACE.as_secs(),
            lightweight_max_iterations: 3,
            max_tokens: 4096,
            max_per_person: 100,
            webhooks_per_minute: 10,
            keep_routine_runs_days: 30,
            define: Vec::new(),
        }
    }
}

impl RoutinesConfig {
    /// Returns all problems; each begins with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value, most) in [
            ("max_concurrent", u64::from(self.max_concurrent), 1000),
            ("lightweight_max_iterations", u64::from(self.lightweight_max_iterations), u64::from(MOST_ITERATIONS)),
            ("max_per_person", u64::from(self.max_per_person), 10_000),
            ("webhooks_per_minute", u64::from(self.webhooks_per_minute), 100_000),
        ] {
            if !(1..=most).contains(&value) {
                problems.push(format!("routines.{key}: must be between 1 and {most}"));
            }
        }
        if self.keep_routine_runs_days > MOST_DAYS {
            problems.push(format!("routines.keep_routine_runs_days: must be at most {MOST_DAYS}"));
        }
        let mut names = BTreeSet::new();
        for (at, spec) in self.define.iter().enumerate() {
            let place = if spec.name.is_empty() {
                format!("routines.define[{at}]")
            } else {
                format!("routines.define.{}", spec.name)
            };
            if !names.insert(spec.name.as_str()) {
                problems.push(format!("{place}: there are two of this name"));
            }
            problems.extend(check::reserved(&spec.name).map(|problem| format!("{place}.name: {problem}")));
            problems.extend(check::problems(spec).into_iter().map(|problem| format!("{place}.{problem}")));
            if check::counts_from_now(spec) {
                problems.push(format!(
                    "{place}.trigger.when: `in …` would count again from each start; write `at` and the date"
                ));
            }
        }
        problems
    }

    pub(super) fn grace(&self) -> Duration {
        Duration::from_secs(self.grace_s)
    }
}

/// The date from which the check of a configured schedule counts. Any date serves.
pub(super) const ANY_DATE: UnixMillis = UnixMillis(1_700_000_000_000);
