//! Opens and reads files of recordings, and of sessions of other programs.

use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, IsTerminal, Read};
use std::path::Path;

use belay_program::exit::{Exit, Failure};
use belay_trajectory::import::{Format, Found, ImportError, Take, read as read_other};
use belay_trajectory::reader::Problem;
use belay_trajectory::{ReadError, Reader, is_event_name};
use serde_json::Value;

/// Longest file with labels. 512 MiB: the whole file is in memory.
const TEXT_MAX_BYTES: u64 = 512 * 1024 * 1024;

/// Bytes of a file that say whether it is a recording.
const HEAD_BYTES: u64 = 4096;

/// Advice for a file that is nothing of the kind.
const FORMS: &str = "give a recording of Belay, or a session of another agent in JSON (Claude Code, Codex, Gemini CLI and others; \
                     --format NAME chooses one): docs/guide/stops-check.md lists them";

/// The name that stands for standard input.
const STDIN: &str = "-";

/// The records of a file besides its events.
pub(super) struct Contents {
    /// The label in the first line of a recording.
    pub(super) header: Option<Value>,
    /// What was read of a file of another program; `None`: it is a recording.
    pub(super) found: Option<Found>,
}

/// Reads the runs of a file, event by event: a recording, or a file of another program.
///
/// # Errors
/// 65: it cannot be read, is neither, or is empty.
pub(super) fn runs(path: &Path, format: Option<Format>, take: &mut Take<'_>) -> Result<Contents, Failure> {
    let mut source = open(path)?;
    let mut head = Vec::new();
    source.by_ref().take(HEAD_BYTES).read_to_end(&mut head).map_err(|error| unusable(path, error))?;
    let is_recording = format.is_none() && is_recording(&head);
    let whole = Cursor::new(head).chain(source);
    if !is_recording {
        let found = read_other(whole, format, take).map_err(|error| not_read(path, &error))?;
        return Ok(Contents { header: None, found: Some(found) });
    }
    let mut reader = Reader::new(whole);
    let mut events = 0_u64;
    for event in reader.by_ref() {
        events += 1;
        take(0, event.map_err(|error| unreadable(path, &error))?);
    }
    if events == 0 && reader.header().is_none() {
        return Err(unusable(path, "is empty").next(FORMS));
    }
    Ok(Contents { header: reader.header().cloned(), found: None })
}

/// Whether a file that begins so is a recording: its first key is the name of an event, or of the label. An empty file
/// is read as one, and has no events.
fn is_recording(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let key = text.strip_prefix('{').and_then(|rest| rest.trim_start().strip_prefix('"')?.split_once('"'));
    text.is_empty() || key.is_some_and(|(key, _)| is_event_name(key) || key == "label")
}

/// Reads a whole file as text.
///
/// # Errors
/// 65: it cannot be read, is too long, or is not UTF-8.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    open(path)?.take(TEXT_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    if bytes.len() as u64 > TEXT_MAX_BYTES {
        return Err(unusable(path, format!("longer than {} MiB", TEXT_MAX_BYTES / 1024 / 1024)));
    }
    String::from_utf8(bytes)
        .map_err(|error| unusable(path, format!("not UTF-8 (after {} bytes)", error.utf8_error().valid_up_to())))
}

/// Opens a file, or standard input.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
    if path == Path::new(STDIN) {
        if std::io::stdin().is_terminal() {
            let what = "nothing to read: standard input is a terminal";
            return Err(Failure::new(Exit::WrongUsage, what).next("name a file, or pipe one in"));
        }
        return Ok(Box::new(BufReader::new(std::io::stdin())));
    }
    let file = File::open(path).map_err(|error| unusable(path, error))?;
    Ok(Box::new(BufReader::new(file)))
}

/// The failure (65) of an unusable file.
pub(super) fn unusable(path: &Path, what: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::UnusableInput, format!("{}: {what}", shown(path)))
}

/// The failure of a file of another program that cannot be read.
pub(super) fn not_read(path: &Path, error: &ImportError) -> Failure {
    let failure = unusable(path, error);
    match error {
        ImportError::UnknownForm => failure.next("a recording has events, one a line, such as {\"turn\":true}"),
        ImportError::NotJson { .. } => failure.next(FORMS),
        _ => failure,
    }
}

/// The failure of a recording that cannot be read.
pub(super) fn unreadable(path: &Path, error: &ReadError) -> Failure {
    let failure = unusable(path, error);
    match (&error.problem, error.line) {
        (Problem::Event(_), 1) => failure.next("a file of another program is read with --format NAME"),
        _ => failure,
    }
}

/// The name of a file in messages.
pub(super) fn shown(path: &Path) -> String {
    if path == Path::new(STDIN) { "standard input".into() } else { path.display().to_string() }
}
