//! A live run, shared by the dispatcher, its lane and its watchers. [`RunControl`] stops the run, [`RunActivity`] holds
//! its current state, [`RunOutput`] carries its text, and [`PlanPort`] takes commands about its plan.

mod activity;
mod calls;
mod control;
mod goal_port;
mod output;
mod plan_port;
mod sent_files;
mod status;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_protocol::{
    ApprovalId, CallId, ChannelId, Delta, FreezeScope, Inbound, ProgressSink, RunId, RunWatch, SessionKey, Work,
    WorkSource,
};
use tokio_util::sync::CancellationToken;

pub use self::activity::RunActivity;
pub use self::calls::WorkingCalls;
pub use self::control::{RunControl, StopCause};
pub use self::goal_port::GoalPort;
pub use self::output::RunOutput;
pub use self::plan_port::{NOT_READY, OpenPlan, PlanAnswer, PlanOrder, PlanPort};
pub use self::sent_files::SentFiles;
pub(crate) use self::status::bounded;
pub use self::status::{RunDisplay, arguments_line};
use crate::person_wait::PersonWait;

/// The kind and the sender of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrigin {
    /// The kind of work.
    pub work: Work,
    /// The source of autonomous work; `None` for other work.
    pub source: Option<Arc<WorkSource>>,
    /// The channel of its message.
    pub channel: ChannelId,
    /// The sender of its message: an id that is stable within the channel.
    pub principal: Arc<str>,
}

impl RunOrigin {
    /// The origin of the run for this message.
    pub fn of(inbound: &Inbound) -> Self {
        let Inbound { work, source, channel, principal, .. } = inbound;
        Self { work: *work, source: source.clone(), channel: channel.clone(), principal: principal.id.clone() }
    }

    /// Whether a freeze of this scope covers the run.
    pub fn is_covered_by(&self, scope: &FreezeScope) -> bool {
        scope.covers(self.work, self.source.as_deref(), &self.channel, &self.principal)
    }
}

/// A run from its acceptance to its end.
#[derive(Debug)]
pub struct LiveRun {
    /// The id of the run.
    pub id: RunId,
    /// The session.
    pub session: SessionKey,
    /// The kind and the sender of the run.
    pub origin: RunOrigin,
    /// Stops the run. Written by the dispatcher, read by the turn.
    pub control: RunControl,
    /// The current state of the run. Written by its lane and its turn, read by the dispatcher.
    pub activity: RunActivity,
    /// The text of the run while it works. Written by its turn, read by the tasks that show it.
    pub output: RunOutput,
    /// The time in which runs of its tree waited for people. Written by its turn.
    pub(crate) waits: PersonWait,
    /// The approval requests that calls of its tree have asked or taken over since this start.
    questions: Mutex<Vec<ApprovalId>>, // held for a few instructions, never across an await
    /// What the run does now, for a display. Written by its turn.
    pub display: RunDisplay,
    /// The tools that work for the run tree. Written by the tasks of its calls, read by the dispatcher.
    pub calls: WorkingCalls,
    /// The files that the run has sent. Written by its turn, read by its lane.
    pub files: SentFiles,
    /// The plan of the run, if it carries one out. Written by its turn and by its lane.
    pub plan: PlanPort,
    /// The goal of the run, if it has one. Written by its turn, read by its lane.
    pub goal: GoalPort,
    /// Cancelled when the dispatcher has removed the run from its tables.
    pub gone: CancellationToken,
}

impl LiveRun {
    /// A live run that is not stopped. With `want_deltas`, fragments are kept for a watcher from the first one.
    pub fn new(id: RunId, session: SessionKey, origin: RunOrigin, want_deltas: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            session,
            origin,
            control: RunControl::default(),
            activity: RunActivity::default(),
            output: RunOutput::new(want_deltas),
            waits: PersonWait::default(),
            questions: Mutex::default(),
            display: RunDisplay::default(),
            calls: WorkingCalls::default(),
            files: SentFiles::default(),
            plan: PlanPort::default(),
            goal: GoalPort::default(),
            gone: CancellationToken::new(),
        })
    }

    /// Time without a sign of life. `None` while the run is not working: it is queued, paused or told to stop.
    pub fn silent_for(&self) -> Option<Duration> {
        self.activity.silence().filter(|_| !self.control.cancel.is_cancelled())
    }

    /// Gives an approval request to one call of the run tree. Returns `false` if another call has it already.
    pub fn take_question(&self, approval: ApprovalId) -> bool {
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let is_free = !questions.contains(&approval);
        if is_free {
            questions.push(approval);
        }
        is_free
    }

    /// A watch over the run. With `with_deltas`, it includes the text of the step so far and the fragments that follow.
    pub fn watch(&self, with_deltas: bool) -> RunWatch {
        let (so_far, deltas) = with_deltas.then(|| self.output.subscribe()).unzip();
        let so_far = so_far.unwrap_or_default();
        RunWatch { run_id: self.id, finished: self.activity.finished(), deltas, so_far }
    }
}

impl ProgressSink for LiveRun {
    fn progress(&self, call: &CallId, text: &str) {
        self.activity.touch();
        self.output.publish(|| Delta::Tool { call_id: call.clone(), text: text.to_owned() });
    }
}
