//! A process as people and models see it.

use belay_protocol::BackgroundProcess;

use super::handle::{Keeper, Process};

impl Process {
    /// The process, for people.
    pub(super) fn shown(&self) -> BackgroundProcess {
        BackgroundProcess {
            id: self.name.clone(),
            session: self.session.clone(),
            run_id: self.run,
            command: self.what.clone(),
            pid: self.pid(),
            kept: self.keeper == Keeper::Session,
            for_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            printed_bytes: self.output.printed(),
        }
    }

    /// Its name, and whether it runs or how it has ended.
    pub(super) fn state(&self) -> String {
        match self.ended() {
            Some(end) => format!("{} {end}", self.name),
            None => format!("{} runs", self.name),
        }
    }
}
