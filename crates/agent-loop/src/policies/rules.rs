//! The rules of a run: conditions and what follows from each.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::condition::Condition;
use super::tool_loops::ToolLoopConfig;

/// Rules, compiled from the configuration once and shared by all runs.
#[derive(Clone, Debug, PartialEq)]
pub struct StopRules {
    /// In the order in which they are asked; of several that turn true at once, [`StopReason::precedence`] decides.
    ///
    /// [`StopReason::precedence`]: belay_protocol::StopReason::precedence
    pub rules: Vec<Rule>,
    /// How tool cycles are recognised.
    pub tool_loops: ToolLoopConfig,
    /// Strikes of loop detection that end a run; the ones before give a recovery turn. At least 1.
    pub max_strikes: u32,
    limits: RunLimits,
    closing_turn: Duration,
}

/// A rule.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name: in evidence, in the log, and to switch it off.
    pub name: String,
    /// When it fires.
    pub when: Condition,
    /// What follows.
    #[serde(default)]
    pub then: Then,
    /// What the model is told with a notice or a strike. Absent: a sentence that says what was seen.
    #[serde(default)]
    pub say: Option<String>,
}

/// What follows when a rule fires.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Default)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The model is told, once for each time the condition turns true; the run goes on.
    Notice,
    /// A strike: feedback and a recovery turn; the last strike ends the run. Off with `/loops off`.
    Strike,
    /// The run ends.
    #[default]
    Stop,
}

impl StopRules {
    /// The progress rules alone: loops, chanting, repetition, errors. What `belay stops check` judges by.
    pub fn progress() -> Self {
        let rule = |name: &str, when, then| Rule { name: name.into(), when, then, say: None };
        Self {
            rules: vec![
                rule("tool_loop", Condition::ToolLoop(true), Then::Strike),
                rule("chanting", Condition::Chanting(true), Then::Strike),
            ],
            tool_loops: ToolLoopConfig::default(),
            max_strikes: 2,
            limits: RunLimits::default(),
            closing_turn: Duration::from_secs(60),
        }
    }

    /// The limits of a run.
    pub fn limits(&self) -> &RunLimits {
        &self.limits
    }

    /// Longest closing turn. Zero: none.
    pub fn closing_turn(&self) -> Duration {
        self.closing_turn
    }

    /// The earliest clock value, in milliseconds, at which a rule about time fires. `None`: none does.
    pub fn deadline_ms(&self, _state: &super::state::StopState) -> Option<u64> {
        None
    }

    /// No rules at all.
    pub fn none() -> Self {
        Self { rules: Vec::new(), ..Self::progress() }
    }
}

/// The limits of one run: the run's part of `[limits]`. Absent: no limit.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RunLimits {
    /// Most requests to the model, failed ones included.
    pub model_calls: Option<u64>,
    /// Most US dollars for one run.
    pub usd_per_run: Option<f64>,
    /// Most US dollars for one session.
    pub usd_per_session: Option<f64>,
}

impl RunLimits {
    /// The run's limit in millionths of a US dollar.
    pub fn micro_usd_per_run(&self) -> Option<u64> {
        self.usd_per_run.map(|usd| (usd * 1e6).round() as u64)
    }

    /// The session's limit in millionths of a US dollar.
    pub fn micro_usd_per_session(&self) -> Option<u64> {
        self.usd_per_session.map(|usd| (usd * 1e6).round() as u64)
    }
}
