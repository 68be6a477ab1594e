//! The algebra: conditions over measures, combined by `any`, `all` and `not`, as the configuration writes them.

use belay_protocol::{Finding, StopReason};
use serde::{Deserialize, Serialize};

use super::measures::Measures;

/// Something that is true or false of a run at every moment. A number is a threshold: true from it on.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// One of these is true.
    Any(Vec<Condition>),
    /// All of these are true.
    All(Vec<Condition>),
    /// This is not true.
    Not(Box<Condition>),
    /// Model calls begun in this request.
    Steps(u64),
    /// Tool calls go in circles.
    ToolLoop(bool),
    /// Streamed text repeats itself.
    Chanting(bool),
}

impl Condition {
    /// What made it true: the first of its parts that is. `None`: it is not true.
    pub fn holds(&self, measures: &Measures) -> Option<Finding> {
        match self {
            Self::Any(parts) => parts.iter().find_map(|part| part.holds(measures)),
            Self::All(parts) => {
                let mut first = None;
                for part in parts {
                    let found = part.holds(measures)?;
                    first.get_or_insert(found);
                }
                first
            }
            Self::Not(part) => match part.holds(measures) {
                Some(_) => None,
                None => Some(Finding::new(StopReason::OperatorRule, "not", 0, 0)),
            },
            Self::Steps(limit) => (measures.steps >= *limit)
                .then(|| Finding::new(StopReason::OperatorRule, "steps", measures.steps, *limit)),
            Self::ToolLoop(wanted) => measures.tool_loops.found().filter(|_| *wanted).cloned(),
            Self::Chanting(wanted) => measures.chanting.found().filter(|_| *wanted).cloned(),
        }
    }
}
