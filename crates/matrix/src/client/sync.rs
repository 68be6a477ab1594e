//! The stream of messages: asks for news, offers their messages to the agent, and keeps how far it has come.
//!
//! A token is kept after each message before it was acknowledged. After a crash the same news come again, and the store
//! recognises the messages that it has by their event ids. While messages wait, news are asked for all the same, so
//! that a later `/stop` arrives.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Cursor, Envelope};
use futures_util::future::{BoxFuture, OptionFuture};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::api::ApiError;
use super::gaps::News;
use super::lines::{Item, Lines, OPEN_MAX};
use super::room::Rooms;
use super::settle::{LATER, Pauses, Since, ask, settle};
use super::urgent::acts_at_once;
use crate::NAME;

/// The pause after an answer without news: a server that does not hold requests is not asked without end.
const IDLE_PAUSE: Duration = Duration::from_millis(200);

/// Deadline of the last commit, which the end of the daemon waits for.
const LAST_DEADLINE: Duration = Duration::from_secs(2);

/// The messages of the account.
pub(crate) struct Intake {
    rooms: Arc<Rooms>,
    stop: CancellationToken,
    since: Since,
    request: Option<BoxFuture<'static, Result<News, ApiError>>>,
    paused_until: Instant,
    pauses: Pauses,
    lines: Lines,
    /// A token that is to be kept.
    reached: Option<String>,
    open: FuturesUnordered<BoxFuture<'static, Item>>,
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
                if events.is_empty() {
                    self.paused_until += IDLE_PAUSE;
                }
                self.rooms.set_trouble(None);
                for (room, event) in &events {
                    if event.kind == "m.room.member" {
                        self.rooms.people.note_change(room); // somebody has come or gone
                    }
                }
                let me = self.rooms.me.get().cloned().unwrap_or_default();
                events.retain(|(_, event)| event.sender != me.user || event.membership_of(&me.user) == Some("invite"));
                if is_first && events.is_empty() {
                    self.reached = Some(next.clone()); // no earlier message is ever answered
                } // else the token is kept after the open invitations, which come with the first answer alone
                self.since = Since::At(next.clone());
                let (people, commands) = (&self.rooms.people, &self.rooms.parts.commands);
                self.lines.admit(next, events, |room, event| acts_at_once(people, &me, commands, room, event));
            }
            Err(error) => {
                let pause = self.pauses.after(&error);
                self.paused_until = Instant::now() + pause;
                self.rooms.set_trouble(Some(error.to_string()));
                if error.is(400) && self.lines.open() == 0 {
                    error!(detail = %error, "the homeserver does not know the kept place; messages before now are passed over");
                    self.since = Since::Now;
                } else {
                    warn!(detail = %error, pause_ms = pause.as_millis() as u64, "the homeserver gives no messages");
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
            Ok(cursor) => {
                self.rooms.parts.cursors.keep_cursor(&NAME.into(), &cursor).await.map_err(|error| error.to_string())
            }
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
