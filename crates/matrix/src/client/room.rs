//! The treatment of an event: a message for the agent, an answer to a question, a joined room, or nothing.

use std::collections::HashSet;
use std::sync::{Mutex, OnceLock};

use belay_protocol::{Inbound, NO_TEXT, Principal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::api::{Api, ApiError};
use super::inbound::{self, Place};
use super::intake::{self, Me};
use super::membership::server_of;
use super::wire::Event;
use crate::NAME;
use crate::parts::MatrixParts;
use crate::people::MatrixPeople;

/// The account and its rooms.
pub(crate) struct Rooms {
    pub(crate) api: Api,
    pub(crate) people: MatrixPeople,
    /// Belay's own account. Empty until the server has named it.
    pub(crate) me: OnceLock<Me>,
    pub(crate) parts: MatrixParts,
    /// The start of this daemon, in milliseconds since 1970.
    pub(crate) since_ms: u64,
    pub(crate) trouble: Mutex<Option<String>>,
    pub(crate) noted: Mutex<HashSet<String>>,
}

impl Rooms {
    pub(crate) fn new(api: Api, parts: MatrixParts, since_ms: u64) -> Self {
        let (people, me, trouble, noted) = (parts.people.clone(), OnceLock::new(), Mutex::default(), Mutex::default());
        Self { api, people, me, parts, since_ms, trouble, noted }
    }

    /// The message for the agent that an event of a room is; `None`: it is none. `hurry`: its file is not waited for.
    ///
    /// # Errors
    /// The server does not answer now; the event is read again later.
    ///
    /// # Cancel safety
    /// If dropped, the event can be read again.
    pub(crate) async fn read(
        &self,
        room: &str,
        event: &Event,
        hurry: &CancellationToken,
    ) -> Result<Option<Inbound>, ApiError> {
        let me = self.me.get().cloned().unwrap_or_default();
        if event.membership_of(&me.user) == Some("invite") {
            return self.invited(room, event).await.map(|()| None);
        }
        if event.sender == me.user {
            return Ok(None);
        }
        let read = match event.kind.as_str() {
            "m.room.message" => self.message(room, event, &me, hurry).await,
            "m.reaction" => self.reaction(room, event, &me).await,
            "m.room.encrypted" => self.encrypted(room, event, &me).await.map(|()| None),
            "m.room.tombstone" if event.state_key.as_deref() == Some("") => {
                self.replaced(room, event.text("replacement_room"), server_of(&event.sender)).await.map(|()| None)
            }
            _ => Ok(None),
        };
        match read {
            Err(error @ ApiError::Refused { .. }) if !error.is_auth() => {
                info!(room, detail = %error, "an event is passed over");
                Ok(None)
            }
            read => read,
        }
    }

    async fn message(
        &self,
        room: &str,
        event: &Event,
        me: &Me,
        hurry: &CancellationToken,
    ) -> Result<Option<Inbound>, ApiError> {
        if intake::is_a_programs(event) {
            return Ok(None);
        }
        let Some(place) = self.place(room, &event.sender).await? else { return Ok(None) };
        let original = match intake::edited(event) {
            Some(id) => self.api.event(room, id).await?,
            None => None,
        };
        if intake::edited(event).is_some() && original.as_ref().is_none_or(|it| it.sender != event.sender) {
            return Ok(None); // the server takes an edit of anybody
        }
        let is_addressed = [Some(event), original.as_ref()].into_iter().flatten().any(|it| intake::addresses(it, me));
        if place.is_group && !is_addressed {
            return Ok(None);
        }
        let mut text = intake::text(event, me, &self.parts.commands);
        if intake::ends_the_daemon(&text) && event.at_ms < self.since_ms {
            return Ok(None);
        }
        let quoted = match event.replied() {
            Some(id) => self.api.event(room, id).await?,
            None => None,
        };
        let file = intake::file(event).filter(|_| original.is_none());
        if text.is_empty() && (file.is_some() || event.content.contains_key("geo_uri")) {
            NO_TEXT.clone_into(&mut text);
        }
        if text.is_empty() {
            return Ok(None);
        }
        let mut inbound = inbound::inbound(event, text, quoted.as_ref(), place, me);
        if let Some(file) = file {
            self.add_file(&mut inbound, &file, hurry).await;
        }
        Ok(Some(inbound))
    }

    /// The place of a message of a user in a room; `None`: it is not for Belay.
    ///
    /// # Errors
    /// The server does not answer now.
    pub(crate) async fn place(&self, room: &str, sender: &str) -> Result<Option<Place>, ApiError> {
        let Some(role) = self.people.role(sender) else {
            self.note_once(sender, || {
                info!(user = sender, "a message of somebody not in channels.matrix.allow was dropped")
            });
            return Ok(None);
        };
        let is_group = self.people.is_listed(room);
        if !is_group && self.is_crowded(room).await? {
            let line = format!("rooms = [\"{room}\"]");
            self.note_once(room, || warn!(room, line, "a room with several people is not in channels.matrix.rooms"));
            return Ok(None);
        }
        let conversation = self.people.conversation(room);
        let session = format!("{NAME}:{conversation}").into();
        Ok(Some(Place { conversation, session, is_group, principal: Principal { id: sender.into(), role } }))
    }
}
