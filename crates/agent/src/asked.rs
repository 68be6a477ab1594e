//! The questions of autonomous work in conversations with people, and whether each is the newest message there. Only
//! then does a plain yes or no answer it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belay_protocol::{ApprovalId, ApprovalRequest, Outbound, ReplyRoute};

/// The waiting questions of autonomous work, by id. Empty for those who use no such work.
#[derive(Default)]
pub(crate) struct WorkQuestions(Mutex<HashMap<ApprovalId, Shown>>);

/// A question, and whether it is the newest message of its conversation.
struct Shown {
    route: ReplyRoute,
    newest: bool,
    /// How many refusals of answers to this question are still to be delivered there. The person is to correct the answer.
    refusals: u32,
}

impl WorkQuestions {
    /// Notes a question that is about to be sent. It is the newest message once it is delivered.
    pub(crate) fn asks(&self, approval: &ApprovalRequest) {
        if let Some(route) = approval.present_place().and_then(|place| place.route.clone()) {
            self.lock().insert(approval.id, Shown { route, newest: false, refusals: 0 });
        }
    }

    /// Removes a question that does not wait any more.
    pub(crate) fn ended(&self, approval: ApprovalId) {
        self.lock().remove(&approval);
    }

    /// Notes that an answer to this question is about to be refused by a message of `route`. If that is its conversation,
    /// the question is as new behind the refusal as before.
    pub(crate) fn refuses(&self, approval: ApprovalId, route: &ReplyRoute) {
        if let Some(shown) = self.lock().get_mut(&approval) {
            shown.refusals += u32::from(is_same(&shown.route, route));
        }
    }

    /// Notes that a message was delivered, or may have been.
    pub(crate) fn delivered(&self, message: &Outbound) {
        let (route, shows) = (&message.route, message.question.as_ref().map(|question| question.approval));
        for (id, shown) in self.lock().iter_mut() {
            if is_same(&shown.route, route) {
                match shown.refusals.checked_sub(1) {
                    Some(left) if shows.is_none() => shown.refusals = left,
                    _ => shown.newest = shows == Some(*id),
                }
            }
        }
    }

    /// Whether this question is the newest message of its conversation.
    pub(crate) fn is_newest(&self, approval: ApprovalId) -> bool {
        self.lock().get(&approval).is_some_and(|shown| shown.newest)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ApprovalId, Shown>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether both lead to one conversation.
fn is_same(a: &ReplyRoute, b: &ReplyRoute) -> bool {
    a.channel == b.channel && a.conversation == b.conversation
}
