//! The messages at the start of a turn: its own message, the lines of a digest before it, and the collected messages
//! after it.

use std::borrow::Cow;
use std::sync::Arc;

use belay_protocol::{EventKind, JoinedRun, Message, Provenance, RunId};

use super::TurnJob;
use crate::queue::{line, notice, one_text};
use belay_run::core::RunCore;
use belay_run::live::LiveRun;

/// The messages at the start of a turn.
pub(crate) struct Gathered {
    /// The message of the turn itself.
    pub(crate) own: Arc<Message>,
    /// The others: the lines of a digest, then the collected messages.
    pub(crate) others: Vec<MergedMessage>,
}

/// A message that is answered together with another.
pub(crate) struct MergedMessage {
    pub(crate) run: Arc<LiveRun>,
    pub(crate) message: Arc<Message>,
    pub(crate) joined: JoinedRun,
}

impl Gathered {
    /// One user message with the text of all messages.
    pub(crate) fn message(&self) -> Message {
        let all = || std::iter::once(&self.own).chain(self.others.iter().map(|other| &other.message));
        if self.others.is_empty() {
            return Message::sent(self.own.text(), self.own.provenance.clone());
        }
        let lines: Vec<String> = self.of(SUMMARIZE).map(short).collect();
        let whole: Vec<Cow<'_, str>> =
            std::iter::once(&self.own).chain(self.of(COLLECT)).map(|it| it.for_model()).collect();
        let untrusted = all().any(|message| message.untrusted);
        let audience = self.own.provenance.as_ref().map(|provenance| provenance.audience);
        let provenance = audience.map(|audience| Arc::new(Provenance::of_several(audience, untrusted)));
        Message::sent(one_text(&lines, &whole), provenance)
    }

    /// The notice about that message for the model; `None`: it is a single message.
    pub(crate) fn notice(&self) -> Option<String> {
        let count = |how| self.of(how).count();
        notice(count(SUMMARIZE), 1 + count(COLLECT))
    }

    fn of(&self, how: &'static str) -> impl Iterator<Item = &Arc<Message>> {
        self.others.iter().filter(move |other| other.joined.how == how).map(|other| &other.message)
    }

    /// The runs of the others.
    pub(crate) fn joined(&self) -> Vec<JoinedRun> {
        self.others.iter().map(|other| other.joined.clone()).collect()
    }

    /// Removes messages that were stopped. Returns their runs.
    pub(super) fn leave_stopped(&mut self) -> Vec<RunId> {
        let (stopped, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.others).into_iter().partition(|other| other.run.control.cancel.is_cancelled());
        self.others = others;
        stopped.into_iter().map(|other| other.run.id).collect()
    }
}

/// A message in one line, with its provenance.
fn short(message: &Arc<Message>) -> String {
    let text = line(message.text());
    match &message.provenance {
        Some(provenance) => provenance.render(&text).replace('\n', " "),
        None => text,
    }
}

/// Mode of a message that becomes a line of a digest in another turn.
pub(crate) const SUMMARIZE: &str = "summarize";
/// Mode of a message that is added in full after the message of another turn.
pub(crate) const COLLECT: &str = "collect";

/// Reports to the lane and in an event which messages the turn began with.
pub(super) fn joined_at_start(job: &mut TurnJob, core: &mut RunCore) {
    let Some(joined) = job.gathered.take().map(|gathered| gathered.joined()) else { return };
    for how in [SUMMARIZE, COLLECT] {
        let runs: Vec<RunId> = joined.iter().filter(|joined| joined.how == how).map(|joined| joined.run).collect();
        if !runs.is_empty() {
            core.journal.note(EventKind::Joined { runs, mode: how.into() });
        }
    }
    job.joining.committed(&joined);
}
