//! Who may talk through an adapter, and from which conversations: the lists of its settings.

use std::collections::HashSet;
use std::sync::Arc;

use belay_protocol::principal::Role;
use belay_protocol::{AccessDecision, ChannelAccess, ChannelId, SessionKey};

use crate::config::AdapterConfig;

/// The lists of one adapter. Clones share them.
#[derive(Clone, Debug)]
pub struct AdapterAccess {
    channel: ChannelId,
    lists: Arc<Lists>,
}

#[derive(Debug)]
struct Lists {
    allow: HashSet<String>,
    operators: HashSet<String>,
    groups: HashSet<String>,
}

impl AdapterAccess {
    /// The lists of the adapter with this name.
    pub fn of(name: &str, config: &AdapterConfig) -> Self {
        let set = |ids: &[String]| ids.iter().cloned().collect();
        let lists = Lists { allow: set(&config.allow), operators: set(&config.operators), groups: set(&config.groups) };
        Self { channel: ChannelId::new(name), lists: Arc::new(lists) }
    }

    /// The channel.
    pub(crate) fn channel(&self) -> &ChannelId {
        &self.channel
    }

    /// The role of a person; `None`: the person is on no list.
    pub(crate) fn role(&self, person: &str) -> Option<Role> {
        match person {
            id if self.lists.operators.contains(id) => Some(Role::Operator),
            id if self.lists.allow.contains(id) => Some(Role::User),
            _ => None,
        }
    }

    /// Whether several people read this conversation, and it is served.
    pub(crate) fn is_listed_group(&self, conversation: &str) -> bool {
        self.lists.groups.contains(conversation)
    }

    /// The session of a conversation.
    pub(crate) fn session(&self, conversation: &str) -> SessionKey {
        SessionKey::new(format!("{}:{conversation}", self.channel))
    }

    /// Whether anybody may write.
    pub(crate) fn has_anybody(&self) -> bool {
        !self.lists.allow.is_empty() || !self.lists.operators.is_empty()
    }

    /// The words for somebody who is on no list.
    pub(crate) fn not_listed(&self, person: &str) -> String {
        let lists = format!("channels.adapters.{0}.allow nor on channels.adapters.{0}.operators", self.channel);
        format!("{person} is neither on the list {lists}")
    }
}

impl ChannelAccess for AdapterAccess {
    fn may_exist(&self, principal: &str) -> bool {
        crate::config::is_id(principal)
    }

    fn tells_persons_apart(&self) -> bool {
        true
    }

    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision {
        let Some(role) = self.role(principal) else { return AccessDecision::NotAllowed(self.not_listed(principal)) };
        // The private conversation of a person has the person's id.
        match conversation.filter(|id| *id != principal && !self.is_listed_group(id)) {
            Some(id) => {
                let list = format!("channels.adapters.{}.groups", self.channel);
                AccessDecision::NotAllowed(format!("{id} is not on the list {list}"))
            }
            None => AccessDecision::May(role.into()),
        }
    }

    fn serves(&self, conversation: &str) -> bool {
        self.is_listed_group(conversation) || self.role(conversation).is_some()
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        crate::config::is_id(conversation).then(|| self.session(conversation))
    }

    fn is_group(&self, session: &SessionKey) -> bool {
        let conversation =
            session.as_str().strip_prefix(&*self.channel.to_string()).and_then(|it| it.strip_prefix(':'));
        conversation.is_some_and(|id| self.is_listed_group(id))
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Authority;

    use super::*;

    #[test]
    fn people_write_in_their_own_conversation_and_in_listed_groups() {
        let list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let config = AdapterConfig {
            allow: list(&["ann"]),
            operators: list(&["olga"]),
            groups: list(&["#ops"]),
            ..AdapterConfig::default()
        };
        let access = AdapterAccess::of("irc", &config);
        for (person, conversation, may) in [
            ("ann", None, Some(Authority::Conversation)),
            ("ann", Some("ann"), Some(Authority::Conversation)),
            ("ann", Some("#ops"), Some(Authority::Conversation)),
            ("ann", Some("#other"), None),
            ("ann", Some("olga"), None), // the conversation of somebody else
            ("olga", Some("#ops"), Some(Authority::Operator)),
            ("eve", Some("#ops"), None),
            ("Ann", None, None),
        ] {
            let decision = access.standing_of(person, conversation);
            match may {
                Some(authority) => assert_eq!(decision, AccessDecision::May(authority), "{person} {conversation:?}"),
                None => assert!(matches!(decision, AccessDecision::NotAllowed(_)), "{person} {conversation:?}"),
            }
        }
        assert!(access.serves("#ops") && access.serves("ann") && !access.serves("eve"));
        let is_group = |key: &str| access.is_group(&SessionKey::new(key));
        assert!(is_group("irc:#ops") && !is_group("irc:ann") && !is_group("#ops"));
    }
}
