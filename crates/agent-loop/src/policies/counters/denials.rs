//! Counts repeated requests for a call that was denied: the same call, by name and canonical arguments.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::policies::digest;
use crate::policies::observation::{CallOutcome, Observation};

/// Most open calls that are stored; the oldest is dropped first. 64: four times as many as run side by side.
const MAX_OPEN: usize = 64;

/// Most different denied calls that are stored. 64: another rule ends a run with more denials.
const MAX_DENIED: usize = 64;

/// The number of denials of each call.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub(super) struct Denials {
    /// Calls without a result, oldest first: digest of the name, digest of the call.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    open: VecDeque<(u64, u64)>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    denied: BTreeMap<u64, u64>,
    /// Denials of the call that was denied last.
    newest: u64,
}

impl Denials {
    /// Processes an observation.
    pub(super) fn observe(&mut self, seen: &Observation<'_>) {
        match seen {
            // Calls that the previous step left open never get a result.
            Observation::Step => self.open.clear(),
            Observation::ToolCall { name, arguments, .. } => {
                if self.open.len() == MAX_OPEN {
                    self.open.pop_front();
                }
                self.open.push_back((digest::of_name(name), digest::of_call(name, arguments)));
            }
            Observation::ToolResult { name, outcome, .. } => {
                let of_name = digest::of_name(name);
                let oldest = self.open.iter().position(|(open, _)| *open == of_name);
                let call = oldest.and_then(|at| self.open.remove(at)).map_or(of_name, |(_, call)| call);
                if *outcome == CallOutcome::Denied {
                    self.deny(call);
                }
            }
            _ => {}
        }
    }

    fn deny(&mut self, call: u64) {
        if self.denied.len() < MAX_DENIED || self.denied.contains_key(&call) {
            let count = self.denied.entry(call).or_default();
            *count = count.saturating_add(1);
            self.newest = *count;
        }
    }

    /// How often the call that was denied last was denied; 0 if there is none.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::Arguments;

    use super::*;

    #[test]
    fn the_state_stays_small() {
        let mut denials = Denials::default();
        for n in 0..1_000 {
            let arguments = Arguments::parse(&format!(r#"{{"n":{n}}}"#));
            (0..3)
                .for_each(|_| denials.observe(&Observation::ToolCall { name: "t", arguments: &arguments, spec: None }));
            denials.observe(&Observation::ToolResult { name: "t", outcome: CallOutcome::Denied, text: "" });
        }
        assert!(denials.open.len() <= MAX_OPEN && denials.denied.len() <= MAX_DENIED);
        let stored = serde_json::to_string(&denials).expect("serialises");
        assert!(stored.len() < 8_000, "{} bytes", stored.len());
        assert_eq!(serde_json::from_str::<Denials>(&stored).expect("reads back"), denials);
    }
}
