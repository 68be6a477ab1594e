//! The exchange of frames over an open connection.

use std::collections::VecDeque;
use std::time::Duration;

use axum::extract::ws::{Message, WebSocket};
use belay_protocol::{Ack, AckSender, Cursor, Envelope};
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tracing::{debug, warn};

use super::silence::Silence;
use super::{CURSOR, OPEN_MAX, Served};
use crate::arrival::{self, Arrival};
use crate::frames::{FromAdapter, Sender, ToAdapter, read};
use crate::link::{Answer, Frame};
use crate::progress::Progress;

/// Maximum time to write a frame, after which the adapter counts as gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(30);

/// Pause between two pings.
const PING: Duration = Duration::from_secs(20);

/// The acknowledgement of the message at a place, with its id.
type Settled = (u64, String, Option<Ack>);

pub(super) struct Exchange<'a> {
    socket: &'a mut WebSocket,
    served: &'a Served,
    generation: u64,
    progress: Progress,
    acks: FuturesUnordered<BoxFuture<'static, Settled>>,
    /// Messages that the agent's queue has no room for yet, the oldest first: at most [`OPEN_MAX`].
    pending: VecDeque<Envelope>,
}

/// The next event of a connection.
enum Event {
    /// A message has its acknowledgement.
    Settled(Settled),
    /// The agent has the oldest pending message, or takes none any more, and all have left.
    HandedOver,
    /// A frame is to be written; `None`: a newer connection writes them now.
    Write(Option<Frame>),
    /// A ping is due.
    Ping,
    /// A frame was read; `None`: the connection has ended.
    Read(Option<Result<Message, axum::Error>>),
}

impl<'a> Exchange<'a> {
    /// The exchange over the connection with this number.
    pub(super) fn new(socket: &'a mut WebSocket, served: &'a Served, generation: u64) -> Self {
        let (progress, acks, pending) = (Progress::default(), FuturesUnordered::new(), VecDeque::new());
        Self { socket, served, generation, progress, acks, pending }
    }

    /// Serves until the connection ends. Returns the reason.
    ///
    /// # Cancel safety
    /// If the future is dropped, a frame may be half written; the socket writes its rest in front of the next one.
    pub(super) async fn run(&mut self, mut frames: mpsc::Receiver<Frame>) -> String {
        let (mut silence, mut pings) = (Silence::begin(), interval(PING));
        pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let event = self.next(&mut frames, &mut pings).await;
            let begun = Instant::now();
            let result = match event {
                Event::Settled((place, id, ack)) => self.acknowledge(place, id, ack).await,
                Event::HandedOver => Ok(()),
                Event::Write(Some(frame)) => self.write(frame).await,
                Event::Write(None) => Err("another connection has taken its place".to_owned()),
                Event::Ping if silence.is_too_long() => Err("the adapter is silent".to_owned()),
                Event::Ping => self.send(Message::Ping(Default::default())).await,
                Event::Read(message) => {
                    silence = Silence::begin();
                    self.take(message).await
                }
            };
            if let Err(why) = result {
                return why;
            }
            silence.leave_out(begun.elapsed());
        }
    }

    async fn next(&mut self, frames: &mut mpsc::Receiver<Frame>, pings: &mut Interval) -> Event {
        tokio::select! {
            Some(settled) = self.acks.next() => Event::Settled(settled),
            permit = self.served.inbox.reserve(), if !self.pending.is_empty() => {
                match permit {
                    Ok(permit) => {
                        if let Some(oldest) = self.pending.pop_front() {
                            permit.send(oldest);
                        }
                    }
                    Err(_) => self.pending.clear(), // intake has ended: each dropped envelope says so
                }
                Event::HandedOver
            }
            frame = frames.recv() => Event::Write(frame),
            _ = pings.tick() => Event::Ping,
            message = self.socket.next() => Event::Read(message),
        }
    }

    async fn take(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), String> {
        match message {
            Some(Ok(Message::Text(text))) => self.frame(&text).await,
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Binary(_))) => Err("frames are text".to_owned()),
            Some(Ok(Message::Close(_))) | None => Err("the adapter closed it".to_owned()),
            Some(Err(error)) => Err(error.to_string()),
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
                self.pending.push_back(Envelope { inbound: *inbound, ack });
                self.acks.push(answer.map(move |ack| (place, id, ack.ok())).boxed());
                if self.acks.len().max(self.progress.open()) > OPEN_MAX { self.refuse_more().await } else { Ok(()) }
            }
        }
    }

    /// Ends a connection with too many open messages.
    async fn refuse_more(&mut self) -> Result<(), String> {
        let detail = format!("more than {OPEN_MAX} messages are open; wait for an `ack` before the next one");
        self.send(Message::text(ToAdapter::Error { detail: detail.clone() }.text())).await?;
        Err(detail)
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
