//! Starts and ends in the record of the run, as events.

use std::time::Duration;

use belay_protocol::{EventKind, NewEvent};
use tokio::time::timeout;

use super::BackgroundProcesses;
use super::end::End;
use super::handle::{Keeper, Process};

/// Longest wait for the store. An end that cannot be recorded by then is in the log alone.
const STORE_LIMIT: Duration = Duration::from_secs(5);

impl BackgroundProcesses {
    pub(super) async fn record_start(&self, process: &Process) {
        let (name, command) = (process.name.clone(), process.what.clone());
        let kept = process.keeper == Keeper::Session;
        self.record(process, EventKind::ProcessStarted { process: name, command, kept }).await;
    }

    pub(super) async fn record_end(&self, process: &Process, end: End) {
        let (name, how) = (process.name.clone(), end.word().to_owned());
        self.record(process, EventKind::ProcessEnded { process: name, how, code: end.code() }).await;
    }

    /// Best effort: the log reports failures.
    async fn record(&self, process: &Process, kind: EventKind) {
        let Some((events, clock)) = &self.parts.events else { return };
        let (session, run_id) = (Some(process.session.clone()), Some(process.run));
        let event = NewEvent { at: clock.now(), session, run_id, kind };
        match timeout(STORE_LIMIT, events.append(vec![event])).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(process = process.name, %error, "an event of a process was not recorded"),
            Err(_elapsed) => {
                tracing::warn!(process = process.name, "the store takes too long for an event of a process")
            }
        }
    }
}
