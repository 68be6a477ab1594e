//! The figures of a run whose answer is about to be shown: its tokens and its cost, and how full the context is. They
//! take one request for the run and one for the context, once per answer.

use std::time::Duration;

use belay_protocol::{ContextUse, LiveState, RunId};
use serde_json::Value as Json;
use tokio::time::timeout;

use crate::client::{Client, number};

/// Longest wait for the figures. 1 s: the answer, which waits for them, is worth more than they are.
const WAIT: Duration = Duration::from_secs(1);

/// The state of a run with its figures. Without an answer of the daemon, those of `known`: the state that its events
/// tell.
///
/// # Cancel safety
/// Nothing is changed.
pub(super) async fn of(client: &Client, session: &str, run: RunId, known: Option<LiveState>) -> LiveState {
    let id = run.to_string();
    let (of_run, of_context) = (["api", "v1", "runs", &id], ["api", "v1", "sessions", session, "context"]);
    let both = Box::pin(async { tokio::join!(client.get(&of_run, &[]), client.get(&of_context, &[])) });
    let asked = timeout(WAIT, both);
    let (record, context) = asked.await.map_or((None, None), |(record, context)| (record.ok(), context.ok()));
    with(known.unwrap_or_default(), record.as_ref(), context.as_ref())
}

/// The state with the figures of a run's record and of a report about the context.
fn with(mut state: LiveState, record: Option<&Json>, context: Option<&Json>) -> LiveState {
    if let Some(record) = record {
        state.tokens = number(record, "/usage/input").saturating_add(number(record, "/usage/output"));
        state.cost_micro_usd = number(record, "/cost_micro_usd");
    }
    let (used, size) = ("/used_tokens", "/context_tokens");
    state.context =
        context.map(|report| ContextUse { used_tokens: number(report, used), context_tokens: number(report, size) });
    state
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_figures_are_those_of_the_daemon_or_else_those_of_the_events() {
        let known = LiveState { tokens: 5, ..LiveState::default() };
        let record = json!({"usage": {"input": 1000, "output": 234}, "cost_micro_usd": 3000});
        let report = json!({"used_tokens": 120, "context_tokens": 1000});
        let state = with(known.clone(), Some(&record), Some(&report));
        let percent = state.context.and_then(ContextUse::percent);
        assert_eq!((state.tokens, state.cost_micro_usd, percent), (1234, 3000, Some(12)));
        let state = with(known.clone(), None, Some(&json!({"used_tokens": 1})));
        assert_eq!((state.tokens, state.context.and_then(ContextUse::percent)), (5, None), "the size is unknown");
        assert_eq!(with(known.clone(), None, None), known);
    }
}
