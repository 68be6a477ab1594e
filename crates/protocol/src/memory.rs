//! The owners of notes.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::ids::{ChannelId, SessionKey};

/// The owner of notes. Only runs of this owner read them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum MemoryOwner {
    /// A person, or a program: the notes are the same in all its sessions, except in groups.
    Person {
        /// Its channel.
        channel: ChannelId,
        /// Its id, unique within the channel.
        id: Arc<str>,
    },
    /// A group, or a session with notes of its own.
    Group {
        /// The session of the group.
        session: SessionKey,
    },
}

impl MemoryOwner {
    /// Parses the name of a person: `CHANNEL:ID`.
    ///
    /// # Errors
    /// The problem, for people.
    pub fn person(name: &str) -> Result<Self, String> {
        match name.split_once(':') {
            Some((channel, id)) if !channel.is_empty() && !id.is_empty() => {
                Ok(Self::Person { channel: channel.into(), id: id.into() })
            }
            _ => Err(format!("{name:?} is not a person; write CHANNEL:ID, such as telegram:42")),
        }
    }
}

impl fmt::Display for MemoryOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Person { channel, id } => write!(f, "person {channel}:{id}"),
            Self::Group { session } => write!(f, "group {session}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_is_named_with_its_channel() {
        let owner = |channel: &str, id: &str| MemoryOwner::Person { channel: channel.into(), id: id.into() };
        for (name, expected) in [
            ("telegram:42", Some(owner("telegram", "42"))),
            ("http:a:b", Some(owner("http", "a:b"))),
            ("42", None),
            (":42", None),
            ("telegram:", None),
        ] {
            assert_eq!(MemoryOwner::person(name).ok(), expected, "{name}");
        }
    }
}
