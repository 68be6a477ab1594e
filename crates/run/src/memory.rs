//! The owner of a run's notes.
//!
//! The notes of a person are never read in a group, nor in work whose result goes to the group that asked for it.

use std::sync::Arc;

use belay_protocol::{Audience, ChannelId, MemoryOwner, SessionKey};

use crate::config::MemoryConfig;
use crate::live::RunOrigin;
use crate::request::RunRequest;
use crate::rights::Channels;

/// Determines the owners of notes.
pub struct MemoryRules {
    /// Settings of `[memory]`.
    pub config: MemoryConfig,
    /// The configured channels, by name.
    pub channels: Channels,
}

impl MemoryRules {
    /// The owner of the notes of this run.
    pub fn owner(&self, origin: &RunOrigin, request: &RunRequest) -> MemoryOwner {
        self.owner_in(origin, &request.session, request.audience)
    }

    /// The owner of the notes of work with this origin, in a session with these readers.
    pub fn owner_in(&self, origin: &RunOrigin, session: &SessionKey, audience: Audience) -> MemoryOwner {
        // Autonomous work has a session of its own. It belongs to the session in which it was asked for.
        let (channel, session) = match origin.source.as_deref() {
            Some(source) => (&source.channel, &source.asked_in),
            None => (&origin.channel, session),
        };
        if audience == Audience::Group || self.is_apart(channel, session) {
            return MemoryOwner::Group { session: session.clone() };
        }
        MemoryOwner::Person { channel: channel.clone(), id: Arc::clone(&origin.principal) }
    }

    /// Whether the session has notes of its own: it is a group, or the settings say so for its channel.
    fn is_apart(&self, channel: &ChannelId, session: &SessionKey) -> bool {
        self.config.per_session.iter().any(|name| name == channel.as_str())
            || self
                .channels
                .get(channel)
                .is_some_and(|channel| channel.admission().is_some_and(|access| access.is_group(session)))
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{JobId, Work, WorkSource};

    use super::*;

    fn rules(per_session: &[&str]) -> MemoryRules {
        let per_session = per_session.iter().map(|name| (*name).to_owned()).collect();
        MemoryRules { config: MemoryConfig { per_session, ..MemoryConfig::default() }, channels: Channels::default() }
    }

    fn chat() -> RunOrigin {
        RunOrigin { work: Work::Chat, source: None, channel: "http".into(), principal: "ann".into() }
    }

    fn job() -> RunOrigin {
        let source = WorkSource { channel: "http".into(), routine: None, asked_in: "s".into() };
        let work = Work::Job { job: JobId::new(), attempt: Some(1) };
        RunOrigin { work, source: Some(Arc::new(source)), channel: "job".into(), principal: "ann".into() }
    }

    #[test]
    fn notes_belong_to_the_person_and_in_a_group_to_the_group() {
        let ann = MemoryOwner::Person { channel: "http".into(), id: "ann".into() };
        let session = |name: &str| MemoryOwner::Group { session: name.into() };
        for (per_session, origin, audience, expected) in [
            (&[][..], chat(), Audience::Person, ann.clone()),
            (&[], chat(), Audience::Group, session("here")),
            (&[], job(), Audience::Person, ann.clone()),
            (&["http"], chat(), Audience::Person, session("here")),
            (&["http"], job(), Audience::Person, session("s")),
            (&["telegram"], chat(), Audience::Person, ann),
        ] {
            let owner = rules(per_session).owner_in(&origin, &"here".into(), audience);
            assert_eq!(owner, expected, "{per_session:?} {origin:?} {audience:?}");
        }
    }
}
