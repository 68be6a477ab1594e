//! The dispatcher: puts each inbound message in its lane, and acts on control at once. It owns the table of lanes and of
//! living runs, and never waits: whatever takes time is a task in its set, or a lane.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::store::input_digest;
use belay_protocol::{
    Accepted, Ack, AckSender, Body, CommandReply, Control, Envelope, IdempotencyKey, Inbound, PrincipalRole, Refusal,
    ReplyRoute, RunId, RunStatus, SessionKey, StatusReport, StillRunning, StopReason, StopReport, StopTarget,
    StoreError, UnixMillis, inbound::LiveRun as LiveRunInfo,
};
use tokio::sync::{Notify, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::agent::Flow;
use crate::house::House;
use crate::lane::{LaneStart, run_lane};
use crate::live::{LiveRun, StopCause};
use crate::mail::{LaneCommand, LaneInput, LaneMail, LaneNote, LanePort, Settled};
use crate::speaker::Speaker;
use crate::submission::{self, Command, Submission, ThreadCommand};

/// Commands and control that may wait in a mailbox beside the messages of a full queue. Then: "busy".
const MAILBOX_EXTRA: usize = 12;
/// Longest text of a message in bytes, whatever its channel allows.
const MAX_TEXT_BYTES: usize = 100_000;
/// How long a stop waits before it answers with what still runs.
const STOP_ANSWER: Duration = Duration::from_millis(100);
/// How long a lane stays awake without work.
const IDLE: Duration = Duration::from_secs(60);
/// Small tasks (stop reports, look-ups for duplicates) under way. Then: one is dropped with a warning, and whoever waits for
/// its acknowledgement learns that none will come.
const MAX_TASKS: usize = 4096;
/// What a refused message is told to wait.
const BUSY_RETRY: Duration = Duration::from_secs(2);
/// Commands whose keys are remembered, so that a redelivery does nothing. Then: the oldest is forgotten.
const COMMAND_KEYS: usize = 1024;
/// Crashes of a lane after which its runs are left to the next start.
const MAX_LANE_CRASHES: u32 = 3;

/// What a task of the dispatcher was.
pub(crate) enum TaskEnd {
    /// A lane that was retired, or let go.
    Lane,
    /// An answer, a report.
    Errand,
}

struct Lane {
    mail: mpsc::Sender<LaneMail>,
    wake: Arc<Notify>,
    task: Id,
    /// Runs that have not ended, in order.
    runs: Vec<Arc<LiveRun>>,
    /// Commands that are not answered yet.
    commands: usize,
    /// Whether what is unfinished in it is not known yet.
    opening: bool,
    crashes: u32,
    idle_since: Instant,
}

/// What is known of an idempotency key whose run is alive.
struct Known {
    run: Arc<LiveRun>,
    digest: String,
    state: KeyState,
}

enum KeyState {
    /// On its way to the store; these wait for the same answer.
    InFlight(Vec<AckSender>),
    /// Committed.
    Accepted(UnixMillis),
}

/// Routes.
pub(crate) struct Dispatcher {
    house: Arc<House>,
    lanes: HashMap<SessionKey, Lane>,
    sessions: HashMap<RunId, SessionKey>,
    keys: HashMap<IdempotencyKey, Known>,
    run_keys: HashMap<RunId, IdempotencyKey>,
    /// Keys of commands that were acted on, newest last.
    command_keys: VecDeque<IdempotencyKey>,
    speaker: Speaker,
    tasks: JoinSet<TaskEnd>,
    lane_tasks: HashMap<Id, SessionKey>,
    notes: mpsc::Sender<LaneNote>,
}

impl Dispatcher {
    pub(crate) fn new(house: Arc<House>, notes: mpsc::Sender<LaneNote>) -> Self {
        let (speaker, speaking) = Speaker::new(house.clone());
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            speaking.await;
            TaskEnd::Errand
        });
        Self {
            house,
            lanes: HashMap::new(),
            sessions: HashMap::new(),
            keys: HashMap::new(),
            run_keys: HashMap::new(),
            command_keys: VecDeque::new(),
            speaker,
            tasks,
            lane_tasks: HashMap::new(),
            notes,
        }
    }

    /// Wakes the lanes that have unfinished runs.
    pub(crate) async fn recover(&mut self) -> Result<(), StoreError> {
        for session in self.house.store.threads.unfinished_sessions().await? {
            let lane = self.spawn_lane(session.clone(), Vec::new(), true, 0);
            self.lanes.insert(session, lane);
        }
        Ok(())
    }

    /// Whether some lane does not know yet what is unfinished in it.
    pub(crate) fn opening(&self) -> bool {
        self.lanes.values().any(|lane| lane.opening)
    }

    /// Routes one inbound message.
    pub(crate) fn route(&mut self, envelope: Envelope) -> Flow {
        let Envelope { inbound, ack } = envelope;
        let text = match &inbound.body {
            Body::Control(control) => return self.control(control.clone(), &inbound, ack),
            Body::Text(text) => text.clone(),
        };
        if text.trim().is_empty() || text.contains('\0') || text.len() > MAX_TEXT_BYTES {
            let what =
                format!("a message must have text, at most {MAX_TEXT_BYTES} bytes of it, without NUL characters");
            self.refuse(&inbound, ack, Refusal::Invalid(what));
            return Flow::Continue;
        }
        let submission = submission::parse(&text);
        let draining = self.house.draining.is_cancelled();
        if draining && matches!(submission, Submission::Input | Submission::Command(Command::Thread(_))) {
            self.refuse(&inbound, ack, Refusal::ShuttingDown);
            return Flow::Continue;
        }
        if submission != Submission::Input && self.was_acted_on(&inbound) {
            let reply = "This was delivered before, and acted on.".to_owned();
            ack.send(Ack::Command(CommandReply { command: submission::word_of(&text), reply }));
            return Flow::Continue;
        }
        match submission {
            Submission::Command(command) => self.command(command, &text, inbound, ack),
            Submission::Unknown { word, nearest } => {
                let reply = format!("There is no command {word}. Did you mean {nearest}? /help lists them all.");
                self.answer(&inbound, ack, &word, reply);
                Flow::Continue
            }
            Submission::Input => {
                self.input(text, inbound, ack);
                Flow::Continue
            }
        }
    }

    /// Whether a command is a redelivery. Remembers its key otherwise.
    fn was_acted_on(&mut self, inbound: &Inbound) -> bool {
        let Some(key) = &inbound.key else { return false };
        if self.command_keys.contains(key) {
            return true;
        }
        if self.command_keys.len() == COMMAND_KEYS {
            self.command_keys.pop_front();
        }
        self.command_keys.push_back(key.clone());
        false
    }

    // ---- messages for the model ----

    fn input(&mut self, text: String, inbound: Inbound, ack: AckSender) {
        if text.trim().is_empty() || text.contains('\0') || text.len() > MAX_TEXT_BYTES {
            let what =
                format!("a message must have text, at most {MAX_TEXT_BYTES} bytes of it, without NUL characters");
            return self.refuse(&inbound, ack, Refusal::Invalid(what));
        }
        if let Some(key) = &inbound.key
            && let Some(known) = self.keys.get_mut(key)
        {
            if known.digest != input_digest(&text) {
                let run_id = known.run.id;
                return self.refuse(&inbound, ack, Refusal::Conflict { run_id });
            }
            match &mut known.state {
                KeyState::InFlight(waiters) => waiters.push(ack),
                KeyState::Accepted(at) => ack.send(Ack::Accepted(joined(&known.run, *at))),
            }
            return;
        }
        let cap = self.house.queue.cap;
        let lane = self.lane(&inbound.session);
        if lane.runs.len() > cap {
            return self.busy(inbound, text, ack);
        }
        let run = LiveRun::new(RunId::new(), inbound.session.clone(), inbound.want_deltas);
        let key = inbound.key.clone();
        let session = inbound.session.clone();
        let digest = key.as_ref().map(|_| input_digest(&text));
        let mail = LaneMail::Input(Box::new(LaneInput { run: run.clone(), inbound, text, ack }));
        if let Err(error) = lane.mail.try_send(mail) {
            let (mpsc::error::TrySendError::Full(mail) | mpsc::error::TrySendError::Closed(mail)) = error;
            if let LaneMail::Input(input) = mail {
                let LaneInput { inbound, text, ack, .. } = *input;
                self.busy(inbound, text, ack);
            }
            return;
        }
        lane.runs.push(run.clone());
        self.sessions.insert(run.id, session);
        if let (Some(key), Some(digest)) = (key, digest) {
            self.run_keys.insert(run.id, key.clone());
            self.keys.insert(key, Known { run, digest, state: KeyState::InFlight(Vec::new()) });
        }
    }

    /// A full lane answers "busy", but never to a duplicate: that joins its first acceptance, which the store knows.
    fn busy(&mut self, inbound: Inbound, text: String, ack: AckSender) {
        let cap = self.house.queue.cap;
        let what = format!("{cap} messages of this conversation are waiting already");
        let busy = Refusal::Busy { what, retry_after: BUSY_RETRY };
        let Some(key) = inbound.key.clone() else { return self.refuse(&inbound, ack, busy) };
        let (threads, speaker) = (self.house.store.threads.clone(), self.speaker.clone());
        self.errand(async move {
            let refusal = match threads.find(&key).await {
                Ok(Some(known)) if known.digest == input_digest(&text) => {
                    return ack.send(Ack::Accepted(Accepted {
                        run_id: known.run_id,
                        session: known.session,
                        accepted_at: known.accepted_at,
                        duplicate: true,
                        watch: None,
                    }));
                }
                Ok(Some(known)) => Refusal::Conflict { run_id: known.run_id },
                Ok(None) => busy,
                Err(error) => Refusal::Store(error.to_string()),
            };
            ack.send(Ack::Refused(refusal.clone()));
            if worth_saying(&refusal) {
                speaker.say(inbound.reply_to, refusal.to_string());
            }
        });
    }

    /// The lane of a session, woken if it sleeps.
    fn lane(&mut self, session: &SessionKey) -> &mut Lane {
        let ended = self.lanes.get(session).is_some_and(|lane| lane.mail.is_closed());
        if ended || !self.lanes.contains_key(session) {
            // Its task's end may still be on the way; what it left behind goes to the new one.
            let left = self.lanes.remove(session);
            let crashes = left.as_ref().map_or(0, |lane| lane.crashes);
            let lane = self.spawn_lane(session.clone(), left.map(|lane| lane.runs).unwrap_or_default(), ended, crashes);
            self.lanes.insert(session.clone(), lane);
        }
        // Inserted above, so the default is never made.
        self.lanes.entry(session.clone()).or_insert_with(|| unreachable!("the lane was inserted above"))
    }

    fn spawn_lane(&mut self, session: SessionKey, adopted: Vec<Arc<LiveRun>>, insist: bool, crashes: u32) -> Lane {
        let (mail, mailbox) = mpsc::channel(self.house.queue.cap + MAILBOX_EXTRA);
        let wake = Arc::new(Notify::new());
        let port = LanePort { mail: mailbox, wake: wake.clone(), notes: self.notes.clone() };
        let house = self.house.clone();
        let start = LaneStart { session: session.clone(), adopted: adopted.clone(), insist, crashes };
        let task = self.tasks.spawn(async move {
            run_lane(house, start, port).await;
            TaskEnd::Lane
        });
        self.lane_tasks.insert(task.id(), session);
        let (task, idle_since) = (task.id(), Instant::now());
        Lane { mail, wake, task, runs: adopted, commands: 0, opening: true, crashes, idle_since }
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

    // ---- what lanes say ----

    pub(crate) fn note(&mut self, note: LaneNote) {
        match note {
            LaneNote::Settled { run, key, outcome } => self.settled(run, key, outcome),
            LaneNote::Ended { run } => self.forget(run),
            LaneNote::Recovered { run } => {
                self.sessions.insert(run.id, run.session.clone());
                if let Some(lane) = self.lanes.get_mut(&run.session) {
                    lane.runs.push(run);
                }
            }
            LaneNote::Opened { session } => {
                if let Some(lane) = self.lanes.get_mut(&session) {
                    lane.opening = false;
                }
            }
            LaneNote::Lost { run } => {
                let refusal = Refusal::Store("it was not accepted".into());
                let key = self.run_keys.get(&run).cloned();
                self.settled(run, key, Settled::Refused { refusal, reply_to: None });
            }
            LaneNote::Commanded { session, say } => {
                if let Some(lane) = self.lanes.get_mut(&session) {
                    lane.commands = lane.commands.saturating_sub(1);
                    lane.idle_since = Instant::now();
                }
                if let Some((route, text)) = say {
                    self.speaker.say(Some(route), text);
                }
            }
        }
    }

    fn settled(&mut self, run: RunId, key: Option<IdempotencyKey>, outcome: Settled) {
        if let Settled::Accepted { at } = &outcome {
            if let Some(known) = key.as_ref().and_then(|key| self.keys.get_mut(key))
                && let KeyState::InFlight(waiters) = std::mem::replace(&mut known.state, KeyState::Accepted(*at))
            {
                waiters.into_iter().for_each(|ack| ack.send(Ack::Accepted(joined(&known.run, *at))));
            }
            return;
        }
        let waiters = match key.and_then(|key| self.keys.remove(&key)) {
            Some(Known { state: KeyState::InFlight(waiters), .. }) => waiters,
            _ => Vec::new(),
        };
        match outcome {
            Settled::Accepted { .. } => {}
            Settled::Known(known) => {
                for ack in waiters {
                    ack.send(Ack::Accepted(Accepted {
                        run_id: known.run_id,
                        session: known.session.clone(),
                        accepted_at: known.accepted_at,
                        duplicate: true,
                        watch: None,
                    }));
                }
            }
            Settled::Refused { refusal, reply_to } => {
                waiters.into_iter().for_each(|ack| ack.send(Ack::Refused(refusal.clone())));
                self.say_refusal(reply_to, &refusal);
            }
        }
        self.forget(run);
    }

    /// Forgets a run that has ended, or never was. Whoever waits for its end learns that none will come.
    fn forget(&mut self, run: RunId) {
        if let Some(key) = self.run_keys.remove(&run) {
            self.keys.remove(&key);
        }
        let Some(session) = self.sessions.remove(&run) else { return };
        if let Some(lane) = self.lanes.get_mut(&session) {
            lane.runs.iter().filter(|live| live.id == run).for_each(|live| live.gone.cancel());
            lane.runs.retain(|live| live.id != run);
            lane.idle_since = Instant::now();
        }
    }

    // ---- tasks ----

    /// The next task that has ended; `None` at once when there is none.
    pub(crate) async fn next_ended(&mut self) -> Option<Result<(Id, TaskEnd), JoinError>> {
        self.tasks.join_next_with_id().await
    }

    pub(crate) fn task_ended(&mut self, ended: Result<(Id, TaskEnd), JoinError>) {
        let (id, crashed) = match ended {
            Ok((id, TaskEnd::Lane)) => (id, false),
            Ok((_, TaskEnd::Errand)) => return,
            Err(error) => {
                tracing::error!(%error, "a task of the dispatcher crashed");
                (error.id(), true)
            }
        };
        let Some(session) = self.lane_tasks.remove(&id) else { return };
        let Some(lane) = self.lanes.get(&session).filter(|lane| lane.task == id) else { return };
        let (left, crashes) = (lane.runs.clone(), lane.crashes + 1);
        self.lanes.remove(&session);
        if crashed && !left.is_empty() && crashes <= MAX_LANE_CRASHES && !self.house.draining.is_cancelled() {
            // Its runs go on in a new task, and whoever watches them notices nothing.
            let lane = self.spawn_lane(session.clone(), left, true, crashes);
            self.lanes.insert(session, lane);
            return;
        }
        // What they were accepted for is in the store, for the next start.
        for run in left {
            self.forget(run.id);
        }
    }

    fn errand(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        if self.tasks.len() >= MAX_TASKS + self.lanes.len() {
            tracing::warn!("too many answers are under way; one is dropped");
            return;
        }
        self.tasks.spawn(async move {
            work.await;
            TaskEnd::Errand
        });
    }

    // ---- drain ----

    pub(crate) fn begin_drain(&mut self) {
        self.house.draining.cancel();
    }

    pub(crate) fn stop_everything(&mut self) {
        let cause = StopCause { reason: StopReason::Shutdown, told: false };
        for lane in self.lanes.values() {
            // Waiting runs stay for the next start; only what is at work is told.
            lane.runs.iter().filter(|run| run.at_work_for().is_some()).for_each(|run| run.stop(cause));
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
        let Self { mut tasks, speaker, lanes, .. } = self;
        drop((speaker, lanes)); // the speaker's task ends with what it was given
        let all = async { while tasks.join_next().await.is_some() {} };
        if timeout(Duration::from_secs(1), all).await.is_err() {
            tracing::warn!(tasks = tasks.len(), "tasks did not end in time and are aborted");
            tasks.shutdown().await;
        }
    }

    // ---- control ----

    fn control(&mut self, control: Control, inbound: &Inbound, ack: AckSender) -> Flow {
        let who = &inbound.principal;
        match control {
            Control::Watch(run) => {
                // Fragments only for whoever wants them: a call whose fragment was heard is never sent again.
                ack.send(Ack::Watch(self.find(run).map(|live| live.watch(inbound.want_deltas))));
            }
            Control::Status => ack.send(Ack::Status(Box::new(self.status()))),
            Control::Shutdown if who.is_operator() => {
                let reply = "Shutting down.".to_owned();
                ack.send(Ack::Command(CommandReply { command: "/shutdown".into(), reply }));
                return Flow::ShutDown;
            }
            Control::Shutdown => ack.send(Ack::Refused(operators_only("shut Belay down"))),
            Control::Stop(StopTarget::All) if !who.is_operator() => {
                ack.send(Ack::Refused(operators_only("stop everything")));
            }
            Control::Stop(target) => {
                let reason = match (&target, who.role) {
                    (StopTarget::RunOfGoneClient(_), _) => StopReason::ClientGone,
                    (_, PrincipalRole::Operator) => StopReason::OperatorStop,
                    _ => StopReason::UserStop,
                };
                let runs = self.targets(&target);
                self.stop(&runs, |_| StopCause { reason, told: false });
                self.errand(async move { ack.send(Ack::Stopped(report(runs).await)) });
            }
        }
        Flow::Continue
    }

    fn targets(&self, target: &StopTarget) -> Vec<Arc<LiveRun>> {
        match target {
            StopTarget::Run(run) | StopTarget::RunOfGoneClient(run) => self.find(*run).into_iter().collect(),
            StopTarget::Session(session) => self.lanes.get(session).map(|lane| lane.runs.clone()).unwrap_or_default(),
            StopTarget::All => self.lanes.values().flat_map(|lane| lane.runs.iter().cloned()).collect(),
        }
    }

    fn find(&self, run: RunId) -> Option<Arc<LiveRun>> {
        let lane = self.lanes.get(self.sessions.get(&run)?)?;
        lane.runs.iter().find(|live| live.id == run).cloned()
    }

    /// Tells runs to stop, each for its cause, and wakes their lanes.
    fn stop(&self, runs: &[Arc<LiveRun>], cause: impl Fn(&LiveRun) -> StopCause) {
        for run in runs {
            run.stop(cause(run));
            if let Some(lane) = self.lanes.get(&run.session) {
                lane.wake.notify_one();
            }
        }
    }

    // ---- commands in a conversation ----

    fn command(&mut self, command: Command, text: &str, inbound: Inbound, ack: AckSender) -> Flow {
        let word = submission::word_of(text);
        let reply = match command {
            Command::Quit if inbound.principal.is_operator() => {
                self.answer(&inbound, ack, &word, "Shutting down.".into());
                return Flow::ShutDown;
            }
            Command::Quit => operators_only("shut Belay down").to_string(),
            Command::Stop(target) => return self.stop_command(target, word, inbound, ack),
            Command::Interrupt => {
                let runs: Vec<_> = self.targets(&StopTarget::Session(inbound.session.clone()));
                let running = runs.into_iter().filter(|run| run.at_work_for().is_some()).collect();
                return self.stop_in_conversation(running, word, inbound, ack);
            }
            Command::Thread(command) => return self.thread_command(command, word, inbound, ack),
            Command::Status => self.status_text(),
            Command::Help => help_text(),
            Command::Version => format!("Belay {}", self.house.version),
            Command::Ping => "pong".into(),
            Command::Tools => self.tools_text(),
            Command::Model(None) => self.model_text(),
            Command::Model(Some(_)) => {
                format!(
                    "{} Choosing another model for one conversation is not possible in this version.",
                    self.model_text()
                )
            }
            Command::Decide => "Nothing is waiting for approval.".into(),
            Command::NotYet(word) => format!("{word} is not available in this version."),
        };
        self.answer(&inbound, ack, &word, reply);
        Flow::Continue
    }

    fn stop_command(&mut self, target: Option<String>, word: String, inbound: Inbound, ack: AckSender) -> Flow {
        let own = |name: &String| {
            let run = name.parse::<RunId>().ok();
            *name == inbound.session.as_str()
                || run.is_some_and(|run| self.sessions.get(&run) == Some(&inbound.session))
        };
        let target = match target {
            None => StopTarget::Session(inbound.session.clone()),
            Some(name) if !inbound.principal.is_operator() && !own(&name) => {
                let reply = operators_only("stop another conversation").to_string();
                self.answer(&inbound, ack, &word, reply);
                return Flow::Continue;
            }
            Some(name) if name.eq_ignore_ascii_case("all") => StopTarget::All,
            Some(name) => match name.parse::<RunId>() {
                Ok(run) => StopTarget::Run(run),
                Err(_) => StopTarget::Session(SessionKey::new(name)),
            },
        };
        let runs = self.targets(&target);
        self.stop_in_conversation(runs, word, inbound, ack)
    }

    fn stop_in_conversation(
        &mut self,
        runs: Vec<Arc<LiveRun>>,
        word: String,
        inbound: Inbound,
        ack: AckSender,
    ) -> Flow {
        let at_work: Vec<RunId> = runs.iter().filter(|run| run.at_work_for().is_some()).map(|run| run.id).collect();
        let told = inbound.reply_to.is_some();
        // Where a run belongs to another conversation, that one is told by the run's own line.
        self.stop(&runs, |run| match run.session == inbound.session {
            true => StopCause { reason: StopReason::UserStop, told },
            false => StopCause { reason: StopReason::OperatorStop, told: false },
        });
        let speaker = self.speaker.clone();
        self.errand(async move {
            let reply = stop_text(&report(runs).await, &at_work);
            ack.send(Ack::Command(CommandReply { command: word, reply: reply.clone() }));
            speaker.say(inbound.reply_to, reply);
        });
        Flow::Continue
    }

    fn thread_command(&mut self, command: ThreadCommand, word: String, inbound: Inbound, ack: AckSender) -> Flow {
        let lane = self.lane(&inbound.session);
        let reply_to = inbound.reply_to.clone();
        let mail = LaneMail::Command(LaneCommand { session: inbound.session.clone(), command, word, reply_to, ack });
        match lane.mail.try_send(mail) {
            Ok(()) => lane.commands += 1,
            Err(mpsc::error::TrySendError::Full(mail) | mpsc::error::TrySendError::Closed(mail)) => {
                self.command_keys.retain(|key| Some(key) != inbound.key.as_ref()); // not acted on after all
                if let LaneMail::Command(command) = mail {
                    let what = "this conversation has too many commands waiting".to_owned();
                    self.refuse(&inbound, command.ack, Refusal::Busy { what, retry_after: BUSY_RETRY });
                }
            }
        }
        Flow::Continue
    }

    // ---- answers ----

    fn answer(&self, inbound: &Inbound, ack: AckSender, word: &str, reply: String) {
        ack.send(Ack::Command(CommandReply { command: word.to_owned(), reply: reply.clone() }));
        self.speaker.say(inbound.reply_to.clone(), reply);
    }

    fn refuse(&self, inbound: &Inbound, ack: AckSender, refusal: Refusal) {
        ack.send(Ack::Refused(refusal.clone()));
        self.say_refusal(inbound.reply_to.clone(), &refusal);
    }

    fn say_refusal(&self, route: Option<ReplyRoute>, refusal: &Refusal) {
        if worth_saying(refusal) {
            self.speaker.say(route, refusal.to_string());
        }
    }

    fn at_work(&self) -> impl Iterator<Item = &Arc<LiveRun>> {
        self.lanes.values().flat_map(|lane| &lane.runs).filter(|run| run.at_work_for().is_some())
    }

    fn status(&self) -> StatusReport {
        let mut running: Vec<LiveRunInfo> = self
            .at_work()
            .map(|run| LiveRunInfo {
                run_id: run.id,
                session: run.session.clone(),
                for_ms: run.at_work_for().map_or(0, |d| d.as_millis() as u64),
            })
            .collect();
        running.sort_by_key(|run| std::cmp::Reverse(run.for_ms));
        let mut channels: Vec<_> = self.house.channels.keys().cloned().collect();
        channels.sort();
        StatusReport {
            version: self.house.version.clone(),
            boot_id: self.house.boot,
            started_at: self.house.started_at,
            draining: self.house.draining.is_cancelled(),
            model: self.house.model.info().clone(),
            sessions_awake: self.lanes.len(),
            queued: self.sessions.len() - running.len(),
            running,
            channels,
            spent_today_micro_usd: self.house.cost.spent_today(),
            limit_today_micro_usd: self.house.cost.limit(),
            model_trouble: self.house.model_trouble(),
        }
    }

    fn model_text(&self) -> String {
        let info = self.house.model.info();
        let label = if info.rehearsal { " (the built-in stand-in, not a model)" } else { "" };
        format!("Model: {} by {}{label}.", info.model, info.provider)
    }

    fn status_text(&self) -> String {
        let status = self.status();
        let channels: Vec<_> = status.channels.iter().map(|channel| channel.as_str()).collect();
        let mut text = format!(
            "Belay {} is up. {}\nRunning: {}, waiting: {}, conversations awake: {}. Channels: {}.",
            status.version,
            self.model_text(),
            status.running.len(),
            status.queued,
            status.sessions_awake,
            channels.join(", ")
        );
        for run in status.running.iter().take(10) {
            text.push_str(&format!("\n- run {} of {}, {:.1} s", run.run_id, run.session, run.for_ms as f64 / 1000.0));
        }
        if let Some(trouble) = &status.model_trouble {
            text.push_str(&format!(
                "\nThe model does not answer ({}) since {}.",
                trouble.kind,
                trouble.since.to_rfc3339()
            ));
        }
        if let Some(limit) = status.limit_today_micro_usd {
            let (spent, limit) = (status.spent_today_micro_usd as f64 / 1e6, limit as f64 / 1e6);
            text.push_str(&format!("\nSpent today: {spent:.4} of {limit:.2} US dollars."));
        }
        text
    }

    fn tools_text(&self) -> String {
        let lines: Vec<_> = self
            .house
            .reasoning
            .tools()
            .iter()
            .map(|tool| format!("- `{}`: {}", tool.spec().name, tool.spec().description))
            .collect();
        if lines.is_empty() { "There are no tools.".into() } else { lines.join("\n") }
    }
}

/// The acceptance that a duplicate of a living run joins.
fn joined(run: &Arc<LiveRun>, at: UnixMillis) -> Accepted {
    Accepted {
        run_id: run.id,
        session: run.session.clone(),
        accepted_at: at,
        duplicate: true,
        watch: Some(run.watch(false)),
    }
}

/// Whether the person is told of a refusal in the conversation. Not of one after which the channel or the platform
/// offers the message again: "busy" for a message that is accepted a moment later would be a false word.
fn worth_saying(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::Busy { .. } | Refusal::ShuttingDown | Refusal::Store(_))
}

fn operators_only(what: &str) -> Refusal {
    Refusal::Forbidden(format!("Only an operator may {what}."))
}

fn help_text() -> String {
    submission::WORDS.iter().map(|(word, what)| format!("- `{word}`: {what}")).collect::<Vec<_>>().join("\n")
}

/// `at_work`: the runs that were having their turn when they were told.
fn stop_text(report: &StopReport, at_work: &[RunId]) -> String {
    if report.stopped.is_empty() && report.still_running.is_empty() {
        return "Nothing is running.".into();
    }
    let ending = report.still_running.iter().map(|still| &still.run_id);
    let running = report.stopped.iter().chain(ending).filter(|run| at_work.contains(run)).count();
    let waiting = report.stopped.len() + report.still_running.len() - running;
    let mut text = match (running, waiting) {
        (0, n) => format!("Cleared {}.", messages(n)),
        (1, 0) => "Interrupted.".to_owned(),
        (1, n) => format!("Interrupted; cleared {}.", messages(n)),
        (r, 0) => format!("Interrupted {r} runs."),
        (r, n) => format!("Interrupted {r} runs; cleared {}.", messages(n)),
    };
    if !report.still_running.is_empty() {
        text.push_str(&format!(" {} still ending.", report.still_running.len()));
    }
    text
}

fn messages(n: usize) -> String {
    format!("{n} waiting message{}", if n == 1 { "" } else { "s" })
}

/// Waits for the ends of stopped runs, and reports after a moment what has not ended.
async fn report(runs: Vec<Arc<LiveRun>>) -> StopReport {
    let deadline = Instant::now() + STOP_ANSWER;
    let mut report = StopReport::default();
    for run in runs {
        let mut finished = run.finished();
        let ended = async {
            tokio::select! {
                biased; // an end that is published counts, also after the run was forgotten
                record = finished.wait_for(Option::is_some) => record.ok().and_then(|record| record.clone()),
                () = run.gone.cancelled() => None,
            }
        };
        match timeout_at(deadline, ended).await {
            Ok(Some(record)) if record.status == RunStatus::Stopped => report.stopped.push(run.id),
            Ok(_) => {} // it ended otherwise, or never was
            Err(_) => {
                let what = "recording its end".to_owned();
                report.still_running.push(StillRunning { run_id: run.id, pid: None, what });
            }
        }
    }
    report
}
