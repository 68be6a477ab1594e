//! Resolves the beginning of an id, or the end of a question's id, first among the sender's own questions and runs. Those
//! of others cause no ambiguity, and are revealed only to operators.

use belay_protocol::{ApprovalId, Authority, IdEnd, IdPrefix, Inbound, RunId};
use uuid::Uuid;

use super::Dispatcher;

/// Result of resolving an id, or the beginning of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named<T> {
    One(T),
    /// Several ids begin or end so.
    Several,
    Nothing,
}

impl<T: Copy> Named<T> {
    pub(super) fn among(meant: impl Iterator<Item = T>) -> Self {
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
    /// Resolves the id of a question, its beginning or its end: among those of this conversation or addressed to this
    /// person, and for operators then among all that wait.
    pub(super) fn question_named(&self, named: &str, inbound: &Inbound) -> Named<ApprovalId> {
        if let Ok(whole) = named.parse() {
            return Named::One(whole);
        }
        let Some(part) = IdPart::parse(named) else { return Named::Nothing };
        let begin_so = || self.questions.values().filter(|waits| part.is_of(waits.approval.as_uuid()));
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

/// The beginning or the end of an id. A text may be both.
pub(super) struct IdPart {
    beginning: Option<IdPrefix>,
    end: Option<IdEnd>,
}

impl IdPart {
    /// Parses a part; `None`: no id has it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let part = Self { beginning: IdPrefix::parse(text).ok(), end: IdEnd::parse(text) };
        (part.beginning.is_some() || part.end.is_some()).then_some(part)
    }

    /// Whether an id begins or ends so.
    pub(super) fn is_of(&self, id: Uuid) -> bool {
        self.beginning.as_ref().is_some_and(|part| part.begins(id))
            || self.end.as_ref().is_some_and(|part| part.ends(id))
    }
}

/// The reply to an ambiguous id. `what`: "questions", "runs".
pub(super) fn several(what: &str, named: &str) -> String {
    format!("Several {what} have an id with {named}: give more characters.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_the_beginning_or_the_end_of_an_id_and_two_that_fit_are_several() {
        let id = |text: &str| text.parse::<Uuid>().expect("an id");
        let ids = [id("0199e3a0-7b1c-7000-8000-000000007f16"), id("0199e3a0-7b1d-7000-8000-00000000ab16")];
        let named = |text: &str| {
            let part = IdPart::parse(text);
            Named::among(ids.into_iter().filter(|id| part.as_ref().is_some_and(|part| part.is_of(*id))))
        };
        for (text, expected) in [
            ("7f16", Named::One(ids[0])),
            ("AB16", Named::One(ids[1])),
            ("0199e3a0-7b1c", Named::One(ids[0])),
            ("0199e3", Named::Several),
            ("16", Named::Nothing),
            ("7f17", Named::Nothing),
            ("note", Named::Nothing),
        ] {
            assert_eq!(named(text), expected, "{text}");
        }
    }
}
