//! Waiting for a line that a process prints, or for its end.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use belay_exec::Exit;
use belay_protocol::{ToolFailure, ToolOutput};
use regex::bytes::Regex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end::End;
use super::handle::Process;
use super::look::{check, read_part};
use super::output::Part;
use crate::files::{blocking, compile_within};

/// Most bytes of a line that a pattern is matched against. A longer line is matched in parts that overlap by as much, and a
/// line that grows is matched again by as much, not from its beginning.
const MAX_LINE_BYTES: usize = 4 * 1024;

/// Parts of [`MAX_LINE_BYTES`] twice that one look matches before the wait sees whether its time is over.
const PARTS_OF_A_LOOK: usize = 16;

/// Most bytes of a compiled pattern: enough for ten times `\w`, and few enough for milliseconds in each part.
const MAX_COMPILED_BYTES: usize = 256 * 1024;

/// Most bytes of the found line that are shown.
const MAX_FOUND_BYTES: usize = 1000;

/// A wait for a line, or without a pattern for the end of the process.
pub(super) struct Wait {
    pub(super) process: Arc<Process>,
    pub(super) pattern: Option<Regex>,
    pub(super) offset: Option<u64>,
    pub(super) seconds: u32,
}

/// What a look at the output has found.
enum Seen {
    /// A line, cut to [`MAX_FOUND_BYTES`], its offset, and the offset behind it.
    Found { at: u64, next: u64, line: String },
    /// There is more to look at.
    More,
    /// All was looked at.
    Nothing,
}

/// Compiles the pattern of a wait.
///
/// # Errors
/// It cannot be used; the model reads why.
pub(super) fn compiled(pattern: &str) -> Result<Regex, ToolFailure> {
    compile_within(pattern, MAX_COMPILED_BYTES)
}

impl Wait {
    /// Waits. Returns at once when the call is cancelled, and when the process ends.
    ///
    /// # Cancel safety
    /// Nothing is lost: a wait only looks.
    pub(super) async fn carry_out(self, cancel: &CancellationToken) -> ToolOutput {
        let Self { process, pattern, offset, seconds } = self;
        let mut from = offset.unwrap_or_else(|| process.unread());
        check(&process, from)?;
        let first = from;
        // A look that goes on when the wait is over ends at its next part.
        let looks = cancel.child_token();
        let _over = looks.clone().drop_guard();
        let deadline = Instant::now() + Duration::from_secs(seconds.into());
        let (mut printed, mut ended) = (process.output.follow(), process.follow());
        loop {
            // Before the look: what a process has printed before its end is complete.
            let end = *ended.borrow_and_update();
            printed.borrow_and_update();
            let seen = match &pattern {
                Some(pattern) => tokio::select! {
                    biased; // a stop wins
                    () = cancel.cancelled() => return Err(ToolFailure::Cancelled),
                    seen = look(&process, pattern, &mut from, &looks) => seen?,
                },
                None => Seen::Nothing,
            };
            match (seen, end) {
                (Seen::Found { at, next, line }, _) => {
                    let state = process.state();
                    let found = format!("[{state}; found in the line at byte {at}, the next offset is {next}]\n{line}");
                    return Ok(found.into());
                }
                (Seen::Nothing, Some(end)) => return over(&process, end, pattern.as_ref()),
                (Seen::More, _) if !cancel.is_cancelled() && Instant::now() < deadline => continue,
                _ => {}
            }
            tokio::select! {
                biased; // a stop wins
                () = cancel.cancelled() => return Err(ToolFailure::Cancelled),
                () = tokio::time::sleep_until(deadline) => {
                    return Ok(time_is_up(&process, seconds, pattern.as_ref(), first..from).into());
                }
                // The process has both senders, and is held here.
                _ = printed.changed() => {}
                _ = ended.changed() => {}
            }
        }
    }
}

/// The result of a wait whose time is up. `looked`: the bytes that it has looked at.
fn time_is_up(process: &Process, seconds: u32, pattern: Option<&Regex>, looked: Range<u64>) -> String {
    let state = match process.ended() {
        Some(end) => format!("{} {end}; {seconds} s are over", process.name),
        None => format!("{} still runs after {seconds} s", process.name),
    };
    match pattern {
        Some(pattern) if process.ended().is_some() => {
            format!("[{state}, no line from byte {} to {} matches {:?}]", looked.start, looked.end, pattern.as_str())
        }
        Some(pattern) => format!("[{state}; no line from byte {} on matches {:?}]", looked.start, pattern.as_str()),
        None => format!("[{state}]"),
    }
}

/// The result of a wait for a process that has ended.
fn over(process: &Process, end: End, pattern: Option<&Regex>) -> ToolOutput {
    let name = &process.name;
    match pattern {
        Some(pattern) => {
            let pattern = pattern.as_str();
            Err(ToolFailure::Ended(format!(
                "[{name} {end}; no line matches {pattern:?}. The action read shows what it printed.]"
            )))
        }
        None if end == End::Itself(Exit::Code(0)) => Ok(format!("[{name} {end}]").into()),
        None => Err(ToolFailure::Ended(format!("[{name} {end}. The action read shows what it printed.]"))),
    }
}

/// Matches the lines from an offset on, and moves it behind the complete lines that do not match. A pattern may cost much
/// time for each byte, so a thread for blocking work matches, and looks between the parts whether the call has ended.
async fn look(
    process: &Arc<Process>,
    pattern: &Regex,
    from: &mut u64,
    ended: &CancellationToken,
) -> Result<Seen, ToolFailure> {
    let (process, pattern, ended, mut at) = (process.clone(), pattern.clone(), ended.clone(), *from);
    let looked = blocking(move || {
        let mut seen = Seen::More;
        for _ in 0..PARTS_OF_A_LOOK {
            if ended.is_cancelled() || !matches!(seen, Seen::More) {
                break;
            }
            seen = look_at_part(&read_part(&process, at, 2 * MAX_LINE_BYTES)?, &pattern, &mut at);
        }
        Ok((seen, at))
    });
    let (seen, at) = looked.await?;
    *from = at;
    Ok(seen)
}

fn look_at_part(part: &Part, pattern: &Regex, from: &mut u64) -> Seen {
    let mut at = 0;
    while at < part.bytes.len() {
        let rest = &part.bytes[at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let next = end.map_or(part.bytes.len(), |end| at + end + 1);
        let line = &rest[..end.unwrap_or(rest.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if pattern.is_match(line) {
            let line = String::from_utf8_lossy(&line[..line.len().min(MAX_FOUND_BYTES)]).into_owned();
            return Seen::Found { at: part.from + at as u64, next: part.from + next as u64, line };
        }
        if end.is_none() {
            // The last line may go on. Of a line that is too long, the second half is kept for the next look.
            at = at.max(part.bytes.len().saturating_sub(MAX_LINE_BYTES));
            break;
        }
        at = next;
    }
    *from = part.from + at as u64;
    if part.printed > part.next() { Seen::More } else { Seen::Nothing }
}
