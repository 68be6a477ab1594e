//! A connection with a write timeout.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Longest time in which a client may read nothing of the waiting data. 60 s: a stream sends a comment every 15 s, so a
/// client that reads at all has read something by then. A client that does not read holds a slot that others need.
const WRITE_LIMIT: Duration = Duration::from_secs(60);

/// A connection that fails with [`ErrorKind::TimedOut`] once a write has made no progress for [`WRITE_LIMIT`].
pub(crate) struct WriteTimeout<I> {
    io: I,
    limit: Pin<Box<Sleep>>,
    /// Whether a write waits and `limit` is running.
    waiting: bool,
}

impl<I> WriteTimeout<I> {
    pub(crate) fn new(io: I) -> Self {
        Self { io, limit: Box::pin(sleep(WRITE_LIMIT)), waiting: false }
    }

    /// Passes the result of a write on, or fails when the write has waited too long.
    fn judge<T>(&mut self, written: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waiting = false;
            return written;
        }
        if !self.waiting {
            self.waiting = true;
            self.limit.as_mut().reset(Instant::now() + WRITE_LIMIT);
        }
        match self.limit.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, "the client takes nothing"))),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for WriteTimeout<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.judge(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.judge(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_write_that_the_client_does_not_read_fails_after_a_minute() {
        let (ours, _theirs) = duplex(10);
        let begun = Instant::now();
        let error = WriteTimeout::new(ours).write_all(&[0; 11]).await.unwrap_err();
        assert_eq!((error.kind(), begun.elapsed()), (ErrorKind::TimedOut, WRITE_LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_is_waited_for_as_long_as_it_reads_and_silence_costs_nothing() {
        let (ours, mut theirs) = duplex(10);
        let mut ours = WriteTimeout::new(ours);
        let read_slowly = async {
            for _ in 0..20 {
                sleep(WRITE_LIMIT - Duration::from_secs(1)).await;
                assert_eq!(theirs.read(&mut [0; 10]).await.unwrap(), 10);
            }
        };
        let (written, ()) = tokio::join!(ours.write_all(&[0; 200]), read_slowly);
        written.unwrap();
        sleep(WRITE_LIMIT * 10).await;
        ours.write_all(&[0; 10]).await.unwrap();
    }
}
