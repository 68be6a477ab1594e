//! Knows which models support levels of thinking, and records that a model has refused one.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use belay_protocol::Thinking;
use serde_json::{Map, Value};
use tracing::{info, warn};

use crate::catalog::Format;

/// The knowledge about a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ability {
    /// It accepts a level.
    Levels,
    /// It accepts a level, and this word for no thinking.
    LevelsAndOff(&'static str),
    /// It accepts a level, and chooses the number of tokens itself.
    Adaptive,
    /// Unknown: a level is sent if somebody requests one.
    Unknown,
    /// It accepts no level.
    Never,
}

/// OpenAI's models by the beginning of their names. Longer beginnings come before their prefixes.
///
/// Source: OpenAI API reference, "Chat completions", `reasoning_effort`; "Reasoning models". The lowest level of GPT-5
/// is `minimal`, that of later models is `none`. Thinking of the `o` series cannot be turned off.
const OPENAI: &[(&str, Ability)] = &[
    ("gpt-5-chat", Ability::Never),
    ("gpt-5.", Ability::LevelsAndOff("none")),
    ("gpt-5", Ability::LevelsAndOff("minimal")),
    ("gpt-6", Ability::LevelsAndOff("none")),
    ("gpt-oss", Ability::Levels),
    ("o1-mini", Ability::Never),
    ("o1-preview", Ability::Never),
    ("o1", Ability::Levels),
    ("o3", Ability::Levels),
    ("o4", Ability::Levels),
    ("gpt-4", Ability::Never),
    ("gpt-3.5", Ability::Never),
    ("chatgpt-4o", Ability::Never),
];

/// Anthropic's models. Source: Anthropic API reference, "Extended thinking" and "Adaptive thinking": models up to 4.5
/// require a number of tokens, models from 4.7 on refuse it, and 4.6 accepts both.
const ANTHROPIC: &[(&str, Ability)] = &[
    ("claude-3-7", Ability::Levels),
    ("claude-opus-4-6", Ability::Adaptive),
    ("claude-opus-4-7", Ability::Adaptive),
    ("claude-opus-4-8", Ability::Adaptive),
    ("claude-sonnet-4-6", Ability::Adaptive),
    ("claude-opus-4", Ability::Levels),
    ("claude-sonnet-4", Ability::Levels),
    ("claude-haiku-4", Ability::Levels),
    ("claude-2", Ability::Never),
    ("claude-3", Ability::Never),
    ("claude-instant", Ability::Never),
    ("claude-", Ability::Adaptive),
];

/// The request fields that select a level. If `llm.extra_body` sets one of them, we send no level.
const FIELDS: [&str; 4] = ["reasoning_effort", "reasoning", "thinking", "output_config"];

/// Looks up a model by its name.
pub(crate) fn ability(format: Format, model: &str, extra_body: &Map<String, Value>) -> Ability {
    let table = match format {
        Format::OpenAi => OPENAI,
        Format::Anthropic => ANTHROPIC,
        Format::Library(_) | Format::Rehearsal => return Ability::Never,
    };
    if FIELDS.iter().any(|field| extra_body.contains_key(*field)) {
        return Ability::Never;
    }
    // Aggregators prefix the name with the vendor: `openai/gpt-6-sol`.
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    table.iter().find(|(beginning, _)| name.starts_with(beginning)).map_or(Ability::Unknown, |(_, ability)| *ability)
}

/// Passes levels on to a model that accepts them.
#[derive(Debug)]
pub(crate) struct Gate {
    ability: Ability,
    /// The model has refused a request with a level and accepted it without.
    refused: AtomicBool,
    /// The log already says that it accepts none.
    told: AtomicBool,
}

impl Gate {
    /// Makes a gate for a model with this ability.
    pub(crate) fn new(ability: Ability) -> Self {
        Self { ability, refused: AtomicBool::new(false), told: AtomicBool::new(false) }
    }

    /// The level to send to the model called `name`; `None`: send none, whatever was requested.
    pub(crate) fn admit(&self, asked: Option<Thinking>, name: &str) -> Option<Thinking> {
        let level = asked.filter(|_| !self.refused.load(Relaxed))?;
        match (self.ability, level) {
            (Ability::LevelsAndOff(_), _) => Some(level),
            (Ability::Levels | Ability::Adaptive | Ability::Unknown, Thinking::Off) => None,
            (Ability::Levels | Ability::Adaptive | Ability::Unknown, _) => Some(level),
            (Ability::Never, Thinking::Off) => None,
            (Ability::Never, _) => {
                if !self.told.swap(true, Relaxed) {
                    info!(model = name, level = level.word(), "the model takes no level of thinking: none is sent");
                }
                None
            }
        }
    }

    /// Sends no level from now on, because the model called `name` refuses them.
    pub(crate) fn close(&self, name: &str) {
        if !self.refused.swap(true, Relaxed) {
            warn!(model = name, "the model refuses a level of thinking: none is sent from now on");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adapter::AdapterKind;

    fn known(format: Format, model: &str) -> Ability {
        ability(format, model, &Map::new())
    }

    #[test]
    fn a_model_is_known_by_its_name() {
        use Ability::*;
        for (model, expected) in [
            ("gpt-5", LevelsAndOff("minimal")),
            ("gpt-5-mini-2025-08-07", LevelsAndOff("minimal")),
            ("gpt-5.6-sol", LevelsAndOff("none")),
            ("openai/gpt-6-sol", LevelsAndOff("none")),
            ("gpt-5-chat-latest", Never),
            ("o3-mini", Levels),
            ("o1", Levels),
            ("o1-mini", Never),
            ("gpt-oss-20b", Levels),
            ("gpt-4.1-mini", Never),
            ("gpt-4o", Never),
            ("qwen3:8b", Unknown),
            ("claude-sonnet-4-6", Unknown),
        ] {
            assert_eq!(known(Format::OpenAi, model), expected, "{model}");
        }
        for (model, expected) in [
            ("claude-sonnet-4-6", Adaptive),
            ("claude-sonnet-4-5-20250929", Levels),
            ("claude-opus-5-5", Adaptive),
            ("Claude-Haiku-4-5-20251001", Levels),
            ("claude-3-7-sonnet-latest", Levels),
            ("claude-3-5-haiku-latest", Never),
            ("claude-2.1", Never),
            ("local", Unknown),
        ] {
            assert_eq!(known(Format::Anthropic, model), expected, "{model}");
        }
        assert_eq!(known(Format::Library(AdapterKind::Gemini), "gemini-2.5-flash"), Never);
        let own = json!({"reasoning_effort": "high"});
        assert_eq!(ability(Format::OpenAi, "o3", own.as_object().unwrap_or(&Map::new())), Never);
    }

    #[test]
    fn a_level_goes_to_whoever_may_take_it_until_it_is_refused() {
        use Thinking::*;
        for (ability, sent) in [
            (Ability::Levels, [None, None, Some(Low), Some(Medium), Some(High)]),
            (Ability::LevelsAndOff("none"), [None, Some(Off), Some(Low), Some(Medium), Some(High)]),
            (Ability::Adaptive, [None, None, Some(Low), Some(Medium), Some(High)]),
            (Ability::Unknown, [None, None, Some(Low), Some(Medium), Some(High)]),
            (Ability::Never, [None; 5]),
        ] {
            let gate = Gate::new(ability);
            let asked = [None, Some(Off), Some(Low), Some(Medium), Some(High)];
            assert_eq!(asked.map(|level| gate.admit(level, "m")), sent, "{ability:?}");
            gate.close("m");
            assert_eq!(asked.map(|level| gate.admit(level, "m")), [None; 5], "{ability:?}");
        }
    }
}
