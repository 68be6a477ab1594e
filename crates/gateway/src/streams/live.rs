//! The deltas of a live run, for one reader.

use std::time::Duration;

use belay_protocol::{Delta, Event, Partial, RunId, SessionKey};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::time::{Instant, sleep_until};

use super::order::{FragmentPosition, Order};
use super::source::News;

/// Waiting text deltas are joined up to this length, so that a slow reader catches up.
const JOINED_MAX_BYTES: usize = 4096;

/// Longest time that a delta waits for the facts before it. 250 ms: a fact may wait 50 ms for its commit (see
/// [`belay_protocol::Durability::Relaxed`]), and longer on a busy disk. A later fact comes after the delta.
const HELD_MAX: Duration = Duration::from_millis(250);

/// The deltas of a live run.
pub(crate) struct Live {
    pub(crate) run: RunId,
    session: SessionKey,
    deltas: broadcast::Receiver<Delta>,
    /// Received and not yet returned.
    front: Option<Item>,
    /// Until when `front` waits, if it does. Later deltas wait in the channel, which drops them when it is full.
    held_until: Option<Instant>,
}

/// An item of the stream of deltas.
enum Item {
    SoFar(Partial),
    Delta(Delta),
    Lost(u64),
}

impl Item {
    /// The position in the run; `None`: no position.
    fn position(&self) -> Option<FragmentPosition> {
        match self {
            Self::Delta(Delta::Tool { call_id, .. }) => Some(FragmentPosition::Call(call_id.clone())),
            Self::SoFar(Partial { step, .. })
            | Self::Delta(Delta::Text { step, .. } | Delta::Reasoning { step, .. }) => {
                Some(FragmentPosition::Step(*step))
            }
            Self::Lost(_) => None,
        }
    }
}

impl Live {
    /// Receives deltas from now on, after the text `so_far`.
    pub(crate) fn new(run: RunId, session: SessionKey, so_far: Partial, deltas: broadcast::Receiver<Delta>) -> Self {
        let said = !so_far.text.is_empty() || !so_far.reasoning.is_empty();
        Self { run, session, deltas, front: said.then_some(Item::SoFar(so_far)), held_until: None }
    }

    /// Returns the run and its session.
    pub(crate) fn into_run(self) -> (RunId, SessionKey) {
        (self.run, self.session)
    }

    /// Returns a buffered item that belongs before this fact of the run.
    pub(crate) fn before(&mut self, fact: &Event, order: &Order) -> Option<News> {
        self.pull();
        let position = self.front.as_ref()?.position();
        if order.precedes(position.as_ref(), fact) { self.take() } else { None }
    }

    /// Returns the next item, once it may be shown; `None`: the run is no longer live.
    ///
    /// # Cancel safety
    /// Cancel safe: an item that was not returned stays at the front.
    pub(crate) async fn next(&mut self, order: &mut Order) -> Option<News> {
        loop {
            if self.front.is_none() {
                self.front = Some(match self.deltas.recv().await {
                    Ok(delta) => Item::Delta(delta),
                    Err(RecvError::Lagged(lost)) => Item::Lost(lost),
                    Err(RecvError::Closed) => return None,
                });
            }
            if let Some(position) = self.front.as_ref().and_then(Item::position)
                && !order.allows(&position)
            {
                sleep_until(*self.held_until.get_or_insert_with(|| Instant::now() + HELD_MAX)).await;
                order.waive(&position);
            }
            if let Some(news) = self.take() {
                return Some(news);
            }
        }
    }

    /// Returns the front item.
    fn take(&mut self) -> Option<News> {
        self.held_until = None;
        let item = self.front.take()?;
        let news = match item {
            Item::SoFar(said) => News::SoFar(self.run, self.session.clone(), said),
            Item::Lost(lost) => News::Lost(self.run, self.session.clone(), lost),
            Item::Delta(delta) => {
                let delta = self.joined(delta);
                News::Delta(self.run, self.session.clone(), delta)
            }
        };
        Some(news)
    }

    /// Joins a text delta with the waiting deltas of the same text.
    fn joined(&mut self, mut delta: Delta) -> Delta {
        if let Delta::Text { step, text } = &mut delta {
            while text.len() < JOINED_MAX_BYTES {
                self.pull();
                match self.front.take() {
                    Some(Item::Delta(Delta::Text { step: same, text: more })) if same == *step => text.push_str(&more),
                    other => {
                        self.front = other;
                        break;
                    }
                }
            }
        }
        delta
    }

    /// Receives a waiting delta, if the front is empty.
    fn pull(&mut self) {
        if self.front.is_none() {
            self.front = match self.deltas.try_recv() {
                Ok(delta) => Some(Item::Delta(delta)),
                Err(TryRecvError::Lagged(lost)) => Some(Item::Lost(lost)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => None,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use belay_protocol::{EventKind, Seq, UnixMillis};
    use tokio::time::timeout;

    use super::*;

    /// A live run with one step behind it, whose facts the log has not delivered yet.
    fn at_work() -> (broadcast::Sender<Delta>, Live, Order, impl Fn(EventKind) -> Event) {
        let (run, deltas) = (RunId::new(), broadcast::Sender::new(64));
        let live = Live::new(run, "s".into(), Partial::default(), deltas.subscribe());
        let fact = move |kind| Event { seq: Seq(1), at: UnixMillis(0), session: None, run_id: Some(run), kind };
        (deltas, live, Order::default(), fact)
    }

    fn text(step: u32, text: &str) -> Delta {
        Delta::Text { step, text: text.into() }
    }

    fn said(news: Option<News>) -> String {
        match news {
            Some(News::Delta(_, _, Delta::Text { step, text })) => format!("{step} {text}"),
            other => format!("{other:?}"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_log_is_waited_for_and_a_fragment_comes_the_moment_its_facts_are_there() {
        let (deltas, mut live, mut order, fact) = at_work();
        let begun = Instant::now();
        for delta in [text(2, "Fo"), text(2, "und"), text(3, "!")] {
            deltas.send(delta).expect("somebody listens");
        }
        let just_before = HELD_MAX - Duration::from_millis(1);
        assert!(timeout(just_before, live.next(&mut order)).await.is_err(), "the step before it is not told yet");
        order.record(&fact(EventKind::RunStarted { attempt: 1 }));
        order.record(&fact(EventKind::model_called(1, None, None)));
        assert_eq!(said(live.next(&mut order).await), "2 Found");
        assert_eq!(begun.elapsed(), just_before, "at once");
        let called = fact(EventKind::model_called(2, None, None));
        assert!(live.before(&called, &order).is_none(), "what waits belongs behind this fact");
        order.record(&called);
        assert_eq!(said(live.next(&mut order).await), "3 !");
        assert_eq!(begun.elapsed(), just_before, "nothing waits where the facts are there");
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_is_too_slow_is_not_waited_for_any_longer() {
        let (deltas, mut live, mut order, _) = at_work();
        let begun = Instant::now();
        deltas.send(text(2, "Found")).expect("somebody listens");
        assert_eq!((said(live.next(&mut order).await), begun.elapsed()), ("2 Found".into(), HELD_MAX));
        deltas.send(text(2, "!")).expect("somebody listens");
        assert_eq!((said(live.next(&mut order).await), begun.elapsed()), ("2 !".into(), HELD_MAX), "once for a step");
    }

    #[tokio::test(start_paused = true)]
    async fn fragments_that_wait_come_before_the_facts_that_end_them() {
        let (deltas, mut live, order, fact) = at_work();
        deltas.send(text(1, "Once")).expect("somebody listens");
        let called = fact(EventKind::model_called(1, None, None));
        assert_eq!(said(live.before(&called, &order)), "1 Once");
        assert!(live.before(&called, &order).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn deltas_end_when_the_run_is_no_longer_live_and_not_before_all_were_returned() {
        let (deltas, mut live, mut order, fact) = at_work();
        order.record(&fact(EventKind::RunStarted { attempt: 1 }));
        deltas.send(text(1, "Once")).expect("somebody listens");
        drop(deltas);
        assert_eq!(said(live.next(&mut order).await), "1 Once");
        let next = timeout(Duration::from_secs(60), live.next(&mut order)).await;
        assert!(matches!(next, Ok(None)), "{next:?}");
    }
}
