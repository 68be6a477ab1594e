//! A process as people and models see it.

use belay_protocol::BackgroundProcess;

use super::handle::{Keeper, Process};

/// Most characters of a command line in lists and questions. An approval is bound to all of it.
const MAX_BRIEF_CHARACTERS: usize = 200;

impl Process {
    /// The process, for people.
    pub(super) fn shown(&self) -> BackgroundProcess {
        BackgroundProcess {
            id: self.name.clone(),
            session: self.session.clone(),
            run_id: self.run,
            command: self.brief(),
            pid: self.pid(),
            kept: self.keeper == Keeper::Session,
            for_ms: u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX),
            printed_bytes: self.output.printed(),
        }
    }

    /// Its command line, cut to [`MAX_BRIEF_CHARACTERS`].
    pub(super) fn brief(&self) -> String {
        match self.what.char_indices().nth(MAX_BRIEF_CHARACTERS) {
            Some((end, _)) => format!("{}…", &self.what[..end]),
            None => self.what.clone(),
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
