//! The standard output of a server, watched: bounded lines, and a note of what was no message.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tracing::debug;

use crate::mcp::outside::line;

/// Longest line in bytes: one message. 8 MiB: a large picture in base64; the SDK would take 16 and drop more unsaid.
pub(super) const MAX_LINE: usize = 8 * 1024 * 1024;

/// Most lines that are no message. 1000: greetings and stray prints, and no endless stream of them.
const MAX_NOISE: usize = 1000;

/// How much of the first such line is kept, in bytes.
const NOISE_SHOWN: usize = 200;

/// What was seen on the wire. Shared by the reader and whoever explains a failure.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    /// The first line that was no message.
    noise: Option<String>,
    /// Why we stopped reading.
    ended: Option<String>,
    /// The last lines that the server wrote to its standard error, at most [`LAST_LINES`].
    last_words: VecDeque<String>,
}

impl Watch {
    /// Why we stopped reading, unless the server did.
    pub(super) fn ended(&self) -> Option<String> {
        self.seen().ended.clone()
    }

    /// The first line that was no message, for the end of a sentence; or nothing.
    pub(super) fn noise(&self) -> String {
        let noise = self.seen().noise.clone();
        noise.map(|noise| format!("; it wrote what is no MCP message: {noise:?}")).unwrap_or_default()
    }

    /// The last lines that the server wrote to its standard error, at most ten, oldest first; for the operator, since they
    /// may hold anything.
    pub(super) fn last_words(&self) -> String {
        Vec::from(self.seen().last_words.clone()).join("\n")
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        // Plain values: whatever panicked has left them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader that ends where a line is longer than [`MAX_LINE`], or too many lines are no messages.
pub(super) struct Watched<R> {
    inner: R,
    watch: Arc<Watch>,
    /// Bytes of the line so far.
    length: usize,
    /// The beginning of the line, as far as it may be shown.
    beginning: Vec<u8>,
    /// Lines so far that are no messages.
    noisy: usize,
    ended: bool,
}

impl<R> Watched<R> {
    pub(super) fn new(inner: R, watch: Arc<Watch>) -> Self {
        Self { inner, watch, length: 0, beginning: Vec::new(), noisy: 0, ended: false }
    }

    /// Looks at what was read. `false`: it ends here.
    fn look(&mut self, bytes: &[u8]) -> bool {
        for &byte in bytes {
            if byte == b'\n' {
                self.end_of_line();
                if self.noisy > MAX_NOISE {
                    return self.end(format!("it wrote more than {MAX_NOISE} lines that are no messages"));
                }
                continue;
            }
            self.length += 1;
            if self.beginning.len() < NOISE_SHOWN {
                self.beginning.push(byte);
            }
            if self.length > MAX_LINE {
                return self.end(format!("it wrote a line of more than {} MiB", MAX_LINE / 1024 / 1024));
            }
        }
        true
    }

    fn end_of_line(&mut self) {
        let first = self.beginning.iter().find(|byte| !byte.is_ascii_whitespace());
        if first.is_some_and(|first| !matches!(first, b'{' | b'[')) {
            self.noisy += 1;
            let text = String::from_utf8_lossy(&self.beginning);
            self.watch.seen().noise.get_or_insert_with(|| line(&text, NOISE_SHOWN));
        }
        self.length = 0;
        self.beginning.clear();
    }

    fn end(&mut self, why: String) -> bool {
        self.watch.seen().ended = Some(why);
        self.ended = true;
        false
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Watched<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if !self.look(&buffer.filled()[before..]) {
            buffer.set_filled(before);
        }
        Poll::Ready(Ok(()))
    }
}

/// Longest line of standard error that is logged, in bytes; the rest of it is dropped.
const MAX_LOGGED_LINE: usize = 1024;

/// Most bytes of standard error that are logged of one server in one run. It is read to its end all the same, so that
/// the server never waits for us.
const MAX_LOGGED: usize = 64 * 1024;

/// Lines of standard error that are kept. Ten: a package manager writes its error before some lines about its log file.
const LAST_LINES: usize = 10;

/// Reads standard error to its end: logs its beginning at `debug`, keeps the last lines.
pub(super) async fn drain(mut stderr: impl AsyncRead + Unpin, server: String, watch: Arc<Watch>) {
    let mut chunk = [0; 4096];
    let (mut current, mut logged) = (Vec::new(), 0);
    let mut keep = |current: &mut Vec<u8>| {
        let said = line(&String::from_utf8_lossy(current), MAX_LOGGED_LINE);
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
    // An error is the end too: the pipe is gone.
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
