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
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::codec::{FramedRead, LinesCodec, LinesCodecError};

/// Longest message of the editor in bytes. 4 MiB: a prompt with a large picture.
const LINE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// Most answers that are owed. Twice the requests that may be in progress: one more than those is answered at once.
const OWED_MAX: usize = 128;

/// Most updates that the editor has not read. When it is full, the run's reader waits, which slows no run.
const UNREAD_MAX: usize = 256;

/// Longest time in which an editor may leave a line unread. 60 s, as for the daemon's own connections.
const READ_LIMIT: Duration = Duration::from_secs(60);

/// Stands for a line that is too long or not UTF-8: it is no JSON, so its answer is a parse error.
const UNREADABLE: &str = "\u{0}";

/// Bounds what waits between the pipes and the handlers.
#[derive(Clone)]
pub(crate) struct Gate {
    owed: Arc<Semaphore>,
    unread: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { owed: Arc::new(Semaphore::new(OWED_MAX)), unread: Arc::new(Semaphore::new(UNREAD_MAX)) }
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
    }
}

/// What a line is, without its content.
#[derive(Deserialize)]
struct Shape<'a> {
    #[serde(borrow)]
    method: Option<std::borrow::Cow<'a, str>>,
    id: Option<IgnoredAny>,
    error: Option<IgnoredAny>,
}

/// The lines of standard input. An answer is owed for each that is a request or cannot be read.
pub(crate) fn input(gate: Gate) -> impl Stream<Item = io::Result<String>> + Send + 'static {
    let lines = FramedRead::new(tokio::io::stdin(), LinesCodec::new_with_max_length(LINE_MAX_BYTES));
    stream::unfold((lines, gate), async |(mut lines, gate)| {
        let line = next_line(&mut lines).await?;
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
async fn next_line(lines: &mut FramedRead<tokio::io::Stdin, LinesCodec>) -> Option<String> {
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
    sink::unfold((tokio::io::stdout(), gate), async |(mut stdout, gate), line: String| {
        let (line, kind) = cleaned(line);
        let written = timeout(READ_LIMIT, async {
            stdout.write_all(line.as_bytes()).await?;
            stdout.write_all(b"\n").await?;
            stdout.flush().await
        });
        written.await.map_err(|_elapsed| io::Error::from(io::ErrorKind::TimedOut))??;
        match kind {
            Kind::Answer if gate.owed.available_permits() < OWED_MAX => gate.owed.add_permits(1),
            Kind::Update => gate.unread.add_permits(1),
            Kind::Answer | Kind::Other => {}
        }
        Ok((stdout, gate))
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
mod tests {
    use super::*;

    #[test]
    fn an_error_does_not_quote_what_was_sent() {
        for (line, expected, kind) in [
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m","data":{"json":"secret"}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}"#,
                Kind::Answer,
            ),
            (r#"{"id":1,"result":{"data":1}}"#, r#"{"id":1,"result":{"data":1}}"#, Kind::Answer),
            (r#"{"method":"session/update","params":{}}"#, r#"{"method":"session/update","params":{}}"#, Kind::Update),
            (r#"{"method":"$/cancel_request"}"#, r#"{"method":"$/cancel_request"}"#, Kind::Other),
        ] {
            assert_eq!(cleaned(line.to_owned()), (expected.to_owned(), kind));
        }
    }

    #[tokio::test]
    async fn nothing_waits_for_a_reader_that_is_gone() {
        let gate = Gate::new();
        for _ in 0..UNREAD_MAX {
            gate.pass().await;
        }
        assert_eq!(gate.unread.available_permits(), 0);
        gate.close();
        gate.pass().await;
    }
}
