//! The dispatcher: puts each inbound message in its lane, and acts on control at once. It owns the table of lanes and of
//! living runs, and never waits: whatever takes time is a task in its set, or a lane. What each message is asked in turn before
//! it reaches a lane is in [`guards`], what programs and people ask of the dispatcher itself in [`control`] and [`commands`], how messages reach their lane in [`input`], what lanes say in
//! [`notes`], what is asked of routines in [`routines`], how people answer questions in [`answers`], what the beginning of an id means in [`named`], how second deliveries are
//! recognised in [`keys`], how much may wait in [`admission`], which sessions wait without a task in [`parking`], and the watch
//! over silent runs in [`watch`].

mod admission;
mod answers;
mod commands;
mod control;
mod guards;
mod input;
mod keys;
mod named;
mod notes;
mod parking;
mod routines;
mod tools;
mod watch;
mod work;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use belay_protocol::{
    Ack, AckSender, CommandReply, GateId, Inbound, Refusal, ReplyRoute, RunId, SessionKey, SessionLifetime, StopReason,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout};

use self::admission::Admission;
use self::keys::Keys;
use crate::agent_services::AgentServices;
use crate::lane::{LaneStart, run_lane};
use crate::mail::{LaneMail, LaneNote, LanePort, PendingQuestion};
use crate::notifier::Notifier;
use belay_run::live::{LiveRun, StopCause};
use belay_run::restart::persist;

/// Commands and control that may wait in a mailbox beside the messages of a full queue. Then: "busy".
const MAILBOX_EXTRA: usize = 12;
/// How long a lane stays awake without work.
const IDLE: Duration = Duration::from_secs(60);
/// Small tasks (stop reports, look-ups for duplicates) under way. Then: one is dropped with a warning, and whoever waits for
/// its acknowledgement learns that none will come.
const MAX_TASKS: usize = 4096;
/// Crashes of a lane after which its runs wait in the store for a while.
const MAX_LANE_CRASHES: u32 = 3;
/// How long they wait then, unless somebody writes. A minute: as long as any other task that crashes again and again.
const LANE_RETRY: Duration = Duration::from_secs(60);

/// What a task of the dispatcher was.
pub(crate) enum TaskEnd {
    /// A lane that was retired, or let go.
    Lane,
    /// An answer, a report.
    Background,
    /// A seat for a session that is parked; `None`: the daemon ends.
    Seat(Option<OwnedSemaphorePermit>),
    /// Everything of this run has ended.
    Processes(RunId),
    /// The lane of this session has crashed again and again, and is tried once more; `None`: the daemon ends.
    Retry(Option<SessionKey>),
}

struct Lane {
    /// `None`: it is parked, its runs wait in the store, and it has no task, or one that ends without doing anything.
    mail: Option<mpsc::Sender<LaneMail>>,
    wake: Arc<Notify>,
    /// Set before `wake`, where the store has put something into the conversation.
    stale: Arc<AtomicBool>,
    /// `None`: it was parked by the start, and never had one.
    task: Option<Id>,
    /// Runs that have not ended, in order.
    runs: Vec<Arc<LiveRun>>,
    /// Commands that are not answered yet.
    commands: usize,
    /// Whether what is unfinished in it is not known yet.
    opening: bool,
    crashes: u32,
    idle_since: Instant,
    /// Whether it is in the list of parked sessions, where it may have been passed over.
    listed: bool,
}

impl Lane {
    /// Puts mail into its mailbox; gives it back where there is no room, or nobody to take it.
    fn post(&self, mail: LaneMail) -> Result<(), LaneMail> {
        let Some(mailbox) = &self.mail else { return Err(mail) };
        mailbox.try_send(mail).map_err(|error| match error {
            mpsc::error::TrySendError::Full(mail) | mpsc::error::TrySendError::Closed(mail) => mail,
        })
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on.
    Continue,
    /// An operator's /quit.
    ShutDown,
}

/// Routes.
pub(crate) struct Dispatcher {
    services: Arc<AgentServices>,
    lanes: HashMap<SessionKey, Lane>,
    sessions: HashMap<RunId, SessionKey>,
    keys: Keys,
    /// How much waits.
    admission: Admission,
    /// Sessions that wait without a task, in the order in which they get a seat; some of them may have a task again.
    parked: VecDeque<SessionKey>,
    /// Whether a task waits for a seat.
    seating: bool,
    /// Runs that were stopped and whose processes have not ended yet: a second stop finds them.
    ending: HashMap<RunId, Arc<LiveRun>>,
    /// Questions that wait for a person.
    questions: HashMap<GateId, PendingQuestion>,
    notifier: Notifier,
    tasks: JoinSet<TaskEnd>,
    lane_tasks: HashMap<Id, SessionKey>,
    notes: mpsc::Sender<LaneNote>,
}

impl Dispatcher {
    pub(crate) fn new(services: Arc<AgentServices>, notes: mpsc::Sender<LaneNote>) -> Self {
        let (notifier, speaking) = Notifier::new(services.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            speaking.await;
            TaskEnd::Background
        });
        let admission = Admission::new(services.queue.bounds());
        Self {
            services,
            lanes: HashMap::new(),
            sessions: HashMap::new(),
            keys: Keys::new(),
            admission,
            parked: VecDeque::new(),
            seating: false,
            ending: HashMap::new(),
            questions: HashMap::new(),
            notifier,
            tasks,
            lane_tasks: HashMap::new(),
            notes,
        }
    }

    /// Whether some lane does not know yet what is unfinished in it.
    pub(crate) fn opening(&self) -> bool {
        self.lanes.values().any(|lane| lane.opening)
    }

    /// The lane of a session, woken if it sleeps. `lifetime` is that of a session which its lane creates.
    fn lane(&mut self, session: &SessionKey, lifetime: SessionLifetime) -> &mut Lane {
        if self.lanes.get(session).is_none_or(Lane::is_without_task) {
            self.wake(session, lifetime, None);
        }
        // Inserted above, so the default is never made.
        self.lanes.entry(session.clone()).or_insert_with(|| unreachable!("the lane was inserted above"))
    }

    /// Gives a session a task, with what an earlier one, whose end may still be on the way, has left behind.
    fn wake(&mut self, session: &SessionKey, lifetime: SessionLifetime, seat: Option<OwnedSemaphorePermit>) {
        let left = self.lanes.remove(session);
        let (insist, listed) = (left.is_some(), left.as_ref().is_some_and(|lane| lane.listed));
        let crashes = left.as_ref().map_or(0, |lane| lane.crashes.min(MAX_LANE_CRASHES));
        let adopted = left.map(|lane| lane.runs).unwrap_or_default();
        let lane = self.spawn_lane(LaneStart { session: session.clone(), lifetime, adopted, insist, crashes, seat });
        self.lanes.insert(session.clone(), Lane { listed, ..lane });
    }

    fn spawn_lane(&mut self, start: LaneStart) -> Lane {
        let LaneStart { session, adopted, crashes, .. } = &start;
        let (session, adopted, crashes) = (session.clone(), adopted.clone(), *crashes);
        let (mail, mailbox) = mpsc::channel(self.services.queue.cap + MAILBOX_EXTRA);
        let (wake, stale) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let notes = self.notes.clone();
        let port =
            LanePort { session: session.clone(), mail: mailbox, wake: wake.clone(), stale: stale.clone(), notes };
        let services = self.services.clone();
        let task = self.tasks.spawn(async move {
            run_lane(services, start, port).await;
            TaskEnd::Lane
        });
        self.lane_tasks.insert(task.id(), session);
        let (task, idle_since) = (Some(task.id()), Instant::now());
        Lane {
            mail: Some(mail),
            wake,
            stale,
            task,
            runs: adopted,
            commands: 0,
            opening: true,
            crashes,
            idle_since,
            listed: false,
        }
    }

    /// Lets lanes sleep that have had nothing to do for a while.
    pub(crate) fn retire_idle(&mut self) {
        let now = Instant::now();
        self.lanes.retain(|_, lane| {
            !(lane.runs.is_empty()
                && lane.commands == 0
                && !lane.opening
                && now.duration_since(lane.idle_since) >= IDLE)
        });
    }

    /// The next task that has ended; `None` at once when there is none.
    pub(crate) async fn next_ended(&mut self) -> Option<Result<(Id, TaskEnd), JoinError>> {
        self.tasks.join_next_with_id().await
    }

    pub(crate) fn task_ended(&mut self, ended: Result<(Id, TaskEnd), JoinError>) {
        let (id, crashed) = match ended {
            Ok((id, TaskEnd::Lane)) => (id, false),
            Ok((_, TaskEnd::Background)) => return,
            Ok((_, TaskEnd::Seat(seat))) => return self.seated(seat),
            Ok((_, TaskEnd::Processes(run))) => {
                self.ending.remove(&run);
                return;
            }
            Ok((_, TaskEnd::Retry(session))) => return session.iter().for_each(|session| self.retry(session)),
            Err(error) => {
                tracing::error!(%error, "a task of the dispatcher crashed");
                (error.id(), true)
            }
        };
        let Some(session) = self.lane_tasks.remove(&id) else { return };
        let Some(lane) = self.lanes.get(&session).filter(|lane| lane.task == Some(id)) else { return };
        if lane.is_parked() {
            return; // its runs wait in the store until there is a seat for it
        }
        let (left, crashes, listed) = (lane.runs.clone(), lane.crashes + 1, lane.listed);
        let goes_on = crashed && !left.is_empty() && !self.services.draining.is_cancelled();
        if goes_on && crashes > MAX_LANE_CRASHES {
            return self.retry_later(session);
        }
        self.lanes.remove(&session);
        if goes_on {
            // Its runs go on in a new task, and whoever watches them notices nothing.
            let (session_of, seat) = (session.clone(), None);
            let lifetime = SessionLifetime::Lasting; // of a session that exists already
            let start = LaneStart { session: session_of, lifetime, adopted: left, insist: true, crashes, seat };
            let lane = self.spawn_lane(start);
            self.lanes.insert(session, Lane { listed, ..lane });
            return;
        }
        // What they were accepted for is in the store, for the next start.
        for run in left {
            self.forget(run.id);
        }
    }

    fn background(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        if self.tasks.len() >= MAX_TASKS + self.lanes.len() {
            tracing::warn!("too many answers are under way; one is dropped");
            return;
        }
        self.tasks.spawn(async move {
            work.await;
            TaskEnd::Background
        });
    }

    pub(crate) fn begin_drain(&mut self) {
        self.services.draining.cancel();
        self.let_go_of_parked();
    }

    pub(crate) fn stop_everything(&mut self) {
        let cause = StopCause::of(StopReason::Shutdown);
        for lane in self.lanes.values() {
            // Waiting runs stay for the next start; only what is at work is told.
            lane.runs.iter().filter(|run| run.activity.working_for().is_some()).for_each(|run| {
                run.control.stop(cause);
                end_processes(&mut self.tasks, &self.services, run);
            });
            lane.wake.notify_one();
        }
    }

    pub(crate) fn lanes_awake(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn runs_at_work(&self) -> usize {
        self.at_work().count()
    }

    /// Ends what is left: answers get a moment, lanes that did not end are aborted.
    pub(crate) async fn end_tasks(self) {
        let Self { mut tasks, notifier, lanes, .. } = self;
        drop((notifier, lanes)); // the notifier's task ends with what it was given
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(Duration::from_secs(1), all).await.is_err() {
            tracing::warn!(tasks = tasks.len(), "tasks did not end in time and are aborted");
            tasks.shutdown().await;
        }
    }

    /// Answers a command: what it has done, or why it was refused.
    fn answer(&self, inbound: &Inbound, ack: AckSender, word: &str, said: Result<String, String>) {
        let refused = said.is_err();
        let reply = said.unwrap_or_else(|why| why);
        let command = word.to_owned();
        ack.send(Ack::Command(CommandReply { command, reply: reply.clone(), resumes: None, refused }));
        self.notifier.say(inbound.reply_to.clone(), reply);
    }

    fn refuse(&self, inbound: &Inbound, ack: AckSender, refusal: Refusal) {
        ack.send(Ack::Refused(refusal.clone()));
        self.say_refusal(inbound.reply_to.clone(), &refusal);
    }

    fn say_refusal(&self, route: Option<ReplyRoute>, refusal: &Refusal) {
        if worth_saying(refusal) {
            self.notifier.say(route, refusal.to_string());
        }
    }

    fn at_work(&self) -> impl Iterator<Item = &Arc<LiveRun>> {
        self.lanes.values().flat_map(|lane| &lane.runs).filter(|run| run.activity.working_for().is_some())
    }
}

/// Ends the processes of a run that was stopped, beside everything else. Not counted with the small tasks: a stop is never
/// dropped, and there is one of these for each run at work.
fn end_processes(tasks: &mut JoinSet<TaskEnd>, services: &Arc<AgentServices>, run: &Arc<LiveRun>) {
    let (processes, id, draining) = (services.processes.clone(), run.id, services.draining.clone());
    tasks.spawn(async move {
        persist("process_end", &draining, || processes.end(id)).await;
        TaskEnd::Processes(id)
    });
}

/// Whether the person is told of a refusal in the conversation. Not of one after which the channel or the platform
/// offers the message again: "busy" for a message that is accepted a moment later would be a false word.
fn worth_saying(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::Busy { .. } | Refusal::Overloaded { .. } | Refusal::ShuttingDown | Refusal::Store(_))
}
