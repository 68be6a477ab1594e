//! When a run ends because it makes no progress: all that a file of rules may say.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::judge::JudgeConfig;
use super::limits::RunLimits;
use super::rule::{Condition, Counter, Rule, Then};
use super::tool_loops::ToolLoopConfig;

/// Most rules of an operator. 64: each is evaluated on many events, and a person cannot keep track of more.
const MAX_RULES: usize = 64;

/// Longest text of a rule for the model, in bytes.
const MAX_SAY_BYTES: usize = 4_000;

/// Longest name of a rule, in bytes.
const MAX_RULE_NAME_BYTES: usize = 64;

/// The stop rules and their thresholds. The settings have a part of them, [`StopsSettings`].
///
/// [`StopsSettings`]: super::StopsSettings
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct StopsConfig {
    /// Whether the built-in progress rules are active. Limits and the operator's own rules are not affected.
    pub enabled: bool,
    /// Whether loops are detected: all rules that give a strike, and the judge.
    pub loops: bool,
    /// Strikes in one request that end the run. 1 to 100; 1: no recovery turn.
    pub max_strikes: u32,
    /// Loop detection in tool calls.
    pub tool_loops: ToolLoopConfig,
    /// Steps in a row in which every call failed, after which the model gets a notice. Two steps with errors that differ
    /// from those before count as one. 0, here and below: never.
    pub errors_notice: u64,
    /// Steps in a row in which every call failed, after which the run ends.
    pub errors_stop: u64,
    /// Answers in a row with neither text nor calls, after which the run ends.
    pub empty_replies: u64,
    /// Number of earlier equal answers with which the newest one is a strike. If they are only nearly equal, one more
    /// is needed.
    pub repeated_replies: u64,
    /// Calls in a row of tools that do not exist, after which the run ends.
    pub unknown_tools: u64,
    /// Calls in a row with refused arguments, after which the run ends.
    pub invalid_arguments: u64,
    /// Denials of the same call after which the run ends.
    pub approval_reasks: u64,
    /// Compactions in a row that saved less than a tenth, after which the run ends.
    pub compactions_without_gain: u64,
    /// The judge model.
    pub judge: JudgeConfig,
    /// Longest duration of the closing turn, in seconds: a run that a limit or a progress rule ends reports without
    /// tools what it has found. At most 3600; 0: none.
    pub closing_turn_s: u64,
    /// The operator's own rules.
    pub rules: Vec<Rule>,
}

impl Default for StopsConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            loops: true,
            max_strikes: 2,
            tool_loops: ToolLoopConfig::default(),
            errors_notice: 3,
            errors_stop: 5,
            empty_replies: 3,
            repeated_replies: 2,
            unknown_tools: 5,
            invalid_arguments: 5,
            approval_reasks: 3,
            compactions_without_gain: 3,
            judge: JudgeConfig::default(),
            closing_turn_s: 60,
            rules: Vec::new(),
        }
    }
}

impl StopsConfig {
    /// Returns every problem at once, each beginning with its key. [`StopsConfig::problems`] checks the rules against
    /// each other.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = self.judge.validate("stops.judge");
        problems.extend(self.tool_loops.validate("stops.tool_loops."));
        if !(1..=100).contains(&self.max_strikes) {
            problems.push("stops.max_strikes: must be between 1 and 100".into());
        }
        for (key, number) in self.thresholds() {
            if number > 1_000_000 {
                problems.push(format!("stops.{key}: must be at most 1000000; 0 disables it"));
            }
        }
        if self.closing_turn_s > 3600 {
            problems.push("stops.closing_turn_s: must be at most 3600; 0 disables it".into());
        }
        if self.rules.len() > MAX_RULES {
            problems.push(format!("stops.rules: must be at most {MAX_RULES}"));
        }
        problems.extend(self.rules.iter().enumerate().flat_map(|(index, rule)| problems_of_rule(index, rule)));
        problems
    }

    fn thresholds(&self) -> [(&'static str, u64); 8] {
        [
            ("errors_notice", self.errors_notice),
            ("errors_stop", self.errors_stop),
            ("empty_replies", self.empty_replies),
            ("repeated_replies", self.repeated_replies),
            ("unknown_tools", self.unknown_tools),
            ("invalid_arguments", self.invalid_arguments),
            ("approval_reasks", self.approval_reasks),
            ("compactions_without_gain", self.compactions_without_gain),
        ]
    }

    /// Longest duration of the closing turn. `None`: there is none.
    pub(crate) fn closing_turn(&self) -> Option<Duration> {
        (self.closing_turn_s > 0).then(|| Duration::from_secs(self.closing_turn_s))
    }

    /// The built-in progress rules that are enabled. Loops and repetitions are strikes, because a notice helps the
    /// model. The other rules end the run, because the model has already seen each failure.
    pub(crate) fn built_in_rules(&self) -> Vec<Rule> {
        if !self.enabled {
            return Vec::new();
        }
        let mut rules = vec![
            Rule::new("tool_loop", Condition::ToolLoop(true), Then::Strike),
            Rule::new("chanting", Condition::Chanting(true), Then::Strike),
        ];
        let mut add = |name: &str, number: u64, when: Condition, then| {
            if number > 0 {
                rules.push(Rule::new(name, when, then));
            }
        };
        add("repeated_replies", self.repeated_replies, Condition::RepeatedReplies(true), Then::Strike);
        for (name, number, counter, then) in [
            ("errors_notice", self.errors_notice, Counter::Errors, Then::Notice),
            ("errors_stop", self.errors_stop, Counter::Errors, Then::Stop),
            ("empty_replies", self.empty_replies, Counter::EmptyReplies, Then::Stop),
            ("unknown_tools", self.unknown_tools, Counter::UnknownTools, Then::Stop),
            ("invalid_arguments", self.invalid_arguments, Counter::InvalidArguments, Then::Stop),
            ("approval_reasks", self.approval_reasks, Counter::ApprovalReasks, Then::Stop),
            ("compactions_without_gain", self.compactions_without_gain, Counter::Compactions, Then::Stop),
        ] {
            add(name, number, Condition::AtLeast(counter, number), then);
        }
        rules
    }
}

fn problems_of_rule(index: usize, rule: &Rule) -> Vec<String> {
    let mut problems = Vec::new();
    let key = format!("stops.rules[{index}]");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if rule.name.is_empty() || rule.name.len() > MAX_RULE_NAME_BYTES || !rule.name.chars().all(is_plain) {
        problems.push(format!(
            "{key}.name: must be 1 to {MAX_RULE_NAME_BYTES} letters, digits, `_`, `-` or `.`, not {:?}",
            rule.name
        ));
    }
    if rule.say.as_ref().is_some_and(|say| say.trim().is_empty() || say.len() > MAX_SAY_BYTES) {
        problems.push(format!("{key}.say: must be text of at most {MAX_SAY_BYTES} bytes"));
    }
    if rule.say.is_some() && rule.then == Then::Stop {
        problems.push(format!(
            "{key}.say: is never shown, since the rule ends the run; write then = \"strike\" or \"notice\""
        ));
    }
    problems
}

/// A file that contains only stop rules: the content of `[stops]`, thresholds of built-in rules, and a table `[limits]`
/// if it has limits.
#[derive(Deserialize, Clone, Debug, PartialEq, Default)]
#[serde(deny_unknown_fields, default)]
pub struct RulesFile {
    /// The settings that are in the table `[stops]` of other files.
    #[serde(flatten)]
    pub stops: StopsConfig,
    /// `[limits]`; missing fields have the defaults of a run. `None`: no limits at all.
    pub limits: Option<RunLimits>,
}

impl RulesFile {
    /// The limits of the file.
    pub fn run_limits(&self) -> RunLimits {
        self.limits.clone().unwrap_or_else(RunLimits::none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::{Since, StopRules};

    #[test]
    fn the_defaults_are_fine_and_every_setting_can_be_written() {
        assert!(StopsConfig::default().validate().is_empty());
        assert_eq!(toml::from_str::<StopsConfig>("").expect("empty"), StopsConfig::default());
        let written = toml::to_string(&StopsConfig::default()).expect("writes");
        assert_eq!(toml::from_str::<StopsConfig>(&written).expect("reads back"), StopsConfig::default());
    }

    #[test]
    fn a_file_of_rules_holds_the_section_and_perhaps_limits() {
        let file: RulesFile = toml::from_str(
            "errors_stop = 7\n\
             [limits]\nactive_s = 0\nmodel_calls = 9\n\
             [judge]\nenabled = false\n\
             [[rules]]\nname = 'often'\nwhen = { any = [ { tool_calls = 20 }, { run_usd = 1 } ] }\n\
             then = 'notice'\nsince = 'notice'\nsay = 'Come to an end.'",
        )
        .expect("rules");
        assert_eq!((file.stops.errors_stop, file.stops.errors_notice, file.stops.judge.enabled), (7, 3, false));
        let rule = Rule {
            name: "often".into(),
            when: Condition::Any(vec![
                Condition::AtLeast(Counter::ToolCalls, 20),
                Condition::AtLeast(Counter::RunMicroUsd, 1_000_000),
            ]),
            then: Then::Notice,
            say: Some("Come to an end.".into()),
            since: Since::Notice,
        };
        assert_eq!(file.stops.rules, [rule]);
        assert_eq!(file.run_limits(), RunLimits { model_calls: Some(9), ..RunLimits::none() });
        assert_eq!(RulesFile::default().run_limits(), RunLimits::none());
        for bad in
            ["error_stop = 7", "[limits]\nmodel_cals = 9", "[[rules]]\nname = 'x'\nwhen = { step = 1 }", "rules = 3"]
        {
            assert!(toml::from_str::<RulesFile>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn every_problem_is_named_with_its_key() {
        let named = |name: &str| Rule::new(name, Condition::AtLeast(Counter::Steps, 1), Then::Stop);
        let bad = StopsConfig {
            max_strikes: 0,
            errors_stop: 2_000_000,
            closing_turn_s: 3601,
            judge: JudgeConfig { history: 0, ..JudgeConfig::default() },
            rules: vec![
                named(""),
                named("two words"),
                Rule { say: Some(" ".into()), ..Rule::new("x", Condition::AtLeast(Counter::Steps, 1), Then::Notice) },
                Rule { say: Some("Stop.".into()), ..named("y") },
                named("fine-1.b_c"),
            ],
            ..StopsConfig::default()
        };
        let problems = bad.validate();
        let keys: Vec<&str> = problems.iter().filter_map(|text| Some(text.split_once(": ")?.0)).collect();
        let expected = [
            "stops.judge.history",
            "stops.max_strikes",
            "stops.errors_stop",
            "stops.closing_turn_s",
            "stops.rules[0].name",
            "stops.rules[1].name",
            "stops.rules[2].say",
            "stops.rules[3].say",
        ];
        assert_eq!(keys, expected, "{problems:#?}");
        let many = StopsConfig { rules: vec![named("x"); MAX_RULES + 1], ..StopsConfig::default() };
        assert_eq!(many.validate().len(), 1);
    }

    #[test]
    fn switches_decide_which_rules_are_built_in() {
        let names = |stops: &StopsConfig| -> Vec<String> {
            StopRules::compile(stops, &RunLimits::none()).rules().map(|rule| rule.name.clone()).collect()
        };
        let every = [
            "tool_loop",
            "chanting",
            "repeated_replies",
            "errors_notice",
            "errors_stop",
            "empty_replies",
            "unknown_tools",
            "invalid_arguments",
            "approval_reasks",
            "compactions_without_gain",
        ];
        let standard = StopsConfig::default();
        assert_eq!(names(&standard), every);
        assert_eq!(names(&StopsConfig { loops: false, ..standard.clone() }), every[3..]);
        assert!(names(&StopsConfig { enabled: false, ..standard.clone() }).is_empty());
        let fewer = StopsConfig { errors_notice: 0, repeated_replies: 0, approval_reasks: 0, ..standard };
        assert_eq!(names(&fewer).len(), 7);
        assert_eq!(StopRules::none().rules().count(), 0);
        assert_eq!(StopRules::progress().limits(), &RunLimits::none());
    }

    #[test]
    fn the_judge_is_off_with_loop_detection() {
        let judged = |enabled, loops, judge| {
            let judge = JudgeConfig { enabled: judge, ..JudgeConfig::default() };
            let stops = StopsConfig { enabled, loops, judge, ..StopsConfig::default() };
            StopRules::compile(&stops, &RunLimits::none()).judge.enabled
        };
        assert!(judged(true, true, true));
        assert!(!judged(false, true, true) && !judged(true, false, true) && !judged(true, true, false));
    }

    #[test]
    fn a_closing_turn_can_be_switched_off() {
        let closing = |closing_turn_s| {
            let stops = StopsConfig { closing_turn_s, ..StopsConfig::default() };
            StopRules::compile(&stops, &RunLimits::none()).closing_turn()
        };
        assert_eq!((closing(60), closing(0)), (Some(Duration::from_secs(60)), None));
    }
}
