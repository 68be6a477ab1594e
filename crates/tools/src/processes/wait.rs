//! Waiting for a line that a process prints, or for its end.

use std::sync::Arc;
use std::time::Duration;

use belay_exec::Exit;
use belay_protocol::{ToolFailure, ToolOutput};
use regex::bytes::Regex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::end::End;
use super::handle::Process;
use super::look::{check, part};

/// Most bytes of a line that a pattern is matched against. A longer line is matched in parts.
const MAX_LINE_BYTES: usize = 32 * 1024;

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
    /// A line, cut to [`MAX_FOUND_BYTES`], and its offset.
    Found(u64, String),
    /// There is more to look at.
    More,
    /// All was looked at.
    Nothing,
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
        let deadline = Instant::now() + Duration::from_secs(seconds.into());
        let (mut printed, mut ended) = (process.output.follow(), process.follow());
        loop {
            // Before the look: what a process has printed before its end is complete.
            let end = *ended.borrow_and_update();
            printed.borrow_and_update();
            let seen = match &pattern {
                Some(pattern) => look(&process, pattern, &mut from).await?,
                None => Seen::Nothing,
            };
            match (seen, end) {
                (Seen::Found(at, line), _) => {
                    return Ok(format!("[{}; found in the line at byte {at}]\n{line}", process.state()).into());
                }
                (Seen::Nothing, Some(end)) => return over(&process, end, pattern.as_ref()),
                (Seen::More, _) if !cancel.is_cancelled() && Instant::now() < deadline => continue,
                _ => {}
            }
            tokio::select! {
                biased; // a stop wins
                () = cancel.cancelled() => return Err(ToolFailure::Cancelled),
                () = tokio::time::sleep_until(deadline) => {
                    let what = pattern.as_ref().map_or_else(String::new, |it| format!("; no line matches {:?}", it.as_str()));
                    return Ok(format!("[{} still runs after {seconds} s{what}]", process.name).into());
                }
                // The process has both senders, and is held here.
                _ = printed.changed() => {}
                _ = ended.changed() => {}
            }
        }
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

/// Matches the lines from an offset on, and moves it behind the complete lines that do not match.
async fn look(process: &Arc<Process>, pattern: &Regex, from: &mut u64) -> Result<Seen, ToolFailure> {
    let part = part(process, *from, 2 * MAX_LINE_BYTES).await?;
    let mut at = 0;
    while at < part.bytes.len() {
        let rest = &part.bytes[at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if pattern.is_match(line) {
            let shown = String::from_utf8_lossy(&line[..line.len().min(MAX_FOUND_BYTES)]).into_owned();
            return Ok(Seen::Found(part.from + at as u64, shown));
        }
        match end {
            Some(end) => at += end + 1,
            // The last line may go on. Of a line that is too long, the second half is kept for the next look.
            None => {
                at = at.max(part.bytes.len().saturating_sub(MAX_LINE_BYTES));
                break;
            }
        }
    }
    *from = part.from + at as u64;
    Ok(if part.printed > part.next() { Seen::More } else { Seen::Nothing })
}
