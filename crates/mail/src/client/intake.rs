//! The stream of messages: reads the mailbox page by page, offers its mails to the agent, and keeps its position.
//!
//! A page is settled with the last of its mails, and its position is kept then. After a lost connection or a crash the
//! same page comes again, and the store recognises the mails that it has by their keys.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use belay_channel_kit::batch::{BatchEnd, Batches};
use belay_protocol::Envelope;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::error::ImapError;
use super::given_up;
use super::mailbox::Mailbox;
use super::page::{Opened, Page, cursor};
use super::read::read;
use crate::NAME;

/// Longest `IDLE`. 9 minutes: routers forget silent connections after 10 and more. A server would wait 30.
const IDLE_LIMIT: Duration = Duration::from_secs(9 * 60);

/// The pause between two looks where the server has no `IDLE`.
const POLL_PAUSE: Duration = Duration::from_secs(60);

/// The longest pause between attempts to connect.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The mails of the mailbox.
pub(crate) struct Intake {
    mailbox: Arc<Mailbox>,
    stop: CancellationToken,
    batches: Batches,
    pauses: ExponentialBackoff,
    /// `None`: there is no connection.
    opened: Option<Opened>,
    page: Option<Page>,
}

impl Intake {
    pub(crate) fn new(mailbox: Arc<Mailbox>, opened: Option<Opened>, stop: CancellationToken) -> Self {
        let batches = Batches::new(NAME.into(), Arc::clone(&mailbox.parts.cursors));
        Self { mailbox, stop, batches, pauses: pauses(), opened, page: None }
    }

    /// The next message, or `None` when intake has ended. Messages without an acknowledgement at that time come again.
    pub(crate) async fn next(&mut self) -> Option<Envelope> {
        let stop = self.stop.clone();
        stop.run_until_cancelled(Box::pin(self.next_message())).await // boxed: it is large
    }

    async fn next_message(&mut self) -> Envelope {
        loop {
            match self.step().await {
                Ok(Some(envelope)) => return envelope,
                Ok(None) => {}
                Err(error) => {
                    (self.opened, self.page) = (None, None);
                    let pause = self.pauses.next().unwrap_or(PAUSE_MAX);
                    warn!(detail = %error, pause_ms = pause.as_millis() as u64, "the mailbox is read again later");
                    self.mailbox.set_trouble(Some(error.to_string()));
                    sleep(pause).await;
                }
            }
        }
    }

    /// Does the next thing: connects, offers a mail, ends a page, reads a page, or waits for new mail.
    async fn step(&mut self) -> Result<Option<Envelope>, ImapError> {
        let Some(opened) = &mut self.opened else {
            self.opened = Some(Opened::open(&self.mailbox).await?);
            return Ok(None);
        };
        if let Some(page) = &mut self.page {
            let Some(mail) = page.mails.pop_front() else { return self.end_page().await.map(|()| None) };
            let Some(inbound) = read(&self.mailbox, &mut opened.imap, &mail).await? else { return Ok(None) };
            page.routes.push(inbound.reply_to.clone());
            return Ok(Some(page.batch.add(inbound)));
        }
        self.page = opened.page(&self.mailbox).await?;
        if self.page.is_none() {
            self.mailbox.set_trouble(None);
            self.pauses = pauses();
            match opened.imap.abilities.idle {
                true => opened.imap.idle(IDLE_LIMIT).await?,
                false => sleep(POLL_PAUSE).await,
            }
        }
        Ok(None)
    }

    /// Waits for the acknowledgements of a page, and keeps its position.
    async fn end_page(&mut self) -> Result<(), ImapError> {
        let (Some(page), Some(opened)) = (self.page.take(), &mut self.opened) else { return Ok(()) };
        let end = cursor(&self.mailbox.address, page.end)?;
        match self.batches.end(page.batch, &end).await {
            BatchEnd::Kept(acks) => {
                opened.position = page.end;
                given_up::tell(&self.mailbox, &acks, page.routes).await;
            }
            BatchEnd::Again(pause) => sleep(pause).await,
        }
        Ok(())
    }
}

/// Endless back-off with jitter, from 1 s.
fn pauses() -> ExponentialBackoff {
    let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_secs(1)).with_max_delay(PAUSE_MAX);
    pauses.with_jitter().without_max_times().build()
}
