//! A compact notation for recordings, for the tables of the rule sets.

use belay_trajectory::{RuleSet, TrajectoryEvent};

/// Parses one event for each word:
///
/// | word | event |
/// |---|---|
/// | `.` | a turn |
/// | `f(x)` | a call of `f` with the argument `x` |
/// | `f=x`, `f!x` | the result `x` of `f`, or its failure |
/// | `:x` | a whole answer, `~x` a piece of one, `?x` a thought; `_` is a space |
/// | `@x` | a message of the person, `reset` a new request |
pub(super) fn events(text: &str) -> Vec<TrajectoryEvent> {
    text.split_whitespace().map(event).collect()
}

fn event(word: &str) -> TrajectoryEvent {
    let said = |text: &str| text.replace('_', " ");
    match word.split_at_checked(1).unwrap_or_default() {
        (".", "") => return TrajectoryEvent::Turn,
        (":", text) => return TrajectoryEvent::Assistant(said(text)),
        ("~", text) => return TrajectoryEvent::Text(said(text)),
        ("?", text) => return TrajectoryEvent::Other(said(text)),
        ("@", text) => return TrajectoryEvent::User(said(text)),
        _ if word == "reset" => return TrajectoryEvent::Reset,
        _ => {}
    }
    if let Some((name, argument)) = word.strip_suffix(')').and_then(|call| call.split_once('(')) {
        return TrajectoryEvent::tool(name, &format!("{{\"a\":\"{argument}\"}}"));
    }
    match (word.split_once('='), word.split_once('!')) {
        (Some((name, text)), _) => TrajectoryEvent::result(name, true, said(text)),
        (None, Some((name, text))) => TrajectoryEvent::result(name, false, said(text)),
        (None, None) => panic!("{word:?} is no event"),
    }
}

/// The first rule that fires, and its event.
pub(super) fn fired(mut set: impl RuleSet, events: &[TrajectoryEvent]) -> Option<(usize, String)> {
    events.iter().enumerate().find_map(|(at, event)| Some((at, set.observe(event)?)))
}

/// Checks whether the recording `text`, repeated `times`, fires the expected rule.
pub(super) fn check<R: RuleSet + Default>(text: &str, times: usize, expected: Option<&str>) {
    let seen = fired(R::default(), &events(&format!("{text} ").repeat(times)));
    assert_eq!(seen.as_ref().map(|(_, rule)| rule.as_str()), expected, "{text} × {times}: {seen:?}");
}
