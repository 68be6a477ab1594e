//! `[stops]` of the settings: the part of the stop rules that an operator decides about.
//!
//! The thresholds of the built-in rules are constants, because nobody could say of another number that it is better
//! without a set of labelled recordings. For these, a file of rules ([`RulesFile`]) takes all of [`StopsConfig`]. An
//! operator replaces a built-in rule by one of the same name.
//!
//! [`RulesFile`]: super::RulesFile

use serde::{Deserialize, Serialize};

use super::config::StopsConfig;
use super::judge::JudgeConfig;
use super::rule::Rule;
use super::tool_loops::ToolLoopConfig;

/// `[stops]`. The fields mean what those of [`StopsConfig`] do.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct StopsSettings {
    /// Whether the built-in progress rules are active.
    pub enabled: bool,
    /// Whether loops are detected.
    pub loops: bool,
    /// Strikes in one request that end the run. 1 to 100.
    pub max_strikes: u32,
    /// The tools that loop detection treats in another way.
    pub tool_loops: ToolLoopSettings,
    /// The judge model.
    pub judge: JudgeSettings,
    /// Longest duration of the closing turn, in seconds. At most 3600; 0: none.
    pub closing_turn_s: u64,
    /// The operator's own rules.
    pub rules: Vec<Rule>,
}

/// `[stops.tool_loops]`
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct ToolLoopSettings {
    /// Names of polling tools.
    pub polling_tools: Vec<String>,
    /// Names of harmless tools.
    pub harmless_tools: Vec<String>,
}

/// `[stops.judge]`
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields, default)]
pub struct JudgeSettings {
    /// The step of the first question. 0: the judge is not used.
    pub first_step: u64,
    /// The model that is asked. Absent: the model of the run.
    pub model: Option<String>,
    /// A second model that must agree. Absent: the first answer decides.
    pub second_model: Option<String>,
}

impl Default for StopsSettings {
    fn default() -> Self {
        let StopsConfig { enabled, loops, max_strikes, closing_turn_s, rules, .. } = StopsConfig::default();
        let (tool_loops, judge) = (ToolLoopSettings::default(), JudgeSettings::default());
        Self { enabled, loops, max_strikes, tool_loops, judge, closing_turn_s, rules }
    }
}

impl Default for JudgeSettings {
    fn default() -> Self {
        let JudgeConfig { first_step, model, second_model, .. } = JudgeConfig::default();
        Self { first_step, model, second_model }
    }
}

impl StopsSettings {
    /// The rules and thresholds that these settings mean.
    pub fn config(&self) -> StopsConfig {
        let Self { enabled, loops, max_strikes, tool_loops, judge, closing_turn_s, rules } = self.clone();
        StopsConfig {
            enabled,
            loops,
            max_strikes,
            tool_loops: ToolLoopConfig {
                polling_tools: tool_loops.polling_tools,
                harmless_tools: tool_loops.harmless_tools,
                ..ToolLoopConfig::default()
            },
            judge: JudgeConfig {
                enabled: judge.first_step > 0,
                first_step: judge.first_step.max(1),
                model: judge.model,
                second_model: judge.second_model,
                ..JudgeConfig::default()
            },
            closing_turn_s,
            rules,
            ..StopsConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policies::RulesFile;

    #[test]
    fn each_setting_is_the_same_in_a_file_of_rules_and_thresholds_are_only_there() {
        assert_eq!(StopsSettings::default().config(), StopsConfig::default());
        let text = "enabled = false\nloops = false\nmax_strikes = 4\nclosing_turn_s = 0\n\
                    [tool_loops]\npolling_tools = [\"look\"]\nharmless_tools = [\"note\"]\n\
                    [judge]\nfirst_step = 7\nmodel = \"a\"\nsecond_model = \"b\"\n\
                    [[rules]]\nname = \"errors_stop\"\nwhen = { consecutive_errors = 7 }\n";
        let settings: StopsSettings = toml::from_str(text).expect("settings");
        let file: RulesFile = toml::from_str(text).expect("a file of rules");
        assert_eq!(settings.config(), file.stops);
        let off: StopsSettings = toml::from_str("[judge]\nfirst_step = 0").expect("settings");
        assert!(!off.config().judge.enabled && off.config().validate().is_empty());
        for threshold in ["errors_stop = 7", "[tool_loops]\nrepeats = 8", "[judge]\nhistory = 5"] {
            assert!(toml::from_str::<StopsSettings>(threshold).is_err(), "{threshold}");
            assert!(toml::from_str::<RulesFile>(threshold).is_ok(), "{threshold}");
        }
    }
}
