//! Messages that act at once. Pure.

use belay_protocol::CommandInfo;

use super::intake::{self, Me};
use super::wire::Event;
use crate::people::MatrixPeople;

/// Whether an event passes the earlier messages of its room and ends the wait for their files. `/stop` does, of a person
/// whose messages are read there; else anybody in the room could do away with the files of others.
pub(crate) fn acts_at_once(
    people: &MatrixPeople,
    me: &Me,
    commands: &[CommandInfo],
    room: &str,
    event: &Event,
) -> bool {
    event.kind == "m.room.message"
        && people.role(&event.sender).is_some()
        && !intake::is_a_programs(event)
        && (!people.is_listed(room) || intake::addresses(event, me))
        && intake::is_stop(&intake::text(event, me, commands))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::MatrixConfig;

    #[test]
    fn a_stop_acts_at_once_if_its_person_may_say_it_there() {
        let (allow, rooms) = (vec!["@ann:s".to_owned()], vec!["!club".to_owned()]);
        let people = MatrixPeople::of(&MatrixConfig { allow, rooms, ..MatrixConfig::default() });
        let me = Me { user: "@belay:s".into(), name: "Belay".into() };
        let acts = |sender: &str, room: &str, content: Value| {
            let event = json!({ "type": "m.room.message", "sender": sender, "event_id": "$1", "content": content });
            acts_at_once(&people, &me, &[], room, &Event::of(event).expect("an event"))
        };
        let stop = || json!({ "body": "/stop" });
        assert!(acts("@ann:s", "!two", stop()));
        assert!(acts("@ann:s", "!club", json!({ "body": "Belay: /stop" })));
        assert!(!acts("@ann:s", "!club", stop()), "it is said to others");
        assert!(!acts("@eve:s", "!two", stop()), "a stranger");
        assert!(!acts("@ann:s", "!two", json!({ "body": "/stop", "msgtype": "m.notice" })), "a program");
        assert!(!acts("@ann:s", "!two", json!({ "body": "stop" })));
    }
}
