//! Runs that loop, played to the stop engine, and the account of each strike.

mod marks;
mod table;

use std::sync::Arc;

use belay_protocol::{Arguments, Finding, Message, StopReason, ToolCall, ToolResult, ToolStatus};
use serde_json::Value;

use super::{Evidence, calls};
use crate::policies::tool_loops::{Outline, REPEATED_CALLS_WITHOUT_PROGRESS, ToolLoopConfig};
use crate::policies::{Action, CallOutcome, Observation, StopRules, StopState, Verdict};

/// A call with its result. A result that begins with `!` is an error.
pub(super) type Played = (&'static str, Value, String);

/// A conversation of calls, one in each step.
struct Conversation(Vec<Arc<Message>>, u32);

impl Conversation {
    fn new() -> Self {
        Self(vec![Arc::new(Message::user("Do it."))], 0)
    }

    fn add(&mut self, name: &str, arguments: &Arguments, status: ToolStatus, text: &str) {
        let call = ToolCall { id: "c".into(), name: name.into(), arguments: arguments.clone() };
        let result = ToolResult { call_id: "c".into(), name: name.into(), status, text: text.into() };
        let untrusted = text.starts_with("<untrusted");
        self.0.push(Arc::new(Message::assistant_calls("", vec![call])));
        self.0.push(Arc::new(Message::tool(result).with_untrusted(untrusted)));
        self.1 += 1;
    }

    fn evidence(&self, finding: &Finding) -> Evidence {
        Evidence::of(finding, &calls::newest(&self.0, self.1, |call| outline(&call.name, &call.arguments)))
    }
}

fn outline(name: &str, arguments: &Arguments) -> Outline {
    Outline::of(&ToolLoopConfig::default(), name, arguments, None)
}

/// Plays calls until a rule strikes or stops. Returns its evidence.
pub(super) fn played(calls: impl IntoIterator<Item = Played>) -> Evidence {
    let (rules, mut state, mut conversation) = (StopRules::progress(), StopState::default(), Conversation::new());
    for (name, arguments, result) in calls {
        let arguments = Arguments::parse(&arguments.to_string());
        let strike = |verdict: Option<Verdict>| verdict.filter(|verdict| verdict.action != Action::Notice);
        state.observe(&rules, Observation::Step);
        let before = strike(state.observe(&rules, Observation::ToolCall { name, arguments: &arguments, spec: None }));
        let (status, outcome) = match (&before, result.starts_with('!')) {
            (Some(_), _) => (ToolStatus::NotExecuted, CallOutcome::NotExecuted),
            (None, true) => (ToolStatus::Error, CallOutcome::Failed),
            (None, false) => (ToolStatus::Success, CallOutcome::Success),
        };
        let text = result.trim_start_matches('!');
        conversation.add(name, &arguments, status, text);
        let after = strike(state.observe(&rules, Observation::ToolResult { name, outcome, text }));
        if let Some(Verdict { finding, .. }) = before.or(after) {
            return conversation.evidence(&finding);
        }
    }
    panic!("no rule fired in {} calls", conversation.1);
}

/// The evidence of repeated answers, found at the last of these calls.
pub(super) fn repeated(calls: impl IntoIterator<Item = Played>) -> Evidence {
    let mut conversation = Conversation::new();
    let mut finding =
        Finding::new(StopReason::ToolLoop, REPEATED_CALLS_WITHOUT_PROGRESS, 4, 4).with("repeated_answers", true);
    for (name, arguments, result) in calls {
        let arguments = Arguments::parse(&arguments.to_string());
        conversation.add(name, &arguments, ToolStatus::Success, &result);
        let fingerprint = format!("{:016x}", outline(name, &arguments).fingerprint);
        finding.fingerprints.retain(|known| *known != fingerprint);
        finding.fingerprints.push(fingerprint);
    }
    let most = finding.fingerprints.len().saturating_sub(5);
    finding.fingerprints.drain(..most);
    conversation.evidence(&finding)
}

/// The evidence of a finding about no calls.
pub(super) fn found(finding: Finding) -> Evidence {
    Evidence::of(&finding, &[])
}
