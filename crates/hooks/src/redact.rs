//! A built-in hook: replaces matches in texts.

use async_trait::async_trait;
use belay_protocol::{Hook, HookAnswer, HookEvent, HookPoint};
use regex::{NoExpand, Regex};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most patterns. 64: each is searched for in each text.
const MAX_PATTERNS: usize = 64;
/// The field that contains the text of a point.
const FIELD: &str = "text";

/// `redact = { patterns = […] }`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedactConfig {
    /// Regular expressions, 1 to 64, in the syntax of the crate `regex`. Matching takes linear time for every text.
    pub patterns: Vec<String>,
    /// The text that replaces a match, literally: `$1` has no meaning.
    pub replacement: String,
}

impl Default for RedactConfig {
    fn default() -> Self {
        Self { patterns: Vec::new(), replacement: "[redacted]".into() }
    }
}

impl RedactConfig {
    /// The default points.
    pub(crate) const POINTS: [HookPoint; 2] = [HookPoint::ToolResultPersist, HookPoint::MessageSending];
    /// The possible points.
    pub(crate) const POSSIBLE: [HookPoint; 3] =
        [HookPoint::ToolResultPersist, HookPoint::MessageReceived, HookPoint::MessageSending];

    pub(crate) fn problems(&self) -> Vec<(&'static str, String)> {
        let key = ".redact.patterns";
        let mut problems = Vec::new();
        if !(1..=MAX_PATTERNS).contains(&self.patterns.len()) {
            problems.push((key, format!("give 1 to {MAX_PATTERNS} patterns")));
        }
        for pattern in &self.patterns {
            match Regex::new(pattern) {
                Ok(regex) if regex.is_match("") => {
                    problems.push((key, format!("{pattern:?} fits the empty text, and so every place of any text")));
                }
                Ok(_) => {}
                Err(error) => {
                    // The last line of the message is the reason. The lines before it draw the position.
                    let why = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
                    problems.push((key, format!("{pattern:?} is no regular expression: {why}")));
                }
            }
        }
        problems
    }
}

/// Replaces matches in the field `text`.
#[derive(Debug)]
pub struct Redact {
    name: String,
    patterns: Vec<Regex>,
    replacement: String,
}

impl Redact {
    /// Makes a hook with this name.
    ///
    /// # Errors
    /// A pattern is not a regular expression.
    pub fn new(name: String, config: &RedactConfig) -> Result<Self, regex::Error> {
        let patterns = config.patterns.iter().map(|pattern| Regex::new(pattern)).collect::<Result<_, _>>()?;
        Ok(Self { name, patterns, replacement: config.replacement.clone() })
    }
}

#[async_trait]
impl Hook for Redact {
    fn name(&self) -> &str {
        &self.name
    }

    async fn call(&self, event: &HookEvent) -> Result<HookAnswer, String> {
        let Some(text) = event.data.get(FIELD).and_then(Value::as_str) else { return Ok(HookAnswer::Continue) };
        let mut redacted = text.to_owned();
        for pattern in &self.patterns {
            if pattern.is_match(&redacted) {
                redacted = pattern.replace_all(&redacted, NoExpand(&self.replacement)).into_owned();
            }
        }
        if redacted == text {
            return Ok(HookAnswer::Continue);
        }
        Ok(HookAnswer::Change(Map::from_iter([(FIELD.to_owned(), redacted.into())])))
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::UnixMillis;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn matches_are_replaced_and_the_rest_is_left_alone() {
        let patterns = vec!["sk-[a-z0-9]{4,}".to_owned(), r"\b\d{4}-\d{4}\b".to_owned()];
        let config = RedactConfig { patterns, replacement: "$0".into() };
        let redact = Redact::new("no-keys".into(), &config).expect("the patterns are right");
        let changed = |text: &str| HookAnswer::Change(Map::from_iter([("text".to_owned(), text.into())]));
        for (data, expected) in [
            (json!({"text": "nothing here"}), HookAnswer::Continue),
            (json!({"text": "use sk-abc123, then sk-zzzz"}), changed("use $0, then $0")),
            (json!({"text": "card 1234-5678"}), changed("card $0")),
            (json!({"reason": "sk-abc123"}), HookAnswer::Continue),
            (json!(null), HookAnswer::Continue),
        ] {
            let word = HookPoint::MessageSending.word();
            let event = HookEvent { hook: word, at: UnixMillis(0), session: None, run_id: None, data };
            assert_eq!(redact.call(&event).await, Ok(expected), "{:?}", event.data);
        }
    }
}
