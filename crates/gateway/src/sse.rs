//! Server-sent events: the facts after a cursor, then new facts, with the deltas of a live run.
//!
//! The reader pulls: the next page is read from the log only after the last one has been sent. So a slow reader costs
//! one page of memory and delays only itself. Facts are never dropped; deltas may be.

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

/// Silence after which a comment is sent, so that proxies keep the connection.
pub(crate) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Facts per read.
const PAGE: u32 = 256;

/// How often a run that is not live is checked: a deleted run leaves no fact to wait for.
const LOOK: Duration = Duration::from_secs(15);

/// A reader of the log.
pub(crate) struct Feed {
    log: Arc<dyn EventLog>,
    tip: watch::Receiver<Seq>,
    cursor: Seq,
    page: VecDeque<Event>,
    run: Option<RunFeed>,
    job: Option<JobFeed>,
    /// The principal whose visible facts are read; `None`: all facts are.
    viewer: Option<(Shared, Principal)>,
    draining: CancellationToken,
    ended: bool,
    /// Released when the stream is dropped.
    _permit: OwnedSemaphorePermit,
}

/// The state of following one run.
pub(crate) struct RunFeed {
    id: RunId,
    runs: Arc<dyn RunReader>,
    /// Time of the next check, if the run is not live.
    look_at: Instant,
    /// Whether the run had ended before the stream began.
    over: bool,
    /// `Some` while the run is live.
    life: Option<watch::Receiver<Option<Arc<RunRecord>>>>,
    live: Option<Live>,
    order: Order,
}

/// The state of following one job: the facts of its session, from all of its runs.
pub(crate) struct JobFeed {
    /// The session of the job's runs.
    pub(crate) session: SessionKey,
    /// Whether the job was over before the stream began.
    pub(crate) over: bool,
}

impl RunFeed {
    /// Follows a run of a session, after the fact `after`; `over`: the run has ended.
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

    /// A buffered delta that belongs before this fact. Skips reports of lost deltas.
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
    /// Reads the log after `after`.
    pub(crate) fn new(
        log: Arc<dyn EventLog>,
        after: Seq,
        run: Option<RunFeed>,
        draining: CancellationToken,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        let tip = log.tip();
        let page = VecDeque::new();
        Self { log, tip, cursor: after, page, run, job: None, viewer: None, draining, ended: false, _permit: permit }
    }

    /// Limits the facts to those of a job, up to the one that ends it.
    pub(crate) fn of_job(self, job: JobFeed) -> Self {
        Self { job: Some(job), ..self }
    }

    /// Limits the facts to those that this principal may see.
    pub(crate) fn visible_to(self, app: Shared, principal: Principal) -> Self {
        let viewer = app.visibility(&principal).own_only().is_some().then_some((app, principal));
        Self { viewer, ..self }
    }

    /// Whether the run or job had ended before the stream began.
    fn over(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.over) || self.job.as_ref().is_some_and(|job| job.over)
    }

    /// Returns the next event to send; `None` at the end.
    async fn next(&mut self) -> Option<sse::Event> {
        while !self.ended {
            if let Some(fact) = self.page.pop_front() {
                return Some(self.take(fact));
            }
            let tip = *self.tip.borrow_and_update(); // marked before the read: a later commit wakes this task
            self.read_page(tip).await?;
            if self.page.is_empty() {
                if self.over() {
                    return None; // the reader has seen everything
                }
                if let Some(delta) = self.wait().await? {
                    return Some(delta_event(&delta));
                }
            }
        }
        None
    }

    /// Converts a fact to an event, or returns a delta that belongs before it.
    fn take(&mut self, fact: Event) -> sse::Event {
        if let Some(run) = self.run.as_mut().filter(|run| fact.run_id == Some(run.id)) {
            if let Some(delta) = run.before(&fact) {
                self.page.push_front(fact);
                return delta_event(&delta);
            }
            run.order.record(&fact);
            self.ended = matches!(fact.kind, EventKind::RunEnded { .. });
        }
        if self.job.is_some() {
            // If the job was over before, only the report of its result follows.
            self.ended = matches!(fact.kind, EventKind::JobChanged { to, .. } if to.is_over());
        }
        self.cursor = fact.seq;
        fact_event(&fact)
    }

    /// Reads the facts between the cursor and `tip`, so no cursor is ahead of the newest fact. `None`: the log cannot
    /// be read; the client reconnects with its last cursor.
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
                    // A page without visible facts is skipped.
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

    /// Filters the facts that the reader may see.
    async fn shown(&self, mut page: VecDeque<Event>) -> Result<VecDeque<Event>, StoreError> {
        let Some((app, principal)) = &self.viewer else { return Ok(page) };
        let visibility = app.visibility(principal);
        let mut shown = VecDeque::with_capacity(page.len());
        // Facts of one session are usually consecutive, so the last result is cached.
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

    /// Waits for a commit, a delta, or the end of the run. `None`: the stream ends here.
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
                run.look_at = Instant::now(); // no longer live: it waits for approval, or it is deleted
                Some(None)
            }
            () = sleep_until(run.look_at), if !alive => {
                run.over |= is_gone(&*run.runs, run.id).await;
                run.look_at = Instant::now() + LOOK;
                Some(None)
            }
            // A live run will end by itself; otherwise there is nothing to wait for.
            () = draining.cancelled(), if !alive => None,
        }
    }
}

/// Returns the next delta, once it may be shown; pending if there are none.
async fn next_delta(live: &mut Option<Live>, order: &mut Order) -> Delta {
    while let Some(of_run) = live {
        match of_run.next(order).await {
            Some(News::Delta(_, _, delta)) => return delta,
            Some(_) => {} // deltas may be lost: the run's record has the reply
            None => *live = None,
        }
    }
    std::future::pending().await
}

/// Returns when the run is no longer live, and whether its end is committed. A run that waits for approval has not
/// ended: its followers also receive the answer.
async fn end_of(life: &mut Option<watch::Receiver<Option<Arc<RunRecord>>>>) -> bool {
    let Some(receiver) = life else { return std::future::pending().await };
    let is_end = |record: &Option<Arc<RunRecord>>| record.as_ref().is_some_and(|run| run.status.is_end());
    let filled = receiver.wait_for(is_end).await.is_ok();
    *life = None;
    filled
}

/// Whether the run has been deleted. (An ended run leaves a fact.) `false` if the store does not answer.
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

/// The stream of a feed's events.
pub(crate) fn events(feed: Feed) -> impl Stream<Item = sse::Event> {
    futures_util::stream::unfold(feed, |mut feed| async move { Some((feed.next().await?, feed)) })
}
