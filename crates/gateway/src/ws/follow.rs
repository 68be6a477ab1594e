//! Followers: tasks of a connection that send the events of runs it has started and of sessions it has subscribed to.

use std::collections::HashMap;
use std::sync::Arc;

use belay_protocol::{EventKind, RunId};
use serde::Serialize;
use tokio::time::{Instant, sleep_until};

use super::claims::{Claims, Kind};
use super::frames::event;
use super::outgoing::Outgoing;
use crate::app::Shared;
use crate::streams::{AgentMapper, ChatEvent, ChatMapper, News, Source};

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
            let fact = news.fact();
            let now = self.app.clock.now();
            self.claims.deliver(Kind::Agent, run, self.id, fact, |seq| {
                let known = mappers.contains_key(&run);
                let mapper = mappers.entry(run).or_insert_with(|| AgentMapper::new(run, session, seq));
                let events = mapper.news(news, now);
                for event in &events {
                    self.send("agent", event, event.is_passing());
                }
                let sent = (mapper.seq(), mapper.is_over());
                // Facts after the end of a run, such as its delivery, start no new mapper.
                if mapper.is_over() || (!known && events.is_empty()) {
                    mappers.remove(&run);
                }
                sent
            });
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
            let fact = news.fact();
            self.claims.deliver(Kind::Chat, run, self.id, fact, |seq| {
                let mapper = mappers.entry(run).or_insert_with(|| ChatMapper::new(run, session, seq));
                match news {
                    News::Delta(_, _, delta) => mapper.delta(delta),
                    News::SoFar(_, _, said) => mapper.so_far(said),
                    News::Lost(..) => {} // the whole text so far comes next
                    News::Fact(fact, record) => {
                        if let EventKind::RunEnded { reason, .. } = fact.kind {
                            for event in mapper.end(fact.seq, reason, record.as_deref()) {
                                self.send("chat", &event, false);
                            }
                        }
                        let sent = (mapper.seq(), true);
                        mappers.remove(&run);
                        return sent;
                    }
                }
                (seq, false)
            });
        }
    }

    /// Sends the due delta of a run.
    fn chat_delta(&self, run: RunId, mapper: &mut ChatMapper) {
        // In this order: a first delta is due at the time of the call, which must not be later than `now`.
        let (due, now) = (mapper.due(), Instant::now());
        if due.is_none_or(|due| due > now) {
            return;
        }
        let is_ours = self.claims.deliver(Kind::Chat, run, self.id, None, |seq| {
            if self.send("chat", &mapper.due_delta(), true) {
                mapper.taken(now);
                (mapper.seq(), false)
            } else {
                mapper.refused(now);
                (seq, false)
            }
        });
        if !is_ours {
            mapper.refused(now); // handed over meanwhile: this task ends
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
