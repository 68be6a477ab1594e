//! Server-sent events of the facts of all sessions: those after a cursor, then new ones, without end.
//!
//! The reader pulls: the next page is taken only after the last one has been sent. So a slow reader costs one page of
//! memory and delays only itself. No fact is dropped.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use belay_protocol::{Principal, Seq, SessionKey, StoreError};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};

use crate::app::Shared;
use crate::fact_pages::FactPage;
use crate::sse::KEEP_ALIVE;

/// A comment, which is no event.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// A reader of all facts that its principal may see.
pub(crate) struct FactFeed {
    app: Shared,
    principal: Principal,
    tip: watch::Receiver<Seq>,
    cursor: Seq,
    /// Written and not sent yet.
    pieces: VecDeque<Bytes>,
    pace: Pace,
    /// Released when the stream is dropped.
    _permit: OwnedSemaphorePermit,
}

impl FactFeed {
    /// Reads the facts after `after`, and sends new ones at most once in `every`; zero: at once.
    pub(crate) fn new(
        app: Shared,
        principal: Principal,
        after: Seq,
        every: Duration,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let tip = app.events.tip();
        let pace = Pace { every, sent_at: Instant::now() };
        Self { app, principal, tip, cursor: after, pieces: VecDeque::new(), pace, _permit: permit }
    }

    /// Returns the next events or comment; `None` at the end of the daemon, or if the log cannot be read: then the client
    /// reconnects with its last cursor.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                self.pace.sent_at = Instant::now();
                return Some(piece);
            }
            let tip = *self.tip.borrow_and_update(); // marked before the read: a later commit wakes this task
            if self.cursor < tip {
                match self.read(tip).await {
                    Ok(pieces) => self.pieces = pieces,
                    Err(error) => {
                        tracing::warn!(%error, "the event log cannot be read; a stream ends");
                        return None;
                    }
                }
                continue;
            }
            tokio::select! {
                wake = self.pace.wait(&mut self.tip) => match wake? {
                    Wake::Facts => {}
                    Wake::Silence => self.pieces.push_back(COMMENT),
                },
                () = self.app.draining.cancelled() => return None,
            }
        }
    }

    /// Takes a page of the facts between the cursor and `tip`.
    async fn read(&mut self, tip: Seq) -> Result<VecDeque<Bytes>, StoreError> {
        let page = self.app.fact_pages.read(self.cursor, tip).await?;
        let hidden = self.hidden(&page).await?;
        let pieces = page.events(self.cursor, |session| !hidden.contains(session)).into();
        self.cursor = page.upto.max(self.cursor);
        Ok(pieces)
    }

    /// The sessions of a page that the reader may not see.
    async fn hidden<'a>(&self, page: &'a FactPage) -> Result<HashSet<&'a SessionKey>, StoreError> {
        let visibility = self.app.visibility(&self.principal);
        let mut hidden = HashSet::new();
        if visibility.own_only().is_some() {
            let sessions: HashSet<_> = page.sessions(self.cursor).collect();
            for session in sessions {
                if !visibility.session(session).await? {
                    hidden.insert(session);
                }
            }
        }
        Ok(hidden)
    }
}

/// When a stream sends again.
struct Pace {
    /// How long facts are collected after something was sent; at most [`KEEP_ALIVE`].
    every: Duration,
    sent_at: Instant,
}

/// The next piece of a stream.
#[derive(Debug, PartialEq, Eq)]
enum Wake {
    /// New facts.
    Facts,
    /// A comment.
    Silence,
}

impl Pace {
    /// Waits for a commit and until facts may be sent, or for the end of a long silence. `None`: the log has ended.
    ///
    /// # Cancel safety
    /// The commit is then marked as seen; the caller compares its number with the cursor before it waits again.
    async fn wait(&self, tip: &mut watch::Receiver<Seq>) -> Option<Wake> {
        let committed = async {
            let changed = tip.changed().await;
            sleep_until(self.sent_at + self.every).await;
            changed
        };
        tokio::select! {
            changed = committed => changed.ok().map(|()| Wake::Facts),
            () = sleep_until(self.sent_at + KEEP_ALIVE) => Some(Wake::Silence),
        }
    }
}

/// Sends `first` and then the events of the feed as a response.
pub(crate) fn respond(first: Option<Bytes>, mut feed: FactFeed) -> Response {
    feed.pieces.extend(first);
    let pieces = futures_util::stream::unfold(feed, |mut feed| async move {
        let piece = feed.next().await?;
        Some((Ok::<_, Infallible>(piece), feed))
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(pieces)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn facts_are_collected_and_a_silence_ends_with_a_comment() {
        let log = watch::Sender::new(Seq(0));
        let mut tip = log.subscribe();
        let begun = Instant::now();
        for (every, expected) in
            [(Duration::ZERO, Duration::ZERO), (Duration::from_millis(250), Duration::from_millis(250))]
        {
            let pace = Pace { every, sent_at: Instant::now() };
            log.send_modify(|seq| seq.0 += 1);
            let before = Instant::now();
            assert_eq!(pace.wait(&mut tip).await, Some(Wake::Facts));
            assert_eq!(before.elapsed(), expected);
        }
        let pace = Pace { every: Duration::from_secs(10), sent_at: begun };
        tokio::time::sleep_until(begun + Duration::from_secs(12)).await;
        log.send_modify(|seq| seq.0 += 1);
        assert_eq!(pace.wait(&mut tip).await, Some(Wake::Facts));
        assert_eq!(begun.elapsed(), Duration::from_secs(12), "after a longer silence facts are sent at once");
        assert_eq!(pace.wait(&mut tip).await, Some(Wake::Silence));
        assert_eq!(begun.elapsed(), KEEP_ALIVE);
        drop(log);
        assert_eq!(Pace { every: Duration::ZERO, sent_at: Instant::now() }.wait(&mut tip).await, None);
    }
}
