//! Tests longer runs, unchanged and disguised.

use belay_protocol::Arguments;
use serde_json::{Map, Value, json};

use super::super::*;
use super::cases::{HEALTHY, PATHOLOGICAL};
use super::notation::{Event, play, read};

fn found(events: &[Event]) -> Option<(usize, Finding)> {
    play(&ToolLoopConfig::default(), events)
}

/// Ways to disguise a run. None of them changes what the run does.
const DISGUISES: [fn(usize, &Event) -> Vec<Event>; 5] = [shuffled, nonces, noisy, thoughtful, talkative];

fn random(at: usize) -> u64 {
    (at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Puts the keys in another order.
fn shuffled(at: usize, event: &Event) -> Vec<Event> {
    with_arguments(event, |pairs| {
        let turn = at % pairs.len().max(1);
        pairs.rotate_left(turn);
    })
}

/// Adds a request id, a nonce and a time to the arguments.
fn nonces(at: usize, event: &Event) -> Vec<Event> {
    with_arguments(event, |pairs| {
        pairs.push(("request_id".into(), json!(format!("req_{:x}", random(at)))));
        pairs.push(("nonce".into(), json!(random(at) >> 40)));
        pairs.push(("timestamp".into(), json!(format!("2026-01-02T03:{:02}:{:02}Z", at % 60, at % 59 + 1))));
    })
}

/// Adds times, durations and ids to the results.
fn noisy(at: usize, event: &Event) -> Vec<Event> {
    let Event::Result { name, outcome, text } = event else { return vec![event.clone()] };
    let (seconds, id) = (at % 59 + 1, random(at));
    let text = format!("{text}\n[2026-01-02 03:04:{seconds:02}] took {}.{seconds}s, trace_id={id:016x}", at % 17);
    vec![Event::Result { name: name.clone(), outcome: *outcome, text }]
}

/// Adds a reworded thought before each call.
fn thoughtful(at: usize, event: &Event) -> Vec<Event> {
    between(event, call_and_result("think", "thought", &format!("I could look at {:x}", random(at)), "ok"))
}

/// Adds a clock, a ping or a note before each call.
fn talkative(at: usize, event: &Event) -> Vec<Event> {
    let clock = format!("2026-01-02T03:04:{:02}Z", at % 60);
    let harmless = match at % 3 {
        0 => call_and_result("get_current_time", "zone", "UTC", &clock),
        1 => call_and_result("ping", "text", "hello", "pong"),
        _ => call_and_result("add_note", "text", &format!("at it: {at}"), "noted"),
    };
    between(event, harmless)
}

fn call_and_result(name: &str, key: &str, value: &str, text: &str) -> Vec<Event> {
    let arguments = Arguments::Object(Map::from_iter([(key.to_owned(), json!(value))]));
    let (outcome, text) = (CallOutcome::Success, text.to_owned());
    vec![Event::Call { name: name.into(), arguments }, Event::Result { name: name.into(), outcome, text }]
}

fn between(event: &Event, mut before: Vec<Event>) -> Vec<Event> {
    if !matches!(event, Event::Call { .. }) {
        before.clear();
    }
    before.push(event.clone());
    before
}

fn with_arguments(event: &Event, change: impl FnOnce(&mut Vec<(String, Value)>)) -> Vec<Event> {
    let Event::Call { name, arguments: Arguments::Object(map) } = event else { return vec![event.clone()] };
    let mut pairs: Vec<(String, Value)> = map.clone().into_iter().collect();
    change(&mut pairs);
    vec![Event::Call { name: name.clone(), arguments: Arguments::Object(Map::from_iter(pairs)) }]
}

fn disguised(events: &[Event], disguise: fn(usize, &Event) -> Vec<Event>) -> Vec<Event> {
    events.iter().enumerate().flat_map(|(at, event)| disguise(at, event)).collect()
}

#[test]
fn healthy_runs_are_left_alone_however_they_are_disguised() {
    let mut wrong = Vec::new();
    for (what, script) in HEALTHY {
        let plain = read(script);
        let others = DISGUISES.iter().map(|disguise| disguised(&plain, *disguise));
        for (which, events) in std::iter::once(plain.clone()).chain(others).enumerate() {
            if let Some((at, finding)) = found(&events) {
                wrong.push(format!("{what}, disguise {which}: {at}, {} {:?}", finding.rule, finding.quote));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn pathological_runs_are_ended_soon() {
    let mut wrong = Vec::new();
    for (what, script, range) in PATHOLOGICAL {
        let events = read(script);
        let without = ToolLoopConfig { without: Some(Part::Gain), ..ToolLoopConfig::default() };
        let at = play(&without, &events).map_or(0, |(at, _)| at);
        let sooner = found(&events).map_or(usize::MAX, |(at, _)| at);
        if !range.contains(&at) || sooner > at {
            wrong.push(format!("{what}: {at}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn disguises_delay_the_end_of_a_pathological_run_by_a_few_calls_at_most() {
    let mut wrong = Vec::new();
    for (what, script, range) in PATHOLOGICAL {
        let plain = read(script);
        for (which, disguise) in DISGUISES.into_iter().enumerate() {
            let events = disguised(&plain, disguise);
            let calls = |events: &[Event]| events.iter().filter(|event| matches!(event, Event::Call { .. })).count();
            // Harmless calls that were added do not belong to the run.
            let each = calls(&events) / calls(&plain);
            let at = found(&events).map_or(usize::MAX, |(at, _)| at.div_ceil(each));
            if at > range.end() + 3 {
                wrong.push(format!("{what}, disguise {which}: {at} instead of {range:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
