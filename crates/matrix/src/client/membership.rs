//! Joins rooms, follows those that were replaced, counts their people, and says where nothing can be read.

use belay_protocol::{ChannelAccess, MovedConversation};
use reqwest::Method;
use serde_json::{Value, json};
use tracing::{info, warn};

use super::api::{ApiError, DEADLINE};
use super::deliver::notice;
use super::intake::Me;
use super::room::Rooms;
use super::wire::Event;
use crate::NAME;
use crate::config::is_room;

/// The people of a room that is not listed: Belay and one person.
const PAIR: usize = 2;

/// The notice in an encrypted room.
const ENCRYPTED: &str = "This room is encrypted, and I cannot read encrypted messages. Please write to me in a room without \
encryption: switch *Enable end-to-end encryption* off when you create it.";

/// The data of a room that says that its notice was sent.
const NOTICED: &str = "dev.belay.encrypted_notice";

impl Rooms {
    /// Joins a room to which somebody who may talk to Belay has invited it.
    ///
    /// # Errors
    /// The server or the store does not answer now.
    pub(crate) async fn invited(&self, room: &str, event: &Event) -> Result<(), ApiError> {
        if self.people.role(&event.sender).is_none() {
            info!(room, user = event.sender, "an invitation of somebody not in channels.matrix.allow is not followed");
            return Ok(());
        }
        info!(room, user = event.sender, "Belay is invited to a room");
        self.enter(room, server_of(&event.sender)).await
    }

    /// Joins a room. If it has replaced another one, the conversation of that goes on in it.
    async fn enter(&self, room: &str, via: &str) -> Result<(), ApiError> {
        match self.api.join(room, via).await {
            Ok(()) => self.adopt(room).await,
            Err(error @ ApiError::Refused { .. }) if !error.is_auth() => {
                warn!(room, detail = %error, "a room cannot be joined");
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that a room has replaced another one, if both of them say so: either alone could name any room.
    async fn adopt(&self, to: &str) -> Result<(), ApiError> {
        let Some(from) = self.api.predecessor(to).await.filter(|from| is_room(from) && from != to) else {
            return Ok(());
        };
        let is_served = self.people.serves(&self.people.conversation(&from)) && self.people.current(&from) != to;
        if !is_served || self.api.replacement(&from).await.as_deref() != Some(to) {
            return Ok(());
        }
        let (channel, from, to) = (NAME.into(), from.clone(), to.to_owned());
        let moved = MovedConversation { channel, from, to, keeps_session: true };
        if let Err(error) = self.parts.moves.put_move(moved.clone()).await {
            return Err(ApiError::NotSent(format!("the store has failed: {error}")));
        }
        info!(from = moved.from, to = moved.to, "a room was replaced; its conversation goes on in the new one");
        self.people.note_moves(vec![moved]);
        Ok(())
    }

    /// Whether a room has more than one person beside Belay.
    pub(crate) async fn is_crowded(&self, room: &str) -> Result<bool, ApiError> {
        if let Some(is_crowded) = self.people.is_crowded(room) {
            return Ok(is_crowded);
        }
        let changes = self.people.changes();
        let is_crowded = self.api.members(room).await? > PAIR;
        self.people.note_crowded(room, is_crowded, changes);
        Ok(is_crowded)
    }

    /// Checks that a room may be written to: nothing is known about it after a start, and others may have joined it.
    async fn check_crowd(&self, room: &str) -> Result<(), ApiError> {
        if self.people.is_listed(room) {
            return Ok(());
        }
        match self.is_crowded(room).await {
            Ok(false) => Ok(()),
            Ok(true) => Err(ApiError::Crowded),
            Err(error @ (ApiError::NoAnswer(_) | ApiError::TooLarge(_) | ApiError::Server(_))) => {
                Err(ApiError::NotSent(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Follows a room that was replaced.
    ///
    /// # Errors
    /// The server or the store does not answer now.
    pub(crate) async fn replaced(&self, room: &str, to: &str, via: &str) -> Result<(), ApiError> {
        let is_served = self.people.serves(&self.people.conversation(room));
        if is_served && is_room(to) && to != room { self.enter(to, via).await } else { Ok(()) }
    }

    /// Sends an event to the room that stands for the conversation now. Returns that room, and the id of the event.
    ///
    /// # Errors
    /// See [`ApiError`].
    ///
    /// # Cancel safety
    /// If dropped, the event may have been sent. The same `transaction` sends it once.
    pub(crate) async fn post(
        &self,
        conversation: &str,
        kind: &str,
        transaction: &str,
        content: &Value,
    ) -> Result<(String, String), ApiError> {
        let room = self.people.current(conversation);
        self.check_crowd(&room).await?;
        let refused = match self.api.put_event(&room, kind, transaction, content).await {
            Ok(event) => return Ok((room, event)),
            Err(error) if error.is(403) => error,
            Err(error) => return Err(error),
        };
        // A room that was replaced takes messages of its administrators alone.
        let Some(next) = self.api.replacement(&room).await else { return Err(refused) };
        let via = self.me.get().map(|me| server_of(&me.user).to_owned()).unwrap_or_default();
        self.replaced(&room, &next, &via).await?;
        let current = self.people.current(&room);
        if current == room {
            return Err(ApiError::NotSent(format!("Belay is not in {next} yet, which has replaced the room")));
        }
        self.check_crowd(&current).await?;
        let event = self.api.put_event(&current, kind, transaction, content).await?;
        Ok((current, event))
    }

    /// Says in an encrypted room that nothing can be read there, once in its life: the account's data of the room have
    /// it.
    pub(crate) async fn encrypted(&self, room: &str, event: &Event, me: &Me) -> Result<(), ApiError> {
        if self.place(room, &event.sender).await?.is_none() {
            return Ok(());
        }
        let path = ["client", "v3", "user", me.user.as_str(), "rooms", room, "account_data", NOTICED];
        match self.api.get::<Value>(&path, &[], DEADLINE).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is(404) => {}
            Err(error) => return Err(error),
        }
        // After a crash here, the same transaction is the same event.
        notice(self, room, NOTICED, ENCRYPTED).await?;
        self.api.send(Method::PUT, &path, &json!({ "sent": true })).await.map(|_| ())
    }
}

/// The server of a user.
pub(crate) fn server_of(user: &str) -> &str {
    user.split_once(':').map_or("", |(_, server)| server)
}
