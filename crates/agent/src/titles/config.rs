//! Settings of `[sessions.titles]`.

use serde::{Deserialize, Serialize};

/// Values of `[sessions.titles]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TitlesConfig {
    /// Time without a message after which a model writes the title of a conversation, in seconds: 1 to 60; 0: it writes
    /// none. Without a limit of money for a day, no title is written.
    pub after_s: u64,
    /// The name of the model. `None`: the configured one. The settings have it as `llm.small_model`.
    #[serde(skip)]
    pub model: Option<String>,
}

impl Default for TitlesConfig {
    /// On: a title costs money only where the operator has set a budget, and little of it. 60 s: the time after which a
    /// conversation gives its task back anyway.
    fn default() -> Self {
        Self { after_s: 60, model: None }
    }
}

impl TitlesConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.after_s > 60 {
            problems.push("sessions.titles.after_s: must be at most 60; 0: no titles".to_owned());
        }
        problems
    }
}
