//! The fragments of a run at work, as one reader takes them.

use std::time::Duration;

use belay_protocol::{Delta, Event, Partial, RunId, SessionKey};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, sleep_until};

use super::order::{Order, Place};
use super::source::News;

/// Fragments of text that wait are handed on as one of at most so many bytes, so that who comes behind catches up.
const JOINED_MAX_BYTES: usize = 4096;

/// Longest time that a fragment waits for the facts before it. 100 ms: twice what a fact may wait for its commit (see
/// [`belay_protocol::Durability::Relaxed`]). What is later than that comes behind it.
const HELD_MAX: Duration = Duration::from_millis(100);

/// The fragments of a run at work.
pub(super) struct Live {
    pub(super) run: RunId,
    session: SessionKey,
    deltas: broadcast::Receiver<Delta>,
    /// What was taken and not handed on yet.
    front: Option<Heard>,
    /// Until when that waits, if it does. Those behind it wait at their source, which drops what is too much.
    held_until: Option<Instant>,
}

/// What is heard.
enum Heard {
    SoFar(Partial),
    Delta(Delta),
    Lost(u64),
}

impl Heard {
    /// Where it stands; `None`: nowhere, or at the beginning.
    fn place(&self) -> Option<Place> {
        match self {
            Self::Delta(Delta::Tool { call_id, .. }) => Some(Place::Call(call_id.clone())),
            Self::SoFar(Partial { step, .. })
            | Self::Delta(Delta::Text { step, .. } | Delta::Reasoning { step, .. }) => Some(Place::Step(*step)),
            Self::Lost(_) => None,
        }
    }
}

impl Live {
    /// Takes fragments from now on, behind what was said so far.
    pub(super) fn new(run: RunId, session: SessionKey, so_far: Partial, deltas: broadcast::Receiver<Delta>) -> Self {
        let said = !so_far.text.is_empty() || !so_far.reasoning.is_empty();
        Self { run, session, deltas, front: said.then_some(Heard::SoFar(so_far)), held_until: None }
    }

    /// What is there already and belongs before this fact of the run.
    pub(super) fn before(&mut self, fact: &Event, order: &Order) -> Option<News> {
        self.pull();
        let place = self.front.as_ref()?.place();
        if order.precedes(place.as_ref(), fact) { self.take() } else { None }
    }

    /// What comes next, once it may be shown; never, when the run is being forgotten: its end is in the log, and wakes the
    /// reader.
    ///
    /// # Cancel safety
    /// Cancel safe: what was not handed on stays at the front.
    pub(super) async fn next(&mut self, order: &mut Order) -> News {
        loop {
            if self.front.is_none() {
                self.front = Some(match self.deltas.recv().await {
                    Ok(delta) => Heard::Delta(delta),
                    Err(RecvError::Lagged(lost)) => Heard::Lost(lost),
                    Err(RecvError::Closed) => std::future::pending().await,
                });
            }
            if let Some(place) = self.front.as_ref().and_then(Heard::place)
                && !order.allows(&place)
            {
                sleep_until(*self.held_until.get_or_insert_with(|| Instant::now() + HELD_MAX)).await;
                order.waive(&place);
            }
            if let Some(news) = self.take() {
                return news;
            }
        }
    }

    /// Hands on what is at the front.
    fn take(&mut self) -> Option<News> {
        self.held_until = None;
        let heard = self.front.take()?;
        let news = match heard {
            Heard::SoFar(said) => News::SoFar(self.run, self.session.clone(), said),
            Heard::Lost(lost) => News::Lost(self.run, self.session.clone(), lost),
            Heard::Delta(delta) => {
                let delta = self.joined(delta);
                News::Delta(self.run, self.session.clone(), delta)
            }
        };
        Some(news)
    }

    /// The same, with the fragments of the same text that wait behind it.
    fn joined(&mut self, mut delta: Delta) -> Delta {
        if let Delta::Text { step, text } = &mut delta {
            while text.len() < JOINED_MAX_BYTES {
                self.pull();
                match self.front.take() {
                    Some(Heard::Delta(Delta::Text { step: same, text: more })) if same == *step => text.push_str(&more),
                    other => {
                        self.front = other;
                        break;
                    }
                }
            }
        }
        delta
    }

    /// Takes what is there to the front, if that is empty.
    fn pull(&mut self) {
        if self.front.is_none() {
            self.front = match self.deltas.try_recv() {
                Ok(delta) => Some(Heard::Delta(delta)),
                Err(TryRecvError::Lagged(lost)) => Some(Heard::Lost(lost)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            };
        }
    }
}
