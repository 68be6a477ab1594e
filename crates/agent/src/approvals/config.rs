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

    /// How long a question waits.
    pub fn expires(&self) -> Duration {
        Duration::from_secs(self.expires_s)
    }

    /// How long a secret is waited for.
    pub fn credential_expires(&self) -> Duration {
        Duration::from_secs(self.credential_expires_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
