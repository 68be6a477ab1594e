//! The dispatcher: puts each inbound message into its lane, and acts on control messages at once. It owns the tables of
//! lanes and of live runs. It never waits: anything that takes time is a task in its set, or a lane.
//!
//! - [`guards`]: the checks that each message passes before it reaches a lane
//! - [`control`] and [`commands`]: requests of programs and people to the dispatcher itself
//! - [`input`]: sends messages to their lanes
//! - [`notes`]: notes from lanes
//! - [`routines`]: requests about routines
//! - [`answers`]: answers to approval requests
//! - [`questions`]: the approval requests that a message may answer
//! - [`named`]: resolves the beginning of an id
//! - [`keys`]: recognises redeliveries
//! - [`look_ups`]: reads the store before a message is handled, in a cluster
//! - [`admission`]: limits the number of waiting messages
//! - [`freeze`]: stops work until a thaw
//! - [`parking`]: sessions that wait without a task
//! - [`drain`]: what happens to running turns at the end of the daemon
//! - [`cluster`]: lanes that come from other nodes, and go to them
//! - [`orders`]: stops on all nodes
//! - [`people`]: requests about people
//! - [`watch`]: detects stuck runs

mod admission;
mod answers;
mod cluster;
mod commands;
mod control;
mod drain;
mod freeze;
mod guards;
mod help;
mod input;
mod keys;
mod look_ups;
mod memory;
mod named;
mod notes;
mod orders;
mod parking;
mod people;
mod questions;
mod repeated_stops;
mod routines;
mod shared_ack;
mod tools;
mod watch;
mod work;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use belay_protocol::{
    Ack, AckSender, ApprovalId, ClaimMode, CommandReply, Inbound, MailId, Refusal, ReplyRoute, RunId, SessionKey,
    SessionLifetime, StopReason,
};
use tokio::sync::{Notify, OwnedSemaphorePermit, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout};

use self::admission::Admission;
use self::keys::Keys;
use self::look_ups::{LookUps, LookedUp};
use self::parking::Resumption;
use self::repeated_stops::RepeatedStops;
use crate::agent_services::AgentServices;
use crate::lane::{LaneStart, run_lane};
use crate::mail::{LaneMail, LaneNote, LanePort, PendingQuestion};
use crate::notifier::Notifier;
use belay_run::live::{LiveRun, StopCause};
use belay_run::restart::persist;

/// Capacity of a mailbox for commands and control, in addition to a full queue. Beyond it: "busy".
const MAILBOX_EXTRA: usize = 12;
/// Time after which a lane without work is retired.
const IDLE: Duration = Duration::from_secs(60);
/// Time limit at shutdown for the answers that are under way.
pub(crate) const ANSWERS_GRACE: Duration = Duration::from_secs(1);
/// Maximum number of small tasks in progress, such as stop reports and look-ups for duplicates. Beyond it: the next one
/// is dropped with a warning, and its acknowledgement is never sent, which the waiting side notices.
const MAX_TASKS: usize = 4096;
/// Number of crashes of a lane after which its runs wait in the store for [`LANE_RETRY`].
const MAX_LANE_CRASHES: u32 = 3;
/// Time that they wait, unless a message arrives. 60 s: the longest pause of any other task that crashes repeatedly.
const LANE_RETRY: Duration = Duration::from_secs(60);

/// The kind of a task of the dispatcher that has ended.
pub(crate) enum TaskEnd {
    /// A lane that was retired or parked.
    Lane,
    /// An answer or a report.
    Background,
    /// The store has the answer to mail of another node that was handled without its lane, or the mail stays open.
    Mail(MailId),
    /// A wait permit for a parked session; `None`: the daemon shuts down.
    WaitPermit(Option<OwnedSemaphorePermit>),
    /// All processes of this run have ended.
    Processes(RunId),
    /// A look-up before a message is handled.
    LookedUp(Box<LookedUp>),
    /// The pause for a lane that crashed repeatedly is over; `None`: the daemon shuts down.
    Retry(Option<SessionKey>),
}

struct Lane {
    /// `None`: the session is parked, and its runs wait in the store. It has no task, or one that ends without doing
    /// anything.
    mail: Option<mpsc::Sender<LaneMail>>,
    wake: Arc<Notify>,
    /// Set before `wake`, after the store has changed the conversation.
    stale: Arc<AtomicBool>,
    /// `None`: the session was parked by the start, and never had a task.
    task: Option<Id>,
    /// Runs that have not ended, in order.
    runs: Vec<Arc<LiveRun>>,
    /// Number of unanswered commands.
    commands: usize,
    /// Whether the unfinished runs of the session are not known yet.
    opening: bool,
    crashes: u32,
    idle_since: Instant,
    /// Whether it is in the list of parked sessions, possibly as an outdated entry.
    listed: bool,
}

impl Lane {
    /// Puts mail into the mailbox. Returns it if the mailbox is full or closed.
    fn post(&self, mail: LaneMail) -> Result<(), LaneMail> {
        let Some(mailbox) = &self.mail else { return Err(mail) };
        mailbox.try_send(mail).map_err(|error| match error {
            mpsc::error::TrySendError::Full(mail) | mpsc::error::TrySendError::Closed(mail) => mail,
        })
    }
}

/// Whether the outer loop continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Continue.
    Continue,
    /// Shut down: an operator sent /quit.
    ShutDown,
}

/// Routes messages to lanes.
pub(crate) struct Dispatcher {
    services: Arc<AgentServices>,
    lanes: HashMap<SessionKey, Lane>,
    sessions: HashMap<RunId, SessionKey>,
    keys: Keys,
    look_ups: LookUps,
    /// The count of waiting messages.
    admission: Admission,
    /// Sessions that wait without a task, in the order in which they get a wait permit. An entry is outdated if its
    /// session has a task again.
    parked: VecDeque<SessionKey>,
    /// Whether a task waits for a wait permit.
    awaiting_permit: bool,
    /// Interrupted runs of earlier starts.
    resumption: Resumption,
    /// Stopped runs whose processes have not ended yet, so that a second stop finds them.
    ending: HashMap<RunId, Arc<LiveRun>>,
    repeated_stops: RepeatedStops,
    /// Unanswered approval requests.
    questions: HashMap<ApprovalId, PendingQuestion>,
    /// Mail of other nodes that was handled without its lane, such as the answer to a question, until the store knows that.
    /// It must not be handled twice.
    handled: HashSet<MailId>,
    /// Conversations that know that their messages wait for a thaw.
    told_frozen: HashSet<SessionKey>,
    /// The cause with which the drain stops runs.
    shutdown: StopCause,
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
            look_ups: LookUps::default(),
            admission,
            parked: VecDeque::new(),
            awaiting_permit: false,
            resumption: Resumption::default(),
            ending: HashMap::new(),
            repeated_stops: RepeatedStops::default(),
            questions: HashMap::new(),
            handled: HashSet::new(),
            told_frozen: HashSet::new(),
            shutdown: StopCause::of(StopReason::Shutdown),
            notifier,
            tasks,
            lane_tasks: HashMap::new(),
            notes,
        }
    }

    /// Whether some lane does not know its unfinished runs yet.
    pub(crate) fn opening(&self) -> bool {
        self.lanes.values().any(|lane| lane.opening)
    }

    /// The lane of a session; starts its task if it has none. `lifetime` is used if the lane creates the session.
    fn lane(&mut self, session: &SessionKey, lifetime: SessionLifetime) -> &mut Lane {
        if self.lanes.get(session).is_none_or(Lane::is_without_task) {
            self.wake(session, lifetime, ClaimMode::Idle, None);
        }
        // Inserted above, so the closure is never called.
        self.lanes.entry(session.clone()).or_insert_with(|| unreachable!("the lane was inserted above"))
    }

    /// Starts a task for a session. The task takes over the runs of an earlier task, whose end may not be processed
    /// yet.
    fn wake(
        &mut self,
        session: &SessionKey,
        lifetime: SessionLifetime,
        claim: ClaimMode,
        wait_permit: Option<OwnedSemaphorePermit>,
    ) {
        let left = self.lanes.remove(session);
        let (insist, listed) = (left.is_some(), left.as_ref().is_some_and(|lane| lane.listed));
        let crashes = left.as_ref().map_or(0, |lane| lane.crashes.min(MAX_LANE_CRASHES));
        let adopted = left.map(|lane| lane.runs).unwrap_or_default();
        let (session_of, mail) = (session.clone(), Vec::new());
        let start = LaneStart { session: session_of, lifetime, claim, mail, adopted, insist, crashes, wait_permit };
        let lane = self.spawn_lane(start);
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

    /// Retires lanes that have been idle for [`IDLE`].
    pub(crate) fn retire_idle(&mut self) {
        let now = Instant::now();
        let titles = self.services.titles.as_ref();
        let idle = titles.map_or(IDLE, |titles| titles.after().min(IDLE));
        self.lanes.retain(|session, lane| {
            let is_idle = lane.runs.is_empty()
                && lane.commands == 0
                && !lane.opening
                && now.duration_since(lane.idle_since) >= idle;
            if let (true, Some(titles)) = (is_idle, titles) {
                titles.offer(session);
            }
            !is_idle
        });
    }

    /// The next task that has ended; `None` if there are no tasks.
    pub(crate) async fn next_ended(&mut self) -> Option<Result<(Id, TaskEnd), JoinError>> {
        self.tasks.join_next_with_id().await
    }

    pub(crate) fn task_ended(&mut self, ended: Result<(Id, TaskEnd), JoinError>) -> Flow {
        match ended {
            Ok((id, TaskEnd::Lane)) => self.lane_ended(id, false),
            Ok((_, TaskEnd::Background)) => {}
            Ok((_, TaskEnd::Mail(mail))) => drop(self.handled.remove(&mail)),
            Ok((_, TaskEnd::WaitPermit(wait_permit))) => self.wake_longest_parked(wait_permit),
            Ok((_, TaskEnd::Processes(run))) => drop(self.ending.remove(&run)),
            Ok((id, TaskEnd::LookedUp(looked_up))) => return self.look_up_ended(id, Some(*looked_up)),
            Ok((_, TaskEnd::Retry(session))) => session.iter().for_each(|session| self.retry(session)),
            Err(error) => {
                tracing::error!(%error, "a task of the dispatcher crashed");
                self.lane_ended(error.id(), true);
                return self.look_up_ended(error.id(), None);
            }
        }
        Flow::Continue
    }

    fn lane_ended(&mut self, id: Id, crashed: bool) {
        let Some(session) = self.lane_tasks.remove(&id) else { return };
        self.resumed(&session);
        let Some(lane) = self.lanes.get(&session).filter(|lane| lane.task == Some(id)) else { return };
        if lane.is_parked() {
            return; // its runs wait in the store until it gets a wait permit
        }
        let (left, crashes, listed) = (lane.runs.clone(), lane.crashes + 1, lane.listed);
        let goes_on = crashed && !left.is_empty() && !self.services.draining.is_cancelled();
        if goes_on && crashes > MAX_LANE_CRASHES {
            return self.retry_later(session);
        }
        self.lanes.remove(&session);
        if goes_on {
            // Its runs continue in a new task; their watchers see no difference.
            let (session_of, wait_permit) = (session.clone(), None);
            let lifetime = SessionLifetime::Lasting; // not used: the session exists
            let start = LaneStart {
                session: session_of,
                lifetime,
                claim: ClaimMode::Free,
                mail: Vec::new(),
                adopted: left,
                insist: true,
                crashes,
                wait_permit,
            };
            let lane = self.spawn_lane(start);
            self.lanes.insert(session, Lane { listed, ..lane });
            return;
        }
        // Their messages are in the store, for the next start.
        for run in left {
            self.forget(run.id);
        }
    }

    /// Whether there are as many small tasks as may be in progress.
    fn has_many_tasks(&self) -> bool {
        self.tasks.len() >= MAX_TASKS + self.lanes.len()
    }

    fn background(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        if self.has_many_tasks() {
            tracing::warn!("too many answers are under way; one is dropped");
            return;
        }
        self.tasks.spawn(async move {
            work.await;
            TaskEnd::Background
        });
    }

    pub(crate) fn lanes_awake(&self) -> usize {
        self.lanes.len()
    }

    pub(crate) fn runs_at_work(&self) -> usize {
        self.at_work().count()
    }

    /// Ends the remaining tasks. Answers get a moment; lanes that do not end are aborted.
    pub(crate) async fn end_tasks(self) {
        let Self { mut tasks, notifier, lanes, .. } = self;
        drop((notifier, lanes)); // the notifier's task ends once its queue is empty
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(ANSWERS_GRACE, all).await.is_err() {
            tracing::warn!(tasks = tasks.len(), "tasks did not end in time and are aborted");
            tasks.shutdown().await;
        }
    }

    /// Answers a command with its result, or with the reason of its refusal.
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

/// Ends the processes of a stopped run in a task of its own, which lasts until its tools have ended too. It does not count as a small task: a stop is never
/// dropped, and there is at most one such task for each run.
fn end_processes(tasks: &mut JoinSet<TaskEnd>, services: &Arc<AgentServices>, run: &Arc<LiveRun>) {
    let (processes, id, draining) = (services.processes.clone(), run.id, services.draining.clone());
    let run = run.clone();
    tasks.spawn(async move {
        persist("process_end", &draining, || processes.end(id)).await;
        run.calls.ended().await;
        TaskEnd::Processes(id)
    });
}

/// Whether a refusal is shown in the conversation. It is not if the channel or the platform offers the message again:
/// "busy" would be wrong for a message that is accepted a moment later.
fn worth_saying(refusal: &Refusal) -> bool {
    // A platform delivers a message again under its own key: then a conflict means that its file was read differently.
    !matches!(
        refusal,
        Refusal::Busy { .. }
            | Refusal::Overloaded { .. }
            | Refusal::ShuttingDown
            | Refusal::Store(_)
            | Refusal::Conflict { .. }
    )
}
