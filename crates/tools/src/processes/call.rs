//! The arguments of `process`.

use belay_protocol::ToolFailure;
use schemars::JsonSchema;
use serde::Deserialize;

use super::limits::MAX_WRITTEN_BYTES;

#[derive(Clone, Copy, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(super) enum Action {
    List,
    Read,
    Wait,
    Write,
    Kill,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Arguments {
    /// read: the output. wait: until it prints pattern, or ends. write: to its standard input.
    pub(super) action: Action,
    /// Such as p1; not for list.
    #[serde(default)]
    pub(super) id: Option<String>,
    /// read, wait: first byte; the first unread one without it.
    #[serde(default)]
    pub(super) offset: Option<u64>,
    /// wait: a regular expression for a line.
    #[serde(default)]
    pub(super) pattern: Option<String>,
    /// wait: most seconds; 30 without it.
    #[serde(default)]
    #[schemars(range(min = 1, max = 300))]
    pub(super) timeout_s: Option<u32>,
    /// write: the text. A line ends with \n.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// write: ends its standard input.
    #[serde(default)]
    pub(super) end: bool,
}

/// The text to write.
pub(super) fn text_of(text: Option<String>, end: bool) -> Result<String, ToolFailure> {
    match text {
        Some(text) if text.len() > MAX_WRITTEN_BYTES => Err(ToolFailure::failed(format!(
            "text has more than {MAX_WRITTEN_BYTES} bytes; nothing was written. Write it in parts, or into a file."
        ))),
        Some(text) if !text.is_empty() || end => Ok(text),
        None if end => Ok(String::new()),
        _ => Err(ToolFailure::failed("The action write needs text, or end.")),
    }
}
