//! Settings of approvals: `[approvals]`.

use std::collections::BTreeMap;
use std::time::Duration;

use globset::Glob;
use serde::{Deserialize, Serialize};

/// `[approvals]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    /// Seconds after which a question that nobody has answered is a denial. 1 to 2 592 000 (30 days).
    pub expires_s: u64,
    /// Seconds within which a secret that was asked for must come. 1 to 3600.
    pub credential_expires_s: u64,
    /// What it means for tools that reach outside when words of the outside are in the conversation.
    pub outside: Outside,
    /// The first rule that fits a call decides; where none does, the tool's own need.
    pub rules: Vec<ApprovalRule>,
}

impl Default for ApprovalsConfig {
    /// Half an hour: long enough to come back from a meeting. Five minutes for a secret: who is about to paste one does so.
    fn default() -> Self {
        Self { expires_s: 1800, credential_expires_s: 300, outside: Outside::Ask, rules: Vec::new() }
    }
}

/// What words of the outside mean for tools that reach outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outside {
    /// They ask, also where no question would be needed otherwise.
    Ask,
    /// Nothing.
    Ignore,
}

/// `[[approvals.rules]]`: what holds for calls of some tools, or for some of their calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// The tools: a name, or a pattern with `*`.
    pub tool: String,
    /// Patterns for arguments by name, all of which must fit. A list is its parts with a space between them; `*` stands
    /// for anything.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// Whether a person is asked.
    pub ask: RuleAsk,
    /// Whether the rule holds although words of the outside are in the conversation. Without this they make a tool that
    /// reaches outside ask all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub even_outside: bool,
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAsk {
    /// Nobody is asked.
    Never,
    /// Asked, unless the session has said "always" to the like.
    UnlessApproved,
    /// Asked each time.
    Always,
    /// Nobody is asked: the answer is no.
    Refuse,
}

/// Most rules. 500: they are looked through for each call.
const MAX_RULES: usize = 500;

impl ApprovalsConfig {
    /// Every problem at once, each beginning with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=2_592_000).contains(&self.expires_s) {
            problems.push("approvals.expires_s: must be from 1 to 2592000 (30 days)".into());
        }
        if !(1..=3600).contains(&self.credential_expires_s) {
            problems.push("approvals.credential_expires_s: must be from 1 to 3600".into());
        }
        if self.rules.len() > MAX_RULES {
            problems.push(format!("approvals.rules: must be at most {MAX_RULES}"));
        }
        for (at, rule) in self.rules.iter().enumerate() {
            let named = rule.arguments.iter().map(|(name, pattern)| (format!("arguments.{name}"), pattern));
            for (key, pattern) in std::iter::once(("tool".to_owned(), &rule.tool)).chain(named) {
                if pattern.is_empty() {
                    problems.push(format!("approvals.rules[{at}].{key}: must not be empty; `*` fits anything"));
                } else if let Err(error) = Glob::new(pattern) {
                    problems.push(format!("approvals.rules[{at}].{key}: is no pattern: {}", error.kind()));
                }
            }
        }
        problems
    }

    /// The rules, by their numbers, that fit none of these tools.
    pub fn about_nothing(&self, tools: &[&str]) -> Vec<usize> {
        let fits_none = |rule: &ApprovalRule| {
            let pattern = Glob::new(&rule.tool).map(|glob| glob.compile_matcher());
            pattern.is_ok_and(|pattern| !tools.iter().any(|tool| pattern.is_match(tool)))
        };
        self.rules.iter().enumerate().filter(|(_, rule)| fits_none(rule)).map(|(at, _)| at).collect()
    }

    /// The rules that never decide anything, since an earlier one fits every call that they fit: each with that one.
    pub fn never_reached(&self) -> Vec<(usize, usize)> {
        let earlier = |at: usize| self.rules[..at].iter().position(|earlier| earlier.catches_all_of(&self.rules[at]));
        (0..self.rules.len()).filter_map(|at| Some((at, earlier(at)?))).collect()
    }

    /// How long a question waits.
    pub fn expires(&self) -> Duration {
        Duration::from_secs(self.expires_s)
    }

    /// How long a secret is waited for.
    pub fn credential_expires(&self) -> Duration {
        Duration::from_secs(self.credential_expires_s)
    }
}

impl ApprovalRule {
    /// Whether this fits every call that the other fits. Some pairs of patterns are not seen through; then it is no.
    fn catches_all_of(&self, other: &Self) -> bool {
        covers(&self.tool, &other.tool)
            && self
                .arguments
                .iter()
                .all(|(name, pattern)| other.arguments.get(name).is_some_and(|narrower| covers(pattern, narrower)))
    }
}

/// Whether a pattern fits everything that another fits.
fn covers(wide: &str, narrow: &str) -> bool {
    const SPECIAL: [char; 8] = ['*', '?', '[', ']', '{', '}', '!', '\\'];
    if wide == narrow || wide == "*" {
        return true;
    }
    let literal = narrow.find(SPECIAL).map_or(narrow, |at| &narrow[..at]);
    if literal == narrow {
        return Glob::new(wide).is_ok_and(|glob| glob.compile_matcher().is_match(narrow));
    }
    wide.strip_suffix('*').is_some_and(|start| !start.contains(SPECIAL) && literal.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_behind_one_that_fits_all_of_it_is_never_reached() {
        let rule = |(tool, arguments): &(&str, &[(&str, &str)])| ApprovalRule {
            tool: (*tool).to_owned(),
            arguments: arguments.iter().map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned())).collect(),
            ask: RuleAsk::Never,
            even_outside: false,
        };
        type Row = (&'static str, &'static [(&'static str, &'static str)]);
        let git: Row = ("run_command", &[("argv", "git *")]);
        type Case<'a> = (&'a [Row], &'a [(usize, usize)]);
        let cases: &[Case<'_>] = &[
            (&[("run_*", &[]), git, ("run_shell", &[])], &[(1, 0), (2, 0)]),
            (&[git, ("run_command", &[]), ("run_command", &[("argv", "ls*")])], &[(2, 1)]),
            (&[git, ("run_command", &[("argv", "git push*")])], &[(1, 0)]),
            (&[git, ("run_command", &[("argv", "git push"), ("directory", ".")])], &[(1, 0)]),
            (&[("run_command", &[("argv", "git push*")]), git], &[]),
            (&[("run_command", &[("argv", "git *"), ("directory", ".")]), git], &[]),
            (&[("run_c?mmand", &[]), ("run_command", &[]), ("run_*", &[])], &[(1, 0)]),
            (&[("*", &[]), ("x", &[]), ("*", &[("a", "b")])], &[(1, 0), (2, 0)]),
            (&[("a*", &[]), ("*a", &[])], &[]),
        ];
        for (rules, expected) in cases {
            let config = ApprovalsConfig { rules: rules.iter().map(rule).collect(), ..ApprovalsConfig::default() };
            assert_eq!(config.never_reached(), *expected, "{rules:?}");
        }
        let rules = ["run_*", "walk", "read_file"].map(|tool| rule(&(tool, &[]))).into();
        let config = ApprovalsConfig { rules, ..ApprovalsConfig::default() };
        assert_eq!(config.about_nothing(&["run_command", "read_file"]), [1]);
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert_eq!(ApprovalsConfig::default().validate(), Vec::<String>::new());
        let rule = |tool: &str, pattern: &str| ApprovalRule {
            tool: tool.into(),
            arguments: BTreeMap::from([("path".to_owned(), pattern.to_owned())]),
            ask: RuleAsk::Never,
            even_outside: false,
        };
        let config = ApprovalsConfig {
            expires_s: 0,
            credential_expires_s: 3601,
            rules: vec![rule("run_*", "notes/*"), rule("", "[a")],
            ..ApprovalsConfig::default()
        };
        let problems = config.validate();
        let keys: Vec<&str> = problems.iter().filter_map(|problem| problem.split(':').next()).collect();
        let expected = [
            "approvals.expires_s",
            "approvals.credential_expires_s",
            "approvals.rules[1].tool",
            "approvals.rules[1].arguments.path",
        ];
        assert_eq!(keys, expected);
    }
}
