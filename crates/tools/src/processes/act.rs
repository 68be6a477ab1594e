//! Writing to a process, and ending it.

use belay_protocol::{ToolFailure, ToolOutput};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::end::EndedBy;
use super::handle::Process;
use super::limits::WRITE_LIMIT;

/// Writes to the standard input of a process, and closes it afterwards if `end` is set. The result says how much was
/// written, also of a write that fails or is stopped midway.
pub(super) async fn write(process: &Process, text: &str, end: bool, cancel: &CancellationToken) -> ToolOutput {
    let name = &process.name;
    let deadline = Instant::now() + WRITE_LIMIT;
    if process.ended().is_some() {
        return Err(ToolFailure::failed(format!("{}; nothing was written.", process.state())));
    }
    let input = tokio::select! {
        biased; // a stop wins
        () = cancel.cancelled() => return Err(ToolFailure::Cancelled),
        input = timeout_at(deadline, process.input.lock()) => input,
    };
    let Ok(mut input) = input else {
        return Err(ToolFailure::failed(format!("{name} does not read what was written before; nothing was written.")));
    };
    let Some(pipe) = input.as_mut() else {
        return Err(ToolFailure::failed(format!("The standard input of {name} was closed; nothing was written.")));
    };
    let (written, trouble) = pour(pipe, text.as_bytes(), deadline, cancel).await;
    if written == 0 && trouble.is_some() && cancel.is_cancelled() {
        return Err(ToolFailure::Cancelled);
    }
    if let Some(why) = trouble {
        let all = text.len();
        return Err(ToolFailure::failed(format!("{written} of {all} bytes were written to {name}: {why}.")));
    }
    if end {
        input.take();
    }
    let closed = if end { "; its standard input has ended" } else { "" };
    Ok(format!("[{written} bytes were written to {name}{closed}]").into())
}

/// Writes as much as the process takes until the deadline or a stop. Returns how much, and why not all.
async fn pour(
    pipe: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
    deadline: Instant,
    cancel: &CancellationToken,
) -> (usize, Option<String>) {
    let mut written = 0;
    while written < bytes.len() {
        let wrote = tokio::select! {
            biased; // a stop wins
            () = cancel.cancelled() => return (written, Some("the call was stopped".to_owned())),
            wrote = timeout_at(deadline, pipe.write(&bytes[written..])) => wrote,
        };
        match wrote {
            Ok(Ok(0)) | Err(_) => return (written, Some("it does not read the rest".to_owned())),
            Ok(Ok(more)) => written += more,
            Ok(Err(error)) => return (written, Some(format!("it does not read its standard input ({error})"))),
        }
    }
    (written, None)
}

/// Ends a process with everything that it has started; returns when nothing of it is left.
pub(super) async fn kill(process: &Process, cancel: &CancellationToken) -> ToolOutput {
    if process.ended().is_some() {
        return Ok(format!("[{}]", process.state()).into());
    }
    process.request_end(EndedBy::Kill);
    let mut ended = process.follow();
    tokio::select! {
        () = cancel.cancelled() => return Err(ToolFailure::Cancelled),
        // The process has the sender, and is held here.
        _ = ended.wait_for(Option::is_some) => {}
    }
    Ok(format!("[{}; the action read shows what it printed]", process.state()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_write_that_is_stopped_midway_says_how_much_was_written() {
        let (mut pipe, _reader) = tokio::io::duplex(4);
        let (cancel, deadline) = (CancellationToken::new(), Instant::now() + WRITE_LIMIT);
        let writing = pour(&mut pipe, b"0123456", deadline, &cancel);
        let (ended, ()) = tokio::join!(writing, async { cancel.cancel() });
        assert_eq!(ended, (4, Some("the call was stopped".to_owned())));
    }
}
