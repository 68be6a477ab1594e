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
}

impl WorkQuestions {
    /// Notes a question that is about to be sent. It is the newest message once it is delivered.
    pub(crate) fn asks(&self, approval: &ApprovalRequest) {
        if let Some(route) = approval.present_place().and_then(|place| place.route.clone()) {
            self.lock().insert(approval.id, Shown { route, newest: false });
        }
    }

    /// Removes a question that does not wait any more.
    pub(crate) fn ended(&self, approval: ApprovalId) {
        self.lock().remove(&approval);
    }

    /// Notes that a message was delivered, or may have been.
    pub(crate) fn delivered(&self, message: &Outbound) {
        let (route, shows) = (&message.route, message.question.as_ref().map(|question| question.approval));
        for (id, shown) in self.lock().iter_mut() {
            if shown.route.channel == route.channel && shown.route.conversation == route.conversation {
                shown.newest = shows == Some(*id);
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
