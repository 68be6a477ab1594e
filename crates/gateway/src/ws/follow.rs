//! Followers: tasks of a connection that send the events of runs it has started and of sessions it has subscribed to.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::{EventKind, RunId};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::frames::event;
use super::outgoing::Outgoing;
use crate::app::Shared;
use crate::streams::{AgentMapper, ChatEvent, ChatMapper, News, Source};

/// Number of runs whose follower and last event number a connection remembers. Above it, the oldest is forgotten.
const RUNS: usize = 1024;

/// A kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// `agent`: the progress of a run.
    Agent,
    /// `chat`: the text of a run.
    Chat,
}

/// Records which follower of a connection sends which run. Each run has one follower for each kind of events. If a run
/// was started here and its session is followed as well, the first follower keeps it, so that no event is sent twice.
#[derive(Default)]
pub(super) struct Claims(Mutex<Claimed>);

#[derive(Default)]
struct Claimed {
    runs: BTreeMap<(RunId, Kind), Claim>,
    /// The number of the newest follower; numbers start at 1.
    newest: u64,
}

#[derive(Default)]
struct Claim {
    /// The follower; `None`: it has ended.
    owner: Option<u64>,
    /// The number of the last event of this run.
    seq: u64,
    /// The end of the run has been sent: followers up to this number do not send it again. A follower that began after
    /// the owner had ended was asked for past events, and may send it.
    over: Option<u64>,
}

impl Claims {
    /// Returns the number of a new follower.
    pub(super) fn next_follower(&self) -> u64 {
        let mut claims = self.claims();
        claims.newest += 1;
        claims.newest
    }

    /// Claims a run for `follower`, unless another follower has it. Returns the number of the run's last event, or
    /// `None` if another follower has the run or all of it has been sent.
    fn take(&self, kind: Kind, run: RunId, follower: u64) -> Option<u64> {
        let runs = &mut self.claims().runs;
        if runs.len() >= RUNS && !runs.contains_key(&(run, kind)) {
            runs.pop_first(); // ids are in the order of time
        }
        let claim = runs.entry((run, kind)).or_default();
        if claim.over.is_some_and(|last| claim.owner.is_some() || follower <= last) {
            return None;
        }
        claim.over = None;
        let owner = *claim.owner.get_or_insert(follower);
        (owner == follower).then_some(claim.seq)
    }

    fn note(&self, kind: Kind, run: RunId, seq: u64) {
        if let Some(claim) = self.claims().runs.get_mut(&(run, kind)) {
            claim.seq = seq;
        }
    }

    /// Records that the end of the run has been sent.
    fn end(&self, kind: Kind, run: RunId) {
        let claims = &mut *self.claims();
        if let Some(claim) = claims.runs.get_mut(&(run, kind)) {
            claim.over = Some(claims.newest);
        }
    }

    /// Releases the runs of a follower that has ended. Another follower may continue them. But it does not repeat ended
    /// runs whose end it may not have reached yet.
    pub(super) fn release(&self, follower: u64) {
        let claims = &mut *self.claims();
        for claim in claims.runs.values_mut().filter(|claim| claim.owner == Some(follower)) {
            claim.owner = None;
            claim.over = claim.over.map(|_| claims.newest);
        }
    }

    fn claims(&self) -> MutexGuard<'_, Claimed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One follower with its target.
pub(super) struct Follower {
    pub(super) id: u64,
    pub(super) app: Shared,
    pub(super) claims: Arc<Claims>,
    pub(super) outgoing: Arc<Outgoing>,
}

impl Follower {
    /// Sends the events of a source until it ends.
    pub(super) async fn run(self, kind: Kind, mut source: Source) {
        source.find_running().await;
        match kind {
            Kind::Agent => self.agent(source).await,
            Kind::Chat => self.chat(source).await,
        }
    }

    async fn agent(self, mut source: Source) {
        let mut mappers: HashMap<RunId, AgentMapper> = HashMap::new();
        while let Some(news) = source.next().await {
            let Some((run, session)) = news.concerns() else { continue };
            let Some(seq) = self.claims.take(Kind::Agent, run, self.id) else { continue };
            let known = mappers.contains_key(&run);
            let mapper = mappers.entry(run).or_insert_with(|| AgentMapper::new(run, session, seq));
            let events = mapper.news(news, self.app.clock.now());
            for event in &events {
                self.send("agent", event, event.is_passing());
            }
            self.claims.note(Kind::Agent, run, mapper.seq());
            if mapper.is_over() {
                self.claims.end(Kind::Agent, run);
            }
            // Facts after the end of a run, such as its delivery, start no new mapper.
            if mapper.is_over() || (!known && events.is_empty()) {
                mappers.remove(&run);
            }
        }
    }

    async fn chat(self, mut source: Source) {
        let mut mappers: HashMap<RunId, ChatMapper> = HashMap::new();
        loop {
            let due = mappers.values().filter_map(ChatMapper::due).min();
            let news = tokio::select! {
                news = source.next() => news,
                () = until(due) => {
                    for (run, mapper) in &mut mappers {
                        self.chat_delta(*run, mapper);
                    }
                    continue;
                }
            };
            let Some(news) = news else { return };
            if let News::Fact(fact, _) = &news
                && let EventKind::Notice { text } = &fact.kind
                && let Some(session) = &fact.session
            {
                self.send("chat", &ChatEvent::notice(session.clone(), fact.seq, text), false);
                continue;
            }
            // Of the facts only ends are sent. Facts after the end start no new mapper.
            if matches!(&news, News::Fact(fact, _) if !matches!(fact.kind, EventKind::RunEnded { .. })) {
                continue;
            }
            let Some((run, session)) = news.concerns() else { continue };
            let Some(seq) = self.claims.take(Kind::Chat, run, self.id) else { continue };
            let mapper = mappers.entry(run).or_insert_with(|| ChatMapper::new(run, session, seq));
            match news {
                News::Delta(_, _, delta) => mapper.delta(delta),
                News::SoFar(_, _, said) => mapper.so_far(said),
                News::Lost(..) => {} // the whole text so far comes next
                News::Fact(fact, record) => {
                    let EventKind::RunEnded { reason, .. } = fact.kind else { continue };
                    for event in mapper.end(fact.seq, reason, record.as_deref()) {
                        self.send("chat", &event, false);
                    }
                    self.claims.note(Kind::Chat, run, mapper.seq());
                    self.claims.end(Kind::Chat, run);
                    mappers.remove(&run);
                }
            }
        }
    }

    /// Sends the due delta of a run.
    fn chat_delta(&self, run: RunId, mapper: &mut ChatMapper) {
        // In this order: a first delta is due at the time of the call, which must not be later than `now`.
        let (due, now) = (mapper.due(), Instant::now());
        if due.is_none_or(|due| due > now) {
            return;
        }
        let event: ChatEvent = mapper.due_delta();
        if self.send("chat", &event, true) {
            mapper.taken(now);
            self.claims.note(Kind::Chat, run, mapper.seq());
        } else {
            mapper.refused(now);
        }
    }

    /// Sends an event; a passing one only if the queue has space. Returns whether it was queued.
    fn send(&self, name: &str, payload: &impl Serialize, passing: bool) -> bool {
        let text = event(name, payload);
        if passing {
            return self.outgoing.offer(text);
        }
        self.outgoing.send(text);
        true
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_followed_once_for_each_kind_and_keeps_its_numbers() {
        let claims = Claims::default();
        let run = RunId::new();
        assert_eq!(claims.take(Kind::Agent, run, 1), Some(0));
        claims.note(Kind::Agent, run, 7);
        assert_eq!((claims.take(Kind::Agent, run, 2), claims.take(Kind::Agent, run, 1)), (None, Some(7)));
        assert_eq!(claims.take(Kind::Chat, run, 2), Some(0), "another kind");
        claims.release(1);
        assert_eq!(claims.take(Kind::Agent, run, 2), Some(7), "numbers go on");
        for _ in 0..2 * RUNS {
            claims.take(Kind::Agent, RunId::new(), 3);
        }
        assert_eq!(claims.claims().runs.len(), RUNS);
    }

    #[test]
    fn an_end_is_sent_once_to_live_followers_and_again_to_a_follower_that_asks_for_past_events() {
        let claims = Claims::default();
        let run = RunId::new();
        let [first, second] = [claims.next_follower(), claims.next_follower()];
        assert_eq!((claims.take(Kind::Chat, run, first), claims.take(Kind::Chat, run, second)), (Some(0), None));
        claims.note(Kind::Chat, run, 3);
        claims.end(Kind::Chat, run);
        assert_eq!(claims.take(Kind::Chat, run, first), None, "nothing follows the end");
        let third = claims.next_follower();
        assert_eq!(claims.take(Kind::Chat, run, third), None, "who said it is there");
        claims.release(first);
        for (follower, expected) in [(second, None), (third, None), (claims.next_follower(), Some(3)), (second, None)] {
            assert_eq!(claims.take(Kind::Chat, run, follower), expected, "{follower}");
        }
    }
}
