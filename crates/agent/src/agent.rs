//! The outer loop.
//!
//! ```text
//!  channels ──streams──▶ next_event ──▶ handle ──▶ Dispatcher ──try_send──▶ lane (one task per awake session)
//!                            ▲                          │                        │  accept → turn → commit the end
//!                            └────────── notes ◀────────┴────────────────────────┘
//!                                                                         outbox ──▶ Delivery ──▶ channels
//! ```
//!
//! It ends for three reasons only: its token is cancelled, an operator ends it, or every channel that keeps it alive
//! has ended.

use std::sync::Arc;
use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::{ChannelId, Envelope, Work, is_own_channel};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, SelectAll, once};
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::agent_services::AgentServices;
use crate::assembly::{AgentParts, assemble};
use crate::delivery::Delivery;
use crate::dispatcher::{ANSWERS_GRACE, Dispatcher, Flow, TaskEnd};
use crate::mail::LaneNote;
use crate::reload::Reloader;
use crate::title_writer::TitleWriter;
use belay_automation::jobs::{self, JobScheduler};
use belay_automation::routines::{self, Engine};
use belay_automation::submitter::Submitter;
use belay_run::error::AgentError;
use belay_run::restart::supervise;

/// Capacity for notes from lanes. When it is full, the lane waits; the dispatcher never waits for a lane.
const NOTE_CAPACITY: usize = 1024;
/// Interval of the checks for idle lanes and stuck runs.
const TICK: Duration = Duration::from_secs(15);
/// Time limit at shutdown for storing the ends of cancelled turns.
const RECORD_GRACE: Duration = Duration::from_secs(3);
/// Time limit at the start for opening the conversations with a question.
const RECOVER_LIMIT: Duration = Duration::from_secs(5);
/// Time limit at shutdown for settling jobs and routine runs that ended during the drain; the next start settles the others.
const SCHEDULERS_GRACE: Duration = Duration::from_secs(1);
/// Time limit at shutdown for undelivered replies; the others stay in the outbox for the next start. The return of unused
/// money has the same time.
const FLUSH_GRACE: Duration = Duration::from_secs(3);
/// Time limit at shutdown for observing hooks, from the beginning of the drain on, when they are notified: that of each hook.
const HOOK_LIMIT: Duration = Duration::from_secs(5);
/// Least time for them after the last reply.
const HOOK_GRACE: Duration = Duration::from_secs(1);

/// Longest time of a drain beside `agent.drain_s`, in seconds: the ends of cancelled turns, schedulers, the last answers,
/// replies, and hooks.
pub const DRAIN_REST_S: u64 = RECORD_GRACE.as_secs()
    + SCHEDULERS_GRACE.as_secs()
    + ANSWERS_GRACE.as_secs()
    + FLUSH_GRACE.as_secs()
    + HOOK_GRACE.as_secs();

/// Reason why the agent ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentExit {
    /// Its token was cancelled: a signal.
    Cancelled,
    /// An operator ended it.
    Quit,
    /// No channel is left that keeps it alive.
    ChannelsEnded,
}

/// Events of the outer loop.
pub(crate) enum AgentEvent {
    /// A message.
    Inbound(Box<Envelope>),
    /// A channel's stream has ended.
    ChannelEnded(ChannelId),
    /// A lane has sent a note.
    Lane(LaneNote),
    /// A task of the dispatcher has ended.
    TaskEnded(Result<(Id, TaskEnd), JoinError>),
    /// Time for the periodic checks.
    Tick,
}

type Merged = SelectAll<BoxStream<'static, (ChannelId, Option<Envelope>)>>;

/// The agent, with its channels started.
pub struct Agent {
    services: Arc<AgentServices>,
    dispatcher: Dispatcher,
    inbound: Merged,
    notes: mpsc::Receiver<LaneNote>,
    /// Number of channels that keep the daemon alive and whose streams have not ended.
    alive: usize,
    /// Cancelled to stop the channels' intake.
    intake: CancellationToken,
    /// Cancelled to stop deliveries.
    deliveries: CancellationToken,
    /// The supervised delivery task, its only task; joined in `drain`.
    delivery: JoinSet<()>,
    /// The supervised scheduler of routines, its only task; ended by `intake`, joined in `drain`.
    engine: JoinSet<()>,
    /// The supervised scheduler of jobs, its only task; ended by `intake`, joined in `drain`.
    scheduler: JoinSet<()>,
    /// The supervised writer of titles, if there is one, its only task; ended by `intake`, joined in `drain`.
    titles: JoinSet<()>,
    /// The supervised task that gives idle money back to other nodes of a cluster, if there are any; ended by `intake`.
    money: JoinSet<()>,
    ready: watch::Sender<bool>,
    tick: tokio::time::Interval,
}

impl Agent {
    /// Makes the services, starts the channels, and loads the unfinished work of earlier starts.
    ///
    /// # Errors
    /// See [`AgentError`]; after an error nothing keeps running.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing keeps running, and the store is as a crash would leave it.
    pub async fn start(parts: AgentParts) -> Result<Self, AgentError> {
        let channels = parts.channels.clone();
        if let Some(channel) = channels.iter().find(|channel| is_own_channel(channel.id())) {
            return Err(AgentError::ChannelName(channel.id().clone()));
        }
        let (submitter, said) = Submitter::new();
        let (notes_tx, notes) = mpsc::channel(NOTE_CAPACITY);
        // Boxed, because the future of the start is large otherwise.
        let (services, ready) = Box::pin(assemble(parts, submitter, notes_tx.clone())).await?;
        let services = Arc::new(services);
        let mut dispatcher = Dispatcher::new(services.clone(), notes_tx);

        let intake = CancellationToken::new();
        let unless_started = intake.clone().drop_guard();
        let mut inbound = Merged::new();
        inbound.push(said);
        let mut alive = 0;
        for channel in &channels {
            let id = channel.id().clone();
            let ended = id.clone();
            let stream = channel.start(intake.clone()).await?;
            let stream = stream.map(move |mut envelope| {
                envelope.inbound.work = Work::Chat; // a channel cannot set this; only the submitter sends other work
                (id.clone(), Some(envelope))
            });
            inbound.push(stream.chain(once(async move { (ended, None) })).boxed());
            alive += usize::from(channel.profile().keeps_alive);
        }
        if alive == 0 {
            return Err(AgentError::NoChannel);
        }

        crash_point!("recovery.begun");
        jobs::reclaim(&services.jobs).await?;
        crash_point!("recovery.jobs-reclaimed");
        routines::show(&services.routines, None).await?;
        dispatcher.recover().await?;
        crash_point!("recovery.runs-read");
        let mut notes = notes;
        let known = async {
            // An early answer must find the question of a paused run.
            while dispatcher.opening() {
                let Some(note) = notes.recv().await else { return };
                dispatcher.note(note);
            }
        };
        if timeout(RECOVER_LIMIT, known).await.is_err() {
            tracing::warn!("some conversations could not be opened in time; they are tried again beside the others");
        }
        crash_point!("recovery.lanes-opened");
        let deliveries = CancellationToken::new();
        let mut delivery = JoinSet::new();
        let (shared, stop) = (services.clone(), deliveries.clone());
        let deliver = move || Delivery::new(&shared, stop.clone()).run();
        delivery.spawn(supervise("delivery", deliveries.clone(), deliver));
        let mut engine = JoinSet::new();
        let (shared, stop) = (services.routines.clone(), intake.clone());
        engine.spawn(supervise("routines", intake.clone(), move || Engine::new(shared.clone(), stop.clone()).run()));
        let mut scheduler = JoinSet::new();
        let (shared, stop) = (services.jobs.clone(), intake.clone());
        scheduler
            .spawn(supervise("jobs", intake.clone(), move || JobScheduler::new(shared.clone(), stop.clone()).run()));
        let mut titles = JoinSet::new();
        if services.titles.is_some() {
            let (shared, stop) = (services.clone(), intake.clone());
            let write = move || TitleWriter::new(shared.clone(), stop.clone()).run();
            titles.spawn(supervise("titles", intake.clone(), write));
        }
        let mut money = JoinSet::new();
        if services.cluster.is_some() {
            let (shared, stop) = (services.clone(), intake.clone());
            let give_back = move || {
                let (shared, stop) = (shared.clone(), stop.clone());
                async move {
                    stop.run_until_cancelled(shared.run.cost.return_idle()).await;
                }
            };
            money.spawn(supervise("money", intake.clone(), give_back));
        }
        let mut tick = interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        crash_point!("recovery.before-ready");
        ready.send_replace(true);
        dispatcher.resume_next();
        crash_point!("recovery.resumed");
        services.hooks.gateway_start(&services.version, services.channels.keys());
        unless_started.disarm();
        Ok(Self {
            services,
            dispatcher,
            inbound,
            notes,
            alive,
            intake,
            deliveries,
            delivery,
            scheduler,
            engine,
            titles,
            money,
            ready,
            tick,
        })
    }

    /// A handle for swapping the rules of this agent while it runs.
    pub fn reloader(&self) -> Reloader {
        Reloader::new(self.services.clone())
    }

    /// Handles events until `stop` is cancelled or no channel is left, then drains. It only routes: it never awaits a
    /// turn.
    pub async fn run(mut self, stop: CancellationToken) -> AgentExit {
        let exit = loop {
            let Some(event) = self.next_event(&stop).await else {
                break if stop.is_cancelled() { AgentExit::Cancelled } else { AgentExit::ChannelsEnded };
            };
            if self.handle(event) == Flow::ShutDown {
                break AgentExit::Quit;
            }
        };
        self.drain().await;
        exit
    }

    /// The next event; `None` when `stop` is cancelled, or when no channel is left that keeps the daemon alive.
    async fn next_event(&mut self, stop: &CancellationToken) -> Option<AgentEvent> {
        if self.alive == 0 {
            return None;
        }
        let event = tokio::select! {
            biased; // the stop first; then notes, so that mailboxes do not seem fuller than they are
            () = stop.cancelled() => return None,
            Some(note) = self.notes.recv() => AgentEvent::Lane(note),
            Some(ended) = self.dispatcher.next_ended() => AgentEvent::TaskEnded(ended),
            Some((channel, envelope)) = self.inbound.next() => match envelope {
                Some(envelope) => AgentEvent::Inbound(Box::new(envelope)),
                None => AgentEvent::ChannelEnded(channel),
            },
            _ = self.tick.tick() => AgentEvent::Tick,
        };
        Some(event)
    }

    /// Handles one event. Never waits.
    fn handle(&mut self, event: AgentEvent) -> Flow {
        match event {
            AgentEvent::Inbound(envelope) => return self.dispatcher.route(*envelope),
            AgentEvent::Lane(note) => self.dispatcher.note(note),
            AgentEvent::TaskEnded(ended) => {
                self.note_before_end();
                return self.dispatcher.task_ended(ended);
            }
            AgentEvent::Tick => {
                self.dispatcher.retire_idle();
                self.dispatcher.watch_silent();
            }
            AgentEvent::ChannelEnded(channel) => {
                tracing::info!(%channel, "channel ended");
                let kept_alive =
                    self.services.channels.get(&channel).is_some_and(|channel| channel.profile().keeps_alive);
                self.alive -= usize::from(kept_alive);
            }
        }
        Flow::Continue
    }

    /// Handles the notes that have arrived. A task sends its notes before it ends, and on another thread it may end between
    /// a look for notes and a look for ended tasks: the mail of a lane that has lost its lease must not come after its end.
    fn note_before_end(&mut self) {
        for _ in 0..self.notes.len() {
            let Ok(note) = self.notes.try_recv() else { return };
            self.dispatcher.note(note);
        }
    }

    /// Drains the agent within time limits: the intake stops, running turns get time to end, the remaining ones are
    /// cancelled, and recorded or left to another node, and replies are delivered. Control messages still work meanwhile.
    /// New messages are refused; queued ones stay in the store. It takes `agent.drain_s` and [`DRAIN_REST_S`] at most.
    async fn drain(mut self) {
        tracing::info!(running = self.dispatcher.runs_at_work(), "draining");
        let begun = Instant::now();
        let grace_ends = begun + self.services.run.config.drain();
        self.ready.send_replace(false);
        self.services.hooks.gateway_stop(&self.services.version);
        self.intake.cancel();
        self.dispatcher.begin_drain(grace_ends + RECORD_GRACE).await;
        crash_point!("drain.begun");
        self.until_lanes_end(grace_ends).await;
        crash_point!("drain.before-stop");
        self.dispatcher.stop_everything();
        self.until_lanes_end(grace_ends + RECORD_GRACE).await;
        crash_point!("drain.lanes-ended");
        let Self {
            services,
            dispatcher,
            mut delivery,
            deliveries,
            mut scheduler,
            mut engine,
            mut titles,
            mut money,
            ..
        } = self;
        let deadline = Instant::now() + SCHEDULERS_GRACE;
        for schedulers in [&mut engine, &mut scheduler] {
            if timeout_at(deadline, schedulers.join_next()).await.is_err() {
                schedulers.shutdown().await; // the next start settles its rows
            }
        }
        titles.shutdown().await; // its call has ended with the intake, and a title is written at once or not at all
        dispatcher.end_tasks().await;
        crash_point!("drain.before-delivery");
        deliveries.cancel();
        money.shutdown().await; // what it has begun is repeated now
        let (delivered, returned) = tokio::join!(
            timeout(FLUSH_GRACE, delivery.join_next()),
            timeout(FLUSH_GRACE, services.run.cost.give_back())
        );
        if delivered.is_err() {
            tracing::warn!("some replies could not be delivered in time; they are kept for the next start");
            delivery.shutdown().await; // the next start settles its rows
        }
        if let Ok(Err(error)) = returned {
            tracing::warn!(%error, "unused money could not be given back to the other nodes");
        }
        crash_point!("drain.delivered");
        services.hooks.drain(HOOK_LIMIT.saturating_sub(begun.elapsed()).max(HOOK_GRACE)).await;
        tracing::info!("drained");
    }

    async fn until_lanes_end(&mut self, deadline: Instant) {
        let never = CancellationToken::new();
        self.alive = usize::MAX; // from here on the end of a channel does not end the loop
        while self.dispatcher.lanes_awake() > 0 {
            tokio::select! {
                biased; // the deadline applies even if events never stop
                () = sleep_until(deadline) => return,
                Some(event) = self.next_event(&never) => {
                    self.handle(event);
                }
            }
        }
    }
}
