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
    /// list: the background processes. read: what one has printed. wait: until it prints something, or ends. write: to its
    /// standard input. kill: ends it.
    pub(super) action: Action,
    /// The process, such as p1. For all actions but list.
    #[serde(default)]
    pub(super) id: Option<String>,
    /// read, wait: the byte of its output to begin with. Without it: the first that was not read yet.
    #[serde(default)]
    pub(super) offset: Option<u64>,
    /// wait: a regular expression, matched against each line from offset on. Without it: waits until the process ends.
    #[serde(default)]
    pub(super) pattern: Option<String>,
    /// wait: the most seconds, 1 to 300. Without it: 30.
    #[serde(default)]
    #[schemars(range(min = 1, max = 300))]
    pub(super) timeout_s: Option<u32>,
    /// write: the text. A line ends with \n.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// write: whether its standard input ends after the text.
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
