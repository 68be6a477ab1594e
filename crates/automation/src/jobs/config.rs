//! Settings of jobs: `[jobs]`.

use std::time::Duration;

use belay_protocol::{JobBudget, JobCaps, RunsIn};
use serde::{Deserialize, Serialize};

/// `[jobs]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobsConfig {
    /// Whether jobs can be created and started. Running jobs continue when this is `false`.
    pub enabled: bool,
    /// Jobs that run at the same time. 1 to 1000.
    pub max_parallel: u32,
    /// Jobs of one person that run at the same time. 1 to 1000.
    pub max_parallel_per_user: u32,
    /// Queued and running jobs of one person. 1 to 1000000.
    pub max_open_per_user: u32,
    /// Queued and running jobs of all people. 1 to 1000000.
    #[serde(skip)]
    pub max_open: u32,
    /// Most steps of one attempt. A job may request fewer. 1 to 500.
    pub max_steps: u32,
    /// Most input and output tokens over all attempts of a job. 0: no limit. The settings have it as
    /// `limits.tokens_total`.
    #[serde(skip)]
    pub max_tokens: u64,
    /// Most US dollars over all attempts of a job. Absent: a job has no limit of its own.
    pub usd_per_job: Option<f64>,
    /// Most seconds of active time of one attempt. 1 to 604800 (a week).
    pub job_timeout_s: u64,
    /// Seconds without progress after which an attempt counts as stuck and is ended. 1 to 86400.
    pub stuck_threshold_s: u64,
    /// Most attempts, restarts of a stuck job included, before the job fails. 1 to 100.
    pub max_attempts: u32,
    /// Most crashes of the daemon in a row while the job runs, before the job fails. 1 to 100.
    pub max_crashes: u32,
    /// Whether every job makes a plan first. A single job may also request a plan.
    pub plan: bool,
    /// Where a job runs that does not say where.
    pub runs_in: RunsIn,
}

/// Most steps of an attempt. Work that needs more belongs in several jobs.
const MOST_STEPS: u32 = 500;
/// A week. Work that takes longer begins a new attempt, or belongs in several jobs.
const MOST_TIME_S: u64 = 604_800;

impl Default for JobsConfig {
    /// Five jobs at once, 50 steps, an hour, five minutes without progress and three attempts: figures that similar
    /// agents use for their jobs. Two crashes, because another job may have caused a single one.
    fn default() -> Self {
        Self {
            enabled: true,
            max_parallel: 5,
            max_parallel_per_user: 3,
            max_open_per_user: 100,
            max_open: 10_000,
            max_steps: 50,
            max_tokens: 0,
            usd_per_job: None,
            job_timeout_s: 3600,
            stuck_threshold_s: 300,
            max_attempts: 3,
            max_crashes: 2,
            plan: false,
            runs_in: RunsIn::Local,
        }
    }
}

impl JobsConfig {
    /// Returns all problems; each begins with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value, most) in [
            ("max_parallel", u64::from(self.max_parallel), 1000),
            ("max_parallel_per_user", u64::from(self.max_parallel_per_user), 1000),
            ("max_open_per_user", u64::from(self.max_open_per_user), 1_000_000),
            ("max_steps", u64::from(self.max_steps), u64::from(MOST_STEPS)),
            ("job_timeout_s", self.job_timeout_s, MOST_TIME_S),
            ("stuck_threshold_s", self.stuck_threshold_s, 86_400),
            ("max_attempts", u64::from(self.max_attempts), 100),
            ("max_crashes", u64::from(self.max_crashes), 100),
        ] {
            if !(1..=most).contains(&value) {
                problems.push(format!("jobs.{key}: must be between 1 and {most}"));
            }
        }
        if self.usd_per_job.is_some_and(|usd| !(usd > 0.0 && usd <= 1e9)) {
            problems.push("jobs.usd_per_job: must be a number of dollars above 0, at most a thousand million".into());
        }
        problems
    }

    /// Limits on the number of jobs.
    pub fn caps(&self) -> JobCaps {
        JobCaps {
            at_work: self.max_parallel,
            at_work_each: self.max_parallel_per_user,
            open_each: self.max_open_per_user,
            open: self.max_open,
        }
    }

    /// The budget within which the budget of each job must lie.
    pub fn budget(&self) -> JobBudget {
        JobBudget {
            max_steps: self.max_steps,
            max_tokens: self.max_tokens,
            max_micro_usd: self.usd_per_job.map_or(0, |usd| (usd * 1e6) as u64),
            max_time_ms: self.job_timeout_s.saturating_mul(1000),
        }
    }

    /// Time without progress after which an attempt counts as stuck.
    pub fn stuck_after(&self) -> Duration {
        Duration::from_secs(self.stuck_threshold_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_problems_name_their_keys() {
        assert_eq!(JobsConfig::default().validate(), Vec::<String>::new());
        let config = JobsConfig {
            max_parallel: 0,
            max_steps: 501,
            usd_per_job: Some(f64::NAN),
            job_timeout_s: 0,
            ..JobsConfig::default()
        };
        let keys: Vec<_> =
            config.validate().iter().filter_map(|what| Some(what.split_once(':')?.0.to_owned())).collect();
        assert_eq!(keys, ["jobs.max_parallel", "jobs.max_steps", "jobs.job_timeout_s", "jobs.usd_per_job"]);
    }

    #[test]
    fn what_a_job_asks_for_is_brought_within_what_any_job_may_use() {
        let config = JobsConfig { max_tokens: 1000, usd_per_job: Some(0.5), ..JobsConfig::default() };
        let asked = JobBudget { max_steps: 200, max_tokens: 10, max_micro_usd: 0, max_time_ms: 1 };
        let expected = JobBudget { max_steps: 50, max_tokens: 10, max_micro_usd: 500_000, max_time_ms: 1 };
        assert_eq!(asked.within(config.budget()), expected);
    }
}
