//! Who keeps a process, and the end of all that somebody keeps.

use std::sync::Arc;

use belay_protocol::{ProcessesOf, SessionKey, SessionOwner, StillRunning, ToolFailure};

use super::BackgroundProcesses;
use super::end::EndedBy;
use super::handle::{Keeper, Process};

impl BackgroundProcesses {
    /// What keeps a process that goes on in the background; `keep`: beyond the run that starts it.
    ///
    /// # Errors
    /// There can be none such; the model reads why.
    pub(crate) fn keeper(&self, keep: bool, session: &SessionKey) -> Result<Keeper, ToolFailure> {
        let refused = |why: &str| Err(ToolFailure::Denied(why.to_owned()));
        match keep {
            _ if !self.is_enabled() => refused("There are no background processes here (tools.commands.background)."),
            false => Ok(Keeper::Run),
            true if !self.limits.may_outlive_runs => {
                refused("In a cluster, no process can go on after its run (keep).")
            }
            true if SessionOwner::of(session).is_some() => refused("A job or routine has no later turn (keep)."),
            true => Ok(Keeper::Session),
        }
    }

    /// Requests the end of processes. Returns the number of those whose end was not requested before.
    pub(crate) fn stop(&self, of: &ProcessesOf) -> usize {
        let mut meant = self.meant(of);
        meant.retain(|process| !process.is_ending());
        meant.iter().for_each(|process| process.request_end(EndedBy::Stop));
        meant.len()
    }

    /// Waits until those of them whose end was requested have ended.
    pub(crate) async fn stopped(&self, of: &ProcessesOf) {
        for process in self.meant(of).into_iter().filter(|process| process.is_ending()) {
            // The process has the sender, and is held here.
            let _ = process.follow().wait_for(Option::is_some).await;
        }
    }

    /// Those of them whose end was requested, and that are alive still. A list of a run may have them too.
    pub(crate) fn ending(&self, of: &ProcessesOf) -> Vec<StillRunning> {
        let still = |process: Arc<Process>| StillRunning {
            run_id: process.run,
            pid: process.pid(),
            what: process.what.clone(),
        };
        let meant = self.meant(of).into_iter();
        meant.filter(|process| process.is_ending() && !process.is_empty()).map(still).collect()
    }

    /// Makes what a conversation keeps unknown to its runs. What has ended is dropped now, and the others when they end.
    pub(crate) fn forget(&self, session: &SessionKey) {
        let mut known = self.known();
        let is_meant = |process: &Process| process.session == *session && process.keeper == Keeper::Session;
        known.iter().filter(|process| is_meant(process)).for_each(|process| process.forget());
        known.retain(|process| !process.is_over());
    }

    fn meant(&self, of: &ProcessesOf) -> Vec<Arc<Process>> {
        let is_meant = |process: &&Arc<Process>| {
            let is_of_it = match of {
                ProcessesOf::Session(session) => process.session == *session,
                ProcessesOf::Run(run) => process.run == *run,
                ProcessesOf::Sessions => process.keeper == Keeper::Session,
                ProcessesOf::Everyone => true,
            };
            is_of_it && process.ended().is_none()
        };
        self.known().iter().filter(is_meant).cloned().collect()
    }
}
