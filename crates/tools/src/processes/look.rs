//! Reading what a process has printed.

use std::sync::Arc;

use belay_protocol::{ToolFailure, ToolOutput};

use super::handle::Process;
use super::limits::MAX_SHOWN_BYTES;
use super::output::Part;
use crate::files::blocking;

/// Shows a part of the output. Without an offset: the first bytes that were not shown yet.
pub(super) async fn read(process: Arc<Process>, offset: Option<u64>) -> ToolOutput {
    // Before the output: what a process has printed before its end is complete.
    let state = process.state();
    let from = offset.unwrap_or_else(|| process.unread());
    check(&process, from)?;
    let of = process.clone();
    let mut part = blocking(move || read_part(&of, from, MAX_SHOWN_BYTES)).await?;
    part.bytes.truncate(whole_characters(&part.bytes));
    process.was_shown(from, part.next());
    let gap =
        if part.from > from { format!("; the bytes {from} to {} are gone", part.from - 1) } else { String::new() };
    if part.bytes.is_empty() {
        return Ok(format!("[{state}{gap}; nothing new, the next offset is {}]", part.next()).into());
    }
    let more = part.printed.saturating_sub(part.next());
    let more = if more > 0 { format!(", {more} bytes more") } else { String::new() };
    let header = format!("[{state}{gap}; from byte {} on, the next offset is {}{more}]", part.from, part.next());
    Ok(format!("{header}\n{}", String::from_utf8_lossy(&part.bytes)).into())
}

/// # Errors
/// The offset is behind the end.
pub(super) fn check(process: &Process, from: u64) -> Result<(), ToolFailure> {
    let printed = process.output.printed();
    if from > printed {
        let name = &process.name;
        return Err(ToolFailure::failed(format!(
            "{name} has printed {printed} bytes; there is none at {from}. The next offset is {printed}."
        )));
    }
    Ok(())
}

/// Reads a part of the output. Blocks.
///
/// # Errors
/// It cannot be read.
pub(super) fn read_part(process: &Process, from: u64, most: usize) -> Result<Part, ToolFailure> {
    let read = process.output.part(from, most);
    read.map_err(|error| ToolFailure::failed(format!("The output cannot be read: {error}.")))
}

/// The length without a last character that is cut off, unless there is nothing else.
fn whole_characters(bytes: &[u8]) -> usize {
    let length = bytes.len();
    for back in 1..=length.saturating_sub(1).min(3) {
        match bytes[length - back] {
            0x80..0xc0 => {} // it belongs to a character that begins before
            0xc0.. if bytes[length - back].leading_ones() as usize > back => return length - back,
            _ => return length,
        }
    }
    length
}
