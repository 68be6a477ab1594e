//! The stored events of all runs and sessions as they come, over restarts of the daemon.

use belay_program::exit::{Exit, Failure};
use belay_program::output::note;
use serde_json::Value as Json;
use tokio::time::{Duration, sleep};

use super::events::Events;
use super::{Client, text};

/// Pause before a broken stream is opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// A reader of the events.
pub(super) struct Facts<'a> {
    client: &'a Client,
    stream: Events,
    /// The number of the last event; `None`: nothing was read yet.
    cursor: Option<u64>,
}

impl<'a> Facts<'a> {
    /// Begins after the event with this number; `None`: with the next event.
    ///
    /// # Errors
    /// The daemon does not answer, or refuses the number.
    pub(super) async fn open(client: &'a Client, since: Option<u64>) -> Result<Self, Failure> {
        Ok(Self { client, stream: client.all_events(since).await?, cursor: since })
    }

    /// Begins `last` events before the newest one. Returns the number of the newest one, too.
    ///
    /// # Errors
    /// As [`Facts::open`].
    pub(super) async fn open_before(client: &'a Client, last: u64) -> Result<(Self, u64), Failure> {
        let begin = client.all_events(None).await?.next().await;
        let newest = begin.as_ref().and_then(|begin| begin.pointer("/after")?.as_u64());
        let ended = || Failure::new(Exit::OutOfReach, "the daemon has ended the stream before its first event");
        let newest = newest.ok_or_else(ended)?;
        Ok((Self::open(client, Some(newest.saturating_sub(last))).await?, newest))
    }

    /// The number of the last event that was read or skipped.
    pub(super) fn cursor(&self) -> u64 {
        self.cursor.unwrap_or_default()
    }

    /// Waits for the next event. While the daemon does not answer, it tries again.
    ///
    /// # Errors
    /// The daemon refuses the request.
    ///
    /// # Cancel safety
    /// No event is lost if the future is dropped.
    pub(super) async fn next(&mut self) -> Result<Json, Failure> {
        loop {
            match self.stream.next().await {
                None => self.reopen().await?,
                Some(event) => {
                    // The first event of a stream without a number, and the one after a replaced store, are no facts.
                    let number = ["/seq", "/after", "/newest"].iter().find_map(|field| event.pointer(field)?.as_u64());
                    self.cursor = number.or(self.cursor);
                    if !text(&event, "/type").is_empty() {
                        return Ok(event);
                    }
                }
            }
        }
    }

    async fn reopen(&mut self) -> Result<(), Failure> {
        let mut told = false;
        loop {
            sleep(AGAIN).await;
            match self.client.all_events(self.cursor).await {
                Ok(stream) => {
                    self.stream = stream;
                    return Ok(());
                }
                Err(failure) if matches!(failure.exit, Exit::OutOfReach | Exit::Busy) => {
                    if !told {
                        note("the daemon does not answer; waiting for it");
                        told = true;
                    }
                }
                Err(failure) => return Err(failure),
            }
        }
    }
}
