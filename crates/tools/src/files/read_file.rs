//! `read_file`: returns lines of a text file, or a picture.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolReply, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::blocking;
use crate::arguments;
use crate::config::ToolsConfig;
use crate::picture::{PictureError, Pictures, SNIFFED_BYTES, format_of};
use crate::workspace::Workspace;

/// Longest line that is shown in full, in characters. A longer line is data rather than text.
const MAX_LINE_CHARS: usize = 2000;

/// Most bytes of lines in one result. Below [`belay_protocol::tool::MAX_OUTPUT_BYTES`], so that the gate never cuts
/// this result.
const MAX_LINES_BYTES: usize = 60 * 1024;

/// Number of bytes between two checks for cancellation.
const CHUNK_BYTES: u64 = 256 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    /// First line, from 1.
    #[serde(default)]
    #[schemars(range(min = 1))]
    offset: Option<u64>,
    #[serde(default)]
    #[schemars(range(min = 1))]
    limit: Option<u64>,
}

/// The tool `read_file`.
pub(crate) struct ReadFile {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    pictures: Pictures,
    max_file_bytes: u64,
    max_picture_bytes: u64,
    max_lines: usize,
}

/// The kind of content of a file.
enum Content {
    Text(String),
    /// A picture, not read yet, and its size in bytes.
    Picture(File, u64),
}

/// The requested lines.
struct Window {
    /// Index of the first line, from 0.
    skip: usize,
    /// Most lines.
    take: usize,
}

impl ReadFile {
    pub(crate) fn new(workspace: Arc<Workspace>, pictures: Pictures, config: &ToolsConfig) -> Self {
        let description = "Reads lines of a text file, or shows a picture.";
        Self {
            // File contents and names may come from other people or programs, so they are untrusted content.
            spec: ToolSpec {
                untrusted: true,
                ..arguments::spec::<Arguments>("read_file", description, Effect::Read, Duration::from_secs(30))
            },
            workspace,
            pictures,
            max_file_bytes: config.max_file_bytes,
            max_picture_bytes: config.max_picture_bytes,
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
        let name = path.clone();
        let content = blocking(move || {
            let (mut file, size) = workspace.file(&name)?;
            if is_picture(&name, &mut file)? {
                return Ok(Content::Picture(file, size));
            }
            text_of(&name, file, size, max_bytes, &cancel).map(Content::Text)
        });
        match content.await? {
            Content::Text(text) => window.show(&path, &text),
            Content::Picture(file, size) => self.show_picture(&path, file, size, context).await,
        }
    }
}

impl ReadFile {
    async fn show_picture(&self, path: &str, file: File, size: u64, context: &ToolContext) -> ToolOutput {
        let most = self.max_picture_bytes;
        if size > most {
            return Err(too_large(path, size, most));
        }
        let load = move || {
            let mut bytes = Vec::new();
            file.take(most).read_to_end(&mut bytes).map_err(|error| format!("it could not be read: {error}"))?;
            Ok(bytes)
        };
        match self.pictures.clean(load, &context.cancel).await {
            Ok(cleaned) => {
                let text = format!("[{path}: {cleaned}, {size} bytes]");
                Ok(ToolReply { pictures: vec![cleaned.picture], ..text.into() })
            }
            Err(PictureError::Cancelled) => Err(ToolFailure::Cancelled),
            Err(PictureError::Unreadable(why)) => {
                Err(ToolFailure::failed(format!("The picture {path:?} ({size} bytes) cannot be shown: {why}.")))
            }
        }
    }
}

/// Whether a file begins like a picture. Rewinds the file.
fn is_picture(path: &str, file: &mut File) -> Result<bool, ToolFailure> {
    let failed = |error| ToolFailure::failed(format!("{path:?} could not be read: {error}."));
    let mut beginning = Vec::with_capacity(SNIFFED_BYTES);
    file.take(SNIFFED_BYTES as u64).read_to_end(&mut beginning).map_err(failed)?;
    file.rewind().map_err(failed)?;
    Ok(format_of(&beginning).is_some())
}

/// The whole text of a file, unless it is not text or too large.
pub(super) fn text_of(
    path: &str,
    file: File,
    size: u64,
    max: u64,
    cancel: &CancellationToken,
) -> Result<String, ToolFailure> {
    if size > max {
        return Err(too_large(path, size, max));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    // One byte more than allowed shows that the file has grown since its size was read.
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
    Err(ToolFailure::failed(format!("{path:?} is not text ({size} bytes; {why}).")))
}

fn too_large(path: &str, size: u64, max: u64) -> ToolFailure {
    ToolFailure::failed(format!("{path:?} is too large: {size} bytes or more, and at most {max} are read."))
}

impl Window {
    /// The requested lines, after a header line with their numbers.
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
            let _ = write!(result, "[{} more; continue with offset {}]", lines - last, last + 1);
        } else {
            result.pop();
        }
        Ok(result.into())
    }
}

/// A line for the model: in full, or its beginning with a note about the cut.
fn cut(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        None => line.to_owned(),
        Some((at, _)) => {
            format!("{} [line cut here: {} of {} bytes shown]", &line[..at], at, line.len())
        }
    }
}
