//! The places of groups that took no answer, for the operator's status: who waits there cannot be told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_protocol::{DeliverError, Outbound};
use tokio::time::Instant;

/// How long a place is shown. A day: long enough to be read; a deleted topic takes no answer ever again.
const SHOWN: Duration = Duration::from_secs(86_400);

/// Most places. 16: beyond that, the log has them.
const PLACES_MAX: usize = 16;

/// The places, the newest last.
#[derive(Debug, Default)]
pub(super) struct Unreached(Mutex<VecDeque<Place>>);

#[derive(Debug)]
struct Place {
    conversation: Arc<str>,
    why: String,
    at: Instant,
}

impl Unreached {
    /// Notes how a delivery to a group went. Private chats are not noted: their person may have blocked the bot.
    pub(super) fn note(&self, message: &Outbound, result: &Result<(), DeliverError>) {
        let conversation = &message.route.conversation;
        if !conversation.starts_with('-') {
            return;
        }
        let why = match result {
            Ok(()) => None,
            Err(DeliverError::Refused { detail }) => Some(detail.clone()),
            Err(DeliverError::Retry { .. } | DeliverError::Ambiguous { .. }) => return,
        };
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.conversation != *conversation);
        if let Some(why) = why {
            places.push_back(Place { conversation: conversation.clone(), why, at: Instant::now() });
        }
        if places.len() > PLACES_MAX {
            places.pop_front();
        }
    }

    /// The line about them; `None`: every place has taken its newest answer.
    pub(super) fn line(&self) -> Option<String> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|place| place.at.elapsed() < SHOWN);
        let newest = places.back()?;
        Some(match places.len() {
            1 => format!("an answer was not delivered: {}", newest.why),
            count => format!("answers for {count} places were not delivered, the last one: {}", newest.why),
        })
    }
}
