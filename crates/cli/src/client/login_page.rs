//! The page to which a browser is sent back after a login.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// Longest request in bytes: a browser sends a code and its cookies.
const REQUEST_MAX_BYTES: usize = 32 * 1024;

/// Longest time for a request to arrive, and for the page to be taken. Browsers also open connections that they do not use.
const VISIT_LIMIT: Duration = Duration::from_secs(10);

/// Most connections at a time. One more ends the oldest.
const VISITS_MAX: usize = 16;

/// The visits of browsers.
pub(super) struct Visits {
    listener: Option<TcpListener>,
    arriving: JoinSet<io::Result<(String, TcpStream)>>,
    /// The visits that may not have arrived yet, the oldest first.
    order: VecDeque<AbortHandle>,
}

/// A browser that waits for a page.
pub(super) struct Page(TcpStream);

impl Visits {
    /// The visits at this listener; `None`: there are none.
    pub(super) fn new(listener: Option<TcpListener>) -> Self {
        Self { listener, arriving: JoinSet::new(), order: VecDeque::new() }
    }

    /// The next visit: its query, and the page to show.
    ///
    /// # Cancel safety
    /// If the future is dropped, no visit is lost.
    pub(super) async fn next(&mut self) -> (String, Page) {
        let Some(listener) = &self.listener else { return std::future::pending().await };
        loop {
            tokio::select! {
                Some(arrived) = self.arriving.join_next() => {
                    // A connection that brings no request is of no interest.
                    if let Ok(Ok((query, stream))) = arrived {
                        return (query, Page(stream));
                    }
                }
                accepted = listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        self.order.retain(|visit| !visit.is_finished());
                        // Connections that bring nothing must not keep the browser out.
                        if self.order.len() >= VISITS_MAX && let Some(oldest) = self.order.pop_front() {
                            oldest.abort();
                        }
                        self.order.push_back(self.arriving.spawn(arrive(stream)));
                    }
                }
            }
        }
    }
}

impl Page {
    /// Shows a text. The browser may have gone, which nobody has to know.
    pub(super) async fn show(self, words: &str) {
        let Self(mut stream) = self;
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
             referrer-policy: no-referrer\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n{words}",
            words.len()
        );
        let sent = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await
        };
        let _ = timeout(VISIT_LIMIT, sent).await;
    }
}

/// Reads a request to its end, and returns the query of its address.
async fn arrive(mut stream: TcpStream) -> io::Result<(String, TcpStream)> {
    let mut head = Vec::new();
    let read = async {
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if head.len() > REQUEST_MAX_BYTES || stream.read_buf(&mut head).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
        }
        Ok(())
    };
    timeout(VISIT_LIMIT, read).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let head = String::from_utf8_lossy(&head);
    let target = head.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let query = target.and_then(|target| target.strip_prefix("/callback?")).map(str::to_owned);
    query.map(|query| (query, stream)).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_that_bring_nothing_keep_no_browser_out() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut visits = Visits::new(Some(listener));
        let mut idle = Vec::new();
        for _ in 0..2 * VISITS_MAX {
            idle.push(TcpStream::connect(address).await.expect("connects"));
        }
        let mut browser = TcpStream::connect(address).await.expect("connects");
        browser.write_all(b"GET /callback?code=a&state=b HTTP/1.1\r\n\r\n").await.expect("sent");
        let (query, _page) = visits.next().await;
        assert!(query == "code=a&state=b" && visits.order.len() <= VISITS_MAX, "{query}");
        // The oldest was ended for one that came later.
        let mut end = [0];
        assert!(!matches!(idle[0].read(&mut end).await, Ok(1..)));
    }

    #[tokio::test]
    async fn a_browser_is_answered_beside_connections_that_bring_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut visits = Visits::new(Some(listener));
        let _idle = TcpStream::connect(address).await.expect("connects");
        let mut other = TcpStream::connect(address).await.expect("connects");
        other.write_all(b"GET /favicon.ico HTTP/1.1\r\n\r\n").await.expect("sent");
        let mut browser = TcpStream::connect(address).await.expect("connects");
        browser.write_all(b"GET /callback?code=a&state=b HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
        let (query, page) = visits.next().await;
        assert_eq!(query, "code=a&state=b");
        page.show("done").await;
        let mut shown = String::new();
        browser.read_to_string(&mut shown).await.expect("read");
        assert!(shown.starts_with("HTTP/1.1 200 OK\r\n") && shown.ends_with("\r\n\r\ndone"), "{shown}");
    }
}
