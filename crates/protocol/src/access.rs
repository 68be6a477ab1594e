//! The current admission settings of a channel. Autonomous work is checked against them: it has the authority of its
//! creator at the time of creation, or the creator's authority now, whichever is weaker.
//!
//! A channel admits messages by the same settings. The settings can be read even while the channel is disabled.

use std::sync::Arc;

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
    /// Whether the channel can have a principal of this id. An id that it never gives, such as a name where ids are
    /// numbers, is a typing mistake. The default accepts every id.
    fn may_exist(&self, _principal: &str) -> bool {
        true
    }

    /// The decision for a message of this principal from this conversation; `None`: from any conversation.
    fn standing_of(&self, principal: &str, conversation: Option<&str>) -> AccessDecision;

    /// Whether any principal is admitted from this conversation, so that messages may be sent to it.
    fn serves(&self, conversation: &str) -> bool;

    /// The session of the messages from this conversation. `None`: the channel has no such conversation.
    fn session_of(&self, conversation: &str) -> Option<SessionKey>;

    /// Whether a principal of the channel is one person, as on a platform with accounts. `false` where everybody with a
    /// token, or at a terminal, is the same principal.
    fn tells_persons_apart(&self) -> bool {
        false
    }

    /// Whether several people read the session, as far as its key tells. The notes of its runs belong to the session
    /// then, and notes of persons are not read in it.
    fn is_group(&self, _session: &SessionKey) -> bool {
        false
    }

    /// The settings of the conversation of this session that differ from those of the agent. `None`: there are none.
    fn settings_of(&self, _session: &SessionKey) -> Option<Arc<ConversationSettings>> {
        None
    }
}

/// Settings of one conversation. They hold for its runs, and for background work that was asked for in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConversationSettings {
    /// The persona, in place of that of the agent.
    pub persona: Option<String>,
    /// The tools of its runs. `None`: all tools.
    pub tools: Option<ToolNames>,
}

/// A list of names of tools, in which `*` fits any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolNames(pub Arc<[String]>);

impl ToolNames {
    /// Whether a name or a pattern of the list fits this tool.
    pub fn contain(&self, tool: &str) -> bool {
        self.0.iter().any(|pattern| fits(pattern, tool))
    }
}

/// Whether a pattern fits a name. `*` fits any characters, and none.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(head) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let tail = parts.pop().unwrap_or_default();
    for part in parts {
        // The earliest position leaves the most for the parts that follow.
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(tail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_fits_any_characters() {
        for (pattern, name, fit) in [
            ("recall", "recall", true),
            ("recall", "recall_all", false),
            ("*", "recall", true),
            ("*", "", true),
            ("github_*", "github_search", true),
            ("github_*", "github_", true),
            ("github_*", "gitlab_search", false),
            ("*_file", "read_file", true),
            ("*_file", "read_files", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a*a", "a", false),
            ("", "a", false),
        ] {
            let names = ToolNames(Arc::new(["x".to_owned(), pattern.to_owned()]));
            assert_eq!(names.contain(name), fit, "{pattern} {name}");
        }
    }

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
