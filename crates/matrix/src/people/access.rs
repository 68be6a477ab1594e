//! The admission of people and rooms, for the agent.

use belay_protocol::{AccessDecision, ChannelAccess, SessionKey};

use super::{MatrixPeople, followed};
use crate::NAME;
use crate::config::{is_room, is_user};

impl ChannelAccess for MatrixPeople {
    fn may_exist(&self, principal: &str) -> bool {
        is_user(principal)
    }

    fn tells_persons_apart(&self) -> bool {
        true
    }

    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision {
        let Some(role) = self.state().role(principal) else {
            let lists = "is neither on the list channels.matrix.allow nor on that of the operators";
            return AccessDecision::NotAllowed(format!("{principal} {lists}"));
        };
        match conversation.filter(|room| !self.serves(room)) {
            Some(room) => AccessDecision::NotAllowed(format!("{room} is not on the list channels.matrix.rooms")),
            None => AccessDecision::May(role.into()),
        }
    }

    fn serves(&self, conversation: &str) -> bool {
        let state = self.state();
        let current = followed(&state.next, conversation).last().unwrap_or(conversation);
        let is_crowded = state.crowded.get(current).copied().unwrap_or_default();
        is_room(conversation) && (state.is_listed(conversation) || !is_crowded)
    }

    fn session_of(&self, conversation: &str) -> Option<SessionKey> {
        is_room(conversation).then(|| SessionKey::new(format!("{NAME}:{}", self.conversation(conversation))))
    }

    fn is_group(&self, session: &SessionKey) -> bool {
        let room = session.as_str().strip_prefix(NAME).and_then(|rest| rest.strip_prefix(':'));
        room.is_some_and(|room| self.state().is_listed(room))
    }
}
