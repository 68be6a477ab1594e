//! The limits of a run: the part of `[limits]` that applies to one run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rule::{Condition, Counter, Rule, Then, ToolCount, micro_usd};

/// The name of the limit of active time.
pub(crate) const ACTIVE_S: &str = "active_s";

/// Largest number in a TOML setting.
const MAX: u64 = i64::MAX as u64;

/// The limits of one run, including the runs that it starts. Reaching a limit ends the run.
///
/// It can be used alone, or inside a larger section with `#[serde(flatten)]`. Unknown fields are refused in both cases,
/// if the larger section refuses them.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct RunLimits {
    /// Active seconds: the time without waiting for a person. 0: no limit.
    pub active_s: u64,
    /// Seconds since the run began. At least 1. Absent, here and below: no limit.
    pub wall_clock_s: Option<u64>,
    /// Requests to the model, including failed ones.
    pub model_calls: Option<u64>,
    /// Tool calls.
    pub tool_calls: Option<u64>,
    /// Calls of single tools, by tool name.
    pub tool_calls_of: BTreeMap<String, u64>,
    /// Tokens read and generated.
    pub tokens_total: Option<u64>,
    /// US dollars for the run. Above 0.
    pub usd_per_run: Option<f64>,
    /// US dollars for the session. Above 0.
    pub usd_per_session: Option<f64>,
    /// Bytes of text that the model generates and tools return.
    pub output_bytes: Option<u64>,
}

impl Default for RunLimits {
    /// An active time of 600 s, which is OpenClaw's run timeout, and no other limit.
    fn default() -> Self {
        Self { active_s: 600, ..Self::none() }
    }
}

impl RunLimits {
    /// No limits.
    pub fn none() -> Self {
        Self {
            active_s: 0,
            wall_clock_s: None,
            model_calls: None,
            tool_calls: None,
            tool_calls_of: BTreeMap::new(),
            tokens_total: None,
            usd_per_run: None,
            usd_per_session: None,
            output_bytes: None,
        }
    }

    /// The money limit of the run, in millionths of a US dollar.
    pub fn micro_usd_per_run(&self) -> Option<u64> {
        self.usd_per_run.map(micro_usd)
    }

    /// The money limit of the session, in millionths of a US dollar.
    pub fn micro_usd_per_session(&self) -> Option<u64> {
        self.usd_per_session.map(micro_usd)
    }

    /// The limits that are set and are whole numbers: key, number, and the condition.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, u64, Condition)> {
        let table: [(&'static str, Option<u64>, Counter); 6] = [
            (ACTIVE_S, Some(self.active_s).filter(|s| *s > 0), Counter::ActiveMs),
            ("wall_clock_s", self.wall_clock_s, Counter::WallMs),
            ("model_calls", self.model_calls, Counter::ModelCalls),
            ("tool_calls", self.tool_calls, Counter::ToolCalls),
            ("tokens_total", self.tokens_total, Counter::TokensTotal),
            ("output_bytes", self.output_bytes, Counter::OutputBytes),
        ];
        table.into_iter().filter_map(|(key, number, counter)| {
            let when = |number: u64| Condition::AtLeast(counter, number.saturating_mul(counter.scale()));
            number.map(|number| (key, number, when(number)))
        })
    }

    fn dollars(&self) -> impl Iterator<Item = (&'static str, f64, Condition)> {
        let run =
            self.usd_per_run.map(|usd| ("usd_per_run", usd, Condition::AtLeast(Counter::RunMicroUsd, micro_usd(usd))));
        let session = self
            .usd_per_session
            .map(|usd| ("usd_per_session", usd, Condition::AtLeast(Counter::SessionMicroUsd, micro_usd(usd))));
        run.into_iter().chain(session)
    }

    /// Returns every problem at once, each beginning with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.active_s > MAX {
            problems.push(format!("limits.active_s: must be at most {MAX}"));
        }
        for (key, number, _) in self.numbers().filter(|(key, ..)| *key != "active_s") {
            if !(1..=MAX).contains(&number) {
                problems.push(format!("limits.{key}: must be at least 1; leave it out for no limit"));
            }
        }
        for (tool, count) in &self.tool_calls_of {
            if tool.is_empty() || !(1..=MAX).contains(count) {
                problems.push(format!("limits.tool_calls_of.{tool}: must be the name of a tool and at least 1"));
            }
        }
        for (key, usd, _) in self.dollars() {
            if !(usd > 0.0 && usd <= 1e9) {
                problems.push(format!("limits.{key}: must be a number of dollars above 0, at most a thousand million"));
            }
        }
        problems
    }

    /// Each limit as a rule whose name is the key.
    pub(crate) fn rules(&self) -> Vec<Rule> {
        let numbers = self.numbers().map(|(key, _, when)| Rule::new(key, when, Then::Stop));
        let dollars = self.dollars().map(|(key, _, when)| Rule::new(key, when, Then::Stop));
        let tools = self.tool_calls_of.iter().map(|(tool, count)| {
            let when = Condition::ToolCallsOf(ToolCount { tool: tool.clone(), count: *count });
            Rule::new(format!("tool_calls_of.{tool}"), when, Then::Stop)
        });
        numbers.chain(dollars).chain(tools).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize, Default)]
    #[serde(deny_unknown_fields, default)]
    struct Section {
        usd_per_day: Option<f64>,
        #[serde(flatten)]
        run: RunLimits,
    }

    #[test]
    fn it_can_stand_within_a_larger_section_that_refuses_unknown_fields() {
        let section: Section =
            toml::from_str("usd_per_day = 1\nmodel_calls = 60\ntool_calls_of = { fetch_url = 20 }").expect("all known");
        assert_eq!(section.usd_per_day, Some(1.0));
        let expected = RunLimits {
            model_calls: Some(60),
            tool_calls_of: [("fetch_url".into(), 20)].into(),
            ..RunLimits::default()
        };
        assert_eq!(section.run, expected);
        let Err(refused) = toml::from_str::<Section>("model_cals = 60") else { panic!("an unknown key was taken") };
        assert!(refused.to_string().contains("model_cals"), "{refused}");
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(RunLimits::default().validate().is_empty() && RunLimits::none().validate().is_empty());
        let bad = RunLimits {
            active_s: u64::MAX,
            wall_clock_s: Some(0),
            model_calls: Some(0),
            tool_calls: Some(0),
            tool_calls_of: [("fetch_url".into(), 0), (String::new(), 1), ("fine".into(), 1)].into(),
            tokens_total: Some(u64::MAX),
            usd_per_run: Some(0.0),
            usd_per_session: Some(f64::NAN),
            output_bytes: Some(0),
        };
        let problems = bad.validate();
        assert_eq!(problems.len(), 10, "{problems:#?}");
        assert!(problems.iter().all(|problem| problem.starts_with("limits.")));
    }

    #[test]
    fn every_limit_becomes_a_rule_of_its_name() {
        assert_eq!(RunLimits::none().rules(), []);
        let all = RunLimits {
            active_s: 1,
            wall_clock_s: Some(2),
            model_calls: Some(3),
            tool_calls: Some(4),
            tool_calls_of: [("t".into(), 5)].into(),
            tokens_total: Some(8),
            usd_per_run: Some(9.0),
            usd_per_session: Some(10.0),
            output_bytes: Some(11),
        };
        let rules = all.rules();
        let names: Vec<&str> = rules.iter().map(|rule| rule.name.as_str()).collect();
        let expected = [
            "active_s",
            "wall_clock_s",
            "model_calls",
            "tool_calls",
            "tokens_total",
            "output_bytes",
            "usd_per_run",
            "usd_per_session",
            "tool_calls_of.t",
        ];
        assert_eq!(names, expected);
        assert!(rules.iter().all(|rule| rule.then == Then::Stop));
    }
}
