//! Opens and reads files of recordings.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use std::path::Path;

use belay_trajectory::reader::Problem;
use belay_trajectory::{ReadError, Reader};

use crate::exit::{Exit, Failure};

/// Longest file that is imported. 512 MiB: the whole file is in memory, a few times.
const IMPORT_MAX_BYTES: u64 = 512 * 1024 * 1024;

/// The name that stands for standard input.
const STDIN: &str = "-";

/// Opens a recording, to be read event by event.
pub(super) fn recording(path: &Path) -> Result<Reader<Box<dyn BufRead>>, Failure> {
    Ok(Reader::new(open(path)?))
}

/// Reads a whole file as text.
///
/// # Errors
/// 65: it cannot be read, is too long, or is not UTF-8.
pub(super) fn text(path: &Path) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    open(path)?.take(IMPORT_MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| unusable(path, error))?;
    if bytes.len() as u64 > IMPORT_MAX_BYTES {
        return Err(unusable(path, format!("longer than {} MiB", IMPORT_MAX_BYTES / 1024 / 1024)));
    }
    String::from_utf8(bytes)
        .map_err(|error| unusable(path, format!("not UTF-8 (after {} bytes)", error.utf8_error().valid_up_to())))
}

fn open(path: &Path) -> Result<Box<dyn BufRead>, Failure> {
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

/// The failure of a recording that cannot be read. Often it is a file of another program, which needs an import.
pub(super) fn unreadable(path: &Path, error: &ReadError) -> Failure {
    let failure = unusable(path, error);
    match (&error.problem, error.line) {
        (Problem::Event(_), 1) => {
            failure.next("what another program has written is turned into a recording by `belay stops import`")
        }
        _ => failure,
    }
}

fn shown(path: &Path) -> String {
    if path == Path::new(STDIN) { "standard input".into() } else { path.display().to_string() }
}
