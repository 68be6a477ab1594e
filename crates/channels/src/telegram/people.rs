//! Who may talk to the bot, and from where. The one place that says so: messages and taps are let in by it, and work that goes
//! on by itself is asked about here.

use std::collections::HashSet;

use belay_protocol::inbound::Role;
use belay_protocol::{Admission, Standing};

use super::conversation::Conversation;
use super::groups::Groups;
use crate::config::TelegramConfig;

/// People by their numeric ids, and the groups in which the bot is served.
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

    /// What somebody on the lists may do; `None`: they are on none.
    pub(super) fn role(&self, id: u64) -> Option<Role> {
        match id {
            id if self.operators.contains(&id) => Some(Role::Operator),
            id if self.allow.contains(&id) => Some(Role::User),
            _ => None,
        }
    }
}

impl Admission for People {
    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> Standing {
        let Some(role) = principal.parse().ok().and_then(|id| self.role(id)) else {
            let why =
                format!("{principal} is neither on the list channels.telegram.allow nor on that of the operators");
            return Standing::NotAllowed(why);
        };
        let group = conversation.and_then(group_of);
        match group.filter(|group| !self.groups.serve(*group)) {
            Some(group) => Standing::NotAllowed(format!("{group} is not on the list channels.telegram.groups.allow")),
            None => Standing::May(role.into()),
        }
    }

    fn serves(&self, conversation: &str) -> bool {
        let Ok(Conversation { chat, .. }) = conversation.parse() else { return false };
        // A private chat has the id of its person. Bot API, Chat, `id`.
        match u64::try_from(chat) {
            Ok(person) => self.role(person).is_some(),
            Err(_) => self.groups.serve(chat),
        }
    }
}

/// The id of the group that a conversation is in; `None`: it is private.
fn group_of(conversation: &str) -> Option<i64> {
    conversation.parse::<Conversation>().ok().map(|it| it.chat).filter(|chat| *chat < 0)
}

#[cfg(test)]
mod tests {
    use belay_protocol::Place;

    use super::*;
    use crate::config::GroupsConfig;

    #[test]
    fn the_lists_say_who_may_do_what_and_where_something_may_be_told() {
        let groups = GroupsConfig { allow: vec![-100], ..GroupsConfig::default() };
        let config = TelegramConfig { allow: vec![42, 7], operators: vec![7], groups, ..TelegramConfig::default() };
        let people = People::of(&config);
        let (user, operator) = (Some(Place::Conversation), Some(Place::Operator));
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
                Standing::May(place) => Some(*place),
                Standing::NotAllowed(_) => None,
            };
            assert_eq!(is, may, "{principal} in {conversation:?}: {standing:?}");
            if let Some(conversation) = conversation {
                assert_eq!(people.serves(conversation), served, "{conversation}");
            }
        }
        assert!(!people.serves("telegram:42") && !people.serves(""), "no conversation of Telegram's");
    }
}
