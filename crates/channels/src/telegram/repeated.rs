//! Acknowledgements of the webhook's calls for one message: for each part of an album, and for repeated deliveries.
//!
//! Telegram delivers an update again if its call was not answered in time. Such a call gets the acknowledgement of the
//! message that the update has become part of. Remembered in memory, within a bound.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::{Accepted, Ack, AckSender, RunId, SessionKey, UnixMillis};

use super::router::AfterAck;

/// Messages whose updates are remembered. 64: far more than are fetched within the minute that Telegram waits.
const REMEMBERED_MAX: usize = 64;

/// The newest messages that have waited for files.
#[derive(Default)]
pub(super) struct Repeated(VecDeque<Message>);

struct Message {
    updates: Vec<i64>,
    after: Arc<AfterAck>,
    calls: Arc<Mutex<Calls>>,
}

/// The calls of one message besides the first one.
enum Calls {
    /// They wait for the acknowledgement.
    Waiting(Vec<AckSender>),
    /// The message is committed: the run, its session, the time, and whether a freeze holds it.
    Accepted(RunId, SessionKey, UnixMillis, Option<String>),
    /// The message was not accepted, or it was dropped.
    Gone,
}

impl Repeated {
    /// Remembers a message. Returns the one sender of its acknowledgement; all of its calls get the same.
    pub(super) fn remember(
        &mut self,
        updates: Vec<i64>,
        after: &Arc<AfterAck>,
        acks: Vec<AckSender>,
    ) -> Option<AckSender> {
        let mut acks = acks.into_iter();
        let first = acks.next()?;
        let calls = Arc::new(Mutex::new(Calls::Waiting(acks.collect())));
        if self.0.len() >= REMEMBERED_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Message { updates, after: Arc::clone(after), calls: Arc::clone(&calls) });
        Some(first.observed(move |ack| settle(&calls, ack)))
    }

    /// Answers a repeated delivery of an update, after whose acknowledgement `after` follows. Returns its calls if the
    /// update is new, or its message was not accepted.
    pub(super) fn answer(&self, update_id: i64, after: &Arc<AfterAck>, acks: Vec<AckSender>) -> Vec<AckSender> {
        let known = self.0.iter().rev().find(|message| message.updates.contains(&update_id));
        let Some(message) = known else { return acks };
        let mut calls = lock(&message.calls);
        if !matches!(*calls, Calls::Gone) {
            after.repeats(&message.after); // before the acknowledgement
        }
        match &mut *calls {
            Calls::Gone => return acks,
            Calls::Waiting(waiting) => waiting.extend(acks),
            Calls::Accepted(run_id, session, accepted_at, frozen) => {
                acks.into_iter().for_each(|ack| ack.send(again(*run_id, session, *accepted_at, frozen.as_ref())));
            }
        }
        Vec::new()
    }
}

/// Gives the acknowledgement of the first call to the others. Only the first one leads to notices.
fn settle(calls: &Mutex<Calls>, ack: Option<&Ack>) {
    let settled = match ack {
        Some(Ack::Accepted(Accepted { run_id, session, accepted_at, frozen, .. })) => {
            Calls::Accepted(*run_id, session.clone(), *accepted_at, frozen.clone())
        }
        _ => Calls::Gone,
    };
    let Calls::Waiting(waiting) = std::mem::replace(&mut *lock(calls), settled) else { return };
    for other in waiting {
        match ack {
            Some(Ack::Accepted(Accepted { run_id, session, accepted_at, frozen, .. })) => {
                other.send(again(*run_id, session, *accepted_at, frozen.as_ref()));
            }
            Some(Ack::Refused(refusal)) => other.send(Ack::Refused(refusal.clone())),
            _ => drop(other),
        }
    }
}

fn again(run_id: RunId, session: &SessionKey, accepted_at: UnixMillis, frozen: Option<&String>) -> Ack {
    let (session, frozen) = (session.clone(), frozen.cloned());
    Ack::Accepted(Accepted { run_id, session, accepted_at, duplicate: true, frozen, watch: None })
}

fn lock(calls: &Mutex<Calls>) -> MutexGuard<'_, Calls> {
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}
