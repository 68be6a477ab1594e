//! The calls of the client-server API that the channel makes.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::api::{Api, ApiError, DEADLINE};
use super::wire::{Event, Page, RawEvent, SyncAnswer};

/// How long the server holds a request for news. 25 s: below the idle limits of common proxies.
const HOLD: Duration = Duration::from_secs(25);

/// Deadline of such a request.
const SYNC_DEADLINE: Duration = Duration::from_secs(60);

/// Events of a room that come with an answer. More of them are a gap, which is filled.
pub(crate) const TIMELINE_LIMIT: u32 = 50;

/// Events of a page.
pub(crate) const PAGE_LIMIT: u32 = 100;

/// The kinds of event that are asked for.
const KINDS: [&str; 5] = ["m.room.message", "m.reaction", "m.room.encrypted", "m.room.member", "m.room.tombstone"];

impl Api {
    /// The user id of the account.
    pub(crate) async fn whoami(&self, deadline: Duration) -> Result<String, ApiError> {
        let answer: Value = self.get(&["client", "v3", "account", "whoami"], &[], deadline).await?;
        let user = answer.get("user_id").and_then(Value::as_str).map(str::to_owned);
        user.ok_or_else(|| ApiError::NoAnswer("whoami names no user".to_owned()))
    }

    /// The display name of a user; empty: there is none.
    pub(crate) async fn display_name(&self, user: &str) -> Result<String, ApiError> {
        let path = ["client", "v3", "profile", user, "displayname"];
        let answer: Result<Value, _> = self.get(&path, &[], DEADLINE).await;
        match answer {
            Ok(answer) => Ok(answer.get("displayname").and_then(Value::as_str).unwrap_or_default().to_owned()),
            Err(error @ ApiError::Refused { .. }) if !error.is_auth() => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// The news since a token, with at most `limit` events of each room; without a token, the place to begin at and the
    /// open invitations.
    ///
    /// `unlike`: a number that differs from that of an earlier start. Synapse answers a first request like an earlier
    /// one with the old answer, for two minutes (`findings/matrix-a-restarted-bot-answers-again.sh`).
    pub(crate) async fn sync(&self, since: Option<&str>, unlike: u64, limit: u32) -> Result<SyncAnswer, ApiError> {
        let nothing = json!({ "not_types": ["*"] });
        let timeline = json!({ "limit": if since.is_some() { limit } else { 1 }, "types": KINDS });
        let room = json!({
            "timeline": timeline, "state": nothing, "ephemeral": nothing, "account_data": nothing
        });
        let filter = json!({ "room": room, "presence": nothing, "account_data": nothing }).to_string();
        let hold = since.map_or(unlike % 1000, |_| HOLD.as_millis() as u64).to_string();
        let mut query = vec![("filter", filter.as_str()), ("timeout", hold.as_str()), ("set_presence", "online")];
        query.extend(since.map(|since| ("since", since)));
        self.get(&["client", "v3", "sync"], &query, SYNC_DEADLINE).await
    }

    /// A page of at most `limit` events of a room before `from`, the newest first, back to `to`.
    pub(crate) async fn page(&self, room: &str, from: &str, to: &str, limit: u32) -> Result<Page, ApiError> {
        let (filter, limit) = (json!({ "types": KINDS }).to_string(), limit.to_string());
        let query = [("dir", "b"), ("from", from), ("to", to), ("limit", limit.as_str()), ("filter", filter.as_str())];
        self.get(&in_room(room, &["messages"]), &query, DEADLINE).await
    }

    /// An event; `None`: it is not there, may not be read, or cannot be read.
    pub(crate) async fn event(&self, room: &str, id: &str) -> Result<Option<Event>, ApiError> {
        let found: Result<RawEvent, _> = self.get(&in_room(room, &["event", id]), &[], DEADLINE).await;
        match found {
            Ok(raw) => Ok(Event::read(&raw)), // its content may be nested too deeply
            Err(ApiError::Refused { status: 400 | 403 | 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The room that has replaced this one, as this one says; `None`: it was not replaced.
    pub(crate) async fn replacement(&self, room: &str) -> Option<String> {
        let answer: Value = self.get(&in_room(room, &["state", "m.room.tombstone"]), &[], DEADLINE).await.ok()?;
        Some(answer.get("replacement_room")?.as_str()?.to_owned())
    }

    /// The room that this one has replaced, as this one says.
    pub(crate) async fn predecessor(&self, room: &str) -> Option<String> {
        let answer: Value = self.get(&in_room(room, &["state", "m.room.create"]), &[], DEADLINE).await.ok()?;
        Some(answer.get("predecessor")?.get("room_id")?.as_str()?.to_owned())
    }

    /// The number of people in a room, Belay included.
    pub(crate) async fn members(&self, room: &str) -> Result<usize, ApiError> {
        let path = in_room(room, &["joined_members"]);
        let answer: Value = self.get(&path, &[], DEADLINE).await?;
        Ok(answer.get("joined").and_then(Value::as_object).map_or(usize::MAX, serde_json::Map::len))
    }

    /// Sends an event and returns its id. The same `transaction` in a room is the same event, for a day and as long as
    /// the access token is valid, whatever its kind
    /// (`findings/synapse-drops-a-redaction-with-a-used-transaction-id.sh`).
    pub(crate) async fn put_event(
        &self,
        room: &str,
        kind: &str,
        transaction: &str,
        content: &Value,
    ) -> Result<String, ApiError> {
        let path = in_room(room, &["send", kind, transaction]);
        event_id(&self.send(Method::PUT, &path, content).await?)
    }

    /// Takes an event away.
    pub(crate) async fn redact(&self, room: &str, event: &str, transaction: &str) -> Result<String, ApiError> {
        let path = in_room(room, &["redact", event, transaction]);
        event_id(&self.send(Method::PUT, &path, &json!({})).await?)
    }

    /// Joins a room. `via`: a server that knows it.
    pub(crate) async fn join(&self, room: &str, via: &str) -> Result<(), ApiError> {
        let query = [("server_name", via), ("via", via)];
        let request = self.request(Method::POST, &["client", "v3", "join", room], &query).timeout(SYNC_DEADLINE);
        self.upload(request, "{}".into()).await.map(|_| ())
    }

    /// Shows or hides the typing indicator.
    pub(crate) async fn typing(&self, room: &str, user: &str, shown_for: Option<Duration>) -> Result<(), ApiError> {
        let body = match shown_for {
            Some(time) => json!({ "typing": true, "timeout": time.as_millis() as u64 }),
            None => json!({ "typing": false }),
        };
        self.send(Method::PUT, &in_room(room, &["typing", user]), &body).await.map(|_| ())
    }
}

/// The path of something in a room.
fn in_room<'a>(room: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    [&["client", "v3", "rooms", room][..], rest].concat()
}

fn event_id(answer: &Value) -> Result<String, ApiError> {
    let id = answer.get("event_id").and_then(Value::as_str);
    id.map(str::to_owned).ok_or_else(|| ApiError::NoAnswer("the answer names no event".to_owned()))
}
