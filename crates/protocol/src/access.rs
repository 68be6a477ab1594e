//! The current admission settings of a channel. Autonomous work is checked against them: it has the authority of its
//! creator at the time of creation, or the creator's authority now, whichever is weaker.
//!
//! A channel admits messages by the same settings. The settings can be read even while the channel is disabled.

use crate::approval::Authority;
use crate::ids::SessionKey;

/// The admission decision for one principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// The principal is admitted with this authority.
    May(Authority),
    /// The principal is not admitted. The text names the setting, as a sentence without its full stop.
    NotAllowed(String),
}

impl AccessDecision {
    /// The weaker of this authority and an earlier one.
    ///
    /// # Errors
    /// The principal is no longer admitted; the text is the reason.
    pub fn at_most(self, was: Authority) -> Result<Authority, String> {
        match self {
            Self::May(is) => Ok(is.min(was)),
            Self::NotAllowed(why) => Err(why),
        }
    }
}

/// The admission settings of a channel.
pub trait ChannelAccess: Send + Sync {
    /// The decision for a message of this principal from this conversation; `None`: from any conversation.
    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision;

    /// Whether any principal is admitted from this conversation, so that messages may be sent to it.
    fn serves(&self, conversation: &str) -> bool;

    /// The session of the messages from this conversation. `None`: the channel has no such conversation.
    fn session_of(&self, conversation: &str) -> Option<SessionKey>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_weaker_place_is_what_is_left() {
        use Authority::{Conversation, Operator, Token};
        let none = || Err("gone".to_owned());
        let rows = [
            (Conversation, [Ok(Conversation), Ok(Conversation), Ok(Conversation), none()]),
            (Token, [Ok(Conversation), Ok(Token), Ok(Token), none()]),
            (Operator, [Ok(Conversation), Ok(Token), Ok(Operator), none()]),
        ];
        for (was, expected) in rows {
            let now = [Conversation, Token, Operator].map(AccessDecision::May).into_iter();
            let left: Vec<_> =
                now.chain([AccessDecision::NotAllowed("gone".into())]).map(|is| is.at_most(was)).collect();
            assert_eq!(left, expected, "{was:?}");
        }
    }
}
