//! The newest calls of a recording, from which the message of a strike names its evidence.

use std::collections::VecDeque;

use belay_agent_loop::account::{Evidence, SeenCall};
use belay_agent_loop::policies::CallOutcome;
use belay_agent_loop::policies::tool_loops::{Outline, ToolLoopConfig};
use belay_protocol::{Arguments, Finding};

/// Calls that are kept: as many as the daemon reads.
const CALLS: usize = 64;

#[derive(Debug)]
struct Call {
    id: Option<String>,
    name: String,
    arguments: Arguments,
    step: u64,
    /// `None`: it has no result yet.
    result: Option<(CallOutcome, String)>,
}

/// The newest calls, the newest last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    calls: VecDeque<Call>,
}

impl Seen {
    pub(super) fn called(&mut self, id: Option<&str>, name: &str, arguments: &Arguments, step: u64) {
        if self.calls.len() == CALLS {
            self.calls.pop_front();
        }
        let (id, name) = (id.map(str::to_owned), name.to_owned());
        self.calls.push_back(Call { id, name, arguments: arguments.clone(), step, result: None });
    }

    pub(super) fn answered(&mut self, id: Option<&str>, name: &str, outcome: CallOutcome, text: &str) {
        let is_same = |call: &&mut Call| match (id, &call.id) {
            (Some(id), Some(of)) => id == of,
            _ => call.name == name,
        };
        if let Some(call) = self.calls.iter_mut().filter(|call| call.result.is_none()).find(is_same) {
            call.result = Some((outcome, text.to_owned()));
        }
    }

    /// The message that the model would get about a strike.
    pub(super) fn told(&self, finding: &Finding) -> String {
        let config = ToolLoopConfig::default();
        let calls: Vec<SeenCall<'_>> = self.calls.iter().rev().map(|call| call.seen(&config)).collect();
        Evidence::of(finding, &calls).for_model()
    }
}

impl Call {
    fn seen(&self, config: &ToolLoopConfig) -> SeenCall<'_> {
        let executed = self.result.as_ref().filter(|(outcome, _)| *outcome != CallOutcome::NotExecuted);
        SeenCall {
            name: &self.name,
            arguments: &self.arguments,
            result: executed.map(|(_, text)| text.as_str()),
            failed: executed.is_some_and(|(outcome, _)| outcome.is_failure()),
            untrusted: false,
            step: u32::try_from(self.step).unwrap_or(u32::MAX),
            outline: Outline::of(config, &self.name, &self.arguments, None),
        }
    }
}
