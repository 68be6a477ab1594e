//! `search_files`: lines of the workspace's text files that match a regular expression.
//!
//! Expressions run in time linear in the text. What is searched is bounded in files, bytes and time, and whatever is
//! left out is counted in the result.

mod walk;

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use self::walk::{LeftOut, Walk};
use super::blocking;
use crate::arguments;
use crate::config::ToolsConfig;
use crate::workspace::{Workspace, shown};

/// Longest pattern and glob, in bytes.
const MAX_PATTERN_BYTES: usize = 1000;
/// Largest compiled expression, in bytes: `(\pL{100}){100}` is refused instead of filling the memory.
const MAX_COMPILED_BYTES: usize = 1024 * 1024;
/// Most lines before and after a match.
const MAX_CONTEXT: u32 = 20;
/// Matches that are shown where the call does not say, and at most.
const USUAL_MATCHES: u32 = 100;
const MAX_MATCHES: u32 = 1000;
/// Longest line that is shown whole, in characters.
const MAX_LINE_CHARS: usize = 300;
/// Room for lines in one result, in bytes; below [`belay_protocol::tool::MAX_OUTPUT_BYTES`].
const MAX_RESULT_BYTES: usize = 60 * 1024;
/// Most bytes that one call reads. 512 MiB: a few seconds from a fast disk.
const MAX_SEARCHED_BYTES: u64 = 512 * 1024 * 1024;
/// Longest time one call searches; what it has found by then is its result.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(20);
/// Bytes at the beginning of a file in which a zero byte makes it binary: enough to see what every common format is.
const SNIFFED_BYTES: usize = 8 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// A regular expression, matched against each line: `fn \w+`, or `(?i)todo` where case does not count. No
    /// look-around, no back-references.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    /// The directory or file to search, relative to the workspace. Without it: all of the workspace.
    #[serde(default)]
    path: Option<String>,
    /// Only files whose name, or whose path beneath the directory when the glob has a slash, matches: `*.rs`,
    /// `src/**/*.{c,h}`.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    glob: Option<String>,
    /// Lines to show before and after each match, 0 to 20. Without it: 0.
    #[serde(default)]
    #[schemars(range(max = 20))]
    context: Option<u32>,
    /// Most matching lines to show, 1 to 1000. Without it: 100.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    max: Option<u32>,
}

/// Searches text files.
pub(crate) struct SearchFiles {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    max_file_bytes: u64,
}

impl SearchFiles {
    pub(crate) fn new(workspace: Arc<Workspace>, config: &ToolsConfig) -> Self {
        let description = "Finds lines in the text files of the workspace by a regular expression: path, line number \
            and line. Directories named .git are left out unless path leads into one; links are not followed.";
        let timeout = MAX_SEARCH_TIME + Duration::from_secs(10);
        Self {
            spec: arguments::spec::<Arguments>("search_files", description, Effect::Read, timeout),
            workspace,
            max_file_bytes: config.max_file_bytes,
        }
    }
}

#[async_trait]
impl Tool for SearchFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Arguments { pattern, path, glob, context: around, max } = arguments::read(arguments)?;
        let glob = glob.filter(|glob| !glob.is_empty());
        let mut search = Search {
            expression: compile(&pattern)?,
            around: around.unwrap_or(0).min(MAX_CONTEXT) as usize,
            room: max.unwrap_or(USUAL_MATCHES).clamp(1, MAX_MATCHES) as usize,
            max_file_bytes: self.max_file_bytes,
            bytes_left: MAX_SEARCHED_BYTES,
            lines: String::new(),
            matches: 0,
            files_with: 0,
            searched: 0,
        };
        let filter = glob.as_deref().map(Filter::new).transpose()?;
        let (workspace, cancel) = (self.workspace.clone(), context.cancel.clone());
        blocking(move || {
            let path = path.as_deref().unwrap_or(".");
            let mut walk = Walk::new(&workspace, path, filter.as_ref(), &cancel)?;
            let left_out = search.run(&mut walk, &cancel)?;
            Ok(search.report(path, &left_out).into())
        })
        .await
    }
}

fn compile(pattern: &str) -> Result<Regex, ToolFailure> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES {
        return Err(ToolFailure::failed(format!("The pattern must have from 1 to {MAX_PATTERN_BYTES} bytes.")));
    }
    RegexBuilder::new(pattern).size_limit(MAX_COMPILED_BYTES).dfa_size_limit(MAX_COMPILED_BYTES).build().map_err(
        |error| {
            ToolFailure::failed(format!(
                "{pattern:?} is not a regular expression that can be used here: {error}\nTo find text as it is, escape \
             . * + ? ( ) [ ] {{ }} ^ $ | and \\ with a backslash."
            ))
        },
    )
}

/// Which files are meant.
struct Filter {
    glob: GlobMatcher,
    /// Whether paths are matched rather than names.
    paths: bool,
}

impl Filter {
    fn new(glob: &str) -> Result<Self, ToolFailure> {
        if glob.len() > MAX_PATTERN_BYTES {
            return Err(ToolFailure::failed(format!("The glob has more than {MAX_PATTERN_BYTES} bytes.")));
        }
        let built = GlobBuilder::new(glob.trim_start_matches("./")).literal_separator(true).build();
        let built = built.map_err(|error| ToolFailure::failed(format!("{glob:?} is not a glob: {}.", error.kind())))?;
        Ok(Self { glob: built.compile_matcher(), paths: glob.contains('/') })
    }

    fn takes(&self, beneath: &str) -> bool {
        let name = beneath.rsplit('/').next().unwrap_or(beneath);
        self.glob.is_match(if self.paths { beneath } else { name })
    }
}

/// One search as it goes on.
struct Search {
    expression: Regex,
    around: usize,
    /// Matches that may still be shown.
    room: usize,
    max_file_bytes: u64,
    bytes_left: u64,
    lines: String,
    matches: usize,
    files_with: usize,
    searched: usize,
}

impl Search {
    fn run(&mut self, walk: &mut Walk<'_>, cancel: &CancellationToken) -> Result<LeftOut, ToolFailure> {
        let deadline = Instant::now() + MAX_SEARCH_TIME;
        while let Some(found) = walk.next()? {
            if cancel.is_cancelled() {
                return Err(ToolFailure::Cancelled);
            }
            if self.room == 0 || self.lines.len() > MAX_RESULT_BYTES {
                walk.left_out.stopped = Some("as many lines as are shown had been found");
                break;
            }
            if self.bytes_left == 0 || Instant::now() > deadline {
                walk.left_out.stopped = Some("its time or its amount of reading was used up");
                break;
            }
            if found.size > self.max_file_bytes {
                walk.left_out.too_large += 1;
                continue;
            }
            match read_text(found.file, self.max_file_bytes) {
                Ok(Some(bytes)) => {
                    self.bytes_left = self.bytes_left.saturating_sub(bytes.len() as u64);
                    self.search(&found.path, &bytes);
                }
                Ok(None) => walk.left_out.binary += 1,
                Err(_) => walk.left_out.unreadable += 1,
            }
        }
        Ok(std::mem::take(&mut walk.left_out))
    }

    /// Adds the matching lines of one file.
    fn search(&mut self, path: &str, bytes: &[u8]) {
        self.searched += 1;
        let name = shown(path.as_bytes());
        let lines: Vec<&[u8]> =
            bytes.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
        // The last piece behind a closing line break is no line.
        let count = if lines.last().is_some_and(|line| line.is_empty()) { lines.len() - 1 } else { lines.len() };
        let (mut first, mut next_shown) = (true, 0);
        for at in 0..count {
            if !self.expression.is_match(lines[at]) {
                continue;
            }
            if self.room == 0 || self.lines.len() > MAX_RESULT_BYTES {
                self.room = 0;
                break;
            }
            let from = at.saturating_sub(self.around).max(next_shown);
            if self.around > 0 && !self.lines.is_empty() && (first || from > next_shown) {
                self.lines.push_str("--\n");
            }
            for before in from..at {
                self.show(&name, before, '-', lines[before]);
            }
            if at >= next_shown {
                self.show(&name, at, ':', lines[at]);
            }
            next_shown = next_shown.max(at + 1);
            let until = (at + 1 + self.around).min(count);
            while next_shown < until && !self.expression.is_match(lines[next_shown]) {
                self.show(&name, next_shown, '-', lines[next_shown]);
                next_shown += 1;
            }
            self.files_with += usize::from(first);
            first = false;
            self.matches += 1;
            self.room -= 1;
        }
    }

    fn show(&mut self, name: &str, at: usize, mark: char, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let end = text.char_indices().nth(MAX_LINE_CHARS).map_or(text.len(), |(at, _)| at);
        let cut = if end < text.len() { " [cut]" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(self.lines, "{name}{mark}{}{mark} {}{cut}", at + 1, &text[..end]);
    }

    fn report(mut self, path: &str, left_out: &LeftOut) -> String {
        let head = match self.matches {
            0 => format!("[no match in {path}; {} files searched]", self.searched),
            _ => format!("[{} matches in {} of {} files searched]", self.matches, self.files_with, self.searched),
        };
        self.lines.insert_str(0, &format!("{head}\n"));
        let left_out = left_out.describe(self.max_file_bytes);
        if left_out.is_empty() {
            self.lines.pop();
        } else {
            self.lines.push_str(&format!("[left out: {left_out}]"));
        }
        self.lines
    }
}

/// The content of a file, or `None` when it is not text.
fn read_text(file: File, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut file = file.take(most);
    (&mut file).take(SNIFFED_BYTES as u64).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
