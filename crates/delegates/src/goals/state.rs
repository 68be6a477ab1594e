//! The state of a goal that outlasts a restart. Each checkpoint of its run stores it.

use belay_run::approvals::Standing;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The key of this state in `LoopState::delegate`.
const KEY: &str = "until";

/// The stored state of a goal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct GoalState {
    /// Attempts that have begun.
    pub attempts: u32,
    /// The number of the current check, or of the last one. Its call is named by it.
    pub check: u32,
    /// Whether an attempt is in progress; otherwise the check is due.
    pub working: bool,
    /// Steps of the run before the current attempt.
    pub steps_before: u32,
    /// The permission of the command, once it was admitted.
    pub standing: Option<Standing>,
    /// The result of the last check.
    pub said: String,
}

impl GoalState {
    /// The state that an earlier attempt at the run has stored.
    pub(super) fn read(delegate: &Value) -> Self {
        let stored = delegate.get(KEY).cloned();
        stored.and_then(|state| serde_json::from_value(state).ok()).unwrap_or_default()
    }

    /// Writes the state to `LoopState::delegate`, beside the entries of others; the next checkpoint stores it.
    pub(super) fn write(&self, delegate: &mut Value) {
        if !delegate.is_object() {
            *delegate = Value::Object(Map::new());
        }
        delegate[KEY] = serde_json::to_value(self).unwrap_or_default();
    }
}
