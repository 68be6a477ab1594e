//! Serves one connection: a reader, a writer, and a set of tasks, all inside one task of the server. When the
//! connection ends, all its waits and subscriptions end with it; the runs that it started continue.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{ConnectionId, RunId, RunRecord, Seq, SessionKey};
use futures_util::future::join_all;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use super::Close;
use super::claims::Kind;
use super::followed::Followed;
use super::frames::{Answer, Malformed, Request, RpcError, event, response};
use super::handshake::{Session, handshake};
use super::methods::{Begun, Caller, Effect, Method, Outcome, RunEnd, Subscription, call};
use super::outgoing::{Frame, Outgoing};
use crate::app::Shared;
use crate::error::{ApiError, ErrorCode};
use crate::new_socket::SocketArrival;
use crate::socket::{Message, WebSocket};
use crate::streams::{Source, Target, Terminal};

/// Longest frame of a client. 1 MiB: ten times the longest message.
pub(super) const MAX_FRAME_BYTES: usize = 1024 * 1024;

/// Interval of the `tick` event.
pub(super) const TICK: Duration = Duration::from_secs(15);

/// A client is considered gone after this time without a frame, even without the answer to a ping. 60 s: four ticks.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Most open requests, including each `agent` request whose run has not ended. One more: `UNAVAILABLE`.
const REQUESTS: usize = 64;

/// Additional requests for stops and approval decisions, so that a client can always stop what it has started.
const URGENT_REQUESTS: usize = 8;

/// Most runs and sessions that one connection follows. One more: `UNAVAILABLE`.
const FOLLOWED: usize = 256;

/// Longest time that the answer about a run's end waits for the last events of that run. 5 s: reading them takes
/// milliseconds.
const LAST_EVENTS_LIMIT: Duration = Duration::from_secs(5);

/// How long the client has to read the remaining data and the close frame.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Serves a connection to its end.
pub(super) async fn serve(app: Shared, mut socket: WebSocket, arrival: SocketArrival) {
    let session = match handshake(&app, &mut socket, arrival).await {
        Ok(session) => session,
        Err(close) => {
            tracing::debug!(?close, "a connection ended before it began");
            let (sink, stream) = socket.split();
            return send_close(sink, stream, close).await;
        }
    };
    let (mut sink, stream) = socket.split();
    let outgoing = Arc::new(Outgoing::new(app.config.max_buffered_bytes));
    let id = session.id;
    let mut connection = Connection::new(app, session, outgoing.clone(), stream);
    let close = {
        let writing = write(&mut sink, &outgoing);
        tokio::pin!(writing);
        let close = tokio::select! {
            () = &mut writing => None,
            close = connection.run() => close,
        };
        connection.tasks.shutdown().await;
        outgoing.end();
        if close.is_some() {
            // A reading client gets the remaining data; a stalled one is not waited for.
            let _ = timeout(CLOSE_LIMIT, writing).await;
        }
        close
    };
    tracing::info!(connection = %id, ?close, "disconnected");
    send_close(sink, connection.stream, close).await;
}

/// Writes the queued frames, until the queue ends or the connection breaks.
async fn write(sink: &mut SplitSink<WebSocket, Message>, outgoing: &Outgoing) {
    while let Some(frame) = outgoing.next().await {
        let message = match frame {
            Frame::Text(text) => Message::text(text),
            Frame::Ping => Message::Ping(Default::default()),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

/// Sends the close frame, and waits briefly for the client's answer. A connection that is simply dropped loses the data
/// that was sent last.
async fn send_close(mut sink: SplitSink<WebSocket, Message>, mut stream: SplitStream<WebSocket>, close: Option<Close>) {
    let Some(close) = close else { return };
    let said = async {
        if sink.send(Message::Close(Some(close.frame()))).await.is_ok() {
            while let Some(Ok(_)) = stream.next().await {}
        }
    };
    let _ = timeout(CLOSE_LIMIT, said).await; // a client that does not answer is not waited for
}

/// The result of a task of the connection.
enum Ended {
    /// The result of a request.
    Called(Box<Result<Outcome, RpcError>>),
    /// A run continues after the end of this daemon: the request that waits for its end gets no further answer.
    Unanswered,
    /// Something that was followed has ended.
    Followed,
}

struct Connection {
    app: Shared,
    caller: Arc<Caller>,
    id: ConnectionId,
    stream: SplitStream<WebSocket>,
    outgoing: Arc<Outgoing>,
    tasks: JoinSet<Ended>,
    /// Requests that wait for an answer, or for a second one: their tasks and ids.
    requests: HashMap<Id, String>,
    followed: Followed,
    heard_at: Instant,
    /// Whether the client has received the shutdown event.
    shutdown_sent: bool,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

impl Connection {
    fn new(app: Shared, session: Session, outgoing: Arc<Outgoing>, stream: SplitStream<WebSocket>) -> Self {
        let Session { id, principal, scopes, permit } = session;
        Self {
            caller: Arc::new(Caller { app: app.clone(), principal, scopes }),
            followed: Followed::new(app.clone(), outgoing.clone()),
            app,
            id,
            stream,
            outgoing,
            tasks: JoinSet::new(),
            requests: HashMap::new(),
            heard_at: Instant::now(),
            shutdown_sent: false,
            _permit: permit,
        }
    }

    /// Serves the connection until the client disconnects (`None`), or until it has to be closed.
    async fn run(&mut self) -> Option<Close> {
        let (app, outgoing) = (self.app.clone(), self.outgoing.clone());
        let mut ready = app.ready.clone();
        let mut ticks = ticks();
        let mut leave_by: Option<Instant> = None;
        loop {
            if leave_by.is_some_and(|by| self.requests.is_empty() || by <= Instant::now()) {
                return Some(Close::restart());
            }
            tokio::select! {
                frame = self.stream.next() => {
                    self.heard_at = Instant::now();
                    match frame {
                        Some(Ok(Message::Text(text))) => {
                            if let Some(close) = self.frame(&text).await {
                                return Some(close);
                            }
                        }
                        Some(Ok(Message::Binary(_))) => return Some(Close::binary()),
                        Some(Ok(Message::Ping(_) | Message::Pong(_))) => {} // the library answers them
                        Some(Ok(Message::Close(_))) | None => return None,
                        Some(Err(error)) => return Close::of_error(&error),
                    }
                }
                Some(ended) = self.tasks.join_next_with_id() => {
                    if let Some(close) = self.ended(ended) {
                        return Some(close);
                    }
                }
                () = outgoing.overflowed() => return Some(Close::policy("too much data waits to be read")),
                _ = ticks.tick() => {
                    if self.heard_at.elapsed() >= SILENCE_LIMIT {
                        return Some(Close::policy("no frame arrived for too long"));
                    }
                    outgoing.offer(event("tick", &json!({ "ts": app.clock.now().0 })));
                    outgoing.ping();
                }
                down = async { ready.wait_for(|ready| !ready).await.is_ok() }, if !self.shutdown_sent => {
                    tracing::debug!(connection = %self.id, down, "the daemon is shutting down");
                    self.tell_shutdown();
                }
                () = app.draining.cancelled(), if leave_by.is_none() => {
                    self.tell_shutdown();
                    leave_by = Some(Instant::now() + CLOSE_LIMIT);
                }
                () = until(leave_by) => {}
            }
        }
    }

    /// Sends the shutdown event once: no more messages are accepted. The ends of running runs are still sent.
    fn tell_shutdown(&mut self) {
        if !std::mem::replace(&mut self.shutdown_sent, true) {
            self.outgoing.send(event("shutdown", &json!({ "reason": "Belay is shutting down" })));
        }
    }

    /// Handles one frame: starts its request, or answers what is wrong with it. A frame without an id closes the
    /// connection, because nobody can be answered.
    async fn frame(&mut self, text: &str) -> Option<Close> {
        let request = match Request::read(text) {
            Ok(request) => request,
            Err(Malformed::Answer(id, why)) => {
                self.answer(&id, Err(RpcError::invalid(why)));
                return None;
            }
            Err(Malformed::Close(why)) => return Some(Close::protocol(why)),
        };
        if let Err(error) = self.begin(&request).await {
            self.answer(&request.id, Err(error));
        }
        None
    }

    async fn begin(&mut self, request: &Request) -> Result<(), RpcError> {
        if self.requests.values().any(|id| *id == request.id) {
            let what = "id: a request of this connection with this id is still pending; choose another";
            return Err(ApiError::bad_request(ErrorCode::IdInUse, what).into());
        }
        let method = Method::from_name(&request.method).ok_or_else(|| match request.method.as_str() {
            "connect" => RpcError::invalid("this connection is connected already"),
            other => RpcError::invalid(format!("no such method: {}", other.chars().take(64).collect::<String>())),
        })?;
        if let Some(scope) = method.scope().filter(|scope| !self.caller.scopes.has(*scope)) {
            return Err(RpcError::missing_scope(scope.word()));
        }
        match method.effect() {
            Effect::Subscribe(kind) => {
                let subscription = Subscription::read(request.params())?;
                self.subscribe(kind, subscription, &request.id).await
            }
            Effect::Unsubscribe(kind) => {
                let subscription = Subscription::read(request.params())?;
                self.unsubscribe(kind, subscription.session);
                self.answer(&request.id, Ok(json!({ "subscribed": false })));
                Ok(())
            }
            Effect::Ask(urgency) => {
                let limit = if urgency.is_urgent() { REQUESTS + URGENT_REQUESTS } else { REQUESTS };
                if self.requests.len() >= limit {
                    return Err(ApiError::busy(format!("{limit} requests of this connection are under way")).into());
                }
                if method.begins_runs() && self.followed.len() >= FOLLOWED {
                    return Err(too_much_followed().into());
                }
                self.ask(method, request);
                Ok(())
            }
        }
    }

    fn ask(&mut self, method: Method, request: &Request) {
        let (caller, params) = (self.caller.clone(), request.params().to_owned());
        let mut calling = Box::pin(async move { call(&caller, method, &params).await });
        // Polled once here, in the order of the frames: this hands the request to the agent. In tasks of their own, a
        // stop could overtake the message that it is to stop. Only the wait for the answer is left to the task.
        let at_once = calling.as_mut().now_or_never();
        let task = self.tasks.spawn(async move {
            Ended::Called(Box::new(match at_once {
                Some(outcome) => outcome,
                None => calling.await,
            }))
        });
        self.requests.insert(task.id(), request.id.clone());
    }

    /// Handles the end of a task. If reading a subscribed session has failed, the connection is closed.
    fn ended(&mut self, ended: Result<(Id, Ended), JoinError>) -> Option<Close> {
        match ended {
            Ok((task, Ended::Called(outcome))) => {
                let id = self.requests.remove(&task)?; // each has one
                self.called(id, *outcome);
            }
            Ok((task, Ended::Unanswered)) => {
                self.requests.remove(&task);
            }
            Ok((task, Ended::Followed)) => {
                let target = self.followed.ended(task)?; // unsubscribed meanwhile
                if matches!(target, Target::Session(_)) && !self.app.draining.is_cancelled() {
                    return Some(Close::broken());
                }
            }
            Err(error) => {
                self.followed.ended(error.id());
                if let Some(id) = self.requests.remove(&error.id()) {
                    self.answer(&id, Err(ApiError::internal().into()));
                }
                if error.is_panic() {
                    tracing::error!(%error, connection = %self.id, "a request panicked");
                }
            }
        }
        None
    }

    /// Answers a request and does what follows from its result. Its id stays reserved until its last answer.
    fn called(&mut self, id: String, outcome: Result<Outcome, RpcError>) {
        match outcome {
            Ok(Outcome::Answered(payload)) => self.answer(&id, Ok(payload)),
            Ok(Outcome::Accepted(payload, begun)) => {
                self.answer(&id, Ok(payload));
                self.follow_run(id, begun);
            }
            Ok(Outcome::RunEnd(end)) => self.tell_end(id, end),
            Err(error) => self.answer(&id, Err(error)),
        }
    }

    /// Follows a run that was started here. If its request has a second answer, waits for that.
    fn follow_run(&mut self, id: String, begun: Begun) {
        let Begun { kind, run, session, watch, answers_twice } = begun;
        let finished = watch.as_ref().map(|watch| watch.finished.clone());
        let target = Target::Run(run);
        let follows = self.caller.may_follow() && !self.followed.has(kind, &target);
        if follows && !self.followed.cover(kind, run, &session) {
            let source = Source::of_run(self.app.clone(), self.caller.principal.clone(), run, session, Seq(0), watch);
            self.followed.begin(kind, target, source, &mut self.tasks, Ended::Followed);
        }
        if answers_twice {
            let app = self.app.clone();
            let task = self.tasks.spawn(async move {
                match last_answer(&app, run, finished).await {
                    Some(answer) => Ended::Called(Box::new(answer)),
                    None => Ended::Unanswered,
                }
            });
            self.requests.insert(task.id(), id);
        }
    }

    /// Answers how a run has ended: after its last events, if the connection follows it.
    fn tell_end(&mut self, id: String, end: RunEnd) {
        let RunEnd { run, session, payload } = end;
        let lagging = self.followed.lagging(run, &session);
        if lagging.is_empty() {
            return self.answer(&id, Ok(payload));
        }
        let (connection, app) = (self.id, self.app.clone());
        let task = self.tasks.spawn(async move {
            let all = async {
                let newest = app.newest_beside_others().await;
                join_all(lagging.into_iter().map(|one| one.caught_up(newest))).await
            };
            if timeout(LAST_EVENTS_LIMIT, all).await.is_err() {
                tracing::warn!(%connection, %run, "the end of a run is answered before its last events are sent");
            }
            Ended::Called(Box::new(Ok(Outcome::Answered(payload))))
        });
        self.requests.insert(task.id(), id);
    }

    /// Follows a session, and the runs of it that were begun here. For a cursor beyond the tip it waits for a read of the
    /// store, and without a cursor for the followers of those runs. The following frames wait too: they are handled in
    /// their order.
    async fn subscribe(&mut self, kind: Kind, subscription: Subscription, id: &str) -> Result<(), RpcError> {
        let Subscription { session, since } = subscription;
        let newest = self.app.newest_for(since).await?;
        if let Some(since) = since.filter(|since| *since > newest) {
            return Err(ApiError::invalid_cursor("since", since, newest).into());
        }
        let target = Target::Session(session.clone());
        if since.is_none() && self.followed.has(kind, &target) {
            self.answer(id, Ok(json!({ "subscribed": true })));
            return Ok(());
        }
        if since.is_none() {
            // The subscription takes over the runs that were begun here, and continues behind this fact.
            let behind = self.followed.behind(kind, &session, newest);
            let caught_up = join_all(behind.into_iter().map(|one| one.caught_up(newest)));
            if timeout(LAST_EVENTS_LIMIT, caught_up).await.is_err() {
                return Err(ApiError::busy("the events of a run that was begun here are still read").into());
            }
        }
        let begun = self.followed.leave(kind, &target);
        if self.followed.len() >= FOLLOWED {
            return Err(too_much_followed().into());
        }
        let key = session.clone();
        let after = since.unwrap_or(newest);
        let source = Source::of_session(self.app.clone(), self.caller.principal.clone(), session, Some(after));
        self.answer(id, Ok(json!({ "subscribed": true, "cursor": source.cursor().0 })));
        self.followed.begin(kind, target, source, &mut self.tasks, Ended::Followed);
        for one in begun {
            self.followed.cover(kind, one.run, &key);
        }
        Ok(())
    }

    /// Stops following a session. The runs of it that were begun here are still followed, each for itself.
    fn unsubscribe(&mut self, kind: Kind, session: SessionKey) {
        for one in self.followed.leave(kind, &Target::Session(session.clone())) {
            let (app, principal) = (self.app.clone(), self.caller.principal.clone());
            let source = Source::of_run(app, principal, one.run, session.clone(), one.after, None);
            self.followed.begin(kind, Target::Run(one.run), source, &mut self.tasks, Ended::Followed);
        }
    }

    fn answer(&self, id: &str, answer: Answer) {
        self.outgoing.send(response(id, &answer));
    }
}

/// The end of a run; `None`: it continues, and this daemon ends.
async fn last_answer(
    app: &Shared,
    run: RunId,
    finished: Option<watch::Receiver<Option<Arc<RunRecord>>>>,
) -> Option<Result<Outcome, RpcError>> {
    match app.wait_for_end(run, finished, None).await {
        Ok(Some(record)) => {
            let end = Terminal::of(&record, &app.models.chat)?;
            Some(Ok(Outcome::RunEnd(RunEnd { run, session: record.session.clone(), payload: json_of(&end) })))
        }
        Ok(None) => Some(Err(ApiError::internal().into())), // it was accepted, but the store does not have it
        Err(error) => Some(Err(error.into())),
    }
}

pub(super) fn json_of(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default() // our own types: all keys are strings, so it cannot fail
}

fn too_much_followed() -> ApiError {
    ApiError::busy(format!("this connection follows {FOLLOWED} runs and sessions; unsubscribe from some"))
}

fn ticks() -> Interval {
    let mut ticks = interval_at(Instant::now() + TICK, TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
