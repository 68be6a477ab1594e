//! The rules of the configuration, compiled, and their validation.

use std::time::Duration;

use belay_protocol::tool_health::{LONGEST_OFF_S, LONGEST_WITHIN_S, MOST_FAILURES, MOST_RUNS, SERVER_PREFIX};
use belay_protocol::{ToolHealthAction, ToolHealthConfig, ToolHealthRule};
use globset::{Glob, GlobMatcher};

use crate::own_tools::{COMPLETE_TASK, EMIT_VALUE, PLANNING, TERMINATE};

/// Tools that a run needs in order to end or to do its task. Nothing may disable them.
const NEEDED: [&str; 4] = [COMPLETE_TASK, EMIT_VALUE, PLANNING, TERMINATE];

/// Maximum number of rules. 64: each failure searches them linearly.
const MAX_RULES: usize = 64;

/// Maximum number of patterns of a rule.
const MAX_PATTERNS: usize = 64;

/// Whether a subject may be disabled.
pub(super) fn may_be_off(subject: &str) -> bool {
    !NEEDED.contains(&subject)
}

/// A threshold for failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) failures: u32,
    /// Time window; `None`: failures of any age count.
    pub(super) within: Option<Duration>,
    pub(super) runs: u32,
}

impl Bar {
    fn new(failures: u32, within_s: u64, runs: u32) -> Self {
        let within = (within_s > 0).then(|| Duration::from_secs(within_s));
        Self { failures, within, runs }
    }
}

/// One rule.
#[derive(Debug)]
struct Rule {
    patterns: Vec<Pattern>,
    bar: Bar,
    action: ToolHealthAction,
    for_s: u64,
}

#[derive(Debug)]
struct Pattern {
    /// Whether it matches servers. A pattern for tools matches no server, and the reverse.
    servers: bool,
    names: GlobMatcher,
}

impl Rule {
    fn fits(&self, subject: &str) -> bool {
        let server = subject.starts_with(SERVER_PREFIX);
        self.patterns.iter().any(|pattern| pattern.servers == server && pattern.names.is_match(subject))
    }
}

/// All rules.
#[derive(Debug, Default)]
pub(super) struct Rules {
    report: Option<Bar>,
    rules: Vec<Rule>,
}

impl Rules {
    /// Compiles a valid section. An invalid pattern matches nothing.
    pub(super) fn compile(config: &ToolHealthConfig) -> Self {
        let report = (config.report_after > 0).then(|| Bar::new(config.report_after, config.within_s, config.runs));
        let pattern = |text: &String| {
            let names = Glob::new(text).ok()?.compile_matcher();
            Some(Pattern { servers: text.starts_with(SERVER_PREFIX), names })
        };
        let rule = |rule: &ToolHealthRule| Rule {
            patterns: rule.tools.iter().filter_map(pattern).collect(),
            bar: Bar::new(rule.failures, rule.within_s, rule.runs),
            action: rule.action,
            for_s: rule.for_s,
        };
        Self { report, rules: config.rules.iter().map(rule).collect() }
    }

    /// The thresholds at which a subject is reported.
    pub(super) fn reports<'a>(&'a self, subject: &'a str) -> impl Iterator<Item = Bar> + 'a {
        let of_rules = self.rules.iter().filter(|rule| rule.action == ToolHealthAction::Report && rule.fits(subject));
        self.report.into_iter().chain(of_rules.map(|rule| rule.bar))
    }

    /// The thresholds at which a subject is disabled, each with the duration in seconds.
    pub(super) fn switches_off<'a>(&'a self, subject: &'a str) -> impl Iterator<Item = (Bar, u64)> + 'a {
        let disable = |rule: &&Rule| rule.action == ToolHealthAction::Disable && rule.fits(subject);
        let rules = self.rules.iter().filter(disable).map(|rule| (rule.bar, rule.for_s));
        rules.filter(|_| may_be_off(subject))
    }
}

/// The problems of the section `[tools.health]`, each starting with its key.
pub fn problems(config: &ToolHealthConfig) -> Vec<String> {
    let mut problems = Vec::new();
    let mut within = |key: String, value: u64, least: u64, most: u64| {
        if !(least..=most).contains(&value) {
            problems.push(format!("{key}: must be from {least} to {most}, is {value}"));
        }
    };
    let key = |name: &str| format!("tools.health.{name}");
    within(key("report_after"), config.report_after.into(), 0, MOST_FAILURES.into());
    for (at, rule) in config.rules.iter().enumerate() {
        let key = |name: &str| format!("tools.health.rules[{at}].{name}");
        within(key("failures"), rule.failures.into(), 1, MOST_FAILURES.into());
        within(key("within_s"), rule.within_s, 0, LONGEST_WITHIN_S);
        within(key("runs"), rule.runs.into(), 1, MOST_RUNS.into());
        within(key("for_s"), rule.for_s, 0, LONGEST_OFF_S);
    }
    if config.rules.len() > MAX_RULES {
        problems.push(format!("tools.health.rules: must be at most {MAX_RULES}"));
    }
    for (at, rule) in config.rules.iter().enumerate() {
        let key = format!("tools.health.rules[{at}]");
        if rule.failures < rule.runs {
            problems.push(format!("{key}.runs: {} failures cannot be of {} runs", rule.failures, rule.runs));
        }
        if !(1..=MAX_PATTERNS).contains(&rule.tools.len()) {
            problems.push(format!("{key}.tools: must have from 1 to {MAX_PATTERNS} patterns"));
        }
        for pattern in &rule.tools {
            if pattern.is_empty() {
                problems.push(format!(
                    "{key}.tools: a pattern must not be empty; `*` fits every tool, `mcp:*` every server"
                ));
            } else if let Err(error) = Glob::new(pattern) {
                problems.push(format!("{key}.tools: {pattern:?} is no pattern: {}", error.kind()));
            } else if rule.action == ToolHealthAction::Disable && !may_be_off(pattern) {
                problems.push(format!("{key}.tools: {pattern} cannot be disabled: runs need it to end"));
            }
        }
    }
    if config.report_after > 0 && config.report_after < config.runs {
        let what = format!("{} failures cannot be of {} runs", config.report_after, config.runs);
        problems.push(format!("tools.health.runs: {what}"));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(tools: &[&str], action: ToolHealthAction) -> ToolHealthRule {
        ToolHealthRule {
            tools: tools.iter().map(|&tool| tool.to_owned()).collect(),
            failures: 3,
            within_s: 60,
            runs: 2,
            action,
            for_s: 60,
        }
    }

    #[test]
    fn patterns_of_tools_fit_tools_and_those_of_servers_fit_servers() {
        for (pattern, subject, fits) in [
            ("web_*", "web_search", true),
            ("web_*", "fetch_url", false),
            ("*", "web_search", true),
            ("*", "mcp:files", false),
            ("mcp:*", "mcp:files", true),
            ("mcp:*", "mcp_files_read", false),
            ("mcp_files_*", "mcp_files_read", true),
            ("mcp:files", "mcp:files", true),
            ("*", "terminate", false),
        ] {
            let rules = vec![rule(&[pattern], ToolHealthAction::Disable)];
            let rules = Rules::compile(&ToolHealthConfig { rules, ..ToolHealthConfig::default() });
            assert_eq!(rules.switches_off(subject).count(), usize::from(fits), "{pattern} {subject}");
        }
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert_eq!(problems(&ToolHealthConfig::default()), Vec::<String>::new());
        let broken = ToolHealthRule { failures: 0, runs: 0, for_s: u64::MAX, ..rule(&[], ToolHealthAction::Report) };
        let rules = vec![
            broken,
            rule(&["", "[a", "web_*"], ToolHealthAction::Disable),
            rule(&["terminate"], ToolHealthAction::Disable),
            rule(&["terminate"], ToolHealthAction::Report),
            ToolHealthRule { failures: 2, runs: 3, ..rule(&["*"], ToolHealthAction::Report) },
        ];
        let config = ToolHealthConfig { report_after: 101, rules, ..ToolHealthConfig::default() };
        let found = problems(&config);
        let keys: Vec<&str> = found.iter().filter_map(|problem| problem.split(':').next()).collect();
        let expected = [
            "tools.health.report_after",
            "tools.health.rules[0].failures",
            "tools.health.rules[0].runs",
            "tools.health.rules[0].for_s",
            "tools.health.rules[0].tools",
            "tools.health.rules[1].tools",
            "tools.health.rules[1].tools",
            "tools.health.rules[2].tools",
            "tools.health.rules[4].runs",
        ];
        assert_eq!(keys, expected, "{found:?}");
    }
}
