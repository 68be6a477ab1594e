//! Derives a circuit breaker signal from the end of a call. Only a fault of the tool itself counts as a failure.
//!
//! | end of the call | signal |
//! |---|---|
//! | a reply | works |
//! | a failure that the tool reports, an error of the other side, an unreadable answer | fails |
//! | a program that the tool ran: a signal, its time limit, an exit code other than 0 | nothing |
//! | no result before the deadline | fails |
//! | a panic | fails |
//! | one of these failures after the run was told to stop | nothing |
//! | a denial, a secret that the other side refuses, a stop | nothing |
//! | a call that never began: refused by a rule, person or hook, over a rate or budget, invalid arguments | nothing |
//! | a failure of one of the agent's own tools | nothing: it concerns the work that the tool was given |

use belay_protocol::{FaultKind, Secret, ToolCall, ToolFailure, ToolSpec};
use serde_json::Value;

use super::batch::End;
use crate::OWN_TOOLS;
use crate::own_tools::SENDING_TOOLS;
use crate::tool_health::{Fault, ToolSignal};

/// The signal, before the text of the result that people see is known.
#[derive(Debug)]
pub(super) enum ResultSignal {
    Works,
    Fails(FaultKind, Vec<String>),
    Nothing,
}

impl ResultSignal {
    /// The final signal, with the text of the result that people see.
    pub(super) fn seen_in(self, result: &str) -> ToolSignal {
        match self {
            Self::Works => ToolSignal::Works,
            Self::Fails(kind, hidden) => ToolSignal::Fails(Fault::of(kind, result, &hidden)),
            Self::Nothing => ToolSignal::Nothing,
        }
    }
}

/// Derives the signal. `stopped`: the run was told to stop, or its time was up, before the call ended.
pub(super) fn of(
    end: &End,
    spec: &ToolSpec,
    call: &ToolCall,
    credential: Option<&Secret>,
    stopped: bool,
) -> ResultSignal {
    let kind = match end {
        End::Reply(_) => return ResultSignal::Works,
        End::Failure(ToolFailure::Failed(_) | ToolFailure::Unknown(_)) => FaultKind::Failed,
        End::Broken(kind, ..) => *kind,
        End::Failure(
            ToolFailure::Ended(_) | ToolFailure::Denied(_) | ToolFailure::Cancelled | ToolFailure::CredentialRefused(_),
        ) => return ResultSignal::Nothing,
        End::Ours(..) => return ResultSignal::Nothing,
    };
    if stopped || OWN_TOOLS.contains(&&*spec.name) || SENDING_TOOLS.contains(&&*spec.name) {
        return ResultSignal::Nothing;
    }
    ResultSignal::Fails(kind, hidden(spec, call, credential))
}

/// Texts that a report of the failure must not quote: sensitive arguments and the secret.
fn hidden(spec: &ToolSpec, call: &ToolCall, credential: Option<&Secret>) -> Vec<String> {
    let arguments = call.arguments.to_wire_object();
    let sensitive = spec.sensitive.iter().filter_map(|name| arguments.get(name));
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    sensitive.map(text).chain(credential.map(|secret| secret.expose().to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use belay_protocol::{Arguments, ToolReply, ToolStatus};
    use serde_json::json;

    use super::*;

    fn told(end: &End, tool: &str, stopped: bool) -> String {
        let call = ToolCall { id: "c".into(), name: tool.into(), arguments: Arguments::parse("") };
        let spec = ToolSpec::new(tool, "", json!({}));
        match of(end, &spec, &call, None, stopped) {
            ResultSignal::Works => "works".into(),
            ResultSignal::Fails(kind, _) => kind.word().into(),
            ResultSignal::Nothing => "nothing".into(),
        }
    }

    #[test]
    fn only_what_is_of_the_tools_making_counts() {
        let ours = |status| End::Ours(status, "text".into());
        let broken = |kind, status| End::Broken(kind, status, "text".into());
        for (end, expected) in [
            (End::Reply(ToolReply::default()), "works"),
            (End::Failure(ToolFailure::failed("no such host")), "failed"),
            (broken(FaultKind::TimedOut, ToolStatus::Error), "timed_out"),
            (broken(FaultKind::TimedOut, ToolStatus::OutcomeUnknown), "timed_out"),
            (broken(FaultKind::Crashed, ToolStatus::Error), "crashed"),
            (End::Failure(ToolFailure::Ended("[exit code 1]\n3 tests failed".into())), "nothing"),
            (End::Failure(ToolFailure::Denied("a rule".into())), "nothing"),
            (End::Failure(ToolFailure::Cancelled), "nothing"),
            (End::Failure(ToolFailure::CredentialRefused("401".into())), "nothing"),
            (ours(ToolStatus::NotExecuted), "nothing"),
            (ours(ToolStatus::Cancelled), "nothing"),
            (ours(ToolStatus::OutcomeUnknown), "nothing"),
        ] {
            assert_eq!(told(&end, "web_search", false), expected);
            let stopped = if expected == "works" { "works" } else { "nothing" };
            assert_eq!(told(&end, "web_search", true), stopped);
            assert_eq!(told(&end, "spawn_subagent", false), stopped);
        }
    }

    #[test]
    fn secrets_and_sensitive_arguments_are_not_quoted() {
        let arguments = Arguments::parse(r#"{"pin": 48151623, "door": "front", "word": "open sesame"}"#);
        let call = ToolCall { id: "c".into(), name: "door".into(), arguments };
        let sensitive = vec!["pin".to_owned(), "word".to_owned()];
        let spec = ToolSpec { sensitive, ..ToolSpec::new("door", "", json!({})) };
        let end = End::Failure(ToolFailure::failed(""));
        let secret = Secret::new("s3cr3t-t0ken".into());
        let said = of(&end, &spec, &call, Some(&secret), false);
        let text = "front: 48151623, open  sesame and s3cr3t-t0ken were refused";
        let ToolSignal::Fails(fault) = said.seen_in(text) else { panic!("it fails") };
        let expected = "front: [not shown], [not shown] and [not shown] were refused";
        assert_eq!(fault.quote, expected);
    }
}
