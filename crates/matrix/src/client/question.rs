//! Reactions that answer approval requests.
//!
//! Belay's own message says which request it shows, so a reaction is understood after a restart too. The agent decides
//! whether the person may answer.

use belay_protocol::{Body, Control, Inbound, ReplyRoute};
use serde_json::Value;

use super::api::ApiError;
use super::content::MARK;
use super::inbound;
use super::intake::{self, Me};
use super::room::Rooms;
use super::wire::Event;
use crate::NAME;

impl Rooms {
    /// The answer that a reaction to a question is; `None`: it is none.
    pub(crate) async fn reaction(&self, room: &str, event: &Event, me: &Me) -> Result<Option<Inbound>, ApiError> {
        let Some((decision, id)) = event.relation("key").and_then(intake::decision).zip(event.relation("event_id"))
        else {
            return Ok(None);
        };
        let Some(place) = self.place(room, &event.sender).await? else { return Ok(None) };
        let question = self.api.event(room, id).await?.filter(|question| question.sender == me.user);
        let mark = question.as_ref().and_then(|question| question.content.get(MARK)?.get("approval"));
        let Some(Ok(approval)) = mark.and_then(Value::as_str).map(str::parse) else { return Ok(None) };
        let control = Body::Control(Control::Decide { approval, decision });
        let reply_to = place.is_group.then(|| id.into());
        Ok(Some(Inbound {
            key: Some(inbound::key(event, me)),
            reply_to: Some(ReplyRoute { channel: NAME.into(), conversation: place.conversation.into(), reply_to }),
            ..Inbound::new(NAME.into(), place.session, place.principal, control)
        }))
    }
}
