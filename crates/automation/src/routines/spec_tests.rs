//! Tests of the validation, the schedule and the triggers of routines.

#![allow(clippy::unwrap_used)]

use belay_protocol::{
    Asker, Body, Guardrails, Inbound, Misfire, Notify, Principal, PrincipalRole, RoutineAction, RoutineId,
    RoutineOrigin, RoutineRecord, RoutineSpec, Trigger, UnixMillis,
};
use jiff::Timestamp;
use serde_json::json;

use super::config::RoutinesConfig;
use super::events::EventSet;
use super::reckon::{Reckoning, cools_until, reckon};
use super::{preview, problems, test_at};

fn at(text: &str) -> UnixMillis {
    UnixMillis(text.parse::<Timestamp>().unwrap().as_millisecond())
}

fn schedule(when: &str, zone: &str) -> Trigger {
    Trigger::Schedule { when: when.into(), zone: zone.into(), misfire: Misfire::Once }
}

fn spec(trigger: Trigger) -> RoutineSpec {
    RoutineSpec {
        name: "watch".into(),
        description: String::new(),
        trigger,
        action: RoutineAction::Lightweight {
            prompt: "look".into(),
            files: Vec::new(),
            use_tools: false,
            max_tool_rounds: 3,
        },
        guard: Guardrails::default(),
        notify: Notify::default(),
        allow: Vec::new(),
    }
}

fn event(pattern: &str) -> Trigger {
    Trigger::Event { pattern: pattern.into(), channel: None }
}

#[test]
fn each_thing_that_is_wrong_names_its_field() {
    let webhook = |path: &str, secret: &str| Trigger::Webhook { path: path.into(), secret_sha256: secret.into() };
    for (trigger, expected) in [
        (schedule("0 9 * * *", "Europe/Berlin"), ""),
        (schedule("at 2001-01-01T00:00", "UTC"), ""), // over, which is no fault of an older file
        (schedule("0 9 30 2 *", "UTC"), "trigger.when"),
        (schedule("61 9 * * *", "UTC"), "trigger.when"),
        (schedule("0 9 * * *", "Europe/Berlyn"), "trigger.zone"),
        (event("water (the )?plants"), ""),
        (event("("), "trigger.pattern"),
        (event(".*"), "trigger.pattern"),
        (event("(x{500}){500}"), "trigger.pattern"),
        (event(""), "trigger.pattern"),
        (webhook("deploy-1", &"ab".repeat(32)), ""),
        (webhook("../x", &"ab".repeat(32)), "trigger.path"),
        (webhook("deploy", "secret"), "trigger.secret_sha256"),
        (Trigger::System { source: " ".into(), event: "e".into(), filters: Default::default() }, "trigger.source"),
        (Trigger::Manual, ""),
    ] {
        let found = problems(&spec(trigger.clone()));
        let field = found.first().map_or("", |problem| problem.split(':').next().unwrap_or_default());
        assert_eq!((found.len(), field), (usize::from(!expected.is_empty()), expected), "{trigger:?}: {found:?}");
    }
    for (name, good) in [("a", true), ("a-b_9", true), ("9a", false), ("", false), ("a b", false), ("ä", false)] {
        assert_eq!(problems(&RoutineSpec { name: name.into(), ..spec(Trigger::Manual) }).is_empty(), good, "{name:?}");
    }
    for (path, good) in [("a/b.md", true), ("/etc/passwd", false), ("a/../b", false), ("", false)] {
        let action = RoutineAction::Lightweight {
            prompt: "look".into(),
            files: vec![path.into()],
            use_tools: false,
            max_tool_rounds: 1,
        };
        assert_eq!(problems(&RoutineSpec { action, ..spec(Trigger::Manual) }).is_empty(), good, "{path:?}");
    }
}

#[test]
fn a_configuration_says_every_problem_with_the_routine_it_is_of() {
    let define = vec![spec(Trigger::Manual), spec(schedule("in 20m", "UTC")), spec(event("("))];
    let config = RoutinesConfig { define, max_concurrent: 0, ..RoutinesConfig::default() };
    let fields: Vec<_> =
        config.validate().iter().map(|problem| problem.split(": ").next().unwrap_or_default().to_owned()).collect();
    let twice = "routines.define.watch";
    assert_eq!(
        fields,
        [
            "routines.max_concurrent",
            twice,
            "routines.define.watch.trigger.when",
            twice,
            "routines.define.watch.trigger.pattern",
        ]
    );
}

#[test]
fn a_preview_keeps_to_the_wall_clock_over_a_change_of_it() {
    let nine = spec(schedule("30 2 * * *", "Europe/Berlin"));
    let local = |from: &str| -> Vec<String> {
        preview(&nine, at(from), 3).unwrap().into_iter().map(|time| time.local).collect()
    };
    assert_eq!(
        local("2027-03-27T00:00Z"),
        ["Sat 2027-03-27 02:30:00 +01:00", "Sun 2027-03-28 03:00:00 +02:00", "Mon 2027-03-29 02:30:00 +02:00"]
    );
    let tested = test_at(&nine, at("2027-03-28T01:00:00.400Z")).unwrap();
    assert!(tested.fires, "the first instant after the gap");
    assert_eq!(tested.next.unwrap().local, "Mon 2027-03-29 02:30:00 +02:00");
    assert!(!test_at(&nine, at("2027-03-28T00:59:59Z")).unwrap().fires);
    assert_eq!(preview(&spec(schedule("at 2001-01-01T00:00", "UTC")), at("2027-01-01T00:00Z"), 3).unwrap(), []);
    assert!(preview(&spec(Trigger::Manual), at("2027-01-01T00:00Z"), 3).is_err());
}

fn record(spec: RoutineSpec) -> RoutineRecord {
    RoutineRecord {
        routine_id: RoutineId::new(),
        spec,
        creator: Asker { principal: "ann".into(), ..Asker::default() },
        channel: "telegram".into(),
        made_in: "telegram:1".into(),
        reply_to: None,
        origin: RoutineOrigin::Made,
        enabled: true,
        disabled_detail: String::new(),
        revision: 1,
        next_at: None,
        claimed_to: Some(at("2027-01-01T00:00Z")),
        fired_at: None,
        set_off_at: None,
        routine_runs: 0,
        failures: 0,
        created_at: at("2027-01-01T00:00Z"),
        changed_at: at("2027-01-01T00:00Z"),
    }
}

#[test]
fn one_time_fires_at_a_look_and_what_lies_before_it_is_missed() {
    let with = |misfire| Trigger::Schedule { when: "0 * * * *".into(), zone: "UTC".into(), misfire };
    let hours = |from: i64, to: i64| -> Vec<UnixMillis> {
        (from..=to).map(|hour| UnixMillis(at("2027-01-01T00:00Z").0 + hour * 3_600_000)).collect()
    };
    let one = |hour| hours(hour, hour).pop();
    for (misfire, now, fire, missed, next, catches_up) in [
        (Misfire::Once, "2027-01-01T01:00:10Z", one(1), vec![], one(2), false),
        (Misfire::Once, "2027-01-01T05:30:00Z", one(5), hours(1, 4), one(6), false),
        (Misfire::Once, "2027-01-01T05:00:30Z", one(5), hours(1, 4), one(6), false),
        (Misfire::Skip, "2027-01-01T05:30:00Z", None, hours(1, 5), one(6), false),
        (Misfire::All(2), "2027-01-01T05:30:00Z", one(4), hours(1, 3), one(5), true),
        (Misfire::All(9), "2027-01-01T02:30:00Z", one(1), vec![], one(2), true),
        (Misfire::Once, "2027-01-01T00:30:00Z", None, vec![], one(1), false),
        (Misfire::Once, "2026-12-31T00:00:00Z", None, vec![], one(1), false),
    ] {
        let reckoning = reckon(&record(spec(with(misfire))), std::time::Duration::from_secs(60), at(now)).unwrap();
        assert_eq!(reckoning, Some(Reckoning { fire, missed, next, catches_up }), "{misfire:?} at {now}");
    }
    // After three months of a routine that starts every minute, the number of recorded times is bounded.
    let minutes = record(spec(schedule("* * * * *", "UTC")));
    let late = reckon(&minutes, std::time::Duration::from_secs(60), at("2027-04-01T00:00:30Z")).unwrap().unwrap();
    assert_eq!((late.missed.len(), late.fire), (32, Some(at("2027-04-01T00:00Z"))));
}

#[test]
fn a_routine_run_by_hand_cools_nothing_down() {
    let guard = Guardrails { cooldown_s: 600, ..Guardrails::default() };
    let made = record(RoutineSpec { guard, ..spec(schedule("* * * * *", "UTC")) });
    let (now, until) = (UnixMillis(1_000_000), UnixMillis(1_000_000 + 600_000));
    let by_hand = RoutineRecord { fired_at: Some(now), ..made };
    assert_eq!(cools_until(&by_hand, now), None);
    assert_eq!(cools_until(&RoutineRecord { set_off_at: Some(now), ..by_hand }, now), Some(until));
}

fn says(who: &str, role: PrincipalRole, channel: &str, text: &str) -> Inbound {
    Inbound::new(channel.into(), "s".into(), Principal { id: who.into(), role }, Body::Text(text.into()))
}

#[test]
fn a_message_sets_off_what_its_owner_made_through_the_channel_that_it_names() {
    let narrow = Trigger::Event { pattern: "(?i)plants".into(), channel: Some("TELEGRAM".into()) };
    let named = |name: &str, trigger| RoutineSpec { name: name.into(), ..spec(trigger) };
    let of_config = RoutineRecord { origin: RoutineOrigin::Config, ..record(named("config", event("plants"))) };
    let off = RoutineRecord { enabled: false, ..record(named("off", event("plants"))) };
    let elsewhere = Trigger::Event { pattern: "plants".into(), channel: Some("http".into()) };
    let all = [record(named("hers", narrow)), of_config, off, record(named("else", elsewhere))];
    let set = EventSet::of(&all, &EventSet::default());
    let user = PrincipalRole::User;
    for (who, role, channel, text, expected) in [
        ("ann", user, "telegram", "water the PLANTS", vec!["hers"]),
        ("ann", user, "telegram", "good morning", vec![]),
        ("ann", user, "http", "plants", vec![]),
        ("bob", user, "telegram", "plants", vec![]),
        ("ann", PrincipalRole::Operator, "telegram", "plants", vec!["config", "hers"]),
        ("root", PrincipalRole::Operator, "stdin", "plants", vec!["config"]),
    ] {
        let set_off = set.for_message(&says(who, role, channel, text), text);
        let names: Vec<_> = set_off.iter().map(|routine| routine.name.as_str()).collect();
        assert_eq!(names, expected, "{who} {channel} {text}");
    }
}

#[test]
fn what_is_put_over_again_waits_for_what_it_is_now_and_its_pattern_is_kept() {
    let named = |name: &str, trigger| RoutineSpec { name: name.into(), ..spec(trigger) };
    let names = |set: &EventSet, who: &str, text: &str| -> Vec<String> {
        let found = set.for_message(&says(who, PrincipalRole::User, "telegram", text), text);
        found.into_iter().map(|routine| routine.name).collect()
    };
    let (tea, cake) = (record(named("tea", event("tea"))), record(named("cake", event("cake"))));
    let mut set = EventSet::of(&[tea.clone(), cake.clone()], &EventSet::default());
    let mut moved = tea.clone();
    moved.creator.principal = "bob".into();
    set.put(&moved);
    assert_eq!(
        (names(&set, "ann", "tea and cake"), names(&set, "bob", "tea and cake")),
        (vec!["cake".into()], vec!["tea".into()])
    );
    set.put(&RoutineRecord { enabled: false, ..moved });
    set.remove("cake");
    assert_eq!((names(&set, "ann", "tea and cake"), names(&set, "bob", "tea and cake")), (vec![], vec![]));
    let coffee = RoutineRecord { spec: named("tea", event("coffee")), ..tea };
    let again = EventSet::of(&[coffee, cake], &set);
    assert_eq!(names(&again, "ann", "tea, cake, coffee"), ["cake", "tea"]);
}

#[test]
fn a_message_that_is_too_long_to_be_searched_sets_nothing_off() {
    let set = EventSet::of(&[record(spec(event("x$")))], &EventSet::default());
    for (bytes, found) in [(16 * 1024, true), (16 * 1024 + 1, false)] {
        let text = "x".repeat(bytes);
        assert_eq!(!set.for_message(&says("ann", PrincipalRole::User, "telegram", &text), &text).is_empty(), found);
    }
}

/// Prints the time per message: `cargo test -p belay-automation --release -- --ignored --nocapture
/// what_a_message_costs`.
#[test]
#[ignore = "a measurement"]
fn what_a_message_costs_among_ten_thousand_routines_of_others() {
    let of = |n: usize, who: &str| {
        let pattern = format!("(?i)\\b(deploy|release) +number{n}\\b");
        let mut routine = record(RoutineSpec { name: format!("{who}-{n}"), ..spec(event(&pattern)) });
        routine.creator.principal = if who == "ann" { who.to_owned() } else { format!("{who}{}", n / 100) };
        routine
    };
    let all: Vec<_> = (0..10_000).map(|n| of(n, "other")).chain((0..100).map(|n| of(n, "ann"))).collect();
    let begun = std::time::Instant::now();
    let set = EventSet::of(&all, &EventSet::default());
    println!("compiled in {:?}", begun.elapsed());
    let begun = std::time::Instant::now();
    let set = EventSet::of(&all, &set);
    println!("shown again in {:?}", begun.elapsed());
    let long = "what was deployed yesterday, and by whom? ".repeat(380);
    for (who, text) in [("nobody", "good morning"), ("ann", "good morning"), ("ann", "deploy number7"), ("ann", &long)]
    {
        let message = says(who, PrincipalRole::User, "telegram", text);
        set.for_message(&message, text);
        let begun = std::time::Instant::now();
        (0..100).for_each(|_| drop(set.for_message(&message, text)));
        println!("{who}, {} bytes: {:?} a message", text.len(), begun.elapsed() / 100);
    }
}

#[test]
fn an_event_is_compared_without_case_and_by_top_level_fields() {
    let filters = [("n".to_owned(), "7".to_owned()), ("ok".into(), "FALSE".into())].into();
    let waits = Trigger::System { source: "CI".into(), event: "failed".into(), filters };
    let set = EventSet::of(&[record(spec(waits))], &EventSet::default());
    for (source, event, payload, fits) in [
        ("ci", "FAILED", json!({"n": 7, "ok": false, "more": []}), true),
        ("ci", "failed", json!({"n": "7", "ok": "False"}), true),
        ("ci", "failed", json!({"n": 8, "ok": false}), false),
        ("ci", "failed", json!({"n": [7], "ok": false}), false),
        ("ci", "failed", json!(null), false),
        ("cd", "failed", json!({"n": 7, "ok": false}), false),
    ] {
        assert_eq!(!set.for_event(source, event, &payload).is_empty(), fits, "{source} {event} {payload}");
    }
}
