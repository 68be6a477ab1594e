//! Used idempotency keys, and what each was used for. Messages, commands and answers share them: a second delivery
//! under a used key is either a redelivery, or refused.
//!
//! **Does not know** messages older than the newest [`RECENT_INPUTS`], nor what other nodes have received: the store does.
//! Lanes and background tasks claim the key there before they act, see [`claims`](crate::claims). A command that acts at
//! once cannot wait for that, except in a cluster, see [`look_ups`](super::look_ups). So it may reuse the key of a much
//! older message without being recognised.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use belay_protocol::store::{ACTED_ON_KEPT, RECENT_INPUTS};
use belay_protocol::{Accepted, Ack, AckSender, ActedOn, IdempotencyKey, KnownInput, Refusal, RunId, Sent, UnixMillis};

use super::Dispatcher;
use super::guards::{ANSWERED, Arrival, Guarded};
use super::shared_ack::SharedAck;
use crate::claims::{acted_on_before, word_of_answer};
use belay_run::live::LiveRun;

/// The keys known to the dispatcher.
pub(super) struct Keys {
    /// Keys of messages whose run is live.
    living: HashMap<IdempotencyKey, Living>,
    of_runs: HashMap<RunId, IdempotencyKey>,
    /// Keys of messages whose run has ended, or began before this start. They are compared only with commands; the
    /// store decides whether a message is a duplicate.
    recent: Newest<KnownInput>,
    /// Keys of commands and answers.
    acted_on: Newest<Acted>,
}

/// A command or an answer.
struct Acted {
    /// `None` for a secret.
    digest: Option<String>,
    reply: Reply,
}

/// The reply to a command or an answer.
enum Reply {
    /// Given by an earlier start.
    Before { refused: bool },
    /// Given by this start, or still pending.
    Now(SharedAck),
}

impl Reply {
    /// Lets a redelivery wait for the same reply. If the reply was already given, returns the acknowledgement, and
    /// whether it was a refusal.
    fn join(&self, ack: AckSender) -> Option<(AckSender, bool)> {
        match self {
            Self::Before { refused } => Some((ack, *refused)),
            Self::Now(shared) => shared.join(ack),
        }
    }
}

/// A message whose run is live.
struct Living {
    run: Arc<LiveRun>,
    digest: String,
    state: KeyState,
}

enum KeyState {
    /// Not committed yet. The acknowledgements of redeliveries wait for the same result.
    InFlight(Vec<AckSender>),
    /// Committed.
    Accepted(UnixMillis),
}

/// Previous use of a key.
enum Used<'a> {
    /// Unused, as far as this part knows.
    No,
    /// Used by the same command or answer.
    ActedOn(&'a Reply),
    /// Used by the same message.
    Living(&'a mut Living),
    /// Used by something else.
    Otherwise(Refusal),
}

impl Keys {
    pub(super) fn new() -> Self {
        Self {
            living: HashMap::new(),
            of_runs: HashMap::new(),
            recent: Newest::of(RECENT_INPUTS),
            acted_on: Newest::of(ACTED_ON_KEPT),
        }
    }

    /// Loads the keys of earlier starts.
    pub(super) fn recall(&mut self, acted_on: Vec<ActedOn>, inputs: Vec<(IdempotencyKey, KnownInput)>) {
        for ActedOn { key, digest, refused } in acted_on {
            self.acted_on.insert(key, Acted { digest, reply: Reply::Before { refused } });
        }
        inputs.into_iter().for_each(|(key, known)| self.recent.insert(key, known));
    }

    fn used(&mut self, sent: &Sent) -> Used<'_> {
        if let Some(Acted { digest, reply }) = self.acted_on.get(&sent.key) {
            // A secret has no digest, so anything under its key counts as a redelivery. A repeated secret must not be
            // reported as refused, and must not go anywhere else.
            let same = digest.as_ref().is_none_or(|digest| *digest == sent.digest);
            return if same { Used::ActedOn(reply) } else { Used::Otherwise(Refusal::ConflictWithCommand) };
        }
        match self.living.get_mut(&sent.key) {
            None => Used::No,
            Some(living) if living.digest == sent.digest => Used::Living(living),
            Some(living) => Used::Otherwise(Refusal::Conflict { run_id: living.run.id }),
        }
    }

    /// Records a message that is about to be committed.
    pub(super) fn take_in(&mut self, run: Arc<LiveRun>, sent: Sent) {
        self.of_runs.insert(run.id, sent.key.clone());
        self.living.insert(sent.key, Living { run, digest: sent.digest, state: KeyState::InFlight(Vec::new()) });
    }

    /// Records that the message is committed, and acknowledges its redeliveries.
    pub(super) fn accepted(&mut self, key: &IdempotencyKey, at: UnixMillis) {
        if let Some(living) = self.living.get_mut(key)
            && let KeyState::InFlight(waiters) = std::mem::replace(&mut living.state, KeyState::Accepted(at))
        {
            waiters.into_iter().for_each(|ack| ack.send(Ack::Accepted(joined(&living.run, at))));
        }
    }

    /// Records that the message was not accepted. Returns the acknowledgements of its redeliveries.
    pub(super) fn not_accepted(&mut self, key: &IdempotencyKey) -> Vec<AckSender> {
        match self.living.remove(key) {
            Some(Living { state: KeyState::InFlight(waiters), .. }) => waiters,
            _ => Vec::new(),
        }
    }

    /// The key of a live run.
    pub(super) fn of_run(&self, run: RunId) -> Option<IdempotencyKey> {
        self.of_runs.get(&run).cloned()
    }

    /// Records the end of a run.
    pub(super) fn ended(&mut self, run: RunId) {
        let Some(key) = self.of_runs.remove(&run) else { return };
        let Some(Living { run, digest, state }) = self.living.remove(&key) else { return };
        if let KeyState::Accepted(accepted_at) = state {
            self.recent.insert(key, KnownInput { run_id: run.id, session: run.session.clone(), accepted_at, digest });
        }
    }

    /// Records a command or an answer as carried out, until [`Self::not_acted_on`]. A redelivery before the reply waits
    /// for the reply that is sent through the returned acknowledgement.
    pub(super) fn act_on(&mut self, ActedOn { key, digest, .. }: ActedOn, ack: AckSender) -> AckSender {
        let (ack, shared) = SharedAck::of(ack);
        self.acted_on.insert(key, Acted { digest, reply: Reply::Now(shared) });
        ack
    }

    /// Records that the command or answer was not carried out.
    pub(super) fn not_acted_on(&mut self, key: &IdempotencyKey) {
        self.acted_on.remove(key);
    }

    /// Lets a redelivery of a command or an answer wait for the same reply, or sends it the reply that was given. Returns
    /// the acknowledgement if the key has none.
    pub(super) fn join(&self, key: &IdempotencyKey, word: &str, ack: AckSender) -> Option<AckSender> {
        let Some(Acted { reply, .. }) = self.acted_on.get(key) else { return Some(ack) };
        if let Some((ack, refused)) = reply.join(ack) {
            ack.send(acted_on_before(word.to_owned(), refused));
        }
        None
    }

    /// Whether the command or answer under this key was refused, as far as it was answered; `None`: the key has none.
    pub(super) fn refused(&self, key: &IdempotencyKey) -> Option<bool> {
        Some(match &self.acted_on.get(key)?.reply {
            Reply::Before { refused } => *refused,
            Reply::Now(shared) => shared.is_refused(),
        })
    }
}

impl Dispatcher {
    /// Forgets the key of a command or an answer that was not carried out, and releases its claim, so that it may come
    /// again here and at other nodes.
    pub(super) fn not_acted_on(&mut self, key: IdempotencyKey) {
        self.keys.not_acted_on(&key);
        let services = self.services.clone();
        self.background(async move {
            if let Err(error) = services.store.dispatcher.release_key(&key, services.boot).await {
                tracing::warn!(%error, "the claim of a command that was not carried out could not be released");
            }
        });
    }

    /// Guard: answers a redelivery, and refuses a reused key.
    pub(super) fn first_delivery(&mut self, message: Arrival) -> Guarded {
        match message.sent.as_ref().map_or(Used::No, |sent| self.keys.used(sent)) {
            Used::No => return Guarded::Continue(message),
            Used::ActedOn(before) => {
                if let Some((ack, refused)) = before.join(message.ack) {
                    ack.send(acted_on_before(word_of_answer(&message.text), refused));
                }
            }
            Used::Living(living) => match &mut living.state {
                KeyState::InFlight(waiters) => waiters.push(message.ack),
                KeyState::Accepted(at) => message.ack.send(Ack::Accepted(joined(&living.run, *at))),
            },
            Used::Otherwise(refusal) => return self.refused(message, refusal),
        }
        ANSWERED
    }

    /// The same check for a command, also against keys of messages whose run has ended. A command that passes counts as
    /// carried out.
    pub(super) fn first_command(&mut self, mut message: Arrival) -> Guarded {
        let Some(sent) = &message.sent else { return Guarded::Continue(message) };
        match self.keys.recent.get(&sent.key) {
            None => {
                message.ack = self.keys.act_on(sent.clone().into(), message.ack);
                return Guarded::Continue(message);
            }
            Some(known) if sent.is_again(known) => message.ack.send(Ack::Accepted(known.clone().again(None))),
            Some(known) => {
                let refusal = Refusal::Conflict { run_id: known.run_id };
                return self.refused(message, refusal);
            }
        }
        ANSWERED
    }
}

/// The acceptance for a redelivery of a message whose run is live.
fn joined(run: &Arc<LiveRun>, at: UnixMillis) -> Accepted {
    Accepted {
        run_id: run.id,
        session: run.session.clone(),
        accepted_at: at,
        duplicate: true,
        frozen: None,
        watch: Some(run.watch(false)),
    }
}

/// A map of the newest keys. When it is full, the oldest entry is evicted.
struct Newest<V> {
    most: usize,
    values: HashMap<IdempotencyKey, V>,
    /// Oldest first.
    order: VecDeque<IdempotencyKey>,
}

impl<V> Newest<V> {
    fn of(most: usize) -> Self {
        Self { most, values: HashMap::new(), order: VecDeque::new() }
    }

    fn get(&self, key: &IdempotencyKey) -> Option<&V> {
        self.values.get(key)
    }

    fn insert(&mut self, key: IdempotencyKey, value: V) {
        if self.values.insert(key.clone(), value).is_none() {
            self.order.push_back(key);
        }
        while self.order.len() > self.most {
            self.order.pop_front().and_then(|oldest| self.values.remove(&oldest));
        }
    }

    fn remove(&mut self, key: &IdempotencyKey) {
        if self.values.remove(key).is_some() {
            self.order.retain(|known| known != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> IdempotencyKey {
        IdempotencyKey { channel: "c".into(), account: "a".into(), message_id: n.to_string().into() }
    }

    #[test]
    fn the_newest_are_known_and_the_oldest_is_forgotten_first() {
        let mut newest = Newest::of(2);
        for n in [1, 2, 1, 3] {
            newest.insert(key(n), n);
        }
        assert_eq!([1, 2, 3].map(|n| newest.get(&key(n)).copied()), [None, Some(2), Some(3)]);
        newest.remove(&key(2));
        newest.insert(key(4), 4);
        assert_eq!([2, 3, 4].map(|n| newest.get(&key(n)).copied()), [None, Some(3), Some(4)]);
        assert_eq!(newest.order.len(), newest.values.len());
    }

    #[test]
    fn what_cannot_be_told_from_a_second_delivery_counts_as_one() {
        let mut keys = Keys::new();
        let digest = || Some("d".to_owned());
        let acted_on = |n, digest| ActedOn { key: key(n), digest, refused: false };
        keys.recall(vec![acted_on(1, None), acted_on(2, digest())], Vec::new());
        let sent = |n, digest: &str| Sent { key: key(n), digest: digest.into() };
        let mut again = |n, digest: &str| matches!(keys.used(&sent(n, digest)), Used::ActedOn(_));
        assert_eq!([again(1, "d"), again(1, "e"), again(2, "d"), again(2, "e")], [true, true, true, false]);
    }
}
