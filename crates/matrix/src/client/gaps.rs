//! The news since a token, without gaps: an answer has the newest events of each room, and the ones before are fetched.

use super::api::ApiError;
use super::calls::{PAGE_LIMIT, TIMELINE_LIMIT};
use super::room::Rooms;
use super::wire::{Event, RawEvent, Timeline};
use crate::config::is_room;

use tracing::{info, warn};

/// Most events of a gap. Older ones are passed over, which the log says. 10,000: some 10 MB.
const GAP_MAX: usize = 10_000;

/// Most bytes of the events of a gap that are held, beyond which no further page is fetched. 16 MiB: more than 10,000
/// usual events; one event may have 64 KiB.
const GAP_MAX_BYTES: usize = 16 * 1024 * 1024;

/// The news since a token.
pub(crate) struct News {
    /// The token behind them.
    pub(crate) next: String,
    /// The events of each room, the oldest first.
    pub(crate) events: Vec<(String, Event)>,
    /// Whether nothing was read before.
    pub(crate) is_first: bool,
}

impl Rooms {
    /// The news since a token. Without one: the place to begin at, and the open invitations.
    ///
    /// # Errors
    /// The server does not answer as it should. Nothing is lost: the same token has the same news.
    pub(crate) async fn news(&self, since: Option<&str>) -> Result<News, ApiError> {
        let limit = since.map_or(1, |_| TIMELINE_LIMIT);
        let answer = fitting(limit, |limit| self.api.sync(since, self.since_ms, limit)).await?;
        let me = self.me.get().map(|me| me.user.clone()).unwrap_or_default();
        let rooms = answer.rooms.unwrap_or_default();
        let mut events = Vec::new();
        for (room, invited) in rooms.invite.unwrap_or_default() {
            let state = read(invited.invite_state.and_then(|state| state.events));
            events.extend(invitation(state, &me).map(|event| (room, event)));
        }
        for (room, joined) in rooms.join.unwrap_or_default() {
            let Some((timeline, since)) = joined.timeline.zip(since) else { continue };
            if timeline.limited.unwrap_or_default() {
                self.people.note_change(&room); // the gap may have members
            }
            let whole = self.whole(&room, timeline, since, &me).await?;
            events.extend(whole.into_iter().map(|event| (room.clone(), event)));
        }
        for room in rooms.leave.unwrap_or_default().into_keys() {
            info!(room, "Belay is not in this room any more");
            self.people.note_change(&room);
        }
        events.retain(|(room, _)| is_room(room));
        Ok(News { next: answer.next_batch, events, is_first: since.is_none() })
    }

    /// The events of a room since a token, from the invitation on if Belay has joined it meanwhile.
    async fn whole(&self, room: &str, timeline: Timeline, since: &str, me: &str) -> Result<Vec<Event>, ApiError> {
        let mut seen = timeline.events.as_ref().map_or(0, Vec::len);
        let (mut events, mut bytes) = self.wanted(timeline.events, me);
        events.reverse();
        let mut from = timeline.prev_batch.filter(|_| timeline.limited.unwrap_or_default());
        while let Some(at) = from.take().filter(|_| !events.iter().any(|event| is_entry(event, me))) {
            if seen >= GAP_MAX || bytes >= GAP_MAX_BYTES {
                warn!(room, seen, bytes, "a room has too many new events; the older ones of them are passed over");
                break;
            }
            match fitting(PAGE_LIMIT, |limit| self.api.page(room, &at, since, limit)).await {
                Ok(page) => {
                    seen += page.chunk.as_ref().map_or(0, Vec::len);
                    let (wanted, more) = self.wanted(page.chunk, me);
                    events.extend(wanted);
                    bytes += more;
                    from = page.end.filter(|end| *end != at);
                }
                Err(error @ (ApiError::Refused { .. } | ApiError::TooLarge(_))) if !error.is_auth() => {
                    warn!(room, detail = %error, "the server does not show the older events of a room");
                }
                Err(error) => return Err(error),
            }
        }
        let entry = events.iter().position(|event| is_entry(event, me)).unwrap_or(events.len());
        events.truncate(entry);
        events.reverse();
        Ok(events)
    }

    /// The events that may be read later, and their bytes: those of strangers, up to 64 KiB each, are not held in
    /// memory.
    fn wanted(&self, events: Option<Vec<RawEvent>>, me: &str) -> (Vec<Event>, usize) {
        let (events, mut bytes) = (events.unwrap_or_default(), 0);
        let wanted = events.iter().filter_map(|raw| {
            let event = Event::read(raw).filter(|event| match event.kind.as_str() {
                "m.room.member" | "m.room.tombstone" => true,
                _ => event.sender != me && self.admits(&event.sender),
            })?;
            bytes += raw.get().len();
            Some(event)
        });
        let wanted = wanted.collect();
        (wanted, bytes)
    }
}

/// An answer that is not too large: after one that is, half of the events are asked for, down to one.
async fn fitting<R, F>(mut limit: u32, ask: impl Fn(u32) -> F) -> Result<R, ApiError>
where
    F: Future<Output = Result<R, ApiError>>,
{
    loop {
        match ask(limit).await {
            Err(ApiError::TooLarge(bytes)) if limit > 1 => {
                warn!(limit, bytes, "an answer is too large; half of its events are asked for");
                limit /= 2;
            }
            answer => return answer,
        }
    }
}

fn read(events: Option<Vec<RawEvent>>) -> Vec<Event> {
    events.unwrap_or_default().iter().filter_map(|raw| Event::read(raw)).collect()
}

/// The invitation in the state of its room. The inviting server writes that state, without signatures; the homeserver
/// adds the invitation that it has checked at the end. `None`: another inviter is named beside that.
fn invitation(state: Vec<Event>, me: &str) -> Option<Event> {
    let mut invitations = state.into_iter().filter(|event| event.membership_of(me) == Some("invite"));
    let last = invitations.next_back()?;
    invitations.all(|event| event.sender == last.sender).then_some(last)
}

/// Whether Belay came into the room by this event: an invitation, or a join without one.
fn is_entry(event: &Event, me: &str) -> bool {
    match event.membership_of(me) {
        Some("invite") => true,
        Some("join") => !matches!(event.membership_before.as_deref(), Some("join" | "invite")),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invite(sender: &str) -> Event {
        let event = format!(
            r#"{{"type":"m.room.member","sender":"{sender}","state_key":"@belay:s","content":{{"membership":"invite"}}}}"#
        );
        Event::of(serde_json::from_str(&event).expect("JSON")).expect("an event")
    }

    #[test]
    fn an_invitation_with_a_forged_inviter_is_none() {
        let (ann, eve) = (|| invite("@ann:s"), || invite("@eve:far"));
        for (state, expected) in [
            (vec![ann()], Some(ann())),
            (vec![ann(), ann()], Some(ann())),
            (vec![ann(), eve()], None),
            (vec![eve(), ann()], None),
            (vec![Event::default()], None),
        ] {
            assert_eq!(invitation(state, "@belay:s"), expected);
        }
    }
}
