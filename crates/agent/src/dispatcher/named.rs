//! What the beginning of an id means: among the questions and runs of whoever gives it, before anybody else's. What is a
//! stranger's makes nothing ambiguous, and nobody learns that it exists.

use belay_protocol::{Authority, GateId, IdPrefix, Inbound, RunId};

use super::Dispatcher;

/// What an id, or the beginning of one, means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named<T> {
    One(T),
    /// Several begin so.
    Several,
    Nothing,
}

impl<T: Copy> Named<T> {
    fn among(meant: impl Iterator<Item = T>) -> Self {
        let mut meant = meant;
        match (meant.next(), meant.next()) {
            (None, _) => Self::Nothing,
            (Some(one), None) => Self::One(one),
            (Some(_), Some(_)) => Self::Several,
        }
    }

    /// This, or where it is nothing, what the others mean to an operator.
    fn or_for_operators(self, inbound: &Inbound, others: impl FnOnce() -> Self) -> Self {
        if matches!(self, Self::Nothing) && inbound.principal.is_operator() { others() } else { self }
    }
}

impl Dispatcher {
    /// The question of that id; or the one whose id begins so, of this conversation or asked of this person; or, for an
    /// operator, of all that wait.
    pub(super) fn question_named(&self, named: &str, inbound: &Inbound) -> Named<GateId> {
        if let Ok(whole) = named.parse() {
            return Named::One(whole);
        }
        let Ok(prefix) = IdPrefix::parse(named) else { return Named::Nothing };
        let begin_so = || self.questions.values().filter(|waits| prefix.begins(waits.gate.as_uuid()));
        let (who, place) = (&*inbound.principal.id, Authority::from(inbound.principal.role));
        let own = begin_so().filter(|waits| {
            waits.session == inbound.session || (*waits.asker.principal == *who && waits.asker.place == place)
        });
        Named::among(own.map(|waits| waits.gate))
            .or_for_operators(inbound, || Named::among(begin_so().map(|waits| waits.gate)))
    }

    /// The run of that id; or the living one whose id begins so, of this conversation, or, for an operator, of all. A session
    /// of exactly that name goes before.
    pub(super) fn run_named(&self, name: &str, inbound: &Inbound) -> Named<RunId> {
        if let Ok(whole) = name.parse() {
            return Named::One(whole);
        }
        let is_session = self.sessions.values().any(|session| session.as_str() == name);
        let Some(prefix) = IdPrefix::parse(name).ok().filter(|_| !is_session) else { return Named::Nothing };
        let begin_so = || self.sessions.iter().filter(|(run, _)| prefix.begins(run.as_uuid()));
        let own = begin_so().filter(|(_, session)| **session == inbound.session);
        Named::among(own.map(|(run, _)| *run))
            .or_for_operators(inbound, || Named::among(begin_so().map(|(run, _)| *run)))
    }
}

/// What is said where several begin so. `what`: "questions", "runs".
pub(super) fn several(what: &str, named: &str) -> String {
    format!("Several {what} have an id that begins with {named}: give more characters.")
}
