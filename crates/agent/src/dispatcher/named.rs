//! Resolves the beginning of an id, first among the sender's own questions and runs. Those of others cause no
//! ambiguity, and are revealed only to operators.

use belay_protocol::{ApprovalId, Authority, IdPrefix, Inbound, RunId};

use super::Dispatcher;

/// Result of resolving an id, or the beginning of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named<T> {
    One(T),
    /// Several ids begin so.
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

    /// This result; if it is `Nothing` and the sender is an operator, the result of `others`.
    fn or_for_operators(self, inbound: &Inbound, others: impl FnOnce() -> Self) -> Self {
        if matches!(self, Self::Nothing) && inbound.principal.is_operator() { others() } else { self }
    }
}

impl Dispatcher {
    /// Resolves the id of a question, or its beginning: among those of this conversation or addressed to this person,
    /// and for operators then among all that wait.
    pub(super) fn question_named(&self, named: &str, inbound: &Inbound) -> Named<ApprovalId> {
        if let Ok(whole) = named.parse() {
            return Named::One(whole);
        }
        let Ok(prefix) = IdPrefix::parse(named) else { return Named::Nothing };
        let begin_so = || self.questions.values().filter(|waits| prefix.begins(waits.approval.as_uuid()));
        let (who, authority) = (&*inbound.principal.id, Authority::from(inbound.principal.role));
        let own = begin_so().filter(|waits| {
            waits.asked_in == inbound.session || (*waits.asker.principal == *who && waits.asker.authority == authority)
        });
        Named::among(own.map(|waits| waits.approval))
            .or_for_operators(inbound, || Named::among(begin_so().map(|waits| waits.approval)))
    }

    /// Resolves the id of a run, or its beginning: among the live runs of this conversation, and for operators then
    /// among all. A session with exactly this name takes precedence.
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

/// The reply to an ambiguous id. `what`: "questions", "runs".
pub(super) fn several(what: &str, named: &str) -> String {
    format!("Several {what} have an id that begins with {named}: give more characters.")
}
