//! The task of one process: it stores the output, and ends the process when it is due.

use std::sync::Arc;
use std::time::Duration;

use belay_exec::{Exit, Running};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::end::{End, EndedBy};
use super::handle::Process;
use super::home::TemporaryHome;
use super::output::MAX_PIECE_BYTES;

/// Longest wait for the pipes of an ended process tree, as of a command.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// A process that has begun.
pub(crate) struct Begun {
    pub(crate) running: Running,
    /// Its home directory, if it has one of its own.
    pub(crate) home: Option<TemporaryHome>,
    /// Its whole standard input; `None`: it stays open, for the tool `process`.
    pub(crate) input: Option<String>,
}

/// Attends to a process until it has ended and its output is stored. Whatever it has started ends with it.
///
/// # Cancel safety
/// If the future is dropped, the process is ended in the background.
pub(super) async fn attend(process: &Arc<Process>, begun: Begun, most: u64) -> End {
    let Begun { mut running, home, input } = begun;
    let (mut reading, mut writing) = (JoinSet::new(), JoinSet::new());
    if let Some((mut out, mut err)) = running.take_output() {
        let of = process.clone();
        // With its result it returns the pipes. A process whose pipes were closed before would end by itself.
        reading.spawn(async move { (drain(of, &mut out, &mut err, most).await, out, err) }.in_current_span());
    }
    if let Some(input) = input {
        writing.spawn(feed(process.clone(), input).in_current_span());
    }
    let limit = tokio::time::sleep(process.limit);
    tokio::pin!(limit);
    let end = loop {
        tokio::select! {
            by = process.end_requested() => break End::Ended(by),
            () = &mut limit => break End::Ended(EndedBy::Age),
            // Boxed because it is large: it contains buffers for output that nobody reads.
            exit = Box::pin(running.wait()) => break match exit {
                Exit::Ended => End::Ended(EndedBy::Run),
                exit => End::Itself(exit),
            },
            Some(read) = reading.join_next(), if !reading.is_empty() => {
                if let Some(by) = read.map_or(Some(EndedBy::Crash), |(by, ..)| by) {
                    break End::Ended(by);
                }
            }
        }
    };
    running.end().await;
    process.has_emptied();
    // What is read after a time limit or a failure of the disk changes nothing any more.
    let _ = tokio::time::timeout(LAST_OUTPUT, reading.join_next()).await;
    drop(writing);
    process.input.lock().await.take();
    if let Some(home) = home {
        let _ = home.remove().await; // the log says what was left
    }
    end
}

/// Stores both outputs to their end, in the order of arrival. Returns why the process has to be ended; `None`: both have
/// ended.
async fn drain(
    process: Arc<Process>,
    mut out: impl AsyncRead + Unpin,
    mut err: impl AsyncRead + Unpin,
    most: u64,
) -> Option<EndedBy> {
    let (mut from_out, mut from_err) = (vec![0; MAX_PIECE_BYTES], vec![0; MAX_PIECE_BYTES]);
    let (mut out_open, mut err_open) = (true, true);
    while out_open || err_open {
        // A pipe with a read error counts as ended.
        let (bytes, open) = tokio::select! {
            read = out.read(&mut from_out), if out_open => (&from_out[..read.unwrap_or(0)], &mut out_open),
            read = err.read(&mut from_err), if err_open => (&from_err[..read.unwrap_or(0)], &mut err_open),
        };
        *open = !bytes.is_empty();
        let (piece, of) = (bytes.to_vec(), process.clone());
        match tokio::task::spawn_blocking(move || of.output.append(&piece)).await {
            Ok(Ok(printed)) if printed > most => return Some(EndedBy::Output),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(process = process.name, %error, "the output of a background process cannot be stored");
                return Some(EndedBy::Disk);
            }
            Err(_panicked) => return Some(EndedBy::Crash),
        }
    }
    None
}

/// Writes the whole standard input, and ends it: a program that reads to the end works as one that is waited for.
async fn feed(process: Arc<Process>, input: String) {
    let mut pipe = process.input.lock().await;
    if let Some(mut pipe) = pipe.take() {
        // A process may close its input, or end, without reading it.
        let _ = pipe.write_all(input.as_bytes()).await;
    }
}
