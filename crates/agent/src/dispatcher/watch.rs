//! The watch over runs at work of which nothing is heard: no fragment, no call's progress, no checkpoint.
//!
//! What waits for a person or for a place is not at work, and what has a deadline of its own may be silent until then. A run
//! is ended like by any other stop, and it is this very run: one that has taken its place meanwhile is another.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{StopReason, Work};

use super::Dispatcher;
use belay_run::live::{LiveRun, StopCause};

impl Dispatcher {
    /// Warns of runs that have been silent for long, and ends those that have been for too long. Their queues go on.
    pub(crate) fn watch_silent(&mut self) {
        let (warn, end) = (self.services.queue.stuck_warn(), self.services.queue.stuck_after());
        let silent = self.at_work().filter_map(|run| Some((run.clone(), run.silent_for()?)));
        let silent: Vec<(Arc<LiveRun>, Duration)> = silent.collect();
        for (run, silence) in silent {
            let silent_s = silence.as_secs();
            if warn.is_some_and(|warn| run.activity.warns(silence, warn)) {
                tracing::warn!(run = %run.id, session = %run.session, silent_s, "nothing is heard of a run");
            }
            // A job is begun again where it was: there is no reason to wait as long as for a conversation.
            let of_job = matches!(run.origin.work, Work::Job { .. });
            let end = of_job.then(|| self.services.jobs.config.stuck_after()).or(end);
            if end.is_some_and(|end| silence >= end) {
                tracing::error!(run = %run.id, session = %run.session, silent_s, "a run is stuck and is ended");
                let cause = StopCause { silent_s: Some(silent_s), ..StopCause::of(StopReason::Stuck) };
                self.stop(&[run], |_| cause);
            }
        }
    }
}
