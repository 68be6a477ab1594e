//! Server-sent events: the facts after a cursor, then new facts, with the deltas of a live run.
//!
//! The reader pulls: the next page is read from the log only after the last one has been sent. So a slow reader costs
//! one page of memory and delays only itself. Facts are never dropped; deltas may be.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::response::sse;
use belay_protocol::{
    Delta, Event, EventKind, EventLog, EventQuery, Partial, RunId, RunReader, RunRecord, RunWatch, Seq, SessionKey,
};
use futures_util::Stream;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::app::STORE_POLL;
use crate::event_json::one_line;
use crate::streams::{Live, News, Order, commit};

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
    /// The time of the last read of the log.
    read_at: Instant,
    run: Option<RunFeed>,
    job: Option<JobFeed>,
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
        let (page, read_at) = (VecDeque::new(), Instant::now());
        Self { log, tip, cursor: after, page, read_at, run, job: None, draining, ended: false, _permit: permit }
    }

    /// Limits the facts to those of a job, up to the one that ends it.
    pub(crate) fn of_job(self, job: JobFeed) -> Self {
        Self { job: Some(job), ..self }
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
            let over = self.over();
            let tip = *self.tip.borrow_and_update(); // marked before the read: a later commit wakes this task
            // Another node may have committed the end; the tip of this one may lag behind it.
            self.read_page((!over).then_some(tip)).await?;
            if self.page.is_empty() {
                if over {
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

    /// Reads the facts after the cursor, with `tip` only those up to it, so that facts come in the order of commits.
    /// `None`: the log cannot be read; the client reconnects with its last cursor.
    async fn read_page(&mut self, tip: Option<Seq>) -> Option<()> {
        let run = self.run.as_ref().map(|run| run.id);
        let session = self.job.as_ref().map(|job| job.session.clone());
        match self.log.read(EventQuery { after: self.cursor, run, session, limit: PAGE }).await {
            Ok(page) => {
                self.page = page.into_iter().filter(|fact| tip.is_none_or(|tip| fact.seq <= tip)).collect();
                self.read_at = Instant::now();
                Some(())
            }
            Err(error) => {
                tracing::warn!(%error, "the event log cannot be read; a stream ends");
                None
            }
        }
    }

    /// Waits for a commit, a delta, or the end of the run. `None`: the stream ends here.
    async fn wait(&mut self) -> Option<Option<Delta>> {
        let Self { tip, read_at, run, draining, .. } = self;
        let Some(run) = run else {
            return tokio::select! {
                changed = tip.changed() => changed.ok().map(|()| None),
                () = draining.cancelled() => None,
            };
        };
        let alive = run.life.is_some();
        // The facts of a run that is not live here come with commits of other runs and of other nodes.
        let not_before = if alive { *read_at } else { *read_at + STORE_POLL };
        tokio::select! {
            committed = commit(tip, not_before) => committed.map(|()| None),
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
    sse::Event::default().id(fact.seq.0.to_string()).event(kind).data(one_line(value.to_string()))
}

fn delta_event(delta: &Delta) -> sse::Event {
    let value = serde_json::to_value(delta).unwrap_or_default();
    sse::Event::default().event("delta").data(one_line(value.to_string()))
}

/// The stream of a feed's events.
pub(crate) fn events(feed: Feed) -> impl Stream<Item = sse::Event> {
    futures_util::stream::unfold(feed, |mut feed| async move { Some((feed.next().await?, feed)) })
}
