//! Who may talk to the bot, and from which conversations. Messages, taps and autonomous work are all checked here.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use belay_protocol::principal::Role;
use belay_protocol::{AccessDecision, ChannelAccess, SessionKey};

use super::conversation::Conversation;
use super::groups::{Addressed, Groups, Relevance};
use crate::config::TelegramConfig;

/// Allowed people by their numeric ids, and the groups that the bot serves.
pub(super) struct People {
    pub(super) allow: HashSet<u64>,
    pub(super) operators: HashSet<u64>,
    pub(super) groups: Groups,
}

impl People {
    pub(super) fn of(config: &TelegramConfig) -> Self {
        Self {
            allow: config.allow.iter().copied().collect(),
            operators: config.operators.iter().copied().collect(),
            groups: Groups::new(&config.groups),
        }
    }

    /// The role of a person on the lists; `None` if the person is on no list.
    pub(super) fn role(&self, id: u64) -> Option<Role> {
        match id {
            id if self.operators.contains(&id) => Some(Role::Operator),
            id if self.allow.contains(&id) => Some(Role::User),
            _ => None,
        }
    }
}

impl ChannelAccess for People {
    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision {
        let Some(role) = principal.parse().ok().and_then(|id| self.role(id)) else {
            let why =
                format!("{principal} is neither on the list channels.telegram.allow nor on that of the operators");
            return AccessDecision::NotAllowed(why);
        };
        let group = conversation.and_then(group_of);
        match group.filter(|group| !self.groups.serves_group(*group)) {
            Some(group) => {
                AccessDecision::NotAllowed(format!("{group} is not on the list channels.telegram.groups.allow"))
            }
            None => AccessDecision::May(role.into()),
        }
    }

    fn serves(&self, conversation: &str) -> bool {
        let Ok(Conversation { chat, .. }) = conversation.parse() else { return false };
        // A private chat has the id of its person (Bot API, Chat, `id`).
        match u64::try_from(chat) {
            Ok(person) => self.role(person).is_some(),
            Err(_) => self.groups.serves_group(chat),
        }
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        conversation.parse().ok().map(super::conversation::session)
    }
}

/// The current lists, as a snapshot that a reload of the settings swaps as a whole. Clones share it. Each message, tap
/// and access check uses the lists of its moment.
#[derive(Clone)]
pub struct AllowLists(Arc<ArcSwap<People>>);

impl AllowLists {
    /// The lists of these settings.
    pub fn of(config: &TelegramConfig) -> Self {
        People::of(config).into()
    }

    /// Replaces the lists of people and groups, and the rule for group messages. Ignores all other settings.
    pub fn replace(&self, config: &TelegramConfig) {
        self.0.store(Arc::new(People::of(config)));
    }

    /// The role of a person on the lists; `None` if the person is on no list.
    pub(super) fn role(&self, id: u64) -> Option<Role> {
        self.0.load().role(id)
    }

    /// Whether the bot serves this group.
    pub(super) fn serves_group(&self, chat: i64) -> bool {
        self.0.load().groups.serves_group(chat)
    }

    /// Decides whether a message of a group is for the bot.
    pub(super) fn relevance(&self, chat: i64, addressed: Addressed) -> Relevance {
        self.0.load().groups.relevance(chat, addressed)
    }
}

impl From<People> for AllowLists {
    fn from(people: People) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(people)))
    }
}

impl ChannelAccess for AllowLists {
    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision {
        self.0.load().standing_of(principal, conversation)
    }

    fn serves(&self, conversation: &str) -> bool {
        self.0.load().serves(conversation)
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        self.0.load().session_of(conversation)
    }
}

/// The id of a conversation's group; `None` if the conversation is private.
fn group_of(conversation: &str) -> Option<i64> {
    conversation.parse::<Conversation>().ok().map(|it| it.chat).filter(|chat| *chat < 0)
}

#[cfg(test)]
mod tests {
    use belay_protocol::Authority;

    use super::*;
    use crate::config::GroupsConfig;

    #[test]
    fn the_lists_decide_access_and_possible_deliveries() {
        let groups = GroupsConfig { allow: vec![-100], ..GroupsConfig::default() };
        let config = TelegramConfig { allow: vec![42, 7], operators: vec![7], groups, ..TelegramConfig::default() };
        let people = People::of(&config);
        let (user, operator) = (Some(Authority::Conversation), Some(Authority::Operator));
        for (principal, conversation, may, served) in [
            ("42", Some("42"), user, true),
            ("42", None, user, true),
            ("42", Some("-100"), user, true),
            ("42", Some("-100:9"), user, true),
            ("42", Some("-200"), None, false),
            ("42", Some("-200:9"), None, false),
            ("7", Some("7"), operator, true),
            ("7", Some("-200"), None, false),
            ("43", Some("43"), None, false),
            ("43", Some("-100"), None, true),
            ("", None, None, true),
            ("stdin", None, None, true),
            ("-42", None, None, true),
        ] {
            let standing = people.standing_of(principal, conversation);
            let is = match &standing {
                AccessDecision::May(place) => Some(*place),
                AccessDecision::NotAllowed(_) => None,
            };
            assert_eq!(is, may, "{principal} in {conversation:?}: {standing:?}");
            if let Some(conversation) = conversation {
                assert_eq!(people.serves(conversation), served, "{conversation}");
            }
        }
        assert!(!people.serves("telegram:42") && !people.serves(""), "no conversation of Telegram's");
    }

    #[test]
    fn replaced_lists_apply_to_all_clones() {
        let config = |allow: &[u64], groups: &[i64]| TelegramConfig {
            allow: allow.to_vec(),
            groups: GroupsConfig { allow: groups.to_vec(), ..GroupsConfig::default() },
            ..TelegramConfig::default()
        };
        let lists = AllowLists::of(&config(&[42], &[-1]));
        let shared = lists.clone();
        assert!(shared.role(42).is_some() && shared.serves_group(-1) && shared.role(7).is_none());
        lists.replace(&config(&[7], &[-2]));
        assert!(shared.role(42).is_none() && !shared.serves_group(-1) && shared.serves_group(-2));
        assert_eq!(shared.standing_of("7", None), AccessDecision::May(Authority::Conversation));
        assert!(matches!(shared.standing_of("42", None), AccessDecision::NotAllowed(_)));
        assert!(shared.serves("7") && !shared.serves("42"));
    }
}
