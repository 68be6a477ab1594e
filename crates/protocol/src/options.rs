//! Options of a run: its queue mode, the thinking level of the model, the reasoning that is shown.
//!
//! A message, its session, its channel and the configuration may set an option. The first of these that does so counts.
//! [`RunOptions::over`] applies that order.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::client_tools::{ClientNote, ClientTools};
use crate::json_bytes::json_bytes;

/// The maximum length of a text that a client may add to the system prompt of one run, in bytes.
pub const EXTRA_PROMPT_MAX_BYTES: usize = 20_000;

/// The queue mode: the handling of a message that arrives while its session is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// It joins the running turn at its next step. If that is too late, it becomes a follow-up.
    #[default]
    Steer,
    /// It gets a turn of its own, after the earlier messages.
    Followup,
    /// It gets one turn together with all messages that arrive until a pause in the writing, if their answers go to the
    /// same place.
    Collect,
    /// It interrupts the running turn and is next.
    Interrupt,
}

impl QueueMode {
    /// Every mode.
    pub const ALL: &'static [Self] = &[Self::Steer, Self::Followup, Self::Collect, Self::Interrupt];

    /// The name in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Followup => "followup",
            Self::Collect => "collect",
            Self::Interrupt => "interrupt",
        }
    }

    /// The mode with this name; `follow-up` is accepted too.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase().replace('-', "");
        Self::ALL.iter().copied().find(|mode| mode.word() == word)
    }
}

/// The handling of messages beyond the limit of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueDrop {
    /// The oldest message becomes a line of a digest, with which the next turn begins.
    #[default]
    Summarize,
    /// The oldest message ends unanswered, and its sender gets a notice.
    Old,
    /// The new message is refused as "busy".
    New,
}

impl QueueDrop {
    /// Every choice.
    pub const ALL: &'static [Self] = &[Self::Summarize, Self::Old, Self::New];

    /// The name in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Summarize => "summarize",
            Self::Old => "old",
            Self::New => "new",
        }
    }

    /// The choice with this name; `summarise` is accepted too.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase().replace("summarise", "summarize");
        Self::ALL.iter().copied().find(|drop| drop.word() == word)
    }
}

/// The thinking level of a model that supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// No thinking.
    Off,
    /// A little thinking.
    Low,
    /// The level for most tasks.
    Medium,
    /// The highest level.
    High,
}

impl Thinking {
    /// Every level, in ascending order.
    pub const ALL: &'static [Self] = &[Self::Off, Self::Low, Self::Medium, Self::High];

    /// The name in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The level with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        Self::ALL.iter().copied().find(|level| level.word() == word)
    }

    /// The token limit for thinking, for providers that take a number. It is added to the limit of the answer.
    pub fn budget_tokens(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Low => 2048,
            Self::Medium => 8192,
            Self::High => 24_576,
        }
    }
}

/// The visibility of the model's reasoning for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ReasoningShown {
    /// Not shown. The run's event stream contains it all the same.
    #[default]
    Off,
    /// Shown before the answer, as a marked part of it.
    On,
    /// Shown while the model generates it, on channels that can edit messages, and removed when the answer is complete.
    Stream,
}

impl ReasoningShown {
    /// Every choice.
    pub const ALL: &'static [Self] = &[Self::Off, Self::On, Self::Stream];

    /// The name in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Stream => "stream",
        }
    }

    /// The choice with this name.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        Self::ALL.iter().copied().find(|shown| shown.word() == word)
    }
}

/// The sampling parameters that a client sets. Absent: the configuration's value, else the provider's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// The maximum number of tokens of one answer, at least 1; limited by `llm.max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Temperature in thousandths: 0 to 2000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u16>,
    /// The nucleus sampling threshold `top_p`, in thousandths: 0 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p_milli: Option<u16>,
    /// The seed of the provider's random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The texts at which an answer ends: at most [`STOP_TEXTS_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// The maximum number of texts at which an answer ends. Source: OpenAI, chat completions, `stop`.
pub const STOP_TEXTS_MAX: usize = 4;

/// The sampling parameters that the interface of a provider supports. A request with an unsupported one is refused; the
/// parameter is never dropped silently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingSupport {
    /// The supported seeds.
    pub seed: SeedSupport,
    /// Whether temperature and `top_p` are allowed with a thinking level.
    pub while_thinking: bool,
}

/// The seeds that an interface supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedSupport {
    /// None.
    No,
    /// Seeds from 0 on.
    FromZero,
    /// All integers.
    Any,
}

/// A sampling parameter that the interface of a provider does not support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedSampling {
    /// The field, with the name that clients of OpenAI use.
    pub field: &'static str,
    /// The reason and the remedy, for the client.
    pub advice: &'static str,
}

impl SamplingSupport {
    /// Support of all parameters.
    pub const ALL: Self = Self { seed: SeedSupport::Any, while_thinking: true };

    /// The first unsupported parameter. `thinks`: whether the request sets a thinking level.
    pub fn refused(&self, sampling: &Sampling, thinks: bool) -> Option<UnsupportedSampling> {
        const THINKS: &str = "it cannot be set while the model thinks; leave it out, or ask for no reasoning effort";
        let thinks = thinks && !self.while_thinking;
        let (field, advice) = match (self.seed, sampling) {
            (SeedSupport::No, Sampling { seed: Some(_), .. }) => {
                ("seed", "the interface of the configured model takes none; leave it out")
            }
            (SeedSupport::FromZero, Sampling { seed: Some(..0), .. }) => {
                ("seed", "the interface of the configured model takes none below 0")
            }
            (_, Sampling { temperature_milli: Some(_), .. }) if thinks => ("temperature", THINKS),
            (_, Sampling { top_p_milli: Some(_), .. }) if thinks => ("top_p", THINKS),
            _ => return None,
        };
        Some(UnsupportedSampling { field, advice })
    }
}

impl Sampling {
    /// The temperature in the unit of providers.
    pub fn temperature(&self) -> Option<f64> {
        self.temperature_milli.map(|milli| f64::from(milli) / 1000.0)
    }

    /// `top_p` in the unit of providers.
    pub fn top_p(&self) -> Option<f64> {
        self.top_p_milli.map(|milli| f64::from(milli) / 1000.0)
    }
}

/// The options of a run, or of all runs of a session. Absent: the next source of options decides. Stored with the run
/// or the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunOptions {
    /// The queue mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueMode>,
    /// The pause in milliseconds after which collected messages become one turn; for a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_debounce_ms: Option<u64>,
    /// The maximum number of queued messages, at least 1; for a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_cap: Option<usize>,
    /// The handling of messages beyond that limit; for a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_drop: Option<QueueDrop>,
    /// The thinking level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// The visibility of reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningShown>,
    /// Whether people see a line for each tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbose: Option<bool>,
    /// Whether the answer is plain text of the model alone: no tools, no notes, no skills or files of the workspace, and a
    /// text that is never a command. For background requests of front ends, such as titles.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub text_only: bool,
    /// Whether the answer goes on right behind an earlier text, so that the blanks at its beginning count; of a message only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
    /// The model: one of the configured ones, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The maximum working time in milliseconds, instead of `limits.active_s`. 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// A text that is added to the system prompt. At most [`EXTRA_PROMPT_MAX_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_prompt: Option<String>,
    /// The sampling parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Box<Sampling>>,
    /// The address to which the end of the run is posted; of a session also its notices. See
    /// [`CallbackClient`](crate::callback::CallbackClient).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// The tools that the client carries out itself; of a message only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_tools: Option<Arc<ClientTools>>,
    /// What the client wants to read again beside the answers of the run; of a message only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<ClientNote>,
}

impl RunOptions {
    /// Whether no option is set.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Their length in bytes, as they are kept; that of the client's tools without their form.
    pub fn bytes(&self) -> usize {
        match &self.client_tools {
            None => json_bytes(self),
            Some(tools) => tools.bytes() + json_bytes(&Self { client_tools: None, ..self.clone() }),
        }
    }

    /// These options; unset ones are taken from `base`.
    #[must_use]
    pub fn over(self, base: &Self) -> Self {
        Self {
            queue: self.queue.or(base.queue),
            queue_debounce_ms: self.queue_debounce_ms.or(base.queue_debounce_ms),
            queue_cap: self.queue_cap.or(base.queue_cap),
            queue_drop: self.queue_drop.or(base.queue_drop),
            thinking: self.thinking.or(base.thinking),
            reasoning: self.reasoning.or(base.reasoning),
            verbose: self.verbose.or(base.verbose),
            text_only: self.text_only || base.text_only,
            continues: self.continues,
            model: self.model.or_else(|| base.model.clone()),
            timeout_ms: self.timeout_ms.or(base.timeout_ms),
            extra_prompt: self.extra_prompt.or_else(|| base.extra_prompt.clone()),
            sampling: self.sampling.or_else(|| base.sampling.clone()),
            callback_url: self.callback_url.or_else(|| base.callback_url.clone()),
            client_tools: self.client_tools,
            notes: self.notes,
        }
    }

    /// The options of the run itself: the same without those of the queue.
    #[must_use]
    pub fn of_the_run(&self) -> Self {
        Self { queue: None, queue_debounce_ms: None, queue_cap: None, queue_drop: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_that_says_something_counts() {
        let message = RunOptions { verbose: Some(false), ..RunOptions::default() };
        let session = RunOptions { verbose: Some(true), thinking: Some(Thinking::High), ..RunOptions::default() };
        let both = message.over(&session);
        assert_eq!((both.verbose, both.thinking, both.queue), (Some(false), Some(Thinking::High), None));
        assert!(RunOptions::default().is_default() && !both.is_default());
        let queued = RunOptions { queue: Some(QueueMode::Collect), queue_cap: Some(3), ..both.clone() };
        assert_eq!(queued.of_the_run(), both);
    }

    #[test]
    fn words_are_read_as_they_are_written() {
        assert!(QueueMode::ALL.iter().all(|mode| QueueMode::from_word(mode.word()) == Some(*mode)));
        assert!(Thinking::ALL.iter().all(|level| Thinking::from_word(level.word()) == Some(*level)));
        assert!(ReasoningShown::ALL.iter().all(|shown| ReasoningShown::from_word(shown.word()) == Some(*shown)));
        assert!(QueueDrop::ALL.iter().all(|drop| QueueDrop::from_word(drop.word()) == Some(*drop)));
        assert_eq!(QueueMode::from_word("Follow-Up"), Some(QueueMode::Followup));
        assert_eq!(serde_json::to_string(&RunOptions::default()).ok().as_deref(), Some("{}"));
    }
}
