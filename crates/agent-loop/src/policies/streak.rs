//! The latest of a kind, counted while nothing else comes between.

use serde::{Deserialize, Serialize};

/// Longest name that is kept for evidence, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// How many calls in a row had the same fault, and the tool of the newest one.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq, Default)]
#[serde(default)]
pub(crate) struct Streak {
    count: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    tool: String,
}

impl Streak {
    /// One more. The buffer of the name is used again.
    pub(crate) fn add(&mut self, tool: &str) {
        self.count = self.count.saturating_add(1);
        self.tool.clear();
        self.tool.push_str(&tool[..tool.floor_char_boundary(MAX_NAME_BYTES)]);
    }

    /// Something else came between.
    pub(crate) fn reset(&mut self) {
        self.count = 0;
        self.tool.clear();
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn tool(&self) -> &str {
        &self.tool
    }
}
