//! The exchange of frames over an open connection.

use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use belay_protocol::{Ack, AckSender, Cursor, Envelope};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use super::{CURSOR, Served};
use crate::arrival::{self, Arrival};
use crate::frames::{FromAdapter, Sender, ToAdapter, read};
use crate::link::{Answer, Frame};
use crate::progress::Progress;

/// The maximum number of messages without an acknowledgement. No further frame is read then.
const UNSETTLED_MAX: usize = 64;

/// Maximum time to write a frame, after which the adapter counts as gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// Pause between two pings, and the silence after which the adapter counts as gone.
const PING: Duration = Duration::from_secs(20);
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The acknowledgement of the message at a place, with its id.
type Settled = (u64, String, Option<Ack>);

pub(super) struct Exchange<'a> {
    socket: &'a mut WebSocket,
    served: &'a Served,
    generation: u64,
    progress: Progress,
    acks: FuturesUnordered<BoxFuture<'static, Settled>>,
    /// A message that the agent's queue has no room for yet. Nothing is read meanwhile.
    pending: Option<Envelope>,
}

impl<'a> Exchange<'a> {
    /// The exchange over the connection with this number.
    pub(super) fn new(socket: &'a mut WebSocket, served: &'a Served, generation: u64) -> Self {
        let (progress, acks) = (Progress::default(), FuturesUnordered::new());
        Self { socket, served, generation, progress, acks, pending: None }
    }

    /// Serves until the connection ends. Returns the reason.
    pub(super) async fn run(&mut self, mut frames: mpsc::Receiver<Frame>) -> String {
        let (mut heard, mut pings) = (Instant::now(), interval(PING));
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let reads = self.pending.is_none()
                && self.acks.len() < UNSETTLED_MAX
                && self.progress.waiting() < UNSETTLED_MAX * 4;
            let served = self.served;
            let result = tokio::select! {
                Some((place, id, ack)) = self.acks.next() => self.acknowledge(place, id, ack).await,
                permit = served.inbox.reserve(), if self.pending.is_some() => match (permit, self.pending.take()) {
                    (Ok(permit), Some(envelope)) => { permit.send(envelope); Ok(()) }
                    _ => Ok(()), // intake has ended: the dropped envelope says so
                },
                frame = frames.recv() => match frame {
                    Some(frame) => self.write(frame).await,
                    None => Err("another connection has taken its place".to_owned()),
                },
                _ = pings.tick() => match heard.elapsed() {
                    silence if silence > SILENCE_MAX => Err("the adapter is silent".to_owned()),
                    _ => self.send(Message::Ping(Default::default())).await,
                },
                message = self.socket.next(), if reads => {
                    heard = Instant::now();
                    match message {
                        Some(Ok(Message::Text(text))) => self.frame(&text).await,
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
                        Some(Ok(Message::Binary(_))) => Err("frames are text".to_owned()),
                        Some(Ok(Message::Close(_))) | None => Err("the adapter closed it".to_owned()),
                        Some(Err(error)) => Err(error.to_string()),
                    }
                }
            };
            if let Err(why) = result {
                return why;
            }
        }
    }

    async fn send(&mut self, message: Message) -> Result<(), String> {
        match timeout(WRITE_DEADLINE, self.socket.send(message)).await {
            Ok(sent) => sent.map_err(|error| error.to_string()),
            Err(_) => Err("the adapter does not read".to_owned()),
        }
    }

    async fn write(&mut self, frame: Frame) -> Result<(), String> {
        if let Some(key) = &frame.key {
            self.served.link.begin_writing(self.generation, key);
        }
        self.send(Message::text(frame.text)).await
    }

    /// Takes one frame. Only a broken connection is an error.
    async fn frame(&mut self, text: &str) -> Result<(), String> {
        let (kind, conversation, id, arrival) = match read(text) {
            Err(detail) => {
                debug!(channel = %self.served.channel(), detail, "a frame of an adapter cannot be read");
                return self.send(Message::text(ToAdapter::Error { detail }.text())).await;
            }
            Ok(FromAdapter::Ready(_)) => return Ok(()), // said before
            Ok(FromAdapter::Delivered(delivered)) => {
                let key = delivered.key.clone();
                self.served.link.answer(self.generation, &key, Answer::Delivered(delivered));
                return Ok(());
            }
            Ok(FromAdapter::LookedUp(found)) => {
                self.served.link.answer(self.generation, &found.key, Answer::LookedUp(found.sent));
                return Ok(());
            }
            Ok(FromAdapter::Cursor { value }) => {
                self.progress.add(value);
                return self.keep().await;
            }
            Ok(FromAdapter::Message(said)) => (
                "m",
                at(&said.conversation, &said.sender),
                said.id.clone(),
                arrival::message(&self.served.access, said, false),
            ),
            Ok(FromAdapter::Edit(said)) => (
                "e",
                at(&said.conversation, &said.sender),
                said.id.clone(),
                arrival::message(&self.served.access, said, true),
            ),
            Ok(FromAdapter::Decide(decide)) => (
                "d",
                at(&decide.conversation, &decide.sender),
                decide.id.clone(),
                arrival::decision(&self.served.access, &decide),
            ),
        };
        match arrival {
            Arrival::Answer(result, detail) => {
                let frame = ToAdapter::Ack { id, result, detail: Some(detail), after_ms: None };
                self.send(Message::text(frame.text())).await
            }
            Arrival::Take(inbound) => {
                let (ack, answer) = AckSender::channel();
                let place = self.progress.begin(&format!("{kind} {conversation:?} {id}"));
                self.pending = Some(Envelope { inbound: *inbound, ack });
                self.acks.push(answer.map(move |ack| (place, id, ack.ok())).boxed());
                Ok(())
            }
        }
    }

    async fn acknowledge(&mut self, place: u64, id: String, ack: Option<Ack>) -> Result<(), String> {
        let (frame, is_settled) = arrival::answer(id, ack);
        if is_settled {
            self.progress.settle(place);
        } else {
            self.progress.put_off(place);
        }
        self.keep().await?;
        self.send(Message::text(frame.text())).await
    }

    /// Keeps the newest cursor that may be kept. Without it messages come again, which their keys make harmless.
    async fn keep(&mut self) -> Result<(), String> {
        let Some(value) = self.progress.kept() else { return Ok(()) };
        match Cursor::new(CURSOR, value) {
            Ok(cursor) => {
                if let Err(error) = self.served.cursors.keep_cursor(self.served.channel(), &cursor).await {
                    warn!(channel = %self.served.channel(), %error, "a cursor was not kept; its messages may come again");
                }
                Ok(())
            }
            Err(error) => self.send(Message::text(ToAdapter::Error { detail: error.to_string() }.text())).await,
        }
    }
}

/// The conversation of a message. One platform may count its messages for each conversation.
fn at(conversation: &Option<String>, sender: &Sender) -> String {
    conversation.as_ref().unwrap_or(&sender.id).clone()
}
