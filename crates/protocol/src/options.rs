//! What a message, a session, or a channel may ask of a run: how it is queued, how hard the model thinks, what is shown.
//!
//! Of several that say something, the nearest counts: the message, then its session, then the channel, then the
//! configuration. [`RunOptions::over`] is that order.

use serde::{Deserialize, Serialize};

/// Longest text that a client may add to the system prompt of one run, in bytes.
pub const EXTRA_PROMPT_MAX_BYTES: usize = 20_000;

/// What becomes of a message that arrives while its session is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueMode {
    /// It joins the running turn at its next step; where that comes too late, it is a follow-up.
    #[default]
    Steer,
    /// It gets a turn of its own, after those before it.
    Followup,
    /// All that arrive until nobody has written for a moment get one turn together, if they want their answer in the same
    /// place.
    Collect,
    /// The running turn ends now, and this one is next.
    Interrupt,
}

impl QueueMode {
    /// Every mode.
    pub const ALL: &'static [Self] = &[Self::Steer, Self::Followup, Self::Collect, Self::Interrupt];

    /// The word in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Followup => "followup",
            Self::Collect => "collect",
            Self::Interrupt => "interrupt",
        }
    }

    /// The mode of that word; `follow-up` is understood too.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase().replace('-', "");
        Self::ALL.iter().copied().find(|mode| mode.word() == word)
    }
}

/// What becomes of messages that wait when there are as many as may wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueDrop {
    /// The oldest becomes a line of a digest, which the next turn begins with.
    #[default]
    Summarize,
    /// The oldest ends unanswered, and whoever sent it is told.
    Old,
    /// The new one is answered "busy".
    New,
}

impl QueueDrop {
    /// Every choice.
    pub const ALL: &'static [Self] = &[Self::Summarize, Self::Old, Self::New];

    /// The word in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Summarize => "summarize",
            Self::Old => "old",
            Self::New => "new",
        }
    }

    /// The choice of that word; `summarise` is understood too.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase().replace("summarise", "summarize");
        Self::ALL.iter().copied().find(|drop| drop.word() == word)
    }
}

/// How hard a model thinks before it answers, where it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Thinking {
    /// Not at all.
    Off,
    /// A little.
    Low,
    /// As most tasks need it.
    Medium,
    /// As much as it can.
    High,
}

impl Thinking {
    /// Every level, from the least.
    pub const ALL: &'static [Self] = &[Self::Off, Self::Low, Self::Medium, Self::High];

    /// The word in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }

    /// The level of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        Self::ALL.iter().copied().find(|level| level.word() == word)
    }

    /// Most tokens to think for, where a provider wants a number. They come on top of those of the answer.
    pub fn budget_tokens(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Low => 2048,
            Self::Medium => 8192,
            Self::High => 24_576,
        }
    }
}

/// What people see of the model's reasoning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningShown {
    /// Nothing. Whoever follows the run's stream of events reads it all the same.
    #[default]
    Off,
    /// It is said before the answer, as a part of it that is marked.
    On,
    /// It is shown while it comes, where a channel can change what it has shown, and gone when the answer is there.
    Stream,
}

impl ReasoningShown {
    /// Every choice.
    pub const ALL: &'static [Self] = &[Self::Off, Self::On, Self::Stream];

    /// The word in settings, commands and on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::On => "on",
            Self::Stream => "stream",
        }
    }

    /// The choice of that word.
    pub fn from_word(word: &str) -> Option<Self> {
        let word = word.to_lowercase();
        Self::ALL.iter().copied().find(|shown| shown.word() == word)
    }
}

/// How the model of a run chooses its words, as a client asks for it. Absent: the configuration's, else the provider's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// Most tokens of one answer, at least 1; never more than `llm.max_tokens`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Temperature in thousandths: 0 to 2000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u16>,
    /// Share of the likeliest tokens that are chosen among, in thousandths: 0 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p_milli: Option<u16>,
    /// Seed of the provider's random numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Texts at which an answer ends: at most [`STOP_TEXTS_MAX`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// Most texts at which an answer ends. Source: OpenAI, chat completions, `stop`.
pub const STOP_TEXTS_MAX: usize = 4;

/// Which of a client's wishes an interface of a provider takes. A wish that it does not take is refused rather than left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingSupport {
    /// Which seeds it takes.
    pub seed: SeedSupport,
    /// Whether temperature and `top_p` can be set while the model thinks at a chosen level.
    pub while_thinking: bool,
}

/// Which seeds an interface takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedSupport {
    /// None.
    No,
    /// Those from 0 on.
    FromZero,
    /// Every whole number.
    Any,
}

/// A wish that a provider's interface does not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsupportedSampling {
    /// The field, as OpenAI's clients name it.
    pub field: &'static str,
    /// Why, and what to do, for the client.
    pub advice: &'static str,
}

impl SamplingSupport {
    /// It takes everything.
    pub const ALL: Self = Self { seed: SeedSupport::Any, while_thinking: true };

    /// The first wish that it does not take. `thinks`: whether the model is told to think at a level.
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
    /// The temperature, as providers take it.
    pub fn temperature(&self) -> Option<f64> {
        self.temperature_milli.map(|milli| f64::from(milli) / 1000.0)
    }

    /// The share of the likeliest tokens, as providers take it.
    pub fn top_p(&self) -> Option<f64> {
        self.top_p_milli.map(|milli| f64::from(milli) / 1000.0)
    }
}

/// What is asked of a run, or of all runs of a session. Absent: whoever is asked next says. Stored with both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunOptions {
    /// What becomes of a message that meets a busy session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueMode>,
    /// Milliseconds without a new message after which those that wait become one turn; for a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_debounce_ms: Option<u64>,
    /// Messages that may wait, at least 1; for a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_cap: Option<usize>,
    /// What becomes of them when there are more; for a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_drop: Option<QueueDrop>,
    /// How hard the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// What people see of its reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<ReasoningShown>,
    /// Whether people see a line for each tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbose: Option<bool>,
    /// Which model answers: one of the configured ones, by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Most milliseconds at work, in the place of `limits.active_s`. 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Added to the system prompt. At most [`EXTRA_PROMPT_MAX_BYTES`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_prompt: Option<String>,
    /// How its model chooses its words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling: Option<Box<Sampling>>,
}

impl RunOptions {
    /// Whether nothing is asked.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// These, and where they say nothing, those of `base`.
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
            model: self.model.or_else(|| base.model.clone()),
            timeout_ms: self.timeout_ms.or(base.timeout_ms),
            extra_prompt: self.extra_prompt.or_else(|| base.extra_prompt.clone()),
            sampling: self.sampling.or_else(|| base.sampling.clone()),
        }
    }

    /// What is asked of the run itself: the same without a word about how its message waits.
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
