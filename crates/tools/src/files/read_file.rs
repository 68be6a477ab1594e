//! `read_file`: the lines of a text file.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::blocking;
use crate::arguments;
use crate::config::ToolsConfig;
use crate::workspace::Workspace;

/// Longest line shown whole, in characters. Longer ones are data rather than text.
const MAX_LINE_CHARS: usize = 2000;

/// Room for lines in one result, in bytes: below [`arguments::MAX_OUTPUT_BYTES`], so that the gate never cuts what this
/// tool has counted.
const MAX_LINES_BYTES: usize = 60 * 1024;

/// Bytes read between two looks at the cancellation.
const CHUNK_BYTES: u64 = 256 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The file, relative to the workspace, such as `notes/today.md`.
    path: String,
    /// First line to read, counted from 1. Without it: 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    /// Most lines to read. Without it: as many as fit, at most 2000.
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

/// Reads a text file.
pub(crate) struct ReadFile {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    max_file_bytes: u64,
    max_lines: usize,
}

/// Which lines are wanted.
struct Window {
    /// Index of the first one, from 0.
    skip: usize,
    /// Most lines.
    take: usize,
}

impl ReadFile {
    pub(crate) fn new(workspace: Arc<Workspace>, config: &ToolsConfig) -> Self {
        let description = "Reads a text file of the workspace: its lines, and which of how many they are. Long files \
            are read in parts with offset and limit.";
        Self {
            spec: arguments::spec::<Arguments>("read_file", description, Effect::Read, Duration::from_secs(30)),
            workspace,
            max_file_bytes: config.max_file_bytes,
            max_lines: config.max_read_lines as usize,
        }
    }
}

#[async_trait]
impl Tool for ReadFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Arguments { path, offset, limit } = arguments::read(arguments)?;
        if offset == Some(0) || limit == Some(0) {
            return Err(ToolFailure::failed("offset and limit count from 1."));
        }
        let as_index = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let window = Window {
            skip: as_index(offset.unwrap_or(1) - 1),
            take: limit.map_or(self.max_lines, as_index).min(self.max_lines),
        };
        let (workspace, max_bytes, cancel) = (self.workspace.clone(), self.max_file_bytes, context.cancel.clone());
        blocking(move || {
            let (file, size) = workspace.file(&path)?;
            let text = text_of(&path, file, size, max_bytes, &cancel)?;
            window.show(&path, &text)
        })
        .await
    }
}

/// The whole text of a file, if it is text and not too large.
fn text_of(path: &str, file: File, size: u64, max: u64, cancel: &CancellationToken) -> Result<String, ToolFailure> {
    if size > max {
        return Err(too_large(path, size, max));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // One byte more than is allowed shows that the file has grown since it was measured.
    let mut rest = file.take(max + 1);
    loop {
        if cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        let read = (&mut rest).take(CHUNK_BYTES).read_to_end(&mut bytes);
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => return Err(ToolFailure::failed(format!("{path:?} could not be read: {error}."))),
        }
    }
    let size = bytes.len() as u64;
    if size > max {
        return Err(too_large(path, size, max));
    }
    let why = match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => return Ok(text),
        Ok(_) => "it has zero bytes",
        Err(_) => "it is not UTF-8",
    };
    Err(ToolFailure::failed(format!("{path:?} is not text ({size} bytes; {why}). read_file shows text files only.")))
}

fn too_large(path: &str, size: u64, max: u64) -> ToolFailure {
    ToolFailure::failed(format!("{path:?} is too large: {size} bytes or more, and at most {max} are read."))
}

impl Window {
    /// The wanted lines under a line that says which they are.
    fn show(&self, path: &str, text: &str) -> ToolOutput {
        let lines = text.lines().count();
        if lines == 0 {
            return Ok(format!("[{path}: empty, 0 bytes]").into());
        }
        if self.skip >= lines {
            return Err(ToolFailure::failed(format!(
                "{path:?} has {lines} line(s); line {} is behind its end.",
                self.skip.saturating_add(1)
            )));
        }
        let mut body = String::new();
        let mut shown = 0;
        for line in text.lines().skip(self.skip).take(self.take) {
            let line = cut(line);
            if !body.is_empty() && body.len() + line.len() + 1 > MAX_LINES_BYTES {
                break;
            }
            body.push_str(&line);
            body.push('\n');
            shown += 1;
        }
        let (first, last) = (self.skip + 1, self.skip + shown);
        let mut result = format!("[{path}: lines {first}-{last} of {lines}]\n{body}");
        if last < lines {
            // Writing to a String cannot fail.
            let _ = write!(result, "[{} more; go on with offset {}]", lines - last, last + 1);
        } else {
            result.pop();
        }
        Ok(result.into())
    }
}

/// A line as it is shown: whole, or its beginning and how much is missing.
fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        None => line.to_owned(),
        Some((at, _)) => {
            format!("{} [line cut here: {} of {} bytes shown]", &line[..at], at, line.len())
        }
    }
}
