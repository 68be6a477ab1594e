//! Makes recordings from the transcripts of other programs and from Belay's own runs.
//!
//! [`read`] reads sessions of terminal agents, message lists of the usual APIs, trajectories of research agents, and
//! spans of OpenTelemetry. It finds the format by the content. A file with one record a line is read line by line, with
//! one line in memory. Records without an event are skipped and counted by kind, and so is a broken line.
//!
//! A reader records each conversation by a [`recorder::Recorder`]: system messages are left out, because they are not
//! events of the run, and a message of the person after an answer begins a new request.

mod anthropic;
mod claude_code;
mod codex;
mod command_output;
mod content;
mod detect;
mod error;
mod format;
mod gemini;
mod goose;
mod lists;
mod mini_swe_agent;
mod openai;
mod opencode;
mod otel;
mod own;
mod parts;
mod recorder;
mod responses;
mod source;
mod swe_agent;
mod tape;

use std::io::BufRead;

use serde_json::Value;

use crate::event::TrajectoryEvent;
use error::InvalidItem;
use source::{Line, Records};
use tape::Tape;

pub use error::ImportError;
pub use format::Format;
pub use own::from_messages;
pub use tape::Take;

/// Most lines that are read before the format must be clear.
const HEAD_LINES: usize = 64;

/// The records that were read of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The format of the file.
    pub format: Format,
    /// The runs: conversations, and subagents. A name says whose run it is; it is empty for a conversation.
    pub runs: Vec<String>,
    /// The records of the file.
    pub records: u64,
    /// How many records or parts were skipped, by kind, most frequent first.
    pub skipped: Vec<(String, u64)>,
}

impl Found {
    /// What was read, in one line: `read 214 records (claude-code), skipped 12: 9 file-history-snapshot, 3 x`.
    pub fn summary(&self) -> String {
        let records = if self.records == 1 { "record" } else { "records" };
        let runs = if self.runs.len() > 1 { format!(", {} runs", self.runs.len()) } else { String::new() };
        let read = format!("read {} {records} ({}{runs})", self.records, self.format.word());
        let kinds: Vec<_> = self.skipped.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        match self.skipped.iter().map(|(_, count)| count).sum::<u64>() {
            0 => read,
            skipped => format!("{read}, skipped {skipped}: {}", kinds.join(", ")),
        }
    }
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The format of the file.
    pub format: Format,
    /// Its conversations, each as a recording. At least one.
    pub trajectories: Vec<Vec<TrajectoryEvent>>,
    /// The records that were read and skipped.
    pub found: Found,
}

/// Reads a format: takes the records of a file one after the other.
trait Reads {
    /// Takes a record: a line, or a whole document.
    fn record(&mut self, record: &Value, tape: &mut Tape);

    /// The file has ended.
    fn end(&mut self, _tape: &mut Tape) {}
}

/// Reads a file of another program, and hands over the events of each run as they come. `format`: the format to assume
/// instead of finding it.
///
/// # Errors
/// The source cannot be read, is not JSON, has no known format, or holds nothing that can be used.
pub fn read(source: impl BufRead, format: Option<Format>, take: &mut Take<'_>) -> Result<Found, ImportError> {
    let mut tape = Tape::default();
    let found = match source::records(source, detect::is_record)? {
        Records::Documents(documents) => {
            let found = format.or_else(|| detect::of_documents(&documents)).ok_or(ImportError::UnknownForm)?;
            let mut reader = found.reader();
            for document in documents {
                tape.count();
                reader.record(&document, &mut tape);
                tape.drain(take);
            }
            reader.end(&mut tape);
            found
        }
        Records::Lines(first, mut rest) => {
            let mut head: Vec<Line> = first.collect();
            while head.len() < HEAD_LINES && !detect::is_clear(&head) {
                let Some(line) = rest.read()? else { break };
                head.push(line);
            }
            let found = format.or_else(|| detect::of_lines(&head)).ok_or(ImportError::UnknownForm)?;
            let mut reader = found.reader();
            let mut line = |line: Line| {
                tape.count();
                match line {
                    Line::Value(record) => reader.record(&record, &mut tape),
                    Line::Broken(kind) => tape.skip(kind),
                }
                tape.drain(take);
            };
            head.into_iter().for_each(&mut line);
            while let Some(next) = rest.read()? {
                line(next);
            }
            reader.end(&mut tape);
            found
        }
    };
    finish(found, format.is_some(), tape, take)
}

fn finish(format: Format, is_forced: bool, mut tape: Tape, take: &mut Take<'_>) -> Result<Found, ImportError> {
    tape.end(take);
    if tape.is_empty() && (is_forced || !format.is_session()) {
        let nothing = if is_forced { ImportError::OtherForm(format) } else { ImportError::UnknownForm };
        return Err(tape.problem().unwrap_or(nothing));
    }
    if tape.runs() == 0 {
        tape.begin(); // a session in which nothing has happened yet
    }
    let (runs, records, skipped) = tape.figures();
    Ok(Found { format, runs, records, skipped })
}

/// Imports a file of another program. `format`: the format to assume instead of finding it.
///
/// # Errors
/// As [`read`]. The message contains the position and the expected content.
pub fn import(source: impl BufRead, format: Option<Format>) -> Result<Imported, ImportError> {
    let mut trajectories: Vec<Vec<TrajectoryEvent>> = Vec::new();
    let found = read(source, format, &mut |run, event| {
        if trajectories.len() <= run {
            trajectories.resize_with(run + 1, Vec::new);
        }
        trajectories[run].push(event);
    })?;
    trajectories.resize_with(found.runs.len(), Vec::new);
    Ok(Imported { format: found.format, trajectories, found })
}

#[cfg(test)]
mod tests;
