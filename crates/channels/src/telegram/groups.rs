//! Decides which groups the bot serves, and which of their messages are for it. Pure.
//!
//! The allowed groups and the allowed people are separate lists.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use belay_protocol::{ConversationSettings, ToolNames};

use super::conversation::Conversation;
use crate::config::{GroupAnswer, GroupOverrides, GroupsConfig};

/// The settings for groups.
pub(super) struct Groups {
    allow: HashSet<i64>,
    /// For groups without settings of their own.
    general: GroupRules,
    /// For groups and topics with settings of their own; those of a topic include those of its group.
    own: HashMap<Conversation, GroupRules>,
}

/// The settings of one group or topic.
#[derive(Clone)]
struct GroupRules {
    answer: GroupAnswer,
    context_messages: usize,
    settings: Option<Arc<ConversationSettings>>,
}

impl GroupRules {
    /// These settings with the ones that are set in `own`.
    fn with(&self, own: &GroupOverrides) -> Self {
        let before = self.settings.as_deref().cloned().unwrap_or_default();
        let settings = ConversationSettings {
            persona: own.persona.clone().or(before.persona),
            tools: own.tools.as_ref().map(|names| ToolNames(names.as_slice().into())).or(before.tools),
        };
        Self {
            answer: own.answer.unwrap_or(self.answer),
            context_messages: own.context_messages.unwrap_or(self.context_messages),
            settings: (settings != ConversationSettings::default()).then(|| Arc::new(settings)),
        }
    }
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
    /// It does not address the bot.
    NotAddressed,
    /// No, for this reason.
    No(&'static str),
    /// Undecided until the bot's user name is known.
    Undecided,
    /// The group is not on the list.
    Unlisted,
}

impl Groups {
    pub(super) fn new(config: &GroupsConfig) -> Self {
        let general = GroupRules { answer: config.answer, context_messages: config.context_messages, settings: None };
        let mut own: HashMap<Conversation, GroupRules> = HashMap::new();
        let named = config.overrides.iter().filter_map(|(key, own)| Some((key.parse::<Conversation>().ok()?, own)));
        let (groups, topics): (Vec<_>, Vec<_>) = named.partition(|(conversation, _)| conversation.topic.is_none());
        for (conversation, overrides) in groups.into_iter().chain(topics) {
            let base = own.get(&conversation.whole_chat()).unwrap_or(&general);
            let rules = base.with(overrides);
            own.insert(conversation, rules);
        }
        Self { allow: config.allow.iter().copied().collect(), general, own }
    }

    fn rules(&self, conversation: Conversation) -> &GroupRules {
        let own = self.own.get(&conversation).or_else(|| self.own.get(&conversation.whole_chat()));
        own.unwrap_or(&self.general)
    }

    /// The number of messages that are not for the bot and that the model reads with the next one that is.
    pub(super) fn context_messages(&self, conversation: Conversation) -> usize {
        self.rules(conversation).context_messages
    }

    /// The persona and the tools of a group's runs; `None`: those of the agent.
    pub(super) fn settings(&self, conversation: Conversation) -> Option<Arc<ConversationSettings>> {
        self.rules(conversation).settings.clone()
    }

    /// Whether some group or topic has settings of its own.
    pub(super) fn has_own(&self) -> bool {
        !self.own.is_empty()
    }

    /// Whether the settings list this id.
    pub(super) fn lists(&self, chat: i64) -> bool {
        self.allow.contains(&chat)
    }

    /// The line for the settings file after the group `from` has become `to`. `None`: `from` is not listed, or `to` is.
    pub(super) fn line_after_move(&self, from: i64, to: i64) -> Option<String> {
        if !self.lists(from) || self.lists(to) {
            return None;
        }
        let mut ids: Vec<i64> = self.allow.iter().map(|id| if *id == from { to } else { *id }).collect();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        let own = self.own.keys().any(|key| key.chat == from);
        let renamed =
            if own { format!(" # and in the names of overrides {to} in place of {from}") } else { String::new() };
        Some(format!("allow = {ids:?}{renamed}"))
    }

    /// Decides whether a message of a group is for the bot.
    pub(super) fn relevance(&self, conversation: Conversation, addressed: Addressed) -> Relevance {
        if !self.lists(conversation.chat) {
            return Relevance::Unlisted;
        }
        match (addressed, self.rules(conversation).answer) {
            (Addressed::Bot, _) | (Addressed::Nobody, GroupAnswer::All) => Relevance::Yes,
            (Addressed::Unknown, _) => Relevance::Undecided,
            (Addressed::Nobody, GroupAnswer::Mention) => Relevance::NotAddressed,
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
        let not_us = Relevance::NotAddressed;
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
            let groups = Groups::new(&GroupsConfig { allow: vec![-1], answer, ..GroupsConfig::default() });
            let conversation = Conversation { chat, topic: None };
            assert_eq!(groups.relevance(conversation, addressed), expected, "{answer:?} {chat} {addressed:?}");
        }
    }

    #[test]
    fn the_line_for_the_settings_has_the_new_id_in_place_of_the_old_one() {
        for (allow, own, expected) in [
            (&[-100][..], None, Some("allow = [-1009]")),
            (&[-5, -100, -7], None, Some("allow = [-5, -7, -1009]")),
            (&[-100], Some("-100:7"), Some("allow = [-1009] # and in the names of overrides -1009 in place of -100")),
            (&[-100, -1009], None, None),
            (&[-5], None, None),
        ] {
            let overrides = own.map(|key| (key.to_owned(), GroupOverrides::default())).into_iter().collect();
            let groups = Groups::new(&GroupsConfig { allow: allow.to_vec(), overrides, ..GroupsConfig::default() });
            assert_eq!(groups.line_after_move(-100, -1009).as_deref(), expected, "{allow:?}");
        }
    }

    #[test]
    fn a_topic_has_the_settings_of_its_group_and_a_group_those_of_all() {
        let config: GroupsConfig = toml::from_str(
            r#"
            allow = [-1, -2]
            context_messages = 3
            [overrides."-1"]
            answer = "all"
            persona = "a librarian"
            [overrides."-1:7"]
            tools = ["recall", "read_*"]
            context_messages = 0
            "#,
        )
        .expect("settings");
        let groups = Groups::new(&config);
        for (conversation, all, context, persona, tools) in [
            ("-1", true, 3, Some("a librarian"), None),
            ("-1:8", true, 3, Some("a librarian"), None),
            ("-1:7", true, 0, Some("a librarian"), Some(true)),
            ("-2", false, 3, None, None),
            ("-2:7", false, 3, None, None),
        ] {
            let at: Conversation = conversation.parse().expect("a conversation");
            assert_eq!(groups.relevance(at, Addressed::Nobody) == Relevance::Yes, all, "{conversation}");
            assert_eq!(groups.context_messages(at), context, "{conversation}");
            let settings = groups.settings(at);
            let settings = settings.as_deref();
            assert_eq!(settings.and_then(|own| own.persona.as_deref()), persona, "{conversation}");
            let reads = settings.and_then(|own| Some(own.tools.as_ref()?.contain("read_file")));
            assert_eq!(reads, tools, "{conversation}");
        }
        assert!(groups.has_own() && !Groups::new(&GroupsConfig::default()).has_own());
    }
}
