//! Stores answers to approval requests, of paused runs and of runs that wait in their place.
//!
//! An answer is in the store before the run continues, and before its sender is informed.

use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::{
    ApprovalKind, ApprovalRequest, ApprovalState, ChannelId, Decided, Decision, FirstYes, Outbound, Principal,
    Question, Refusal, SecondYes, SessionKey, StoreError, UnixMillis,
};
use serde_json::{Map, Value};
use tokio::sync::mpsc;

use crate::agent_services::AgentServices;
use crate::mail::{LaneNote, LaneReply, PendingQuestion};
use crate::queue::BUSY_RETRY;
use crate::second_person;
use belay_run::approvals::{question_text, shown_line};

/// The reply to the answer to a form.
const ANSWERED: &str = "Answered. The server gets these values.";

/// The same in a cluster, if the call does not wait at this node: it may wait at another one, or be interrupted.
const ANSWERED_ELSEWHERE: &str =
    "Answered. The server gets these values if its call can go on, and otherwise a message says that it cannot.";

/// The same before the call that asked goes on after an interruption, if it does.
const ANSWERED_MEANWHILE: &str = "Answered. Belay was interrupted since it asked: the server gets these values if its call can \
                                  go on, and otherwise a message says that it cannot.";

/// A stored answer, with the text for its sender.
pub(crate) enum Stored {
    /// The request is decided, and the run continues.
    Decided(String),
    /// The first of two approvals. The request as it is now.
    FirstYes(Box<ApprovalRequest>, String),
}

/// Informs the dispatcher of an approval request. This comes before anything that makes the request visible, so that
/// the dispatcher knows it when the answer arrives.
pub(crate) async fn announce(services: &AgentServices, notes: &mpsc::Sender<LaneNote>, approval: &ApprovalRequest) {
    services.work_questions.asks(approval);
    // Fails only when the dispatcher ends.
    let _ = notes.send(LaneNote::Paused(Box::new(PendingQuestion::of(approval)))).await;
}

/// The date after this time.
pub(crate) fn after(date: UnixMillis, time: Duration) -> UnixMillis {
    UnixMillis(date.0.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX)))
}

/// Whether this principal, who writes in the session `from`, may give this answer.
pub(crate) fn may_answer(
    services: &AgentServices,
    approval: &ApprovalRequest,
    reply: &LaneReply,
    (who, through): (&Principal, &ChannelId),
    from: &SessionKey,
) -> Result<(), Refusal> {
    let forbidden = |why: &str| Err(Refusal::Forbidden(why.to_owned()));
    let is_first = approval.may_be_answered_by(who, from);
    let Some(first) = approval.first_yes() else {
        return match is_first {
            true => Ok(()),
            false => forbidden("This question is for the person who started the run, or for an operator."),
        };
    };
    let is_second = second_person::has_authority(services, through, who);
    if matches!(reply, LaneReply::Decision(Decision::Deny)) && (is_first || is_second) {
        return Ok(());
    }
    match is_second {
        true if second_person::person(services, through, who) == first.person => {
            forbidden("The first approval came from you. Another person must give the second one.")
        }
        true => Ok(()),
        false => forbidden("This question is for the second person now: an operator, or a person of approvals.second."),
    }
}

/// Commits an answer.
pub(crate) async fn store_answer(
    services: &AgentServices,
    notes: &mpsc::Sender<LaneNote>,
    approval: &ApprovalRequest,
    reply: LaneReply,
    (who, through): (&Principal, &ChannelId),
) -> Result<Stored, Refusal> {
    let (at, by) = (services.clock.now(), &*who.id);
    let unstored = |error: StoreError| Refusal::Store(error.to_string());
    let (state, always, text) = match (reply, &approval.kind) {
        (_, ApprovalKind::ClientCalls { .. }) => {
            let why =
                "This waits for the results of its client's tools, and nobody can answer it; to end it, stop the run.";
            return Err(Refusal::Invalid(why.into()));
        }
        (LaneReply::Decision(Decision::Always), ApprovalKind::Form { .. }) => {
            return Err(Refusal::Invalid(
                "A server is answered each time: there is no \"always\" for its forms.".into(),
            ));
        }
        (LaneReply::Decision(Decision::Approve), ApprovalKind::Form { form, .. }) => {
            let values = form.check(Map::new()).map_err(Refusal::Invalid)?;
            return store_form(services, approval, values, by, at).await;
        }
        (LaneReply::Form(answer), ApprovalKind::Form { form, .. }) => {
            let values = match answer {
                Value::Object(values) => form.check(values),
                other => form.read(other.as_str().unwrap_or_default()),
            };
            return store_form(services, approval, values.map_err(Refusal::Invalid)?, by, at).await;
        }
        (LaneReply::Form(_), _) => {
            return Err(Refusal::Invalid("This question has no form: it needs yes or no, or a secret.".into()));
        }
        (LaneReply::Secret(_), ApprovalKind::Form { .. }) => {
            return Err(Refusal::Invalid("The question is a form, and no secret is asked for.".into()));
        }
        (LaneReply::Decision(Decision::Deny), _) => (ApprovalState::Denied, None, "Denied.".to_owned()),
        (LaneReply::Decision(_), ApprovalKind::Credential { name }) => {
            return Err(Refusal::Invalid(format!("Send only the secret {name} as your next message, or /deny.")));
        }
        (LaneReply::Decision(Decision::Always), ApprovalKind::Approval) => match &approval.covers {
            Some(covers) => {
                let text = format!("Approved from now on in this conversation: {}.", shown_line(covers));
                (ApprovalState::Approved, Some(who.role.into()), text)
            }
            None => return Err(Refusal::Invalid("This is asked each time: answer yes or no.".into())),
        },
        (LaneReply::Decision(Decision::Approve), ApprovalKind::Approval) if approval.needs_first_yes() => {
            return store_first_yes(services, notes, approval, who, through, at).await;
        }
        (LaneReply::Decision(Decision::Approve), ApprovalKind::Approval) => {
            (ApprovalState::Approved, None, "Approved.".to_owned())
        }
        (LaneReply::Secret(secret), ApprovalKind::Credential { name }) => {
            services.store.vault.keep(&approval.session, name, &secret, at).await.map_err(unstored)?;
            (ApprovalState::Approved, None, format!("{name} is stored, encrypted; it is not part of the conversation."))
        }
        (LaneReply::Secret(_), ApprovalKind::Approval) => {
            return Err(Refusal::Invalid("The question needs yes or no, not a secret.".into()));
        }
        (LaneReply::Client(_), _) => {
            return Err(Refusal::Invalid("This question is for a person, not for the client's tools.".into()));
        }
    };
    crash_point!("approval.before-decision");
    match services.store.approvals.decide(approval.id, state, always, by, at).await.map_err(unstored)? {
        Decided::Now(_) => Ok(Stored::Decided(text)),
        Decided::Before(approval) => Err(Refusal::Decided(format!("This question {}.", approval.state.told()))),
        Decided::Unknown => Err(Refusal::Unknown("There is no such question.".into())),
    }
}

/// Commits the answer to a form.
async fn store_form(
    services: &AgentServices,
    approval: &ApprovalRequest,
    values: Map<String, Value>,
    by: &str,
    at: UnixMillis,
) -> Result<Stored, Refusal> {
    // Before the answer is stored: its call ends the wait as soon as it has the answer.
    let is_awaited = services.asker.is_awaited(approval.id);
    let stored = services.store.child_questions.answer_form(approval.id, values, by, at).await;
    match stored.map_err(|error| Refusal::Store(error.to_string()))? {
        Decided::Now(_) => {
            let text = match is_awaited {
                true => ANSWERED,
                false if services.cluster.is_some() => ANSWERED_ELSEWHERE,
                false => ANSWERED_MEANWHILE,
            };
            Ok(Stored::Decided(text.to_owned()))
        }
        Decided::Before(approval) => Err(Refusal::Decided(format!("This question {}.", approval.state.told()))),
        Decided::Unknown => Err(Refusal::Unknown("There is no such question.".into())),
    }
}

/// Commits the first of two approvals, with the question for the second person.
async fn store_first_yes(
    services: &AgentServices,
    notes: &mpsc::Sender<LaneNote>,
    approval: &ApprovalRequest,
    who: &Principal,
    through: &ChannelId,
    at: UnixMillis,
) -> Result<Stored, Refusal> {
    let person = second_person::person(services, through, who);
    let work = match &approval.place {
        Some(place) => place.work.clone(),
        None => format!("A request of {}", approval.asker.principal),
    };
    let place = second_person::place(services, &person, &work);
    let first = FirstYes { by: who.id.to_string(), person, at };
    let second = SecondYes { first: Some(first), place };
    // The second person may read the question as late as that of autonomous work.
    let expires_at = after(at, services.approvals.load().autonomous_expires());
    let next =
        ApprovalRequest { second: Some(Box::new(second.clone())), expires_at, reminded_at: None, ..approval.clone() };
    let question = second.place.as_ref().and_then(|place| place.route.clone()).map(|route| {
        let shown = Question { approval: approval.id, offers_always: false, decidable: true };
        let text = question_text(&next, at);
        Outbound { question: Some(shown), ..Outbound::new(Some(approval.run_id), route, text).checked() }
    });
    let asked = match &second.place {
        Some(place) => format!("{} is asked too.", place.asker.principal),
        None => "An operator must approve it too: `belay approvals`.".to_owned(),
    };
    announce(services, notes, &next).await;
    let stored = services.store.approvals.first_yes(approval.id, second, expires_at, question).await;
    let refusal = match stored {
        Ok(Decided::Now(approval)) => {
            return Ok(Stored::FirstYes(approval, format!("Approved, 1 of 2. {asked}")));
        }
        // It was stored before, and its result was lost; or somebody else has approved it at the same moment.
        Ok(Decided::Before(now)) if now.state == ApprovalState::Waiting => {
            announce(services, notes, &now).await;
            if now.first_yes().is_some_and(|first| first.by == *who.id) {
                return Ok(Stored::FirstYes(now, format!("Approved, 1 of 2. {asked}")));
            }
            let what = "another person has approved this at the same moment".to_owned();
            return Err(Refusal::Busy { what, retry_after: BUSY_RETRY });
        }
        Ok(Decided::Before(approval)) => Refusal::Decided(format!("This question {}.", approval.state.told())),
        Ok(Decided::Unknown) => Refusal::Unknown("There is no such question.".into()),
        Err(error) => {
            announce(services, notes, approval).await; // the first person is still asked
            return Err(Refusal::Store(error.to_string()));
        }
    };
    // Nobody waits for an answer any more. Fails only when the dispatcher ends.
    let _ = notes.send(LaneNote::Unasked { approval: approval.id, withdraw: false }).await;
    Err(refusal)
}
