//! Sends the finished pieces of an answer while its run continues. The message and the event that it was sent are in
//! one commit, so an attempt after a crash knows what was sent.

use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_protocol::{Durability, EventKind, EventLog, EventQuery, Outbound, ReplyRoute, RunId, StoreError};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use belay_run::chunking::Next;
use belay_run::journal::RunJournal;
use belay_run::live::LiveRun;

/// Digests of the pieces that earlier attempts of a run have sent.
///
/// # Errors
/// The store does not respond.
pub(super) async fn sent_before(events: &dyn EventLog, run: RunId) -> Result<Vec<String>, StoreError> {
    let (mut digests, mut query) = (Vec::new(), EventQuery { run: Some(run), ..EventQuery::default() });
    loop {
        let page = events.read(query.clone()).await?;
        let Some(last) = page.last() else { return Ok(digests) };
        query.after = last.seq;
        digests.extend(page.into_iter().filter_map(|event| match event.kind {
            EventKind::MessageEmitted { digest } => Some(digest),
            _ => None,
        }));
    }
}

/// Sends the pieces of one turn.
pub(super) struct BlockSender {
    pub(super) run: Arc<LiveRun>,
    pub(super) journal: RunJournal,
    pub(super) route: ReplyRoute,
    /// Time that a short piece waits for more text.
    pub(super) idle: Duration,
}

impl BlockSender {
    /// Sends pieces as they become ready, until `finish` is cancelled; pieces that are ready then are still sent. If
    /// the store rejects a piece, it stays and goes with the end of the run.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, a message may have been committed. Its event is in the same commit, so the next
    /// attempt knows about it.
    pub(super) async fn send_all(mut self, finish: CancellationToken) {
        let mut waits_since = None;
        while let Some(next) = self.run.output.blocks().map(|blocks| blocks.next()) {
            let since = *waits_since.get_or_insert_with(Instant::now);
            let until = match next {
                // The person who stopped the run does not want to read more of it.
                _ if self.run.control.cancel.is_cancelled() => return,
                Some(next) if !next.may_wait || finish.is_cancelled() || since.elapsed() >= self.idle => {
                    match self.send(next).await {
                        Ok(()) => {}
                        Err(StoreError::LeaseLost(_)) => return, // the new owner of the lane sends the answer
                        Err(error) => {
                            tracing::error!(run = %self.run.id, %error, "a piece of an answer could not be stored");
                            return;
                        }
                    }
                    waits_since = None;
                    continue;
                }
                Some(_) => Some(since + self.idle),
                None if finish.is_cancelled() => return,
                None => {
                    waits_since = None;
                    None
                }
            };
            tokio::select! {
                () = self.run.output.changed() => {}
                () = finish.cancelled() => {}
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {}
            }
        }
    }

    async fn send(&mut self, next: Next) -> Result<(), StoreError> {
        let digest = blake3::hash(next.text.as_bytes()).to_hex().to_string();
        let known = self.run.output.blocks().is_some_and(|mut blocks| blocks.was_sent(&digest));
        if !known {
            self.journal.note(EventKind::MessageEmitted { digest });
            // Pieces are sent only if no hook checks texts.
            self.journal.say(Outbound::new(Some(self.run.id), self.route.clone(), next.text).checked());
            self.journal.write(&LoopContext::default(), Durability::Committed).await?;
        }
        if let Some(mut blocks) = self.run.output.blocks() {
            blocks.sent(next.count);
        }
        Ok(())
    }
}
