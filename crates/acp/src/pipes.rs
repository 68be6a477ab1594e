//! Lines of standard input and output, bounded in length and in number.
//!
//! The protocol's crate has queues without a bound between the pipes and the handlers. The gate bounds them: a line is read only
//! while few answers are owed, and an update waits while many updates are unread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Sink, Stream, sink, stream};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value as Json;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};
use tokio_util::sync::CancellationToken;

/// Longest message of the editor in bytes. 4 MiB: a prompt with a large picture.
const LINE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Most answers that are owed. Twice the requests that may be in progress: one more than those is answered at once.
const OWED_MAX: usize = 128;

/// Most updates that the editor has not read. When it is full, the run's reader waits, which slows no run.
const UNREAD_MAX: usize = 256;

/// Longest time in which an editor may leave a line unread. 60 s, as for the daemon's own connections.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Longest time in which a line may be unread when the input has closed. 2 s: a reader that is there reads at once.
const LAST_READ_LIMIT: Duration = Duration::from_secs(2);

/// Stands for a line that is too long or not UTF-8: it is no JSON, so its answer is a parse error.
const UNREADABLE: &str = "\u{0}";

/// Bounds what waits between the pipes and the handlers.
#[derive(Clone)]
pub(crate) struct Gate {
    owed: Arc<Semaphore>,
    unread: Arc<Semaphore>,
    /// Cancelled when everything may pass.
    closed: CancellationToken,
}

impl Gate {
    pub(crate) fn new() -> Self {
        let (owed, unread) = (Arc::new(Semaphore::new(OWED_MAX)), Arc::new(Semaphore::new(UNREAD_MAX)));
        Self { owed, unread, closed: CancellationToken::new() }
    }

    /// Waits until an update may be sent; at once if nobody reads any more.
    pub(crate) async fn pass(&self) {
        if let Ok(permit) = self.unread.acquire().await {
            permit.forget(); // comes back when the line is written
        }
    }

    /// Lets everything pass from now on.
    pub(crate) fn close(&self) {
        self.owed.close();
        self.unread.close();
        self.closed.cancel();
    }

    /// Waits until a line counts as unread for ever.
    async fn give_up(&self) {
        tokio::select! {
            () = sleep(READ_LIMIT) => {}
            () = async {
                self.closed.cancelled().await;
                sleep(LAST_READ_LIMIT).await;
            } => {}
        }
    }
}

/// The kind of a line, without its content.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    id: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// The lines of standard input. An answer is owed for each that is a request or cannot be read. The end of the input closes the gate.
pub(crate) fn input(gate: Gate) -> impl Stream<Item = io::Result<String>> + Send + 'static {
    lines_of(tokio::io::stdin(), gate)
}

fn lines_of<R>(input: R, gate: Gate) -> impl Stream<Item = io::Result<String>> + Send + 'static
where
    R: AsyncRead + Unpin + Send + 'static,
{
    let lines = FramedRead::new(input, LinesCodec::new_with_max_length(LINE_MAX_BYTES));
    stream::unfold((lines, gate), async |(mut lines, gate)| {
        let Some(line) = next_line(&mut lines).await else {
            gate.close(); // the editor is gone, or about to go
            return None;
        };
        let is_owed = match serde_json::from_str::<Shape<'_>>(&line) {
            Ok(shape) => shape.id.is_some() && shape.method.is_some(),
            Err(_) => true,
        };
        if is_owed {
            // Comes back when the answer is written. Some malformed lines get none, and must not end the input.
            if let Ok(permit) = timeout(READ_LIMIT, gate.owed.acquire()).await {
                permit.ok()?.forget();
            }
        }
        Some((Ok(line), (lines, gate)))
    })
}

/// The next line that is not empty. `None`: the input has ended.
async fn next_line<R: AsyncRead + Unpin>(lines: &mut FramedRead<R, LinesCodec>) -> Option<String> {
    use futures_util::StreamExt as _;
    let mut is_skipping = false;
    loop {
        match lines.next().await {
            Some(Ok(line)) if line.trim().is_empty() => {}
            Some(Ok(line)) => return Some(line),
            // After an error the reader returns `None` once, and then continues after the long line.
            Some(Err(LinesCodecError::MaxLineLengthExceeded)) => is_skipping = true,
            None if is_skipping => return Some(UNREADABLE.to_owned()),
            Some(Err(LinesCodecError::Io(error))) if error.kind() == io::ErrorKind::InvalidData => is_skipping = true,
            Some(Err(LinesCodecError::Io(_))) | None => return None,
        }
    }
}

/// The lines of standard output.
pub(crate) fn output(gate: Gate) -> impl Sink<String, Error = io::Error> + Send + 'static {
    lines_to(tokio::io::stdout(), gate)
}

fn lines_to<W>(output: W, gate: Gate) -> impl Sink<String, Error = io::Error> + Send + 'static
where
    W: AsyncWrite + Unpin + Send + 'static,
{
    sink::unfold((output, gate), async |(mut output, gate), line: String| {
        let (line, kind) = cleaned(line);
        let written = async {
            output.write_all(line.as_bytes()).await?;
            output.write_all(b"\n").await?;
            output.flush().await
        };
        tokio::select! {
            biased;
            written = written => written?,
            () = gate.give_up() => return Err(io::ErrorKind::TimedOut.into()),
        }
        match kind {
            Kind::Answer if gate.owed.available_permits() < OWED_MAX => gate.owed.add_permits(1),
            Kind::Update => gate.unread.add_permits(1),
            Kind::Answer | Kind::Other => {}
        }
        Ok((output, gate))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Answer,
    Update,
    Other,
}

/// A line as it is written, and its kind. The crate quotes what was sent in the `data` of an error, which may be a secret of an MCP
/// server, and some clients log errors.
fn cleaned(line: String) -> (String, Kind) {
    let (kind, is_error) = match serde_json::from_str::<Shape<'_>>(&line) {
        Ok(Shape { method: Some(method), .. }) if method == "session/update" => (Kind::Update, false),
        Ok(Shape { method: Some(_), .. }) => (Kind::Other, false),
        Ok(Shape { error, .. }) => (Kind::Answer, error.is_some()),
        Err(_) => (Kind::Other, false),
    };
    if !is_error {
        return (line, kind);
    }
    let Ok(mut answer) = serde_json::from_str::<Json>(&line) else { return (line, kind) };
    if let Some(error) = answer.get_mut("error").and_then(Json::as_object_mut) {
        error.remove("data");
    }
    (answer.to_string(), kind)
}

#[cfg(test)]
mod tests;
