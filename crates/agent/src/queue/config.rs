//! Settings of `[queue]`.

use std::collections::BTreeMap;
use std::time::Duration;

use belay_protocol::{QueueDrop, QueueMode};
use serde::{Deserialize, Serialize};

/// Values of `[queue]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QueueConfig {
    /// Handling of a message that arrives during a turn. Absent: the default of its channel.
    pub mode: Option<QueueMode>,
    /// The same for single channels, by name.
    pub by_channel: BTreeMap<String, QueueMode>,
    /// Time without a new message after which collected ones become one turn, in milliseconds. 0: at once.
    /// A conversation may choose another one.
    #[serde(skip)]
    pub debounce_ms: u64,
    /// Maximum number of messages of one session that wait during a turn. 1 to 1000.
    pub cap: usize,
    /// Handling of messages beyond `cap`.
    pub drop: QueueDrop,
    /// Maximum number of accepted and unanswered messages of one sender, in all sessions together. At least 1.
    pub max_messages_per_sender: usize,
    /// Maximum bytes of these messages. Absent: a quarter of `max_bytes`.
    #[serde(skip)]
    pub max_bytes_per_sender: Option<u64>,
    /// Maximum number of accepted and unanswered messages of all senders together, including those whose run is paused
    /// on an approval request. At least 1.
    pub max_messages: usize,
    /// Maximum bytes of these messages. At least 1.
    pub max_bytes: u64,
    /// Silence of a running run after which a warning is logged, in seconds. 0: never.
    #[serde(skip)]
    pub stuck_warn_s: u64,
    /// Silence of a running run after which it is ended, in seconds. 0: never.
    pub stuck_after_s: u64,
}

impl Default for QueueConfig {
    /// 500 ms: a person who sends a thought in pieces is usually done by then, and the delay is hardly noticeable.
    /// Silence of 600 s: longer than a model may be silent in a stream, and than a tool may run by default.
    fn default() -> Self {
        Self {
            mode: None,
            by_channel: BTreeMap::new(),
            debounce_ms: 500,
            cap: 20,
            drop: QueueDrop::Summarize,
            max_messages_per_sender: 1000,
            max_bytes_per_sender: None,
            max_messages: 10_000,
            max_bytes: 256 << 20,
            stuck_warn_s: 120,
            stuck_after_s: 600,
        }
    }
}

/// Limits of accepted and unanswered messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Messages of one sender.
    pub(crate) messages_per_sender: usize,
    /// Bytes of one sender.
    pub(crate) bytes_per_sender: u64,
    /// Messages of all senders together.
    pub(crate) messages: usize,
    /// Bytes of all senders together.
    pub(crate) bytes: u64,
}

/// Maximum of `cap`, in the settings and in a conversation.
pub(crate) const MAX_CAP: usize = 1000;
/// Maximum of `debounce_ms` in a conversation. One minute: a longer pause does not belong to one
/// thought.
pub(crate) const MAX_DEBOUNCE_MS: u64 = 60_000;
/// Maximum detectable silence, in seconds: a day.
const MAX_SILENCE_S: u64 = 86_400;

impl QueueConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=MAX_CAP).contains(&self.cap) {
            problems.push(format!("queue.cap: must be between 1 and {MAX_CAP}"));
        }
        let bounds = [
            ("max_messages_per_sender", self.max_messages_per_sender as u64),
            ("max_messages", self.max_messages as u64),
            ("max_bytes", self.max_bytes),
        ];
        for (key, _) in bounds.into_iter().filter(|(_, value)| *value == 0) {
            problems.push(format!("queue.{key}: must be at least 1"));
        }
        if self.stuck_after_s > MAX_SILENCE_S {
            problems.push(format!("queue.stuck_after_s: must be at most {MAX_SILENCE_S}"));
        }
        problems
    }

    /// The limits of accepted and unanswered messages. A quarter of the bytes: no single sender can fill all the space.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds {
            messages_per_sender: self.max_messages_per_sender,
            bytes_per_sender: self.max_bytes_per_sender.unwrap_or_else(|| (self.max_bytes / 4).max(1)),
            messages: self.max_messages,
            bytes: self.max_bytes,
        }
    }

    /// Silence after which a warning is logged.
    pub fn stuck_warn(&self) -> Option<Duration> {
        (self.stuck_warn_s > 0).then(|| Duration::from_secs(self.stuck_warn_s))
    }

    /// Silence after which a run is ended.
    pub fn stuck_after(&self) -> Option<Duration> {
        (self.stuck_after_s > 0).then(|| Duration::from_secs(self.stuck_after_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_named_with_its_key() {
        assert!(QueueConfig::default().validate().is_empty());
        let bad = QueueConfig {
            max_messages_per_sender: 0,
            cap: 0,
            stuck_after_s: u64::MAX,
            max_messages: 0,
            max_bytes: 0,
            ..QueueConfig::default()
        };
        let keys: Vec<String> =
            bad.validate().iter().filter_map(|problem| Some(problem.split_once(':')?.0.to_owned())).collect();
        let expected = [
            "queue.cap",
            "queue.max_messages_per_sender",
            "queue.max_messages",
            "queue.max_bytes",
            "queue.stuck_after_s",
        ];
        assert_eq!(keys, expected);
        let never = QueueConfig { stuck_warn_s: 0, stuck_after_s: 0, ..QueueConfig::default() };
        assert_eq!((never.stuck_warn(), never.stuck_after()), (None, None));
    }
}
