//! Server-sent events: the facts of the log after a number, then those that follow, and a living run's fragments.
//!
//! The reader pulls: nothing is read from the log before the last page has been taken, so a slow reader costs one page
//! of memory and slows nothing but itself. Facts are never left out; fragments may be.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse;
use belay_protocol::{
    Delta, Event, EventKind, EventLog, EventQuery, Partial, Principal, RunId, RunReader, RunRecord, RunWatch, Seq,
    SessionKey, StoreError,
};
use futures_util::Stream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::app::Shared;
use crate::streams::{Live, News, Order};

/// A comment after so long a silence, so that proxies keep the connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Facts read at a time.
const PAGE: u32 = 256;

/// How often a run that nobody works on is looked at: one that is deleted leaves no fact to wait for.
const LOOK: Duration = Duration::from_secs(15);

/// A reader of the log.
pub(crate) struct Feed {
    log: Arc<dyn EventLog>,
    tip: watch::Receiver<Seq>,
    cursor: Seq,
    page: VecDeque<Event>,
    run: Option<RunFeed>,
    job: Option<JobFeed>,
    /// Of whom those facts are read that they are shown; `None`: all are.
    eyes: Option<(Shared, Principal)>,
    draining: CancellationToken,
    ended: bool,
    /// Returned when the stream is dropped.
    _permit: OwnedSemaphorePermit,
}

/// What a reader of one run follows.
pub(crate) struct RunFeed {
    id: RunId,
    runs: Arc<dyn RunReader>,
    /// When it is looked at next, where nobody works on it.
    look_at: Instant,
    /// Whether it had ended before we began.
    over: bool,
    /// Alive while the run is.
    life: Option<watch::Receiver<Option<Arc<RunRecord>>>>,
    live: Option<Live>,
    order: Order,
}

/// What a reader of one job follows: the facts of its session, by whichever of its runs.
pub(crate) struct JobFeed {
    /// The session in which it works.
    pub(crate) session: SessionKey,
    /// Whether it was over before we began.
    pub(crate) over: bool,
}

impl RunFeed {
    /// Follows that run of that session, from behind the fact `after`; `over`: it has ended.
    pub(crate) fn new(
        runs: Arc<dyn RunReader>,
        (id, session): (RunId, SessionKey),
        after: Seq,
        watch: Option<RunWatch>,
        over: bool,
    ) -> Self {
        let (mut order, mut live, mut life) = (Order::default(), None, None);
        if let Some(RunWatch { finished, deltas, so_far, .. }) = watch {
            if after > Seq(0) {
                order.join(id, so_far.step);
            }
            live = deltas.map(|deltas| Live::new(id, session, Partial::default(), deltas));
            life = Some(finished);
        }
        Self { id, runs, look_at: Instant::now() + LOOK, over, life, live, order }
    }

    /// A fragment that is there already and belongs before this fact. Those that were lost are passed over.
    fn before(&mut self, fact: &Event) -> Option<Delta> {
        let live = self.live.as_mut()?;
        while let Some(news) = live.before(fact, &self.order) {
            if let News::Delta(_, _, delta) = news {
                return Some(delta);
            }
        }
        None
    }
}

impl Feed {
    /// Reads on from `after`.
    pub(crate) fn new(
        log: Arc<dyn EventLog>,
        after: Seq,
        run: Option<RunFeed>,
        draining: CancellationToken,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let tip = log.tip();
        let page = VecDeque::new();
        Self { log, tip, cursor: after, page, run, job: None, eyes: None, draining, ended: false, _permit: permit }
    }

    /// Of all facts those of a job, to the one that says that it is over.
    pub(crate) fn of_job(self, job: JobFeed) -> Self {
        Self { job: Some(job), ..self }
    }

    /// Of all facts those that this principal is shown.
    pub(crate) fn shown_to(self, app: Shared, principal: Principal) -> Self {
        let eyes = app.visibility(&principal).own_only().is_some().then_some((app, principal));
        Self { eyes, ..self }
    }

    /// Whether what is followed had ended before we began.
    fn over(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.over) || self.job.as_ref().is_some_and(|job| job.over)
    }

    /// The next event to send; `None` at the end.
    async fn next(&mut self) -> Option<sse::Event> {
        while !self.ended {
            if let Some(fact) = self.page.pop_front() {
                return Some(self.take(fact));
            }
            let tip = *self.tip.borrow_and_update(); // seen before the read: a commit after it wakes us
            self.read_page(tip).await?;
            if self.page.is_empty() {
                if self.over() {
                    return None; // the reader had seen everything
                }
                if let Some(delta) = self.wait().await? {
                    return Some(delta_event(&delta));
                }
            }
        }
        None
    }

    /// The fact as an event, or a fragment that belongs before it.
    fn take(&mut self, fact: Event) -> sse::Event {
        if let Some(run) = self.run.as_mut().filter(|run| fact.run_id == Some(run.id)) {
            if let Some(delta) = run.before(&fact) {
                self.page.push_front(fact);
                return delta_event(&delta);
            }
            run.order.bring(&fact);
            self.ended = matches!(fact.kind, EventKind::RunEnded { .. });
        }
        if self.job.is_some() {
            // A job that was over before has nothing behind this but what is told of its result.
            self.ended = matches!(fact.kind, EventKind::JobChanged { to, .. } if to.is_over());
        }
        self.cursor = fact.seq;
        fact_event(&fact)
    }

    /// Reads what follows the cursor up to `tip`: no cursor is ahead of what the log calls its newest fact. `None`: it cannot be
    /// read; the client comes again with the last number it saw.
    async fn read_page(&mut self, tip: Seq) -> Option<()> {
        let run = self.run.as_ref().map(|run| run.id);
        let session = self.job.as_ref().map(|job| job.session.clone());
        loop {
            let query = EventQuery { after: self.cursor, run, session: session.clone(), limit: PAGE };
            let read = async {
                let page = self.log.read(query).await?;
                let page: VecDeque<_> = page.into_iter().filter(|fact| fact.seq <= tip).collect();
                let last = page.back().map(|fact| fact.seq);
                Ok::<_, StoreError>((self.shown(page).await?, last))
            };
            match read.await {
                Ok((page, last)) => {
                    self.page = page;
                    // A page of which nothing is shown is passed over.
                    let Some(last) = last.filter(|_| self.page.is_empty()) else { return Some(()) };
                    self.cursor = last;
                }
                Err(error) => {
                    tracing::warn!(%error, "the event log cannot be read; a stream ends");
                    return None;
                }
            }
        }
    }

    /// Of these facts those that the reader is shown.
    async fn shown(&self, mut page: VecDeque<Event>) -> Result<VecDeque<Event>, StoreError> {
        let Some((app, principal)) = &self.eyes else { return Ok(page) };
        let visibility = app.visibility(principal);
        let mut shown = VecDeque::with_capacity(page.len());
        // Facts of one session come one after the other.
        let mut newest: Option<(SessionKey, bool)> = None;
        while let Some(fact) = page.pop_front() {
            let seen = match (&fact.session, &newest) {
                (None, _) => true,
                (Some(session), Some((last, seen))) if session == last => *seen,
                (Some(session), _) => {
                    let seen = visibility.session(session).await?;
                    newest = Some((session.clone(), seen));
                    seen
                }
            };
            if seen {
                shown.push_back(fact);
            }
        }
        Ok(shown)
    }

    /// Waits for a commit, a fragment, or the run's end. `None`: the stream ends here.
    async fn wait(&mut self) -> Option<Option<Delta>> {
        let Self { tip, run, draining, .. } = self;
        let Some(run) = run else {
            return tokio::select! {
                changed = tip.changed() => changed.ok().map(|()| None),
                () = draining.cancelled() => None,
            };
        };
        let alive = run.life.is_some();
        tokio::select! {
            changed = tip.changed() => changed.ok().map(|()| None),
            delta = next_delta(&mut run.live, &mut run.order) => Some(Some(delta)),
            filled = end_of(&mut run.life) => {
                run.over |= filled;
                run.look_at = Instant::now(); // let go of: it rests, or it is gone
                Some(None)
            }
            () = sleep_until(run.look_at), if !alive => {
                run.over |= is_gone(&*run.runs, run.id).await;
                run.look_at = Instant::now() + LOOK;
                Some(None)
            }
            // While somebody works on the run its end will come; otherwise there is nothing to wait for.
            () = draining.cancelled(), if !alive => None,
        }
    }
}

/// The next fragment, once it may be shown; never, when there are none.
async fn next_delta(live: &mut Option<Live>, order: &mut Order) -> Delta {
    while let Some(of_run) = live {
        match of_run.next(order).await {
            Some(News::Delta(_, _, delta)) => return delta,
            Some(_) => {} // fragments may be lost; the reply is in the run
            None => *live = None,
        }
    }
    std::future::pending().await
}

/// Returns when nobody works on the run any more, and whether its end is committed. A run that rests on a question has not
/// ended: whoever follows it hears the answer too.
async fn end_of(life: &mut Option<watch::Receiver<Option<Arc<RunRecord>>>>) -> bool {
    let Some(receiver) = life else { return std::future::pending().await };
    let is_end = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|run| run.status.is_end());
    let filled = receiver.wait_for(is_end).await.is_ok();
    *life = None;
    filled
}

/// Whether there is no such run any more; one that has ended leaves a fact that says so. A store that does not answer says
/// nothing.
async fn is_gone(runs: &dyn RunReader, run: RunId) -> bool {
    let record = runs.run(run).await;
    record
        .inspect_err(|error| tracing::warn!(%error, %run, "a run that is followed cannot be looked at"))
        .is_ok_and(|run| run.is_none())
}

fn fact_event(fact: &Event) -> sse::Event {
    let value = serde_json::to_value(fact).unwrap_or_default();
    let kind = value.get("type").and_then(|kind| kind.as_str()).unwrap_or("event");
    sse::Event::default().id(fact.seq.0.to_string()).event(kind).data(value.to_string())
}

fn delta_event(delta: &Delta) -> sse::Event {
    let value = serde_json::to_value(delta).unwrap_or_default();
    sse::Event::default().event("delta").data(value.to_string())
}

/// The events of a feed.
pub(crate) fn events(feed: Feed) -> impl Stream<Item = sse::Event> {
    futures_util::stream::unfold(feed, |mut feed| async move { Some((feed.next().await?, feed)) })
}
