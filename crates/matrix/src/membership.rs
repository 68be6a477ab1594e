//! Joins rooms, follows those that were replaced, counts their people, and says where nothing can be read.

use belay_protocol::MovedConversation;
use reqwest::Method;
use serde_json::{Value, json};
use tracing::{error, info, warn};

use crate::NAME;
use crate::api::{ApiError, DEADLINE};
use crate::config::is_room;
use crate::deliver::notice;
use crate::intake::Me;
use crate::room::Rooms;
use crate::wire::Event;

/// The people of a room that is not listed: Belay and one person.
const PAIR: usize = 2;

/// The notice in an encrypted room.
const ENCRYPTED: &str = "This room is encrypted, and I cannot read encrypted messages. Please write to me in a room without \
encryption: switch *Enable end-to-end encryption* off when you create it.";

/// The data of a room that says that its notice was sent.
const NOTICED: &str = "dev.belay.encrypted_notice";

impl Rooms {
    /// Joins a room to which somebody who may talk to Belay has invited it, and the new room of one that it is in.
    pub(crate) async fn invited(&self, room: &str, event: &Event) -> Result<(), ApiError> {
        if self.people.role(&event.sender).is_none() && !self.people.is_replacement(room) {
            info!(room, user = event.sender, "an invitation of somebody not in channels.matrix.allow is not followed");
            return Ok(());
        }
        match self.api.join(room, server_of(&event.sender)).await {
            Ok(()) => info!(room, user = event.sender, "joined a room by invitation"),
            Err(error @ ApiError::Refused { .. }) if !error.is_auth() => warn!(room, %error, "a room cannot be joined"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Whether a room has more than one person beside Belay.
    pub(crate) async fn is_crowded(&self, room: &str) -> Result<bool, ApiError> {
        if let Some(is_crowded) = self.people.is_crowded(room) {
            return Ok(is_crowded);
        }
        let is_crowded = self.api.members(room).await? > PAIR;
        self.people.note_crowded(room, Some(is_crowded));
        Ok(is_crowded)
    }

    /// Follows a room that was replaced: joins the new one, if it may, and keeps the session. Returns the new room.
    ///
    /// # Errors
    /// The server or the store does not answer now.
    pub(crate) async fn replaced(&self, room: &str, to: &str, via: &str) -> Result<Option<String>, ApiError> {
        let conversation = self.people.conversation(room);
        if !is_room(to) || to == room || !belay_protocol::ChannelAccess::serves(&self.people, &conversation) {
            return Ok(None);
        }
        match self.api.join(to, via).await {
            Ok(()) => {}
            // It is joined by a later invitation.
            Err(error @ ApiError::Refused { .. }) if !error.is_auth() => warn!(to, %error, "the new room is not open yet"),
            Err(error) => return Err(error),
        }
        if self.people.current(room) == to {
            return Ok(Some(to.to_owned()));
        }
        let moved = MovedConversation { channel: NAME.into(), from: room.into(), to: to.into(), keeps_session: true };
        if let Err(error) = self.parts.moves.put_move(moved.clone()).await {
            error!(room, to, %error, "the new id of a room could not be stored");
            return Err(ApiError::NoAnswer("the store has failed".to_owned()));
        }
        self.people.note_moves(vec![moved]);
        info!(room, to, "a room was replaced; its conversation goes on in the new one");
        Ok(Some(to.to_owned()))
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
        let refused = match self.api.put_event(&room, kind, transaction, content).await {
            Ok(event) => return Ok((room, event)),
            Err(error) if error.is(403) => error,
            Err(error) => return Err(error),
        };
        // A room that was replaced takes messages of its administrators alone.
        let Some(next) = self.api.replacement(&room).await else { return Err(refused) };
        let via = self.me.get().map(|me| server_of(&me.user).to_owned()).unwrap_or_default();
        let Some(next) = self.replaced(&room, &next, &via).await? else { return Err(refused) };
        let event = self.api.put_event(&next, kind, transaction, content).await?;
        Ok((next, event))
    }

    /// Says in an encrypted room that nothing can be read there, once in its life: the account's data of the room have it.
    pub(crate) async fn encrypted(&self, room: &str, event: &Event, me: &Me) -> Result<(), ApiError> {
        if self.place(room, &event.sender).await?.is_none() {
            return Ok(());
        }
        let path = ["client", "v3", "user", &me.user, "rooms", room, "account_data", NOTICED];
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
