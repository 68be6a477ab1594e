//! Searches the files of a walk and collects the matching lines.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use belay_protocol::ToolFailure;
use regex::bytes::Regex;
use tokio_util::sync::CancellationToken;

use super::walk::{LeftOut, Walk};
use crate::workspace::shown;

/// Longest line that is shown in full, in characters.
const MAX_LINE_CHARS: usize = 300;
/// Most bytes of lines in one result; below [`belay_protocol::tool::MAX_OUTPUT_BYTES`].
const MAX_RESULT_BYTES: usize = 60 * 1024;
/// Most bytes that one call reads. 512 MiB: a few seconds on a fast disk.
const MAX_SEARCHED_BYTES: u64 = 512 * 1024 * 1024;
/// Longest search time of one call. After that, it returns the matches so far.
pub(super) const MAX_SEARCH_TIME: Duration = Duration::from_secs(20);
/// Number of bytes at the beginning of a file that are checked for a zero byte, which marks a binary file. Enough for
/// every common format.
const SNIFFED_BYTES: usize = 8 * 1024;

/// A search in progress.
pub(super) struct Search {
    expression: Regex,
    /// Context lines before and after each match.
    around: usize,
    /// Number of matches that may still be shown.
    matches_left: usize,
    max_file_bytes: u64,
    bytes_left: u64,
    /// The lines of the result.
    lines: String,
    matches: usize,
    files_with: usize,
    searched: usize,
    /// Whether there is a match that is not shown.
    more: bool,
}

impl Search {
    pub(super) fn new(expression: Regex, around: usize, matches_left: usize, max_file_bytes: u64) -> Self {
        Self {
            expression,
            around,
            matches_left,
            max_file_bytes,
            bytes_left: MAX_SEARCHED_BYTES,
            lines: String::new(),
            matches: 0,
            files_with: 0,
            searched: 0,
            more: false,
        }
    }

    /// Searches all files of the walk and returns the result for the model.
    ///
    /// # Errors
    /// Only [`ToolFailure::Cancelled`].
    pub(super) fn run(
        mut self,
        path: &str,
        walk: &mut Walk<'_>,
        cancel: &CancellationToken,
    ) -> Result<String, ToolFailure> {
        let deadline = Instant::now() + MAX_SEARCH_TIME;
        while !self.more
            && let Some(found) = walk.next()?
        {
            if cancel.is_cancelled() {
                return Err(ToolFailure::Cancelled);
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
        if self.more {
            walk.left_out.stopped = Some("as many lines as are shown have been found");
        }
        Ok(self.report(path, &walk.left_out))
    }

    /// Adds the matching lines of one file.
    fn search(&mut self, path: &str, bytes: &[u8]) {
        self.searched += 1;
        if bytes.is_empty() {
            return;
        }
        let name = shown(path.as_bytes());
        let matches_before = self.matches;
        // Lines to show if the next line matches; number of lines still to show after a match; the last line that was
        // shown.
        let mut before = VecDeque::new();
        let mut after = 0;
        let mut last = None;
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if self.expression.is_match(line) {
                if self.matches_left == 0 || self.lines.len() > MAX_RESULT_BYTES {
                    self.more = true;
                    break;
                }
                let first = before.front().map_or(at, |(at, _)| *at);
                if self.around > 0 && !self.lines.is_empty() && last.is_none_or(|last| last + 1 < first) {
                    self.lines.push_str("--\n");
                }
                for (at, line) in before.drain(..) {
                    self.show(&name, at, '-', line);
                }
                self.show(&name, at, ':', line);
                (last, after) = (Some(at), self.around);
                self.matches += 1;
                self.matches_left -= 1;
            } else if after > 0 {
                self.show(&name, at, '-', line);
                (last, after) = (Some(at), after - 1);
            } else if self.around > 0 {
                before.push_back((at, line));
                if before.len() > self.around {
                    before.pop_front();
                }
            }
        }
        self.files_with += usize::from(self.matches > matches_before);
    }

    /// Adds a line to the result; `at` counts from 0.
    fn show(&mut self, name: &str, at: usize, mark: char, line: &[u8]) {
        let text = String::from_utf8_lossy(line);
        let end = text.char_indices().nth(MAX_LINE_CHARS).map_or(text.len(), |(at, _)| at);
        let cut = if end < text.len() { " [cut]" } else { "" };
        // Writing to a String cannot fail.
        let _ = writeln!(self.lines, "{name}{mark}{}{mark} {}{cut}", at + 1, &text[..end]);
    }

    fn report(mut self, path: &str, left_out: &LeftOut) -> String {
        let head = match self.matches {
            0 => format!("[no match in {path}; {} files searched]\n", self.searched),
            _ => format!("[{} matches in {} of {} files searched]\n", self.matches, self.files_with, self.searched),
        };
        self.lines.insert_str(0, &head);
        let left_out = left_out.describe(self.max_file_bytes);
        if left_out.is_empty() {
            self.lines.pop();
        } else {
            self.lines.push_str(&format!("[left out: {left_out}]"));
        }
        self.lines
    }
}

/// The content of a file; `None` if it is not text.
fn read_text(file: File, most: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut file = file.take(most);
    (&mut file).take(SNIFFED_BYTES as u64).read_to_end(&mut bytes)?;
    if bytes.contains(&0) {
        return Ok(None);
    }
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
