//! Settings of a conversation for all its runs: `/queue`, `/think`, `/reasoning`, `/verbose`, `/model` and `/callback`. Pure.

use serde::{Deserialize, Serialize};

use belay_protocol::{QueueDrop, QueueMode, ReasoningShown, RunOptions, Thinking};

use crate::queue::{MAX_CAP, MAX_DEBOUNCE_MS};

/// A command about a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingCommand {
    /// The setting.
    pub setting: Setting,
    /// The requested change.
    pub change: Change,
}

/// A setting of a conversation for all its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Setting {
    /// `/queue`: handling of messages that arrive during a turn.
    Queue,
    /// `/think`: thinking effort of the model.
    Thinking,
    /// `/reasoning`: how the model's reasoning is shown.
    Reasoning,
    /// `/verbose`: whether tool calls are shown.
    Verbose,
    /// `/model`: the model.
    Model,
    /// `/callback`: the address to which ends of runs and notices are posted. For programs.
    Callback,
}

/// A change of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// Shows the setting.
    Show,
    /// Resets the setting, so that the next level decides.
    Default,
    /// Sets the values that are present here.
    To(RunOptions),
}

impl Setting {
    /// The setting with this command word.
    pub(super) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "/queue" => Self::Queue,
            "/think" => Self::Thinking,
            "/reasoning" => Self::Reasoning,
            "/verbose" => Self::Verbose,
            "/model" => Self::Model,
            "/callback" => Self::Callback,
            _ => return None,
        })
    }

    /// The usage of its command.
    pub(super) fn usage(self) -> &'static str {
        match self {
            Self::Queue => {
                "/queue steer|followup|collect|interrupt sets how messages are handled while a turn is running; \
                 optional: debounce:2s, cap:25, drop:summarize|old|new. /queue default resets it, /queue shows it."
            }
            Self::Thinking => "/think off|low|medium|high, or /think default.",
            Self::Reasoning => "/reasoning off|on|stream, or /reasoning default.",
            Self::Verbose => "/verbose on|off, or /verbose default.",
            Self::Callback => {
                "/callback URL posts the end of each run here, and each notice, to URL; /callback default ends it."
            }
            Self::Model => "/model NAME chooses a model for this conversation, /model default the configured one.",
        }
    }

    /// Parses the command; `None`: the argument is invalid.
    pub(super) fn parse(self, argument: Option<&str>) -> Option<SettingCommand> {
        let change = match argument.map(str::trim).filter(|argument| !argument.is_empty()) {
            None => Change::Show,
            Some(word) if ["default", "reset"].contains(&word.to_lowercase().as_str()) => Change::Default,
            Some(argument) => Change::To(self.options(argument)?),
        };
        Some(SettingCommand { setting: self, change })
    }

    fn options(self, argument: &str) -> Option<RunOptions> {
        let nothing = RunOptions::default();
        Some(match self {
            Self::Queue => queue(argument)?,
            Self::Thinking => RunOptions { thinking: Some(Thinking::from_word(argument)?), ..nothing },
            Self::Reasoning => RunOptions { reasoning: Some(ReasoningShown::from_word(argument)?), ..nothing },
            Self::Verbose => RunOptions { verbose: Some(on_or_off(argument)?), ..nothing },
            Self::Model => RunOptions { model: Some(argument.to_owned()), ..nothing },
            Self::Callback => RunOptions { callback_url: Some(argument.to_owned()), ..nothing },
        })
    }
}

impl SettingCommand {
    /// The options of the session after this change.
    pub(crate) fn applied_to(&self, mut options: RunOptions) -> RunOptions {
        let nothing = RunOptions::default();
        let new = match &self.change {
            Change::Show => return options,
            Change::Default => &nothing,
            Change::To(new) => new,
        };
        match self.setting {
            Setting::Queue if new.is_default() => return options.of_the_run(),
            Setting::Queue => return new.clone().over(&options), // values that are not named stay
            Setting::Thinking => options.thinking = new.thinking,
            Setting::Reasoning => options.reasoning = new.reasoning,
            Setting::Verbose => options.verbose = new.verbose,
            Setting::Model => options.model.clone_from(&new.model),
            Setting::Callback => options.callback_url.clone_from(&new.callback_url),
        }
        options
    }
}

/// Parses `[MODE] [debounce:2s] [cap:25] [drop:old]`, in any order, each at most once.
fn queue(argument: &str) -> Option<RunOptions> {
    let mut options = RunOptions::default();
    for word in argument.split_whitespace() {
        let fresh = match word.split_once([':', '=']) {
            None => options.queue.replace(QueueMode::from_word(word)?).is_none(),
            Some((key, value)) => match key.to_lowercase().as_str() {
                "debounce" => {
                    let ms = millis(value).filter(|ms| *ms <= MAX_DEBOUNCE_MS)?;
                    options.queue_debounce_ms.replace(ms).is_none()
                }
                "cap" => {
                    let cap = value.parse().ok().filter(|cap| (1..=MAX_CAP).contains(cap))?;
                    options.queue_cap.replace(cap).is_none()
                }
                "drop" => options.queue_drop.replace(QueueDrop::from_word(value)?).is_none(),
                _ => return None,
            },
        };
        if !fresh {
            return None;
        }
    }
    Some(options)
}

/// Parses `500`, `500ms`, `2s` or `1m` as milliseconds.
fn millis(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit = match text[digits..].to_lowercase().as_str() {
        "" | "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        _ => return None,
    };
    number.checked_mul(unit)
}

fn on_or_off(word: &str) -> Option<bool> {
    match word.to_lowercase().as_str() {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_of(queue: Option<QueueMode>, ms: Option<u64>, cap: Option<usize>, drop: Option<QueueDrop>) -> RunOptions {
        RunOptions { queue, queue_debounce_ms: ms, queue_cap: cap, queue_drop: drop, ..RunOptions::default() }
    }

    #[test]
    fn words_and_options_of_the_queue_are_read_in_any_order() {
        for (argument, expected) in [
            ("collect", Some(queue_of(Some(QueueMode::Collect), None, None, None))),
            (
                "Collect debounce:2s cap:25 drop:summarize",
                Some(queue_of(Some(QueueMode::Collect), Some(2000), Some(25), Some(QueueDrop::Summarize))),
            ),
            ("drop=new steer", Some(queue_of(Some(QueueMode::Steer), None, None, Some(QueueDrop::New)))),
            ("debounce:750", Some(queue_of(None, Some(750), None, None))),
            ("debounce:1m", Some(queue_of(None, Some(60_000), None, None))),
            ("debounce:2m", None),
            ("debounce:", None),
            ("debounce:99999999999999999999s", None),
            ("cap:0", None),
            ("cap:1001", None),
            ("cap:many", None),
            ("steer collect", None),
            ("cap:1 cap:2", None),
            ("loudly", None),
            ("colour:red", None),
        ] {
            assert_eq!(queue(argument), expected, "{argument}");
        }
    }

    #[test]
    fn what_a_command_does_not_name_stays() {
        let before = RunOptions { thinking: Some(Thinking::High), ..queue_of(None, Some(9), Some(3), None) };
        let after = |word: &str, argument: &str| {
            let command = Setting::of(word).and_then(|setting| setting.parse(Some(argument)));
            command.map(|command| command.applied_to(before.clone()))
        };
        for (word, argument, expected) in [
            (
                "/queue",
                "collect",
                Some(RunOptions {
                    thinking: Some(Thinking::High),
                    ..queue_of(Some(QueueMode::Collect), Some(9), Some(3), None)
                }),
            ),
            ("/queue", "default", Some(RunOptions { thinking: Some(Thinking::High), ..RunOptions::default() })),
            ("/think", "default", Some(queue_of(None, Some(9), Some(3), None))),
            ("/think", "Low", Some(RunOptions { thinking: Some(Thinking::Low), ..before.clone() })),
            ("/reasoning", "stream", Some(RunOptions { reasoning: Some(ReasoningShown::Stream), ..before.clone() })),
            ("/verbose", "on", Some(RunOptions { verbose: Some(true), ..before.clone() })),
            ("/model", "large", Some(RunOptions { model: Some("large".into()), ..before.clone() })),
            ("/verbose", "loud", None),
            ("/think", "harder", None),
        ] {
            assert_eq!(after(word, argument), expected, "{word} {argument}");
        }
        assert_eq!(Setting::Model.parse(Some("  ")).map(|command| command.change), Some(Change::Show));
    }
}
