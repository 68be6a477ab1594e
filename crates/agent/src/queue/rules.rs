//! The queue rules of a message: from the message, else its session, else the settings, else its channel.

use std::time::Duration;

use belay_protocol::{ChannelId, QueueDrop, QueueMode, RunOptions};

use super::QueueConfig;

/// The queue rules of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueRules {
    pub(crate) mode: QueueMode,
    /// Time without a new message after which collected ones become one turn.
    pub(crate) debounce: Duration,
    /// Maximum number of waiting messages.
    pub(crate) cap: usize,
    pub(crate) drop: QueueDrop,
}

impl QueueRules {
    /// The rules of a message; the most specific value counts. `asked`: the options of the message, completed by those
    /// of its session. `by_nature`: the default of its channel.
    pub(crate) fn of(asked: &RunOptions, channel: &ChannelId, by_nature: QueueMode, config: &QueueConfig) -> Self {
        let of_channel = || config.by_channel.get(channel.as_str()).copied();
        Self {
            mode: asked.queue.or_else(of_channel).or(config.mode).unwrap_or(by_nature),
            debounce: Duration::from_millis(asked.queue_debounce_ms.unwrap_or(config.debounce_ms)),
            cap: asked.queue_cap.unwrap_or(config.cap).max(1),
            drop: asked.queue_drop.unwrap_or(config.drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use QueueMode::{Collect, Followup, Interrupt, Steer};

    use super::*;

    #[test]
    fn the_nearest_that_names_a_mode_counts() {
        let config = |mode, by_channel: Option<QueueMode>| QueueConfig {
            mode,
            by_channel: by_channel.into_iter().map(|mode| ("one".to_owned(), mode)).collect(),
            ..QueueConfig::default()
        };
        for (message, session, by_channel, mode, by_nature, expected) in [
            (Some(Interrupt), Some(Collect), Some(Steer), Some(Followup), Followup, Interrupt),
            (None, Some(Collect), Some(Steer), Some(Followup), Followup, Collect),
            (None, None, Some(Interrupt), Some(Followup), Followup, Interrupt),
            (None, None, None, Some(Collect), Followup, Collect),
            (None, None, None, None, Followup, Followup),
            (None, None, None, None, Steer, Steer),
        ] {
            let asked = RunOptions { queue: message, ..RunOptions::default() };
            let asked = asked.over(&RunOptions { queue: session, ..RunOptions::default() });
            let rules = QueueRules::of(&asked, &"one".into(), by_nature, &config(mode, by_channel));
            assert_eq!(rules.mode, expected, "{message:?} {session:?} {by_channel:?} {mode:?} {by_nature:?}");
        }
        let elsewhere = QueueRules::of(&RunOptions::default(), &"two".into(), Steer, &config(None, Some(Collect)));
        assert_eq!(elsewhere.mode, Steer, "a channel's setting is for that channel");
    }

    #[test]
    fn a_session_may_say_how_many_wait_how_long_and_which_give_way() {
        let asked = RunOptions {
            queue_debounce_ms: Some(2000),
            queue_cap: Some(0),
            queue_drop: Some(QueueDrop::New),
            ..RunOptions::default()
        };
        let rules = QueueRules::of(&asked, &"one".into(), Steer, &QueueConfig::default());
        let expected = QueueRules { mode: Steer, debounce: Duration::from_secs(2), cap: 1, drop: QueueDrop::New };
        assert_eq!(rules, expected, "at least one may wait");
    }
}
