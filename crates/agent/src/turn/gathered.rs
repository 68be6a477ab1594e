//! Messages that one turn begins with: its own, lines of a digest before it, and what was collected behind it.

use std::sync::Arc;

use belay_protocol::{EventKind, JoinedRun, RunId};

use super::TurnJob;
use crate::core::RunCore;
use crate::live::LiveRun;
use crate::queue::one_text;

/// Messages that one turn begins with.
pub(crate) struct Gathered {
    /// What the message of the turn itself says.
    pub(crate) own: String,
    /// The others: lines of a digest, then what was collected.
    pub(crate) others: Vec<Beside>,
}

/// A message that is answered together with another.
pub(crate) struct Beside {
    pub(crate) run: Arc<LiveRun>,
    pub(crate) text: String,
    pub(crate) joined: JoinedRun,
}

impl Gathered {
    /// The user message that says what all of them say.
    pub(crate) fn text(&self) -> String {
        let of = |how| self.others.iter().filter(move |other| other.joined.how == how).map(|other| other.text.as_str());
        let whole: Vec<&str> = std::iter::once(self.own.as_str()).chain(of(COLLECT)).collect();
        one_text(&of(SUMMARIZE).collect::<Vec<_>>(), &whole)
    }

    /// The runs of the others.
    pub(crate) fn joined(&self) -> Vec<JoinedRun> {
        self.others.iter().map(|other| other.joined.clone()).collect()
    }

    /// Leaves out those that were stopped meanwhile, and says which.
    pub(super) fn leave_stopped(&mut self) -> Vec<RunId> {
        let (stopped, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.others).into_iter().partition(|other| other.run.cancel.is_cancelled());
        self.others = others;
        stopped.into_iter().map(|other| other.run.id).collect()
    }
}

/// How a message becomes part of another's turn: as a line of a digest.
pub(crate) const SUMMARIZE: &str = "summarize";
/// The same: whole, behind it.
pub(crate) const COLLECT: &str = "collect";

/// Tells the lane and the log of the messages that the turn has begun with.
pub(super) fn joined_at_start(job: &mut TurnJob, core: &mut RunCore) {
    let Some(joined) = job.gathered.take().map(|gathered| gathered.joined()) else { return };
    for how in [SUMMARIZE, COLLECT] {
        let runs: Vec<RunId> = joined.iter().filter(|joined| joined.how == how).map(|joined| joined.run).collect();
        if !runs.is_empty() {
            core.journal.note(EventKind::Joined { runs, how: how.into() });
        }
    }
    job.joining.committed(&joined);
}
