//! Who is let in through a channel, by its settings as they are now. Asked about work that goes on by itself: it may do what
//! whoever it works for could do when it was made, or can do now, whichever is less.
//!
//! A channel answers from the very settings by which it lets messages in. Those settings can be asked also while the channel is
//! switched off.

use crate::approval::Authority;

/// What somebody may do through a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision {
    /// They are let in, as this.
    May(Authority),
    /// They are not let in. The words say by what setting, as a sentence without its full stop.
    NotAllowed(String),
}

impl AccessDecision {
    /// What is left of a place at an earlier time: the weaker of both.
    ///
    /// # Errors
    /// They are not let in any more; why.
    pub fn at_most(self, was: Authority) -> Result<Authority, String> {
        match self {
            Self::May(is) => Ok(is.min(was)),
            Self::NotAllowed(why) => Err(why),
        }
    }
}

/// The settings of a channel that say who is let in.
pub trait ChannelAccess: Send + Sync {
    /// How a message of this principal would be let in that comes from this conversation; `None`: from any.
    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision;

    /// Whether anybody is let in from this conversation, so that it may be told something.
    fn serves(&self, conversation: &str) -> bool;
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
