//! Settings of the outer loop: `[agent]` and `[limits]`. `[queue]` is in `belay_agent::queue`.

mod compaction;
mod memory;

use std::collections::BTreeMap;
use std::time::Duration;

use belay_agent_loop::policies::RunLimits;
use belay_protocol::{Purpose, Thinking};
use serde::{Deserialize, Serialize};

use crate::cost_guard::{self, DayLimits};

pub use self::compaction::{CompactionConfig, Identifiers};
pub use self::memory::{EmbeddingsConfig, MemoryConfig};

/// Values of `[agent]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// N: notice at step N−1, no tools from step N on, hard limit N+1. At least 1.
    pub max_tool_iterations: u32,
    /// Maximum number of turns that run at the same time. At least 1.
    pub max_concurrent_turns: usize,
    /// Time that running turns get at shutdown before they are cancelled, in seconds. 0: they are cancelled at once.
    pub drain_s: u64,
    /// Whether the model may end its turn with the tool `terminate`. In a chat a text always ends the turn.
    pub terminate: bool,
    /// Whether the model may send messages before its answer, and to other conversations, with the tool `send_message`.
    pub send_message: bool,
    /// Whether the model may send files of the workspace, with the tool `send_file`.
    pub send_file: bool,
    /// Whether a model checks that an autonomous agent's final text meets the request.
    pub completion_check: bool,
    /// The time zone of dates in prompts and of all times of day in the settings, as an IANA name. Absent: that of the
    /// machine for dates in prompts, UTC for times of day.
    pub timezone: Option<String>,
    /// Thinking effort of the model before each step. Absent: the model's default.
    pub thinking: Option<Thinking>,
    /// Replaces the built-in description of the agent at the head of the system prompt.
    pub system_prompt: Option<String>,
    /// Limits of the runs that a run may start.
    pub subagents: SubagentsConfig,
    /// Executors that the steps of a plan may name, besides `general`.
    pub executors: BTreeMap<String, ExecutorConfig>,
    /// Limits of plans. No setting changes them.
    #[serde(skip)]
    pub plan: PlanConfig,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            max_tool_iterations: 10,
            max_concurrent_turns: 64,
            drain_s: 10,
            terminate: false,
            send_message: false,
            send_file: false,
            completion_check: false,
            timezone: None,
            thinking: None,
            system_prompt: None,
            executors: BTreeMap::new(),
            plan: PlanConfig::default(),
            subagents: SubagentsConfig::default(),
        }
    }
}

impl AgentConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=10_000).contains(&self.max_tool_iterations) {
            problems.push("agent.max_tool_iterations: must be between 1 and 10000".into());
        }
        if !(1..=100_000).contains(&self.max_concurrent_turns) {
            problems.push("agent.max_concurrent_turns: must be between 1 and 100000".into());
        }
        if self.drain_s > 3600 {
            problems.push("agent.drain_s: must be at most 3600".into());
        }
        if self.system_prompt.as_ref().is_some_and(|text| text.len() > 100_000) {
            problems.push("agent.system_prompt: must be at most 100000 bytes".into());
        }
        problems.extend(self.subagents.validate());
        if self.executors.len() > MAX_EXECUTORS {
            problems.push(format!("agent.executors: must be at most {MAX_EXECUTORS}"));
        }
        for (name, executor) in &self.executors {
            executor.validate(name, &mut problems);
        }
        problems
    }

    /// Time that running turns get at shutdown.
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_s)
    }
}

/// Values of `[agent.subagents]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SubagentsConfig {
    /// Maximum depth of a run tree. 1: a conversation may start subagents, which may start none.
    #[serde(skip)]
    pub max_depth: u32,
    /// Maximum number of subagents of one tree that run at the same time.
    #[serde(skip)]
    pub max_live: u32,
    /// Maximum number of subagents of all sessions that run at the same time, at each depth; one more waits.
    #[serde(skip)]
    pub max_concurrent: usize,
    /// Maximum number of subagents that one tree may start in total.
    #[serde(skip)]
    pub max_total: u32,
    /// Maximum number of steps of one subagent; a call may ask for fewer. 0: the model is not offered `spawn_subagent`.
    pub max_turns: u32,
    /// Maximum time of one subagent, in seconds; a call may ask for less.
    pub max_time_s: u64,
}

impl Default for SubagentsConfig {
    /// 30 steps and 10 minutes are the limits of Gemini CLI's subagents. The caps of a tree are chosen so that one
    /// request cannot keep more than a few model calls open. Depth 2: a subagent may have helpers of its own, and more
    /// levels only pass the same task on. Eight at each depth: two full trees.
    fn default() -> Self {
        Self { max_depth: 2, max_live: 4, max_concurrent: 8, max_total: 16, max_turns: 30, max_time_s: 600 }
    }
}

impl SubagentsConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value, least, most) in
            [("max_turns", u64::from(self.max_turns), 0, 10_000), ("max_time_s", self.max_time_s, 1, 86_400)]
        {
            if !(least..=most).contains(&value) {
                problems.push(format!("agent.subagents.{key}: must be between {least} and {most}"));
            }
        }
        problems
    }

    /// Whether the model is offered the tool `spawn_subagent`.
    pub fn enabled(&self) -> bool {
        self.max_turns > 0
    }

    /// Maximum time of one subagent.
    pub fn max_time(&self) -> Duration {
        Duration::from_secs(self.max_time_s)
    }
}

/// Maximum number of configured executors. 32: their descriptions are in the prompt of every plan.
const MAX_EXECUTORS: usize = 32;

/// Limits of plans. They are constants, and fields for tests alone.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanConfig {
    /// Maximum attempts of one step, interrupted ones included, before it is blocked.
    pub max_attempts: u32,
    /// Maximum executions of steps in total, repeated ones included, before the run ends with `plan_limit`.
    pub max_executions: u32,
    /// Maximum number of model calls of one execution.
    pub max_steps_per_execution: u32,
}

impl Default for PlanConfig {
    /// Two attempts: a step that fails twice in the same way needs another plan. 20 model calls: twice those of a turn;
    /// `agent.executors.NAME.max_steps` gives an executor others.
    fn default() -> Self {
        Self { max_attempts: 2, max_executions: 20, max_steps_per_execution: 20 }
    }
}

/// `[agent.executors.NAME]`: the executor of plan steps that are tagged `[NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecutorConfig {
    /// Its abilities, for the model that makes plans.
    pub description: String,
    /// Replaces the built-in description of an executor at the head of its system prompt.
    pub prompt: Option<String>,
    /// Names of its tools, besides `terminate`. Absent: all tools.
    pub tools: Option<Vec<String>>,
    /// Maximum number of model calls of one execution. Absent: [`PlanConfig::max_steps_per_execution`]. 1 to
    /// 10000.
    pub max_steps: Option<u32>,
}

impl ExecutorConfig {
    fn validate(&self, name: &str, problems: &mut Vec<String>) {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.len() > 32 || !name.chars().all(fits) {
            problems.push(format!(
                "agent.executors.{name}: a name has at most 32 letters, digits, `_` and `-`, to be used as a tag"
            ));
        }
        if self.description.trim().is_empty() || self.description.len() > 1000 {
            problems.push(format!("agent.executors.{name}.description: must be 1 to 1000 bytes"));
        }
        if self.prompt.as_ref().is_some_and(|text| text.len() > 100_000) {
            problems.push(format!("agent.executors.{name}.prompt: must be at most 100000 bytes"));
        }
        if self.max_steps.is_some_and(|steps| !(1..=10_000).contains(&steps)) {
            problems.push(format!("agent.executors.{name}.max_steps: must be between 1 and 10000"));
        }
    }
}

/// Values of `[limits]`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsConfig {
    /// Maximum cost of model calls in one UTC day, in US dollars. Absent: no limit. Needs a price for the model.
    pub usd_per_day: Option<f64>,
    /// Maximum cost by purpose, in the same way; a purpose that is not listed has only the common limit. A subagent, a
    /// plan, a worker and a summary have the purpose of the run that started them.
    pub usd_per_day_for: BTreeMap<Purpose, f64>,
    /// Limits of one run, together with everything that it starts.
    #[serde(flatten)]
    pub run: RunLimits,
}

impl LimitsConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = self.run.validate();
        let each = self.usd_per_day_for.iter().map(|(purpose, usd)| (Some(*purpose), *usd));
        for (budget, usd) in self.usd_per_day.map(|usd| (None, usd)).into_iter().chain(each) {
            if !(0.0..=1e9).contains(&usd) {
                let key = cost_guard::setting(budget);
                problems.push(format!("{key}: must be a number of dollars from 0 to a thousand million"));
            }
        }
        problems
    }

    /// The limits of one day.
    pub fn per_day(&self) -> DayLimits {
        // `validate` checks the range; the cast saturates.
        let micro = |usd: f64| (usd * 1e6).round() as u64;
        DayLimits {
            all: self.usd_per_day.map(micro),
            of: self.usd_per_day_for.iter().map(|(purpose, usd)| (*purpose, micro(*usd))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(AgentConfig::default().validate().is_empty());
        let bad =
            AgentConfig { max_tool_iterations: 0, max_concurrent_turns: 0, drain_s: 4000, ..AgentConfig::default() };
        assert_eq!(bad.validate().len(), 3);
        let wrong = SubagentsConfig { max_turns: 10_001, max_time_s: 0, ..SubagentsConfig::default() };
        let bad = AgentConfig { subagents: wrong, ..AgentConfig::default() }.validate();
        assert_eq!(bad.len(), 2);
        assert_eq!(bad[0], "agent.subagents.max_turns: must be between 0 and 10000");
        let most = SubagentsConfig { max_turns: 0, max_time_s: 86_400, ..SubagentsConfig::default() };
        assert!(most.validate().is_empty());
        let executor = |description: &str, max_steps| ExecutorConfig {
            description: description.into(),
            max_steps,
            ..ExecutorConfig::default()
        };
        for (name, executor, problems) in [
            ("web-search_2", executor("looks things up", Some(1)), 0),
            ("web search", executor("looks things up", None), 1),
            ("web", executor(" ", Some(0)), 2),
        ] {
            let executors = BTreeMap::from([(name.to_owned(), executor)]);
            assert_eq!(AgentConfig { executors, ..AgentConfig::default() }.validate().len(), problems, "{name}");
        }
        for usd in [f64::NAN, -1.0, f64::INFINITY] {
            let usd_per_day_for = BTreeMap::from([(Purpose::Job, usd)]);
            let problems =
                LimitsConfig { usd_per_day: Some(usd), usd_per_day_for, ..LimitsConfig::default() }.validate();
            assert_eq!(problems.len(), 2);
            assert!(problems[1].starts_with("limits.usd_per_day_for.job: must be"), "{problems:?}");
        }
        let limits: LimitsConfig =
            toml::from_str("usd_per_day = 1.5\nusd_per_day_for = { heartbeat = 0.1 }").expect("read");
        let expected = DayLimits { all: Some(1_500_000), of: BTreeMap::from([(Purpose::Heartbeat, 100_000)]) };
        assert_eq!((limits.validate().len(), limits.per_day()), (0, expected));
        let refused = toml::from_str::<LimitsConfig>("usd_per_day_for = { jobs = 1 }").map(|limits| limits.per_day());
        assert!(refused.as_ref().is_err_and(|error| error.to_string().contains("`job`")), "{refused:?}");
    }
}
