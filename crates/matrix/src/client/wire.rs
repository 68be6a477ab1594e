//! The answers of a homeserver. An event that cannot be read costs itself, never the answer around it.
//!
//! People choose the content of events. Each event stays unparsed until it is read alone: content that is nested too
//! deeply, or has a number out of range, would otherwise end the whole answer, which would come again and again.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// An event as it was sent.
pub(crate) type RawEvent = Box<RawValue>;

/// Client-server API: `GET /sync`.
#[derive(Default, Deserialize)]
pub(crate) struct SyncAnswer {
    pub(crate) next_batch: String,
    #[serde(default)]
    pub(crate) rooms: Option<Rooms>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Rooms {
    pub(crate) join: Option<BTreeMap<String, Joined>>,
    pub(crate) invite: Option<BTreeMap<String, Invited>>,
    pub(crate) leave: Option<BTreeMap<String, IgnoredAny>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Joined {
    pub(crate) timeline: Option<Timeline>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Timeline {
    pub(crate) events: Option<Vec<RawEvent>>,
    pub(crate) limited: Option<bool>,
    pub(crate) prev_batch: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Invited {
    pub(crate) invite_state: Option<InviteState>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct InviteState {
    pub(crate) events: Option<Vec<RawEvent>>,
}

/// Client-server API: `GET /rooms/{roomId}/messages`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct Page {
    pub(crate) chunk: Option<Vec<RawEvent>>,
    pub(crate) end: Option<String>,
}

/// An event.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    /// Empty in an invitation.
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) sender: String,
    /// When its sender's server got it, in milliseconds since 1970.
    pub(crate) at_ms: u64,
    pub(crate) state_key: Option<String>,
    pub(crate) content: Map<String, Value>,
    /// The `membership` before this event.
    pub(crate) membership_before: Option<String>,
}

impl Event {
    /// Reads an event. `None`: it has no sender or no type.
    pub(crate) fn read(raw: &RawValue) -> Option<Self> {
        Self::of(serde_json::from_str(raw.get()).ok()?)
    }

    pub(crate) fn of(value: Value) -> Option<Self> {
        let Value::Object(mut fields) = value else { return None };
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let content = match fields.remove("content") {
            Some(Value::Object(content)) => content,
            _ => Map::new(), // of a redacted event, or a broken one
        };
        let before = fields.get("unsigned").and_then(|unsigned| unsigned.get("prev_content")?.get("membership"));
        let membership_before = before.and_then(Value::as_str).map(str::to_owned);
        Some(Self {
            id: text(fields.remove("event_id")).unwrap_or_default(),
            kind: text(fields.remove("type"))?,
            membership_before,
            sender: text(fields.remove("sender"))?,
            at_ms: fields.get("origin_server_ts").and_then(Value::as_u64).unwrap_or_default(),
            state_key: text(fields.remove("state_key")),
            content,
        })
    }

    /// A text of the content; empty: it has none.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.content.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether it changes the membership of this user, and the new membership.
    pub(crate) fn membership_of(&self, user: &str) -> Option<&str> {
        let is_theirs = self.kind == "m.room.member" && self.state_key.as_deref() == Some(user);
        is_theirs.then(|| self.text("membership"))
    }

    /// A field of `m.relates_to`.
    pub(crate) fn relation(&self, field: &str) -> Option<&str> {
        self.content.get("m.relates_to")?.get(field)?.as_str()
    }

    /// The event that it replies to. The one that a client without threads shows as such does not count.
    pub(crate) fn replied(&self) -> Option<&str> {
        let relation = self.content.get("m.relates_to")?;
        let is_fallback = relation.get("is_falling_back").and_then(Value::as_bool).unwrap_or_default();
        relation.get("m.in_reply_to")?.get("event_id")?.as_str().filter(|_| !is_fallback)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_event_costs_itself_alone() {
        let deep = format!("{}1{}", "[".repeat(500), "]".repeat(500));
        let events = [
            r#"{"type":"m.room.message","sender":"@a:s","event_id":"$1","content":{"body":"x"}}"#.to_owned(),
            format!(r#"{{"type":"m.room.message","sender":"@a:s","content":{{"x":{deep}}}}}"#),
            r#"{"type":"m.room.message","sender":"@a:s","content":{"x":1e999}}"#.to_owned(),
            r#"{"type":"m.room.message","sender":"@a:s","content":{"body":"\ud800"}}"#.to_owned(),
            r#"{"type":7,"sender":"@a:s"}"#.to_owned(),
            r#""text""#.to_owned(),
            r#"{"type":"m.room.message","sender":"@a:s","content":null,"origin_server_ts":-1.5,"state_key":3}"#
                .to_owned(),
        ];
        let answer = format!(
            r#"{{"next_batch":"s1","presence":3,"rooms":{{"join":{{"!r":{{"timeline":{{"events":[{}],"limited":null}}}}}},"invite":null}}}}"#,
            events.join(",")
        );
        let answer: SyncAnswer = serde_json::from_str(&answer).expect("an answer");
        let room = answer.rooms.and_then(|rooms| rooms.join?.remove("!r")?.timeline?.events).expect("events");
        let read: Vec<bool> = room.iter().map(|raw| Event::read(raw).is_some()).collect();
        assert_eq!(read, [true, false, false, false, false, false, true]);
    }
}
