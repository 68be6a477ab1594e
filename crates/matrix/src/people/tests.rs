//! Who is admitted, and what becomes of a room that was replaced.

use belay_protocol::{AccessDecision, ChannelAccess};

use super::*;

fn people() -> MatrixPeople {
    let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
    let (allow, operators, rooms) = (ids(&["@ann:s"]), ids(&["@root:s"]), ids(&["!club"]));
    MatrixPeople::of(&MatrixConfig { allow, operators, rooms, ..MatrixConfig::default() })
}

fn moved(from: &str, to: &str) -> MovedConversation {
    MovedConversation { channel: NAME.into(), from: from.into(), to: to.into(), keeps_session: true }
}

#[test]
fn the_lists_decide_and_a_third_person_ends_a_room_for_two() {
    let people = people();
    people.note_crowded("!three", true, 0);
    people.note_crowded("!two", false, 0);
    for (user, room, may) in [
        ("@ann:s", None, true),
        ("@root:s", Some("!club"), true),
        ("@ann:s", Some("!two"), true),
        ("@ann:s", Some("!unknown:s"), true),
        ("@ann:s", Some("!three"), false),
        ("@ann:s", Some("#club:s"), false),
        ("@eve:s", Some("!two"), false),
        ("@Ann:s", None, false),
    ] {
        let decision = people.standing_of(user, room);
        assert_eq!(matches!(decision, AccessDecision::May(_)), may, "{user} {room:?}: {decision:?}");
    }
    let group = |session: &str| people.is_group(&session.into());
    assert!(group("matrix:!club") && !group("matrix:!two") && !group("telegram:!club"));
    assert!(people.may_exist("@ann:s") && !people.may_exist("42"));
}

#[test]
fn a_replaced_room_keeps_its_session_and_its_place_on_the_list() {
    let people = people();
    people.note_moves(vec![moved("!club", "!club2"), moved("!club2", "!club3"), moved("!club3", "!club")]);
    assert_eq!(people.current("!club"), "!club3");
    for room in ["!club", "!club2", "!club3"] {
        assert!(people.is_listed(room) && people.serves(room), "{room}");
        assert_eq!(people.session_of(room), Some("matrix:!club".into()), "{room}");
    }
}

#[test]
fn a_count_during_which_somebody_joined_is_not_kept() {
    let people = people();
    let changes = people.changes();
    people.note_change("!two");
    people.note_crowded("!two", false, changes);
    assert_eq!(people.is_crowded("!two"), None);
    people.note_crowded("!two", true, people.changes());
    assert_eq!(people.is_crowded("!two"), Some(true));
}
