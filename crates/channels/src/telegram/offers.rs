//! The order in which messages are offered to the agent.
//!
//! Each conversation has one offered message at a time. The next one is offered when the agent has stored the one before
//! it or the poller has given that one up, so a message that could not be stored is not overtaken. Other conversations
//! continue: their order does not depend on it, and the platform keeps every update from the first unsettled one on.
//! Commands that act at once and answers by buttons wait for no message.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use belay_protocol::SessionKey;
use tokio::time::Instant;

use super::arrivals::{Arrival, is_stop, passes};

/// A message that is offered to the agent, or waits for it.
pub(super) struct Offer {
    pub(super) arrival: Arrival,
    pub(super) place: Place,
    /// Since when the conversation has refused messages because it is full.
    pub(super) busy_since: Option<Instant>,
}

/// The relation of an offer to the order of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It waits for earlier messages, and later ones wait for it.
    InOrder,
    /// It waits for none.
    AtOnce,
    /// As `AtOnce`, and it does not settle its update: the same message also waits in order.
    Extra,
}

/// The messages of each conversation that are offered or wait.
#[derive(Default)]
pub(super) struct Offers {
    /// The conversations with an offered message in order.
    lines: HashMap<SessionKey, Line>,
    /// Offers that wait for nothing more.
    ready: VecDeque<Offer>,
}

/// The messages of one conversation that are in order, by the numbers of their updates.
#[derive(Default)]
struct Line {
    /// Offered and not settled. More than one only because of a `/stop`.
    offered: BTreeSet<i64>,
    /// Whether an offered message was refused and is to be offered again.
    is_refused: bool,
    waiting: BTreeMap<i64, Offer>,
}

impl Offers {
    /// Takes a message in the order of its conversation.
    ///
    /// A `/stop` waits for nothing and must also stop the messages before it. Those that wait are offered before it. If
    /// an offered one was refused, the `/stop` is offered at once, and a second time after all of them.
    pub(super) fn admit(&mut self, arrival: Arrival) {
        let place = if passes(&arrival.message) { Place::AtOnce } else { Place::InOrder };
        let mut offer = Offer { arrival, place, busy_since: None };
        let message = &offer.arrival.message;
        if place == Place::AtOnce {
            let line = self.lines.get_mut(&message.inbound.session).filter(|_| is_stop(message));
            match line {
                Some(line) if line.is_refused => {
                    self.ready.push_back(Offer::extra(&offer.arrival));
                    offer.place = Place::InOrder;
                    line.waiting.insert(offer.arrival.update_id, offer);
                    return;
                }
                Some(line) => self.ready.extend(line.all()),
                None => {}
            }
            self.ready.push_back(offer);
            return;
        }
        let line = self.lines.entry(message.inbound.session.clone()).or_default();
        line.waiting.insert(offer.arrival.update_id, offer);
        self.ready.extend(line.next());
    }

    /// The next message to offer.
    pub(super) fn next(&mut self) -> Option<Offer> {
        self.ready.pop_front()
    }

    /// Notes that the agent did not take a message. Returns it if it is to be offered again after a pause; otherwise it
    /// waits for an earlier message of its conversation.
    pub(super) fn refused(&mut self, offer: Offer) -> Option<Offer> {
        let update_id = offer.arrival.update_id;
        let Some(line) = self.line_of(&offer) else { return Some(offer) };
        line.is_refused = true;
        if line.offered.first() == Some(&update_id) {
            return Some(offer);
        }
        line.offered.remove(&update_id);
        line.waiting.insert(update_id, offer);
        None
    }

    /// Notes that a message is stored or given up. The next one of its conversation becomes ready.
    pub(super) fn settled(&mut self, offer: &Offer) {
        let Some(line) = self.line_of(offer) else { return };
        line.offered.remove(&offer.arrival.update_id);
        if let Some(mut next) = line.next() {
            next.busy_since = offer.busy_since;
            self.ready.push_back(next);
        } else if line.offered.is_empty() {
            self.lines.remove(&offer.arrival.message.inbound.session);
        }
    }

    fn line_of(&mut self, offer: &Offer) -> Option<&mut Line> {
        let is_in_order = offer.place == Place::InOrder;
        self.lines.get_mut(&offer.arrival.message.inbound.session).filter(|_| is_in_order)
    }
}

impl Offer {
    /// A further offer of a `/stop`. Without a key: with it, the later offer would count as a redelivery.
    fn extra(stop: &Arrival) -> Self {
        let mut arrival = stop.copy();
        arrival.message.inbound.key = None;
        Self { arrival, place: Place::Extra, busy_since: None }
    }
}

impl Line {
    /// Offers the next message, unless one is offered.
    fn next(&mut self) -> Option<Offer> {
        if !self.offered.is_empty() {
            return None;
        }
        self.is_refused = false;
        let (update_id, offer) = self.waiting.pop_first()?;
        self.offered.insert(update_id);
        Some(offer)
    }

    /// Offers all messages that wait.
    fn all(&mut self) -> impl Iterator<Item = Offer> + use<> {
        let waiting = std::mem::take(&mut self.waiting);
        self.offered.extend(waiting.keys());
        waiting.into_values()
    }
}
