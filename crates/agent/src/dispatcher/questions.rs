//! The open questions that a person can answer in a conversation. A daemon that is alone knows them all. In a cluster other
//! nodes ask too, so they are read in the store.

use belay_protocol::{ApprovalFilter, ApprovalId, ApprovalState, Authority, Inbound, RunFilter, RunStatus, StoreError};

use super::Dispatcher;
use super::named::{IdPart, Named};
use crate::agent_services::AgentServices;
use crate::mail::PendingQuestion;

/// Most open questions of a conversation that are read. 100: far more than the runs that may wait for one person.
const MOST: u32 = 100;

/// The open questions in a conversation, for the sender of a message there.
#[derive(Default)]
pub(super) struct Asked {
    /// The question that the conversation waits for. There is at most one.
    pub(super) of_conversation: Option<PendingQuestion>,
    /// The questions that autonomous work asks the sender.
    pub(super) of_work: Option<WorkQuestion>,
    /// Whether a plain yes or no answers the question of work: it is the newest message of the conversation, and no other
    /// run of the conversation works.
    pub(super) is_next: bool,
    /// Whether a paused run of the conversation waits for a second person.
    pub(super) waits_for_second: bool,
}

/// The questions of autonomous work for one person in one conversation.
pub(super) enum WorkQuestion {
    One(PendingQuestion),
    /// At least two.
    Several(Vec<PendingQuestion>),
}

impl Asked {
    /// Selects the questions of this conversation and this sender. [`Self::is_next`] is not known yet.
    fn among<'a>(questions: impl Iterator<Item = &'a PendingQuestion>, inbound: &Inbound) -> Self {
        let authority = Authority::from(inbound.principal.role);
        let mut asked = Self::default();
        for waits in questions {
            if waits.of_client {
                continue;
            }
            let is_here = waits.session == inbound.session;
            if !waits.of_work && is_here {
                asked.of_conversation = Some(waits.clone());
            }
            asked.waits_for_second |= waits.of_second && !waits.in_place && is_here;
            let for_sender = waits.of_work
                && waits.asked_in == inbound.session
                && *waits.asker.principal == *inbound.principal.id
                && waits.asker.authority == authority;
            if for_sender {
                asked.of_work = Some(match asked.of_work {
                    None => WorkQuestion::One(waits.clone()),
                    Some(WorkQuestion::One(first)) => WorkQuestion::Several(vec![first, waits.clone()]),
                    Some(WorkQuestion::Several(mut all)) => {
                        all.push(waits.clone());
                        WorkQuestion::Several(all)
                    }
                });
            }
        }
        asked
    }

    /// The question that a decision without an id means; `None`: nothing waits. The error says that it is ambiguous.
    pub(super) fn meant(self) -> Result<Option<PendingQuestion>, Ambiguous> {
        match (self.of_conversation, self.of_work) {
            (question, None) => Ok(question),
            (None, Some(WorkQuestion::One(question))) => Ok(Some(question)),
            (Some(_), Some(_)) | (None, Some(WorkQuestion::Several(_))) => Err(Ambiguous),
        }
    }
}

/// More than one question waits.
pub(super) struct Ambiguous;

/// The run that waits in its place for the answer. A turn may work on while a run that it has started asks.
fn is_of(question: &PendingQuestion, run: belay_protocol::RunId) -> bool {
    question.in_place && question.run == run
}

impl Dispatcher {
    /// The questions that this node asks.
    pub(super) fn asked_here(&self, inbound: &Inbound) -> Asked {
        let mut asked = Asked::among(self.questions.values(), inbound);
        if let Some(WorkQuestion::One(question)) = &asked.of_work {
            let lane = self.lanes.get(&inbound.session);
            let is_quiet = lane.is_none_or(|lane| lane.runs.iter().all(|run| is_of(question, run.id)));
            asked.is_next = is_quiet && self.services.work_questions.is_newest(question.approval);
        }
        asked
    }
}

/// The question with this part of its id in the conversation of a message, on any node: one that waits, otherwise a newer one
/// that is over, so that a late answer gets the correct reply. For operators those of all conversations.
pub(super) async fn named_anywhere(
    services: &AgentServices,
    named: &str,
    inbound: &Inbound,
) -> Result<Named<ApprovalId>, StoreError> {
    let Some(part) = IdPart::parse(named) else { return Ok(Named::Nothing) };
    let session = (!inbound.principal.is_operator()).then(|| inbound.session.clone());
    let now = services.clock.now();
    for waiting in [true, false] {
        let filter = ApprovalFilter { session: session.clone(), waiting, limit: MOST, ..ApprovalFilter::default() };
        let asked = services.store.approvals.approvals(filter).await?;
        let fits = asked.iter().filter(|asked| part.is_of(asked.id.as_uuid()));
        let fits = fits.filter(|asked| !waiting || asked.state_at(now) == ApprovalState::Waiting);
        match Named::among(fits.map(|asked| asked.id)) {
            Named::Nothing => {}
            named => return Ok(named),
        }
    }
    Ok(Named::Nothing)
}

/// The questions that all nodes ask.
pub(super) async fn asked_anywhere(services: &AgentServices, inbound: &Inbound) -> Result<Asked, StoreError> {
    let session = inbound.session.clone();
    let filter =
        ApprovalFilter { session: Some(session.clone()), waiting: true, limit: MOST, ..ApprovalFilter::default() };
    let mut open = services.store.approvals.approvals(filter).await?;
    let now = services.clock.now();
    open.retain(|asked| asked.state_at(now) == ApprovalState::Waiting);
    let questions: Vec<PendingQuestion> = open.iter().map(PendingQuestion::of).collect();
    let mut asked = Asked::among(questions.iter(), inbound);
    if let Some(WorkQuestion::One(question)) = &asked.of_work {
        let statuses = RunStatus::ALL.iter().copied().filter(|status| !status.is_end()).collect();
        let runs = services.store.runs.runs(RunFilter { session: Some(session), statuses, ..RunFilter::default() });
        let is_quiet = runs.await?.iter().all(|run| is_of(question, run.run_id));
        let approval = open.iter().find(|asked| asked.id == question.approval);
        let route = approval.and_then(|asked| asked.present_place()?.route.as_ref());
        let shown_last = match route {
            Some(route) if is_quiet => services.store.outbox.shown_last(route, question.run).await?,
            _ => None,
        };
        asked.is_next = shown_last == Some(question.approval);
    }
    Ok(asked)
}
