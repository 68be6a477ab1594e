//! Settings of `[sessions.titles]`.

use serde::{Deserialize, Serialize};

/// Values of `[sessions.titles]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TitlesConfig {
    /// Whether a model writes a title for each conversation. Without a limit of money for a day, no title is written.
    pub enabled: bool,
    /// Time without a message after which a conversation gets its title, in seconds: 1 to 60.
    pub after_s: u64,
    /// The name of the model. `None`: the configured one.
    pub model: Option<String>,
}

impl Default for TitlesConfig {
    /// On: a title costs money only where the operator has set a budget, and little of it. 60 s: the time after which a
    /// conversation gives its task back anyway.
    fn default() -> Self {
        Self { enabled: true, after_s: 60, model: None }
    }
}

impl TitlesConfig {
    /// All problems at once, each starting with its key.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=60).contains(&self.after_s) {
            problems.push("sessions.titles.after_s: must be from 1 to 60".to_owned());
        }
        if self.model.as_ref().is_some_and(|model| model.trim().is_empty()) {
            problems
                .push("sessions.titles.model: must not be empty; leave it away for the configured model".to_owned());
        }
        problems
    }
}
