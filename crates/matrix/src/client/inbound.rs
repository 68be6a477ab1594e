//! The message for the agent that an event is. Pure.

use std::sync::Arc;

use belay_protocol::provenance::{Audience, Author, Person, Provenance, Quote};
use belay_protocol::{Body, IdempotencyKey, Inbound, Principal, ReplyRoute, SessionKey};

use super::intake::{Me, edited, file, without_quote};
use super::wire::Event;
use crate::NAME;

/// The conversation of a message, and the role of its sender.
pub(crate) struct Place {
    /// The conversation: the first id of the room.
    pub(crate) conversation: String,
    pub(crate) session: SessionKey,
    pub(crate) is_group: bool,
    pub(crate) principal: Principal,
}

/// The message of an event. `quoted`: the event that it replies to.
pub(crate) fn inbound(event: &Event, text: String, quoted: Option<&Event>, place: Place, me: &Me) -> Inbound {
    let is_edit = edited(event).is_some();
    let id = edited(event).unwrap_or(&event.id);
    let shared = Some(event.text("geo_uri")).filter(|uri| !uri.is_empty()).map(|uri| format!("place: {uri}"));
    let provenance = Provenance {
        audience: if place.is_group { Audience::Group } else { Audience::Person },
        sender: place.is_group.then(|| person(&event.sender)),
        reply_to: quoted.map(|quoted| quote(quoted, &event.sender, me)),
        shared: shared.into_iter().collect(),
        message_id: Some(id.to_owned()),
        ..Provenance::default()
    };
    Inbound {
        key: Some(key(event, me)),
        reply_to: Some(ReplyRoute {
            channel: NAME.into(),
            conversation: place.conversation.into(),
            reply_to: place.is_group.then(|| Arc::from(id)),
        }),
        provenance: Some(Arc::new(provenance.cleaned())),
        ..Inbound::new(
            NAME.into(),
            place.session,
            place.principal,
            if is_edit { Body::Edit(text) } else { Body::Text(text) },
        )
    }
}

/// The key of an event: its id is unique among all servers.
pub(crate) fn key(event: &Event, me: &Me) -> IdempotencyKey {
    IdempotencyKey { channel: NAME.into(), account: me.user.as_str().into(), message_id: event.id.as_str().into() }
}

fn person(user: &str) -> Person {
    let name = user.trim_start_matches('@').split(':').next().unwrap_or_default();
    Person { name: belay_text::removed(name).into_owned(), username: None, id: user.to_owned() }
}

fn quote(event: &Event, sender: &str, me: &Me) -> Quote {
    let (author, name) = match event.sender.as_str() {
        user if user == me.user => (Author::Assistant, None),
        user if user == sender => (Author::Sender, None),
        user => (Author::Other, Some(person(user).name)),
    };
    let text = belay_text::removed(without_quote(event.text("body"))).into_owned();
    Quote { author, name, kind: file(event).map(|file| file.kind.to_owned()), text, ..Quote::default() }
}
