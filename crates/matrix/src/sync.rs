//! The stream of messages: asks for news, offers their messages to the agent, and keeps how far it has come.
//!
//! A token is kept after each message before it was acknowledged. After a crash the same news come again, and the store
//! recognises the messages that it has by their event ids. While messages wait, news are asked for all the same, so that a
//! later `/stop` arrives.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use belay_protocol::{Ack, AckSender, Cursor, Envelope, Refusal};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt, future::OptionFuture};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::NAME;
use crate::api::{ApiError, DEADLINE};
use crate::gaps::News;
use crate::intake::{self, Me};
use crate::lines::{Item, Lines, OPEN_MAX};
use crate::room::Rooms;

/// Longest wait for an acknowledgement before the message is offered again.
const ACK_DEADLINE: Duration = Duration::from_secs(30);

/// The pause after a message that could not be stored.
const LATER: Duration = Duration::from_secs(1);

/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Deadline of the last commit, which the end of the daemon waits for.
const LAST_DEADLINE: Duration = Duration::from_secs(2);

/// Endless back-off with jitter, from 1 s to 60 s.
struct Pauses(ExponentialBackoff);

impl Pauses {
    fn new() -> Self {
        let pauses = ExponentialBuilder::new().with_min_delay(Duration::from_secs(1)).with_max_delay(PAUSE_MAX);
        Self(pauses.with_jitter().without_max_times().build())
    }

    fn after(&mut self, error: &ApiError) -> Duration {
        match error {
            ApiError::Limited(wait) => *wait,
            _ => self.0.next().unwrap_or(PAUSE_MAX),
        }
    }
}

/// Where the next request begins.
#[derive(Clone)]
enum Since {
    /// At the token that is kept; without one, now.
    Kept,
    /// Now.
    Now,
    At(String),
}

/// The messages of the account.
pub(crate) struct Intake {
    rooms: Arc<Rooms>,
    stop: CancellationToken,
    since: Since,
    request: Option<Pin<Box<dyn Future<Output = Result<News, ApiError>> + Send>>>,
    paused_until: Instant,
    pauses: Pauses,
    lines: Lines,
    /// A token that is to be kept.
    reached: Option<String>,
    open: FuturesUnordered<Pin<Box<dyn Future<Output = Item> + Send>>>,
    offers: (mpsc::Sender<Envelope>, mpsc::Receiver<Envelope>),
}

impl Intake {
    pub(crate) fn new(rooms: Arc<Rooms>, stop: CancellationToken) -> Self {
        let (paused_until, pauses, offers) = (Instant::now(), Pauses::new(), mpsc::channel(1));
        let (request, lines, reached, open) = Default::default();
        Self { rooms, stop, since: Since::Kept, request, paused_until, pauses, lines, reached, open, offers }
    }

    /// The next message, or `None` when intake has ended. Messages without an acknowledgement at that time come again.
    pub(crate) async fn next(&mut self) -> Option<Envelope> {
        let stop = self.stop.clone();
        let message = stop.run_until_cancelled(self.next_message()).await;
        if message.is_none() {
            while let Some(Some(item)) = self.open.next().now_or_never() {
                self.lines.settled(&item);
            }
            let _ = timeout(LAST_DEADLINE, self.keep()).await; // else the last messages are recognised as repeated
        }
        message
    }

    async fn next_message(&mut self) -> Envelope {
        loop {
            self.keep().await;
            while let Some(item) = self.lines.next() {
                self.open.push(Box::pin(settle(Arc::clone(&self.rooms), item, self.offers.0.clone())));
            }
            let due = (self.request.is_none() && self.lines.open() < OPEN_MAX).then_some(self.paused_until);
            tokio::select! {
                biased; // settled events first: they make room
                Some(item) = self.open.next() => self.lines.settled(&item),
                Some(envelope) = self.offers.1.recv() => return envelope,
                Some(answer) = OptionFuture::from(self.request.as_mut()) => {
                    self.request = None;
                    self.receive(answer);
                }
                Some(()) = OptionFuture::from(due.map(sleep_until)) => {
                    let (rooms, since) = (Arc::clone(&self.rooms), self.since.clone());
                    self.request = Some(Box::pin(async move { ask(&rooms, since).await }));
                }
            }
        }
    }

    fn receive(&mut self, answer: Result<News, ApiError>) {
        match answer {
            Ok(News { next, mut events, is_first }) => {
                (self.pauses, self.paused_until) = (Pauses::new(), Instant::now());
                self.rooms.set_trouble(None);
                for (room, event) in &events {
                    if event.kind == "m.room.member" {
                        self.rooms.people.note_crowded(room, None); // somebody has come or gone
                    }
                }
                if is_first {
                    self.reached = Some(next.clone()); // no earlier message is ever answered
                }
                let me = self.rooms.me.get().cloned().unwrap_or_default();
                events.retain(|(_, event)| event.sender != me.user || event.membership_of(&me.user) == Some("invite"));
                self.since = Since::At(next.clone());
                let commands = &self.rooms.parts.commands;
                self.lines.admit(next, events, |event| intake::is_stop(&intake::text(event, &me, commands)));
            }
            Err(error) => {
                let pause = self.pauses.after(&error);
                self.paused_until = Instant::now() + pause;
                self.rooms.set_trouble(Some(error.to_string()));
                if error.is(400) && self.lines.open() == 0 {
                    error!(%error, "the homeserver does not know the place up to which it was read; messages before now are passed over");
                    self.since = Since::Now;
                } else {
                    warn!(%error, pause_ms = pause.as_millis() as u64, "the homeserver gives no messages");
                }
            }
        }
    }

    /// Keeps the token up to which all messages are settled.
    async fn keep(&mut self) {
        self.reached = self.lines.reached().or(self.reached.take());
        let Some(token) = self.reached.clone() else { return };
        let name = self.rooms.me.get().map(|me| me.user.clone()).unwrap_or_default();
        let kept = match Cursor::new(name, token) {
            Ok(cursor) => self.rooms.parts.cursors.keep_cursor(&NAME.into(), &cursor).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match kept {
            Ok(()) => self.reached = None,
            Err(error) => {
                warn!(error, "the place up to which messages were read is not kept");
                sleep(LATER).await;
            }
        }
    }
}

/// Asks for news.
async fn ask(rooms: &Rooms, since: Since) -> Result<News, ApiError> {
    introduce(rooms, DEADLINE).await?;
    let since = match since {
        Since::Now => None,
        Since::At(token) => Some(token.into()),
        Since::Kept => {
            let name = rooms.me.get().map(|me| me.user.as_str()).unwrap_or_default();
            let kept = rooms.parts.cursors.cursor(&NAME.into(), name).await;
            kept.map_err(|error| ApiError::NotSent(format!("the store has failed: {error}")))?
        }
    };
    rooms.news(since.as_deref()).await
}

/// Asks for the account's own id and name, once.
pub(crate) async fn introduce(rooms: &Rooms, deadline: Duration) -> Result<(), ApiError> {
    if rooms.me.get().is_some() {
        return Ok(());
    }
    let user = rooms.api.whoami(deadline).await?;
    let name = rooms.api.display_name(&user).await?;
    info!(user, "the homeserver knows the account");
    let _ = rooms.me.set(Me { user, name }); // the first answer counts
    Ok(())
}

/// Reads an event and offers its message until the agent has it, or has refused it for good.
async fn settle(rooms: Arc<Rooms>, item: Item, offers: mpsc::Sender<Envelope>) -> Item {
    let mut pauses = Pauses::new();
    let inbound = loop {
        match rooms.read(&item.room, &item.event, &item.hurry).await {
            Ok(inbound) => break inbound,
            Err(error) => {
                let pause = pauses.after(&error);
                warn!(room = item.room, %error, pause_ms = pause.as_millis() as u64, "an event is read again later");
                sleep(pause).await;
            }
        }
    };
    let Some(mut inbound) = inbound else { return item };
    // With a key, the later offer of a `/stop` would count as a redelivery.
    inbound.key = inbound.key.filter(|_| item.is_in_order());
    loop {
        let (ack, answer) = AckSender::channel();
        if offers.send(Envelope { inbound: inbound.clone(), ack }).await.is_err() {
            return item; // intake has ended, and nothing reads this
        }
        let pause = match timeout(ACK_DEADLINE, answer).await {
            Ok(Ok(Ack::Refused(Refusal::Busy { retry_after, .. } | Refusal::Overloaded { retry_after, .. }))) => retry_after,
            Err(_) | Ok(Err(_) | Ok(Ack::Refused(Refusal::Store(_) | Refusal::ShuttingDown))) => LATER,
            Ok(Ok(_)) => return item,
        };
        if !item.is_in_order() {
            return item; // the same `/stop` is in its line
        }
        sleep(pause).await;
    }
}
