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
    Bot,
    /// Nobody in particular, or a person.
    Nobody,
    /// Another bot, by a command that names it.
    OtherBot,
    /// Somebody; whether it is the bot is unknown until the bot's user name is known.
    Unknown,
}

/// Whether a group message is for the bot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relevance {
    /// It is for the bot.
    Yes,
    /// No, for this reason.
    No(&'static str),
    /// Undecided until the bot's user name is known.
    Undecided,
    /// The group is not on the list.
    Unlisted,
}

impl Groups {
    pub(super) fn new(config: &GroupsConfig) -> Self {
        Self { allow: config.allow.iter().copied().collect(), answer: config.answer }
    }

    /// Whether the bot serves this group.
    pub(super) fn serves_group(&self, chat: i64) -> bool {
        self.allow.contains(&chat)
    }

    /// Decides whether a message of a group is for the bot.
    pub(super) fn relevance(&self, chat: i64, addressed: Addressed) -> Relevance {
        if !self.serves_group(chat) {
            return Relevance::Unlisted;
        }
        match (addressed, self.answer) {
            (Addressed::Bot, _) | (Addressed::Nobody, GroupAnswer::All) => Relevance::Yes,
            (Addressed::Unknown, _) => Relevance::Undecided,
            (Addressed::Nobody, GroupAnswer::Mention) => Relevance::No("does not address the bot"),
            (Addressed::OtherBot, _) => Relevance::No("a command for another bot"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_heard_where_it_is_listed_and_as_much_as_is_wanted() {
        use Addressed::{Bot, Nobody, OtherBot, Unknown};
        let not_us = Relevance::No("does not address the bot");
        let other = Relevance::No("a command for another bot");
        for (answer, chat, addressed, expected) in [
            (GroupAnswer::Mention, -1, Bot, Relevance::Yes),
            (GroupAnswer::Mention, -1, Nobody, not_us),
            (GroupAnswer::Mention, -1, OtherBot, other),
            (GroupAnswer::Mention, -1, Unknown, Relevance::Undecided),
            (GroupAnswer::All, -1, Bot, Relevance::Yes),
            (GroupAnswer::All, -1, Nobody, Relevance::Yes),
            (GroupAnswer::All, -1, OtherBot, other),
            (GroupAnswer::All, -1, Unknown, Relevance::Undecided),
            (GroupAnswer::Mention, -2, Bot, Relevance::Unlisted),
            (GroupAnswer::All, -2, Nobody, Relevance::Unlisted),
            (GroupAnswer::All, -2, Unknown, Relevance::Unlisted),
        ] {
            let groups = Groups::new(&GroupsConfig { allow: vec![-1], answer });
            assert_eq!(groups.relevance(chat, addressed), expected, "{answer:?} {chat} {addressed:?}");
        }
    }
}
