//! Detection of stuck runs: running runs without any sign of life, such as a delta, progress of a call, or a
//! checkpoint.
//!
//! A run that waits for a person or for its turn is not running. A call with a deadline of its own may be silent until
//! then. A stuck run is ended like by any other stop. The stop applies to that run only, never to a successor.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{StopReason, Work};

use super::Dispatcher;
use belay_run::live::{LiveRun, StopCause};

impl Dispatcher {
    /// Warns about runs that are silent for long, and ends those that are silent for too long. Their queues continue.
    pub(crate) fn watch_silent(&mut self) {
        let (warn, end) = (self.services.queue.stuck_warn(), self.services.queue.stuck_after());
        let silent = self.at_work().filter_map(|run| Some((run.clone(), run.silent_for()?)));
        let silent: Vec<(Arc<LiveRun>, Duration)> = silent.collect();
        for (run, silence) in silent {
            let silent_s = silence.as_secs();
            if warn.is_some_and(|warn| run.activity.warns(silence, warn)) {
                tracing::warn!(run = %run.id, session = %run.session, silent_s, "no sign of life from a run");
            }
            // A job resumes from its last step, so there is no reason to wait as long as for a conversation.
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
