//! Settings of approvals: `[approvals]`.

use std::collections::BTreeMap;
use std::time::Duration;

use globset::Glob;
use serde::{Deserialize, Serialize};

/// Values of `[approvals]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApprovalsConfig {
    /// Time limit for the answer to an approval request, in seconds: 1 to 2 592 000 (30 days). After it, the request
    /// counts as denied.
    pub expires_s: u64,
    /// Time limit for the answer to an approval request of autonomous work, in seconds: 1 to 2 592 000 (30 days).
    pub autonomous_expires_s: u64,
    /// The person who is asked when autonomous work cannot reach its creator. `None`: nobody, and the call is refused.
    pub fallback: Option<Fallback>,
    /// The persons who may give the second approval, besides operators. The first one who did not give the first
    /// approval is asked.
    pub second: Vec<Fallback>,
    /// Time limit for entering a requested secret, in seconds.
    #[serde(skip)]
    pub credential_expires_s: u64,
    /// Time limit for the results of calls that a client carries out itself, in seconds. 1 to 86400. After it, the run
    /// ends.
    pub client_calls_expires_s: u64,
    /// How untrusted content in the conversation affects tools with external effects.
    pub untrusted_content: UntrustedContent,
    /// The first rule that matches a call decides. If no rule matches, the tool's own declaration decides.
    pub rules: Vec<ApprovalRule>,
}

impl Default for ApprovalsConfig {
    /// A day for autonomous work: nobody waits for it, and a person reads the question once a day. 30 minutes for an approval: long enough to come back from a meeting. 5 minutes for a secret: a person who has it
    /// at hand pastes it at once. 10 minutes for a client's results: longer than the clients wait for an answer themselves.
    fn default() -> Self {
        Self {
            expires_s: 1800,
            autonomous_expires_s: 86_400,
            fallback: None,
            second: Vec::new(),
            credential_expires_s: 300,
            client_calls_expires_s: 600,
            untrusted_content: UntrustedContent::Ask,
            rules: Vec::new(),
        }
    }
}

/// `approvals.fallback` and `approvals.second`: a person in a private conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fallback {
    /// The channel.
    pub channel: String,
    /// The id of the person, which is also the id of the private conversation.
    pub to: String,
}

/// How untrusted content affects tools with external effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UntrustedContent {
    /// Requires approval, also for a call that would need none otherwise.
    Ask,
    /// No effect.
    Ignore,
}

/// `[[approvals.rules]]`: a rule for the calls of some tools, or for some of their calls.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRule {
    /// The tools: a name, or a pattern with `*`.
    pub tool: String,
    /// Patterns for arguments, by argument name. All must match. A list is matched as its elements joined by spaces;
    /// `*` matches any text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// Whether a person is asked.
    pub ask: RuleAsk,
    /// Applies the rule also when untrusted content is in the conversation. Without this flag, untrusted content makes
    /// a tool with external effects require approval despite the rule.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_untrusted: bool,
    /// Whether a second person must approve the call after the first one. Nobody can approve it for longer than one call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub second: bool,
}

/// Decision of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RuleAsk {
    /// Allows the call without asking.
    Never,
    /// Asks, unless the session has answered "always" to a similar call.
    UnlessApproved,
    /// Asks each time.
    Always,
    /// Refuses the call without asking.
    Refuse,
}

/// Maximum number of persons for second approvals.
const MAX_SECOND: usize = 16;

/// Maximum number of rules. 500: each call searches them linearly.
const MAX_RULES: usize = 500;

impl ApprovalsConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=2_592_000).contains(&self.expires_s) {
            problems.push("approvals.expires_s: must be from 1 to 2592000 (30 days)".into());
        }
        if !(1..=2_592_000).contains(&self.autonomous_expires_s) {
            problems.push("approvals.autonomous_expires_s: must be from 1 to 2592000 (30 days)".into());
        }
        if self.fallback.as_ref().is_some_and(|to| to.channel.is_empty() || to.to.is_empty()) {
            problems.push("approvals.fallback: must name a channel and a person (to) in it".into());
        }
        if self.second.len() > MAX_SECOND {
            problems.push(format!("approvals.second: must be at most {MAX_SECOND} persons"));
        }
        if self.second.iter().any(|to| to.channel.is_empty() || to.to.is_empty()) {
            problems.push("approvals.second: each must name a channel and a person (to) in it".into());
        }
        if !(1..=86_400).contains(&self.client_calls_expires_s) {
            problems.push("approvals.client_calls_expires_s: must be from 1 to 86400 (a day)".into());
        }
        if self.rules.len() > MAX_RULES {
            problems.push(format!("approvals.rules: must be at most {MAX_RULES}"));
        }
        for (at, rule) in self.rules.iter().enumerate() {
            problems.extend(self.second_problem(rule).map(|why| format!("approvals.rules[{at}].second: {why}")));
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

    /// Why a rule cannot ask a second person.
    fn second_problem(&self, rule: &ApprovalRule) -> Option<&'static str> {
        match rule.ask {
            _ if !rule.second => None,
            RuleAsk::Never => Some("a call that needs no approval (ask = \"never\") cannot need a second one"),
            RuleAsk::Refuse => Some("a call that is refused (ask = \"refuse\") is approved by nobody"),
            RuleAsk::Always | RuleAsk::UnlessApproved => self.second.is_empty().then_some(
                "nobody is configured who could be the second person: set approvals.second = \
                 [{ channel = \"telegram\", to = \"ID\" }]",
            ),
        }
    }

    /// Indexes of the rules that match none of these tools.
    pub fn about_nothing(&self, tools: &[&str]) -> Vec<usize> {
        let fits_none = |rule: &ApprovalRule| {
            let pattern = Glob::new(&rule.tool).map(|glob| glob.compile_matcher());
            pattern.is_ok_and(|pattern| !tools.iter().any(|tool| pattern.is_match(tool)))
        };
        self.rules.iter().enumerate().filter(|(_, rule)| fits_none(rule)).map(|(at, _)| at).collect()
    }

    /// Rules that never decide, because an earlier rule matches every call that they match. Each pair is (index of the
    /// rule, index of the earlier one).
    pub fn never_reached(&self) -> Vec<(usize, usize)> {
        let earlier = |at: usize| self.rules[..at].iter().position(|earlier| earlier.catches_all_of(&self.rules[at]));
        (0..self.rules.len()).filter_map(|at| Some((at, earlier(at)?))).collect()
    }

    /// Time limit for the answer to an approval request.
    pub fn expires(&self) -> Duration {
        Duration::from_secs(self.expires_s)
    }

    /// Time limit for the answer to an approval request of autonomous work.
    pub fn autonomous_expires(&self) -> Duration {
        Duration::from_secs(self.autonomous_expires_s)
    }

    /// Time limit for entering a requested secret.
    pub fn credential_expires(&self) -> Duration {
        Duration::from_secs(self.credential_expires_s)
    }

    /// Time limit for the results of calls that a client carries out.
    pub fn client_calls_expire(&self) -> Duration {
        Duration::from_secs(self.client_calls_expires_s)
    }
}

impl ApprovalRule {
    /// Whether this rule matches every call that `other` matches. For some pairs of patterns this is not decided; the
    /// answer is then `false`.
    fn catches_all_of(&self, other: &Self) -> bool {
        covers(&self.tool, &other.tool)
            && self
                .arguments
                .iter()
                .all(|(name, pattern)| other.arguments.get(name).is_some_and(|narrower| covers(pattern, narrower)))
    }
}

/// Whether the pattern `wide` matches everything that `narrow` matches. May return `false` for a pair that does.
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
            allow_untrusted: false,
            second: false,
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
            allow_untrusted: false,
            second: false,
        };
        let two = |ask| ApprovalRule { ask, second: true, ..rule("run_*", "notes/*") };
        let config = ApprovalsConfig {
            expires_s: 0,
            client_calls_expires_s: 86_401,
            rules: vec![rule("run_*", "notes/*"), rule("", "[a"), two(RuleAsk::Never), two(RuleAsk::Always)],
            ..ApprovalsConfig::default()
        };
        let problems = config.validate();
        let keys: Vec<&str> = problems.iter().filter_map(|problem| problem.split(':').next()).collect();
        let expected = [
            "approvals.expires_s",
            "approvals.client_calls_expires_s",
            "approvals.rules[1].tool",
            "approvals.rules[1].arguments.path",
            "approvals.rules[2].second",
            "approvals.rules[3].second",
        ];
        assert_eq!(keys, expected);
        let person = Fallback { channel: "telegram".into(), to: "43".into() };
        let fine =
            ApprovalsConfig { second: vec![person], rules: vec![two(RuleAsk::Always)], ..ApprovalsConfig::default() };
        assert_eq!(fine.validate(), Vec::<String>::new());
    }
}
