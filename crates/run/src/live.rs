//! A run that is alive in this process, as the dispatcher, its lane and its watchers share it: [`RunControl`] stops it,
//! [`RunActivity`] says what it does now, and [`RunOutput`] carries what it says.

mod activity;
mod control;
mod output;

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{CallId, ChannelId, Delta, Inbound, ProgressSink, RunId, RunWatch, SessionKey, Work};
use tokio_util::sync::CancellationToken;

pub use self::activity::RunActivity;
pub use self::control::{RunControl, StopCause};
pub use self::output::RunOutput;

/// What a run is, and whose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOrigin {
    /// The kind of work.
    pub work: Work,
    /// The channel that its message came through.
    pub channel: ChannelId,
    /// Who sent the message: an id that is stable within the channel.
    pub principal: Arc<str>,
}

impl RunOrigin {
    /// The origin of the run of a message.
    pub fn of(inbound: &Inbound) -> Self {
        Self { work: inbound.work, channel: inbound.channel.clone(), principal: inbound.principal.id.clone() }
    }
}

/// A run from its acceptance to its end.
#[derive(Debug)]
pub struct LiveRun {
    /// Its id.
    pub id: RunId,
    /// The session.
    pub session: SessionKey,
    /// What it is, and whose.
    pub origin: RunOrigin,
    /// Stops it. Written by the dispatcher, read by the turn.
    pub control: RunControl,
    /// What it does now. Written by its lane and its turn, read by the dispatcher.
    pub activity: RunActivity,
    /// What it says while it works. Written by its turn, read by whoever shows it.
    pub output: RunOutput,
    /// Cancelled when the dispatcher has forgotten the run.
    pub gone: CancellationToken,
}

impl LiveRun {
    /// A run that nobody has stopped. With `want_deltas`, fragments are published from the first one.
    pub fn new(id: RunId, session: SessionKey, origin: RunOrigin, want_deltas: bool) -> Arc<Self> {
        Arc::new(Self {
            id,
            session,
            origin,
            control: RunControl::default(),
            activity: RunActivity::default(),
            output: RunOutput::new(want_deltas),
            gone: CancellationToken::new(),
        })
    }

    /// How long the run has been silent. `None` while it does not work: it is queued, paused or told to stop.
    pub fn silent_for(&self) -> Option<Duration> {
        self.activity.silence().filter(|_| !self.control.cancel.is_cancelled())
    }

    /// A watch over the run; with fragments from now on, or from the first one if the message asked for them.
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
