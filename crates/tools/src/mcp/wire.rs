//! Watches the standard output of a server: limits the length of lines, records lines that are no messages, and passes
//! messages on in a form that the SDK can read.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tracing::debug;

use crate::mcp::incoming::readable;
use crate::mcp::untrusted::line as shown;

/// Longest line in bytes; a line is one message. 8 MiB: enough for a large picture in base64. The SDK accepts 16 MiB
/// and silently drops longer lines.
pub(super) const MAX_LINE: usize = 8 * 1024 * 1024;

/// Most lines that are no messages. 1000: accepts greetings and debug prints, but not an endless stream.
const MAX_NOISE: usize = 1000;

/// Number of bytes that are read at once.
const CHUNK: usize = 4096;

/// Memory that is kept for the next line, in bytes. A large message does not keep its memory.
const KEPT: usize = 64 * 1024;

/// Number of bytes that are kept of the first such line.
const NOISE_SHOWN: usize = 200;

/// What a server wrote besides messages. Shared by the reader and the code that explains failures.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The first line that is no message.
    noise: Option<String>,
    /// Why Belay stopped reading.
    ended: Option<String>,
    /// The last lines of standard error, at most [`LAST_LINES`].
    last_words: VecDeque<String>,
}

impl Watch {
    /// Why Belay stopped reading; `None` if the server closed the pipe.
    pub(super) fn ended(&self) -> Option<String> {
        self.seen().ended.clone()
    }

    /// The first line that is no message, as the end of a sentence; may be empty.
    pub(super) fn noise(&self) -> String {
        let noise = self.seen().noise.clone();
        noise.map(|noise| format!("; it wrote what is no MCP message: {noise:?}")).unwrap_or_default()
    }

    /// The last lines of standard error, at most ten, the oldest first. Only for the operator, because they may contain
    /// anything.
    pub(super) fn last_words(&self) -> String {
        Vec::from(self.seen().last_words.clone()).join("\n")
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // Plain values, so a panic cannot leave them inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader that passes on whole lines, in a form that the SDK can read. It ends at a line longer than [`MAX_LINE`], or
/// after more than [`MAX_NOISE`] lines that are no messages.
pub(super) struct Watched<R> {
    inner: R,
    watch: Arc<Watch>,
    /// The current line, up to [`MAX_LINE`] bytes.
    line: Vec<u8>,
    /// Whole lines, and how much of them has been passed on.
    whole: Vec<u8>,
    passed: usize,
    /// Number of lines that were no messages.
    noisy: usize,
    ended: bool,
}

impl<R> Watched<R> {
    pub(super) fn new(inner: R, watch: Arc<Watch>) -> Self {
        Self { inner, watch, line: Vec::new(), whole: Vec::new(), passed: 0, noisy: 0, ended: false }
    }

    /// Adds bytes that were read.
    fn add(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(part);
            let length = self.line.len() - usize::from(part.ends_with(b"\n"));
            if length > MAX_LINE {
                return self.end(format!("it wrote a line of more than {} MiB", MAX_LINE / 1024 / 1024));
            }
            if part.ends_with(b"\n") {
                self.end_of_line(length);
                if self.noisy > MAX_NOISE {
                    return self.end(format!("it wrote more than {MAX_NOISE} lines that are no messages"));
                }
            }
        }
    }

    fn end_of_line(&mut self, length: usize) {
        let line = &self.line[..length];
        let first = line.iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|first| !matches!(first, b'{' | b'[')) {
            self.noisy += 1;
            let text = String::from_utf8_lossy(&line[..length.min(NOISE_SHOWN)]);
            self.watch.seen().noise.get_or_insert_with(|| shown(&text, NOISE_SHOWN));
        }
        self.whole.extend_from_slice(&readable(line));
        self.whole.push(b'\n');
        self.line.clear();
        self.line.shrink_to(KEPT);
    }

    fn end(&mut self, why: String) {
        self.watch.seen().ended = Some(why);
        self.ended = true;
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut chunk = [0; CHUNK];
        while self.passed == self.whole.len() && !self.ended {
            self.whole.clear();
            self.whole.shrink_to(KEPT);
            self.passed = 0;
            let mut read = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut self.inner).poll_read(context, &mut read))?;
            match read.filled() {
                [] => return Poll::Ready(Ok(())), // a line without its end is no message
                bytes => self.add(bytes),
            }
        }
        let rest = &self.whole[self.passed..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.passed += count;
        Poll::Ready(Ok(()))
    }
}

/// Longest logged line of standard error, in bytes. The rest of the line is dropped.
const MAX_LOGGED_LINE: usize = 1024;

/// Most bytes of standard error that are logged for one server in one run. Reading continues after that, so that a full
/// pipe never blocks the server.
const MAX_LOGGED: usize = 64 * 1024;

/// Number of kept lines of standard error. Ten: a package manager prints its error before some lines about its log
/// file.
const LAST_LINES: usize = 10;

/// Reads standard error to its end. Logs the beginning at `debug` and keeps the last lines.
pub(super) async fn drain(mut stderr: impl AsyncRead + Unpin, server: String, watch: Arc<Watch>) {
    let mut chunk = [0; 4096];
    let (mut current, mut logged) = (Vec::new(), 0);
    let mut keep = |current: &mut Vec<u8>| {
        let said = shown(&String::from_utf8_lossy(current), MAX_LOGGED_LINE);
        current.clear();
        if said.is_empty() {
            return;
        }
        if logged < MAX_LOGGED {
            logged += said.len();
            debug!(server, said, "mcp server, standard error");
        }
        let lines = &mut watch.seen().last_words;
        if lines.len() == LAST_LINES {
            lines.pop_front();
        }
        lines.push_back(said);
    };
    // A read error counts as the end of the pipe.
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        for &byte in &chunk[..count] {
            if byte != b'\n' {
                if current.len() < MAX_LOGGED_LINE {
                    current.push(byte);
                }
                continue;
            }
            keep(&mut current);
        }
    }
    keep(&mut current); // a last line without its end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    async fn read(bytes: Vec<u8>) -> (usize, Arc<Watch>) {
        let watch = Arc::new(Watch::default());
        let mut all = Vec::new();
        Watched::new(&bytes[..], watch.clone()).read_to_end(&mut all).await.unwrap();
        (all.len(), watch)
    }

    #[tokio::test]
    async fn messages_pass_and_the_first_line_that_is_none_is_noted() {
        let text = b" \r\n{\"a\":1}\nStarting \x1b[1mserver\x1b[0m\nmore\n[]\n";
        let (length, watch) = read(text.to_vec()).await;
        assert_eq!(length, text.len());
        assert_eq!(watch.noise(), "; it wrote what is no MCP message: \"Starting [1mserver[0m\"");
        assert_eq!(watch.ended(), None);
    }

    #[tokio::test]
    async fn a_line_without_an_end_is_the_end() {
        let (length, watch) = read(vec![b'{'; MAX_LINE + 100_000]).await;
        assert!(length <= MAX_LINE);
        assert_eq!(watch.ended().as_deref(), Some("it wrote a line of more than 8 MiB"));
        let mut just_fits = vec![b'{'; MAX_LINE];
        just_fits.push(b'\n');
        assert_eq!(read(just_fits).await.1.ended(), None);
    }

    #[tokio::test]
    async fn noise_without_an_end_is_the_end() {
        let (_, watch) = read(b"noise\n".repeat(5000)).await;
        assert_eq!(watch.ended().as_deref(), Some("it wrote more than 1000 lines that are no messages"));
    }

    #[tokio::test]
    async fn standard_error_is_read_to_its_end_and_its_last_ten_lines_kept() {
        let watch = Arc::new(Watch::default());
        let mut text = "x".repeat(100_000).into_bytes();
        text.extend(b"\nnpm error code EAI_AGAIN\n\n");
        text.extend((1..9).flat_map(|n| format!("npm error {n}\n").into_bytes()));
        text.extend(b"npm error the \x1b[31mend");
        drain(&text[..], "s".into(), watch.clone()).await;
        let lines: Vec<String> = (1..9).map(|n| format!("npm error {n}")).collect();
        let expected = format!("npm error code EAI_AGAIN\n{}\nnpm error the [31mend", lines.join("\n"));
        assert_eq!(watch.last_words(), expected);
    }
}
