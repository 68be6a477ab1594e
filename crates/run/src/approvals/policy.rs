//! Decides which calls need approval. Pure.

use belay_protocol::{Ask, CallPreview, Effect, ToolSpec, WorkGrant};
use globset::{Glob, GlobMatcher};
use serde_json::{Map, Value};

use super::config::{ApprovalRule, ApprovalsConfig, RuleAsk, UntrustedContent};

/// The approval rules, compiled.
pub struct Policy {
    rules: Vec<Rule>,
    untrusted_content: UntrustedContent,
}

struct Rule {
    at: usize,
    tool: GlobMatcher,
    arguments: Vec<(String, GlobMatcher)>,
    ask: RuleAsk,
    allow_untrusted: bool,
    second: bool,
}

/// A call to be checked.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    /// The declaration of the tool.
    pub spec: &'a ToolSpec,
    /// The arguments of the call.
    pub arguments: &'a Map<String, Value>,
    pub(crate) weight: &'a CallPreview,
    /// Untrusted content in the run's context.
    pub untrusted: Untrusted,
}

/// The kind of untrusted content in a run's context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Untrusted {
    /// None.
    Nothing,
    /// Only names and descriptions of tools of MCP servers. They are bounded, cleaned and pinned, and the operator has
    /// accepted them. So they do not make a call require approval that the operator has exempted from it.
    Descriptions,
    /// Content that has entered the conversation, or the conversation of any run of the tree: a web page, the answer of
    /// another program.
    Content,
}

/// Requirement for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// No approval.
    Nobody,
    /// Approval by a person.
    Yes {
        /// Whether an earlier "always" counts as approval.
        unless_approved: bool,
        /// The reason, for the person.
        why: String,
        /// Whether two persons must approve.
        second: bool,
    },
    /// The call is refused. The text is the reason.
    Refused(String),
}

impl Policy {
    /// Compiles the rules. An invalid pattern, which `validate` reports, matches nothing.
    pub fn compile(config: &ApprovalsConfig) -> Self {
        let rules = config.rules.iter().enumerate().filter_map(|(at, rule)| Rule::compile(at, rule)).collect();
        Self { rules, untrusted_content: config.untrusted_content }
    }

    /// The requirement for this call.
    pub fn need(&self, case: Case<'_>) -> Need {
        self.need_with(case, &[])
    }

    /// The requirement for a call of work with these grants. A grant counts as a rule that asks nobody. It overrides
    /// neither a rule that refuses the call, nor one that needs two persons, nor the effect of untrusted content.
    pub fn need_with(&self, case: Case<'_>, grants: &[WorkGrant]) -> Need {
        let rule = self.rules.iter().find(|rule| rule.fits(case));
        let is_strict = rule.is_some_and(|rule| rule.ask == RuleAsk::Refuse || rule.second);
        let is_granted = !is_strict && grants.iter().any(|grant| Rule::of(grant).is_some_and(|rule| rule.fits(case)));
        let (mut ask, mut why) = match rule.map(|rule| (rule.ask, rule.at)) {
            _ if is_granted => (Ask::Never, String::new()),
            Some((RuleAsk::Refuse, at)) => {
                return Need::Refused(format!("approvals.rules[{at}] of the configuration refuses this call"));
            }
            Some((_, at)) if rule.is_some_and(|rule| rule.second) => {
                let why = format!("approvals.rules[{at}] of the configuration wants two persons to approve it");
                return Need::Yes { unless_approved: false, why, second: true };
            }
            Some((RuleAsk::Never, _)) => (Ask::Never, String::new()),
            Some((RuleAsk::UnlessApproved, at)) => {
                (Ask::UnlessApproved, format!("approvals.rules[{at}] of the configuration says so"))
            }
            Some((RuleAsk::Always, at)) => (Ask::Always, format!("approvals.rules[{at}] of the configuration says so")),
            // The preview of this call can only make the requirement stricter.
            None => (
                case.spec.approval.max(case.weight.ask.unwrap_or(Ask::Never)),
                format!("{} asks before it acts", case.spec.name),
            ),
        };
        let exempt =
            self.untrusted_content == UntrustedContent::Ignore || rule.is_some_and(|rule| rule.allow_untrusted);
        // Configured: by a rule, or by `approval` of an MCP server, which is "never" only if the operator sets it.
        let chosen = is_granted || rule.is_some() || case.spec.server.is_some();
        let because = match case.untrusted {
            Untrusted::Content => {
                Some("untrusted content is in this conversation, and this tool has an external effect")
            }
            Untrusted::Descriptions if !chosen => {
                Some("MCP servers describe tools of this conversation, and this tool has an external effect")
            }
            Untrusted::Descriptions | Untrusted::Nothing => None,
        };
        let effect = case.weight.effect.unwrap_or(case.spec.effect);
        if let (Some(because), Effect::External, false, Ask::Never) = (because, effect, exempt, ask) {
            ask = Ask::UnlessApproved;
            why = because.to_owned();
        }
        if case.weight.must_ask {
            ask = Ask::Always;
            why = "its effect goes on after this turn".to_owned();
        }
        match ask {
            Ask::Never => Need::Nobody,
            Ask::UnlessApproved => Need::Yes { unless_approved: true, why, second: false },
            Ask::Always => Need::Yes { unless_approved: false, why, second: false },
        }
    }
}

impl Rule {
    fn compile(at: usize, rule: &ApprovalRule) -> Option<Self> {
        let matcher = |pattern: &str| Glob::new(pattern).ok().map(|glob| glob.compile_matcher());
        let arguments =
            rule.arguments.iter().map(|(name, pattern)| Some((name.clone(), matcher(pattern)?))).collect::<Option<_>>();
        let ApprovalRule { ask, allow_untrusted, second, .. } = *rule;
        Some(Self { at, tool: matcher(&rule.tool)?, arguments: arguments?, ask, allow_untrusted, second })
    }

    /// The rule of a grant. Its tool is a name, not a pattern.
    fn of(grant: &WorkGrant) -> Option<Self> {
        let rule = ApprovalRule {
            tool: grant.tool.clone(),
            arguments: grant.arguments.clone(),
            ask: RuleAsk::Never,
            allow_untrusted: false,
            second: false,
        };
        Self::compile(0, &rule)
    }

    fn fits(&self, case: Case<'_>) -> bool {
        self.tool.is_match(&case.spec.name)
            && self.arguments.iter().all(|(name, pattern)| {
                case.arguments.get(name).and_then(text_of).is_some_and(|text| pattern.is_match(text))
            })
    }
}

/// The text of an argument that patterns are matched against.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Array(parts) => parts.iter().map(text_of).collect::<Option<Vec<_>>>().map(|parts| parts.join(" ")),
        Value::Object(_) | Value::Null => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Tool, argument patterns, decision of the rule, `allow_untrusted`.
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)], RuleAsk, bool);

    fn policy(rules: &[Row<'_>]) -> Policy {
        let rules = rules.iter().map(|(tool, arguments, ask, allow_untrusted)| ApprovalRule {
            tool: (*tool).into(),
            arguments: arguments.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>(),
            ask: *ask,
            allow_untrusted: *allow_untrusted,
            second: false,
        });
        Policy::compile(&ApprovalsConfig { rules: rules.collect(), ..ApprovalsConfig::default() })
    }

    fn word(need: &Need) -> &'static str {
        match need {
            Need::Nobody => "nobody",
            Need::Yes { unless_approved: true, .. } => "unless_approved",
            Need::Yes { .. } => "always",
            Need::Refused(_) => "refused",
        }
    }

    #[test]
    fn the_first_rule_that_fits_decides_and_the_tool_where_none_does() {
        let rules = policy(&[
            ("run_command", &[("argv", "git status*")], RuleAsk::Never, true),
            ("run_command", &[("argv", "git push*")], RuleAsk::Refuse, false),
            ("run_*", &[], RuleAsk::Always, false),
            ("fetch_url", &[("url", "https://example.org/*")], RuleAsk::Never, false),
        ]);
        let own = |name: &str, approval, ask| (name.to_owned(), approval, ask);
        let spec = |name: String, approval| ToolSpec {
            effect: Effect::External,
            approval,
            ..ToolSpec::new(name, "", json!({}))
        };
        for ((name, approval, previews), arguments, untrusted_content, expected) in [
            (own("run_command", Ask::Always, None), json!({"argv": ["git", "status", "-s"]}), false, "nobody"),
            (own("run_command", Ask::Always, None), json!({"argv": ["git", "status"]}), true, "nobody"),
            (own("run_command", Ask::Never, None), json!({"argv": ["git", "push"]}), false, "refused"),
            (own("run_command", Ask::Never, None), json!({"argv": ["ls"]}), false, "always"),
            (own("run_shell", Ask::Never, None), json!({"script": "ls"}), false, "always"),
            (own("fetch_url", Ask::Never, None), json!({"url": "https://example.org/a"}), false, "nobody"),
            (own("fetch_url", Ask::Never, None), json!({"url": "https://example.org/a"}), true, "unless_approved"),
            (own("fetch_url", Ask::Never, None), json!({"url": "https://example.com/a"}), false, "nobody"),
            (own("write_file", Ask::UnlessApproved, None), json!({}), false, "unless_approved"),
            (own("write_file", Ask::UnlessApproved, Some(Ask::Always)), json!({}), false, "always"),
            (own("write_file", Ask::Always, Some(Ask::Never)), json!({}), false, "always"),
        ] {
            let weight = CallPreview { ask: previews, ..CallPreview::default() };
            let spec = spec(name, approval);
            let arguments = arguments.as_object().expect("an object");
            let untrusted = if untrusted_content { Untrusted::Content } else { Untrusted::Nothing };
            let need = rules.need(Case { spec: &spec, arguments, weight: &weight, untrusted });
            assert_eq!(word(&need), expected, "{} {arguments:?} untrusted={untrusted_content}", spec.name);
        }
    }

    #[test]
    fn a_rule_for_two_persons_is_not_weakened_by_a_grant_and_not_by_an_earlier_refusal() {
        let rule = |tool: &str, ask, second| ApprovalRule {
            tool: tool.into(),
            arguments: BTreeMap::new(),
            ask,
            allow_untrusted: true,
            second,
        };
        let rules = vec![
            rule("delete_all", RuleAsk::Refuse, false),
            rule("delete_*", RuleAsk::UnlessApproved, true),
            rule("*", RuleAsk::UnlessApproved, false),
        ];
        let policy = Policy::compile(&ApprovalsConfig { rules, ..ApprovalsConfig::default() });
        let (weight, arguments) = (CallPreview::default(), Map::new());
        for (tool, expected) in
            [("delete_all", (false, "refused")), ("delete_one", (true, "always")), ("read_one", (false, "nobody"))]
        {
            let spec = ToolSpec::new(tool, "", json!({}));
            let case = Case { spec: &spec, arguments: &arguments, weight: &weight, untrusted: Untrusted::Nothing };
            let grant = WorkGrant { tool: tool.into(), arguments: BTreeMap::new(), revoked: false };
            let need = policy.need_with(case, &[grant]);
            let second = matches!(need, Need::Yes { second: true, .. });
            assert_eq!((second, word(&need)), expected, "{tool}");
        }
    }

    #[test]
    fn words_of_the_outside_concern_tools_that_reach_outside_alone() {
        for (untrusted_content, effect, expected) in [
            (UntrustedContent::Ask, Effect::External, "unless_approved"),
            (UntrustedContent::Ask, Effect::Write, "nobody"),
            (UntrustedContent::Ask, Effect::Read, "nobody"),
            (UntrustedContent::Ignore, Effect::External, "nobody"),
        ] {
            let policy = Policy::compile(&ApprovalsConfig { untrusted_content, ..ApprovalsConfig::default() });
            let spec = ToolSpec { effect, ..ToolSpec::new("t", "", json!({})) };
            let (weight, arguments) = (CallPreview::default(), Map::new());
            let untrusted = Untrusted::Content;
            let need = policy.need(Case { spec: &spec, arguments: &arguments, weight: &weight, untrusted });
            assert_eq!(word(&need), expected, "{untrusted:?} {effect:?}");
        }
    }

    #[test]
    fn descriptions_of_mcp_tools_do_not_overrule_what_the_operator_says_and_content_does() {
        let rules = policy(&[("run_command", &[], RuleAsk::Never, false)]);
        for (tool, server, untrusted, expected) in [
            ("fetch_url", None, Untrusted::Nothing, "nobody"),
            // No rule allows this tool without approval.
            ("fetch_url", None, Untrusted::Descriptions, "unless_approved"),
            ("run_command", None, Untrusted::Descriptions, "nobody"),
            ("run_command", None, Untrusted::Content, "unless_approved"),
            ("mcp_files_send", Some("files"), Untrusted::Descriptions, "nobody"),
            ("mcp_files_send", Some("files"), Untrusted::Content, "unless_approved"),
        ] {
            let server = server.map(str::to_owned);
            let spec = ToolSpec { effect: Effect::External, server, ..ToolSpec::new(tool, "", json!({})) };
            let (weight, arguments) = (CallPreview::default(), Map::new());
            let need = rules.need(Case { spec: &spec, arguments: &arguments, weight: &weight, untrusted });
            assert_eq!(word(&need), expected, "{tool} {untrusted:?}");
        }
    }
}
