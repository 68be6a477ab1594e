//! Decides which groups the bot serves, and which of their messages are for it. Pure.
//!
//! The allowed groups and the allowed people are separate lists.

use std::collections::HashSet;

use crate::config::{GroupAnswer, GroupsConfig};

/// The settings for groups.
pub(super) struct Groups {
    allow: HashSet<i64>,
    answer: GroupAnswer,
}

/// Whom a group message addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressed {
    /// The bot.
    Us,
    /// Nobody in particular, or a person.
    Nobody,
    /// Another bot, by a command that names it.
    OtherBot,
    /// Somebody; whether it is the bot is unknown until the bot's user name is known.
    Perhaps,
}

/// Whether a group message is for the bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is for the bot.
    Yes,
    /// No, for this reason.
    No(&'static str),
    /// Undecided until the bot's user name is known.
    NotYet,
    /// The group is not on the list.
    Unlisted,
}

impl Groups {
    pub(super) fn new(config: &GroupsConfig) -> Self {
        Self { allow: config.allow.iter().copied().collect(), answer: config.answer }
    }

    /// Whether the bot serves this group.
    pub(super) fn serve(&self, chat: i64) -> bool {
        self.allow.contains(&chat)
    }

    /// Decides whether a message of a group is for the bot.
    pub(super) fn hear(&self, chat: i64, addressed: Addressed) -> Heard {
        if !self.serve(chat) {
            return Heard::Unlisted;
        }
        match (addressed, self.answer) {
            (Addressed::Us, _) | (Addressed::Nobody, GroupAnswer::All) => Heard::Yes,
            (Addressed::Perhaps, _) => Heard::NotYet,
            (Addressed::Nobody, GroupAnswer::Mention) => Heard::No("does not address the bot"),
            (Addressed::OtherBot, _) => Heard::No("a command for another bot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_heard_where_it_is_listed_and_as_much_as_is_wanted() {
        use Addressed::{Nobody, OtherBot, Perhaps, Us};
        let not_us = Heard::No("does not address the bot");
        let other = Heard::No("a command for another bot");
        for (answer, chat, addressed, expected) in [
            (GroupAnswer::Mention, -1, Us, Heard::Yes),
            (GroupAnswer::Mention, -1, Nobody, not_us),
            (GroupAnswer::Mention, -1, OtherBot, other),
            (GroupAnswer::Mention, -1, Perhaps, Heard::NotYet),
            (GroupAnswer::All, -1, Us, Heard::Yes),
            (GroupAnswer::All, -1, Nobody, Heard::Yes),
            (GroupAnswer::All, -1, OtherBot, other),
            (GroupAnswer::All, -1, Perhaps, Heard::NotYet),
            (GroupAnswer::Mention, -2, Us, Heard::Unlisted),
            (GroupAnswer::All, -2, Nobody, Heard::Unlisted),
            (GroupAnswer::All, -2, Perhaps, Heard::Unlisted),
        ] {
            let groups = Groups::new(&GroupsConfig { allow: vec![-1], answer });
            assert_eq!(groups.hear(chat, addressed), expected, "{answer:?} {chat} {addressed:?}");
        }
    }
}
