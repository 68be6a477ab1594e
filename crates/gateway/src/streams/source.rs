//! Reads the news of a run, or of all runs of a session, in order: stored facts from any cursor on, and the deltas of
//! the live run at their positions between them. No fact is missing or repeated where replay changes to live.
//!
//! The reader pulls. The next page is read from the log only after the last one has been taken, and unread deltas are
//! dropped at their source. So a slow reader costs a page of memory and delays only itself.

use std::collections::VecDeque;
use std::sync::Arc;

use belay_protocol::{
    Delta, Event, EventKind, EventQuery, Partial, Principal, RunFilter, RunId, RunRecord, RunStatus, RunWatch, Seq,
    SessionKey,
};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::live::Live;
use super::order::Order;
use crate::app::{STORE_POLL, Shared};

/// Facts per read.
const PAGE: u32 = 256;

/// One item of news.
#[derive(Debug)]
pub(crate) enum News {
    /// A fact. If it is the end of its run: with the run's record, if that can be read.
    Fact(Event, Option<Arc<RunRecord>>),
    /// The whole text before the following deltas: for a reader that joins late, or after lost deltas.
    SoFar(RunId, SessionKey, Partial),
    /// A delta.
    Delta(RunId, SessionKey, Delta),
    /// This number of deltas was dropped, because the reader was too slow. The whole text follows.
    Lost(RunId, SessionKey, u64),
}

impl News {
    /// The number of the fact, if it is one.
    pub(crate) fn fact(&self) -> Option<Seq> {
        match self {
            Self::Fact(fact, _) => Some(fact.seq),
            Self::SoFar(..) | Self::Delta(..) | Self::Lost(..) => None,
        }
    }

    /// The run and its session; `None`: the news belongs to a session as a whole.
    pub(crate) fn concerns(&self) -> Option<(RunId, SessionKey)> {
        match self {
            Self::Fact(fact, _) => Some((fact.run_id?, fact.session.clone()?)),
            Self::SoFar(run, session, _) | Self::Delta(run, session, _) | Self::Lost(run, session, _) => {
                Some((*run, session.clone()))
            }
        }
    }
}

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    /// One run, to its end.
    Run(RunId),
    /// All runs of a session, without end.
    Session(SessionKey),
}

/// A reader of facts and deltas.
pub(crate) struct Source {
    app: Shared,
    principal: Principal,
    target: Target,
    /// The followed session, or that of the followed run.
    session: SessionKey,
    /// Whether the visibility of the session has been checked.
    is_checked: bool,
    cursor: Seq,
    /// Whether the stream began before the first fact.
    from_the_start: bool,
    tip: watch::Receiver<Seq>,
    /// The newest fact of the log at the time when nothing was left to read.
    read_to: Option<Seq>,
    page: VecDeque<Event>,
    /// The run that is probably live and whose deltas are not received yet.
    candidate: Option<(RunId, SessionKey)>,
    live: Option<Live>,
    order: Order,
    /// The time of the last read of the followed run, while it is not live here.
    looked_at: Option<Instant>,
    /// All facts up to this one have been delivered and handled by the reader.
    delivered: watch::Sender<Seq>,
    /// Whether nothing follows the current page.
    last: bool,
}

impl Source {
    /// Follows a run of that session after the fact `after`. Uses the `watch` if the caller has one.
    pub(crate) fn of_run(
        app: Shared,
        principal: Principal,
        run: RunId,
        session: SessionKey,
        after: Seq,
        watch: Option<RunWatch>,
    ) -> Self {
        let mut source = Self::new(app, principal, Target::Run(run), session.clone(), after);
        source.from_the_start = after == Seq(0);
        match watch.filter(|watch| watch.deltas.is_some()) {
            Some(watch) => source.attach(session, watch),
            None => source.candidate = Some((run, session)),
        }
        source
    }

    /// Follows a session after the fact `after`; `None`: from now on.
    pub(crate) fn of_session(app: Shared, principal: Principal, session: SessionKey, after: Option<Seq>) -> Self {
        let after = after.unwrap_or_else(|| *app.events.tip().borrow());
        Self::new(app, principal, Target::Session(session.clone()), session, after)
    }

    fn new(app: Shared, principal: Principal, target: Target, session: SessionKey, cursor: Seq) -> Self {
        let tip = app.events.tip();
        Self {
            app,
            principal,
            target,
            session,
            is_checked: false,
            cursor,
            from_the_start: false,
            tip,
            read_to: None,
            page: VecDeque::new(),
            candidate: None,
            live: None,
            order: Order::default(),
            looked_at: None,
            delivered: watch::Sender::new(cursor),
            last: false,
        }
    }

    /// The followed session, or that of the followed run.
    pub(crate) fn session(&self) -> &SessionKey {
        &self.session
    }

    /// The number of the last delivered fact.
    pub(crate) fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The newest fact of the log up to which everything has been delivered; closed when the source is dropped. When it
    /// reaches a number, the reader has taken everything before and has asked for more.
    pub(crate) fn delivered(&self) -> watch::Receiver<Seq> {
        self.delivered.subscribe()
    }

    /// Looks for a run of the session that is already live and began before the cursor.
    pub(crate) async fn find_running(&mut self) {
        let Target::Session(session) = &self.target else { return };
        let filter = RunFilter {
            session: Some(session.clone()),
            statuses: vec![RunStatus::Running],
            limit: 1,
            ..RunFilter::default()
        };
        if let Ok(runs) = self.app.runs.runs(filter).await {
            self.candidate = runs.into_iter().next().map(|run| (run.run_id, run.session));
        }
    }

    /// Returns the next news; `None` at the end of the run or of the daemon, or if the log cannot be read.
    ///
    /// # Cancel safety
    /// Cancel safe: what was not returned is returned the next time.
    pub(crate) async fn next(&mut self) -> Option<News> {
        if !self.is_checked {
            match self.app.visibility(&self.principal).session(&self.session).await {
                Ok(true) => self.is_checked = true,
                Ok(false) => return None,
                Err(error) => {
                    tracing::warn!(%error, "whose a session is cannot be read; a stream ends");
                    return None;
                }
            }
        }
        loop {
            if let Some(fact) = self.page.front() {
                let live = self.live.as_mut().filter(|live| fact.run_id == Some(live.run));
                if let Some(earlier) = live.and_then(|live| live.before(fact, &self.order)) {
                    return Some(self.reattach_if_lost(earlier));
                }
                let end = fact.run_id.filter(|_| matches!(fact.kind, EventKind::RunEnded { .. }));
                return match end {
                    Some(run) => self.end(run).await,
                    None => self.take(None),
                };
            }
            if self.last {
                return None;
            }
            let tip = *self.tip.borrow_and_update(); // marked before the read: a later commit wakes this task
            if self.read_to.is_none_or(|read_to| read_to < tip) {
                self.read_page(Some(tip)).await?;
                continue;
            }
            if self.attach_candidate().await {
                continue;
            }
            if self.is_over().await {
                self.read_rest().await?;
                continue;
            }
            self.delivered.send_if_modified(|delivered| std::mem::replace(delivered, tip) != tip);
            if let Some(news) = self.wait().await? {
                return Some(self.reattach_if_lost(news));
            }
        }
    }

    /// Handles news of the live run. After lost deltas the following ones would continue a text with a gap. So they are
    /// dropped, and the source attaches to the run again, with its whole text so far.
    fn reattach_if_lost(&mut self, news: News) -> News {
        if let News::Lost(run, session, _) = &news {
            self.live = None;
            self.candidate = Some((*run, session.clone()));
        }
        news
    }

    /// Returns the end of a run, with its record.
    async fn end(&mut self, run: RunId) -> Option<News> {
        let record = match self.app.runs.run(run).await {
            Ok(record) => record.map(Arc::new),
            Err(error) => {
                tracing::warn!(%error, %run, "the record of a run that has ended cannot be read");
                None
            }
        };
        if self.live.as_ref().is_some_and(|live| live.run == run) {
            self.live = None;
        }
        if self.candidate.as_ref().is_some_and(|(candidate, _)| *candidate == run) {
            self.candidate = None;
        }
        if self.target == Target::Run(run) {
            self.last = true;
        }
        let news = self.take(record);
        if self.last {
            self.page.clear(); // facts after the end of a run do not belong to it
        }
        news
    }

    /// Takes the first fact of the page.
    fn take(&mut self, record: Option<Arc<RunRecord>>) -> Option<News> {
        let fact = self.page.pop_front()?;
        self.cursor = fact.seq;
        self.order.record(&fact);
        if let (EventKind::RunStarted { .. }, Some(run), Some(session)) = (&fact.kind, fact.run_id, &fact.session)
            && self.live.as_ref().is_none_or(|live| live.run != run)
        {
            self.candidate = Some((run, session.clone()));
        }
        Some(News::Fact(fact, record))
    }

    /// Reads the facts after the cursor. With `tip` it reads only up to it, so that no cursor is ahead of the newest
    /// fact. `None`: the log cannot be read; the reader reconnects with its last cursor.
    async fn read_page(&mut self, tip: Option<Seq>) -> Option<()> {
        let (run, session) = match &self.target {
            Target::Run(run) => (Some(*run), None),
            Target::Session(session) => (None, Some(session.clone())),
        };
        match self.app.events.read(EventQuery { after: self.cursor, run, session, limit: PAGE }).await {
            Ok(mut page) => {
                if page.len() < PAGE as usize {
                    self.read_to = tip.or(self.read_to);
                }
                page.retain(|fact| tip.is_none_or(|tip| fact.seq <= tip));
                self.page = page.into();
                Some(())
            }
            Err(error) => {
                tracing::warn!(%error, "the event log cannot be read; a stream ends");
                None
            }
        }
    }

    /// Reads the remaining facts when nothing more will be stored. The stream ends after the last page.
    async fn read_rest(&mut self) -> Option<()> {
        self.read_page(None).await?;
        self.last = self.page.len() < PAGE as usize;
        Some(())
    }

    /// Whether the followed run has ended although no fact said so: the reader has seen the end before, or it was
    /// deleted, perhaps with the run. Nothing would wake a reader that waits for it.
    async fn is_over(&mut self) -> bool {
        self.looked_at = None;
        let Target::Run(run) = self.target else { return false };
        if self.live.is_some() {
            return false;
        }
        self.looked_at = Some(Instant::now());
        match self.app.runs.run(run).await {
            Ok(record) => record.is_none_or(|record| record.status.is_end()),
            Err(error) => {
                tracing::warn!(%error, %run, "whether a run has ended cannot be read; it is followed on");
                false
            }
        }
    }

    /// Attaches to the live run, once the stored facts have been read. Returns whether there may be news now.
    async fn attach_candidate(&mut self) -> bool {
        let Some((run, session)) = self.candidate.clone() else { return false };
        let watch = self.app.watch(self.principal.clone(), run, true).await;
        self.candidate = None;
        if let Ok(Some(watch)) = watch {
            self.attach(session, watch);
        }
        // The run may have ended meanwhile: its end is read before any wait.
        true
    }

    fn attach(&mut self, session: SessionKey, watch: RunWatch) {
        let Some(deltas) = watch.deltas else { return };
        if !self.from_the_start {
            self.order.join(watch.run_id, watch.so_far.step);
        }
        self.live = Some(Live::new(watch.run_id, session, watch.so_far, deltas));
    }

    /// Waits for a commit, a delta, or the end of the daemon. `None`: the stream ends here. A run that is not live here is
    /// read after a commit of any run of any node, so it waits for [`STORE_POLL`] since the last read.
    async fn wait(&mut self) -> Option<Option<News>> {
        let not_before = self.looked_at.map_or_else(Instant::now, |at| at + STORE_POLL);
        tokio::select! {
            committed = commit(&mut self.tip, not_before) => committed.map(|()| None),
            news = next_of(&mut self.live, &mut self.order) => {
                if news.is_none() {
                    // The run waits for approval or has ended. The next attempt finds out whether it is live again.
                    self.candidate = self.live.take().map(Live::into_run);
                }
                Some(news)
            }
            // The agent has ended: nothing more will be stored.
            () = self.app.draining.cancelled() => self.read_rest().await.map(|()| None),
        }
    }
}

/// Waits for a commit, and until that time. `None`: the log has ended.
///
/// # Cancel safety
/// The commit is then marked as seen; the caller compares its number with its own before it waits again.
pub(crate) async fn commit(tip: &mut watch::Receiver<Seq>, not_before: Instant) -> Option<()> {
    tip.changed().await.ok()?;
    sleep_until(not_before).await;
    Some(())
}

/// Returns the next news of the live run, `None` when it is no longer live; pending if there is no live run.
async fn next_of(live: &mut Option<Live>, order: &mut Order) -> Option<News> {
    match live {
        Some(live) => live.next(order).await,
        None => std::future::pending().await,
    }
}
