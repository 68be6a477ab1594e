//! One acknowledgement for several deliveries of the same command or answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::{Accepted, Ack, AckSender};

/// The acknowledgement of a command or of an answer to a question. Redeliveries wait for it here.
#[derive(Clone, Debug)]
pub(super) struct SharedAck(Arc<Mutex<State>>);

#[derive(Debug)]
enum State {
    /// It is not sent yet; these redeliveries wait for it.
    Pending(Vec<AckSender>),
    /// It was sent, or was dropped and never will be.
    Settled { refused: bool },
}

impl SharedAck {
    /// The sender for the first delivery, and the acknowledgement that redeliveries share.
    pub(super) fn of(ack: AckSender) -> (AckSender, Self) {
        let shared = Self(Arc::new(Mutex::new(State::Pending(Vec::new()))));
        let settled = shared.clone();
        (ack.observed(move |ack| settled.settle(ack)), shared)
    }

    /// Makes a redelivery wait for the acknowledgement. If it was settled before, returns the sender and whether the
    /// acknowledgement was a refusal; one that was dropped unsent counts as none.
    pub(super) fn join(&self, ack: AckSender) -> Option<(AckSender, bool)> {
        match &mut *self.lock() {
            State::Pending(waiters) => {
                waiters.push(ack);
                None
            }
            State::Settled { refused } => Some((ack, *refused)),
        }
    }

    /// Whether it was a refusal; `false` while it is pending.
    pub(super) fn is_refused(&self) -> bool {
        matches!(*self.lock(), State::Settled { refused: true })
    }

    /// Answers the redeliveries that wait. `None`: there is no acknowledgement; their senders are dropped, which their channels
    /// notice. Only the first call counts.
    fn settle(&self, ack: Option<&Ack>) {
        let refused = match ack {
            Some(Ack::Refused(_)) => true,
            Some(Ack::Command(reply)) => reply.refused,
            _ => false,
        };
        let mut state = self.lock();
        let State::Pending(waiters) = &mut *state else { return };
        let waiters = std::mem::take(waiters);
        *state = State::Settled { refused };
        drop(state); // sending runs the observers of other acknowledgements, which must not run under this lock
        for waiter in waiters {
            if let Some(again) = ack.and_then(again) {
                waiter.send(again);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No other code runs under the lock, so a poisoned state is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The acknowledgement for a redelivery. `None` for kinds that no command and no answer gets.
fn again(ack: &Ack) -> Option<Ack> {
    match ack {
        Ack::Command(reply) => Some(Ack::Command(reply.clone())),
        Ack::Refused(refusal) => Some(Ack::Refused(refusal.clone())),
        Ack::Accepted(Accepted { run_id, session, accepted_at, .. }) => Some(Ack::Accepted(Accepted {
            run_id: *run_id,
            session: session.clone(),
            accepted_at: *accepted_at,
            duplicate: true,
            frozen: None,
            watch: None,
        })),
        _ => None,
    }
}
