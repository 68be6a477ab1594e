//! When to give up a room that Belay is to join.

use std::time::Duration;

use tokio::time::Instant;

use super::api::{Api, ApiError};

/// Longest time for the attempts to join a room that the homeserver does not reach. The events behind its invitation
/// would otherwise come again after each restart. A person may invite Belay again.
const JOIN_LIMIT: Duration = Duration::from_secs(3600);

/// Longest wait for the homeserver, to see whether it answers at all.
const ANSWER_DEADLINE: Duration = Duration::from_secs(10);

/// The time for which a homeserver that answers has not reached a room. An error of its proxy looks like one of the
/// room's own server, so the homeserver is asked for something else after each failure.
#[derive(Default)]
pub(crate) struct Unreached {
    /// The first failure since the homeserver answers.
    since: Option<Instant>,
}

impl Unreached {
    /// Whether an event of this kind makes Belay join a room.
    pub(crate) fn concerns(kind: &str) -> bool {
        matches!(kind, "m.room.member" | "m.room.tombstone")
    }

    /// Notes a failed attempt. `true`: the room is given up.
    ///
    /// # Cancel safety
    /// If dropped, the attempt is not noted.
    pub(crate) async fn is_given_up(&mut self, api: &Api, error: &ApiError) -> bool {
        match error {
            ApiError::Limited(_) => false, // the homeserver answers, and says nothing about the room
            ApiError::Server(_) | ApiError::NoAnswer(_) => {
                let asked = api.whoami(ANSWER_DEADLINE).await;
                self.note(matches!(asked, Ok(_) | Err(ApiError::Limited(_))))
            }
            _ => self.note(false),
        }
    }

    /// Time in which the homeserver does not answer is no time of the room.
    fn note(&mut self, answers: bool) -> bool {
        if !answers {
            self.since = None;
            return false;
        }
        self.since.get_or_insert_with(Instant::now).elapsed() >= JOIN_LIMIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_homeserver_that_answers_for_an_hour_gives_a_room_up() {
        let mut unreached = Unreached::default();
        assert!(!unreached.note(true));
        tokio::time::advance(JOIN_LIMIT.saturating_sub(Duration::from_millis(1))).await;
        assert!(!unreached.note(true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(unreached.note(true));
        assert!(!unreached.note(false), "an outage of the homeserver");
        tokio::time::advance(JOIN_LIMIT).await;
        assert!(!unreached.note(true), "the outage does not count");
        tokio::time::advance(JOIN_LIMIT).await;
        assert!(unreached.note(true));
    }

    #[test]
    fn only_events_that_join_a_room_are_given_up() {
        assert!(Unreached::concerns("m.room.member") && Unreached::concerns("m.room.tombstone"));
        assert!(!Unreached::concerns("m.room.message"));
    }
}
