//! What a run does now, for one display. It costs nothing until somebody asks for it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use belay_protocol::{CallId, ContextUse, LiveCall, LivePlan, LiveState};
use serde_json::{Map, Value};
use tokio::sync::watch;

/// Maximum length of the arguments of a call, in characters.
const ARGUMENT_CHARS: usize = 200;
/// Replaces a sensitive argument.
const NOT_SHOWN: &str = "…";

/// The present state of a run, from the moment that a display follows it.
#[derive(Debug, Default)]
pub struct RunDisplay(OnceLock<watch::Sender<LiveState>>);

impl RunDisplay {
    /// Follows the state from now on.
    pub fn follow(&self) -> watch::Receiver<LiveState> {
        self.0.get_or_init(watch::Sender::default).subscribe()
    }

    /// A tool call begins.
    pub(crate) fn call_begins(&self, id: &CallId, tool: &str, arguments: &Map<String, Value>, sensitive: &[String]) {
        self.change(|state| {
            let argument = bounded(&short_arguments(arguments, sensitive), ARGUMENT_CHARS);
            state.calls.push(LiveCall { id: id.clone(), tool: tool.to_owned(), argument });
        });
    }

    /// A tool call has ended, or was given up. `done`: how long it took, and whether it succeeded; `None`: it was no call.
    pub(crate) fn call_ended(&self, id: &CallId, done: Option<(Duration, bool)>) {
        self.change(|state| {
            let Some(at) = state.calls.iter().position(|call| call.id == *id) else { return };
            let call = state.calls.remove(at);
            if let Some((took, is_success)) = done {
                state.end_call(call, took, is_success);
            }
        });
    }

    /// Sets the tokens and the cost so far.
    pub(crate) fn spent(&self, so_far: impl FnOnce() -> (u64, u64)) {
        self.change(|state| (state.tokens, state.cost_micro_usd) = so_far());
    }

    /// Sets how full the context of the model is after a step.
    pub(crate) fn filled(&self, context: ContextUse) {
        self.change(|state| state.context = Some(context));
    }

    /// Sets the plan of the run. `plan` is called if somebody follows.
    pub fn planned(&self, plan: impl FnOnce() -> LivePlan) {
        self.change(|state| state.plan = Some(Arc::new(plan())));
    }

    fn change(&self, change: impl FnOnce(&mut LiveState)) {
        if let Some(state) = self.0.get().filter(|state| state.receiver_count() > 0) {
            state.send_modify(change);
        }
    }
}

/// The arguments of a call on one line, as `name: value, …`. Values of `sensitive` arguments are not shown.
pub fn arguments_line(arguments: &Map<String, Value>, sensitive: &[String]) -> String {
    let shown = |(name, value): (&String, &Value)| match value {
        _ if sensitive.contains(name) => format!("{name}: {NOT_SHOWN}"),
        Value::String(text) => format!("{name}: {text}"),
        value => format!("{name}: {value}"),
    };
    let all: Vec<String> = arguments.iter().map(shown).collect();
    one_line(&all.join(", "))
}

/// The same without the name of a single argument, and with a list of words as these words.
fn short_arguments(arguments: &Map<String, Value>, sensitive: &[String]) -> String {
    let mut all = arguments.iter();
    let (Some((name, value)), None) = (all.next(), all.next()) else { return arguments_line(arguments, sensitive) };
    match value {
        _ if sensitive.contains(name) => NOT_SHOWN.to_owned(),
        Value::String(text) => one_line(text),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            one_line(&words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "))
        }
        value => one_line(&value.to_string()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The beginning of a text, at most `most` characters, with an ellipsis if something was cut off.
pub(crate) fn bounded(line: &str, most: usize) -> String {
    match line.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::EndedCall;

    use super::*;

    fn map(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    #[test]
    fn arguments_are_one_bounded_line_without_secrets() {
        let secret = ["token".to_owned()];
        for (arguments, expected) in [
            (serde_json::json!({}), ""),
            (serde_json::json!({"path": "a\n  b"}), "a b"),
            (serde_json::json!({"token": "s3cret"}), "…"),
            (serde_json::json!({"n": 3, "token": "s3cret"}), "n: 3, token: …"),
            (serde_json::json!({"argv": ["cargo", "test"]}), "cargo test"),
            (serde_json::json!({"text": "abcdefghijklmnopqrstuvwxyz"}), "abcdefghijklmnopqrst…"),
        ] {
            assert_eq!(bounded(&short_arguments(&map(arguments.clone()), &secret), 20), expected, "{arguments}");
        }
    }

    #[test]
    fn a_display_sees_the_running_calls_and_the_cost() {
        let display = RunDisplay::default();
        display.spent(|| unreachable!("nobody follows"));
        let mut state = display.follow();
        let (one, two) = (CallId::from("1"), CallId::from("2"));
        display.call_begins(&one, "look", &map(serde_json::json!({"path": "a"})), &[]);
        display.call_begins(&two, "wait", &Map::new(), &[]);
        display.call_ended(&one, Some((Duration::from_secs(1), true)));
        let context = ContextUse { used_tokens: 12, context_tokens: 100 };
        display.filled(context);
        display.spent(|| (12, 34));
        let wait = LiveCall { id: two, tool: "wait".into(), argument: String::new() };
        let look = LiveCall { id: one, tool: "look".into(), argument: "a".into() };
        let ended = vec![EndedCall { number: 1, call: look, took: Duration::from_secs(1), is_success: true }];
        display.planned(|| LivePlan::new("tidy", vec!["look".into()]));
        let expected = LiveState {
            calls: vec![wait],
            ended,
            tokens: 12,
            cost_micro_usd: 34,
            context: Some(context),
            plan: Some(Arc::new(LivePlan::new("tidy", vec!["look".into()]))),
        };
        assert_eq!(*state.borrow_and_update(), expected);
    }
}
