//! Brings what is heard of a run, or of all runs of a session, in its order: stored facts from any number on, without a gap or a
//! double where the past meets the present, and between them, where they belong, the fragments of the run that is at work.
//!
//! The reader pulls. Nothing is read from the log before the last page has been taken, and fragments that nobody takes are
//! dropped at their source, so that a slow reader costs a page of memory and slows nothing but itself.

use std::collections::VecDeque;
use std::sync::Arc;

use belay_protocol::{
    Delta, Event, EventKind, EventQuery, Partial, Principal, RunFilter, RunId, RunRecord, RunStatus, RunWatch, Seq,
    SessionKey,
};
use tokio::sync::watch;

use super::live::Live;
use super::order::Order;
use crate::app::Shared;

/// Facts read at a time.
const PAGE: u32 = 256;

/// What is heard.
#[derive(Debug)]
pub(crate) enum News {
    /// A fact; where it is the end of its run, with the run's record, if that can be read.
    Fact(Event, Option<Arc<RunRecord>>),
    /// What had been said before the fragments that follow: to who comes late, and to who lost some, again as a whole.
    SoFar(RunId, SessionKey, Partial),
    /// A fragment.
    Delta(RunId, SessionKey, Delta),
    /// So many fragments were dropped, since nobody took them in time. What was said comes anew.
    Lost(RunId, SessionKey, u64),
}

impl News {
    /// The run that it is about, and its session; `None`: it is about a session as a whole.
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

/// A reader of facts and fragments.
pub(crate) struct Source {
    app: Shared,
    principal: Principal,
    target: Target,
    /// The session that is followed, until it was looked at whether it is shown.
    unseen: Option<SessionKey>,
    cursor: Seq,
    /// Whether the first fact of what is followed is behind the cursor that it began with.
    from_the_start: bool,
    tip: watch::Receiver<Seq>,
    /// The newest fact of the log when nothing of it was left to read.
    read_to: Option<Seq>,
    page: VecDeque<Event>,
    /// The run that is at work as far as is known, whose fragments nobody takes yet.
    candidate: Option<(RunId, SessionKey)>,
    live: Option<Live>,
    order: Order,
    /// All up to this fact of the log has been brought, and what was brought has been seen to.
    brought: watch::Sender<Seq>,
    /// Whether nothing follows what has been read.
    last: bool,
}

impl Source {
    /// Follows a run of that session from behind the fact `after`, with the watch over it where somebody has one.
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

    /// Follows a session from behind the fact `after`; `None`: from now on.
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
            unseen: Some(session),
            cursor,
            from_the_start: false,
            tip,
            read_to: None,
            page: VecDeque::new(),
            candidate: None,
            live: None,
            order: Order::default(),
            brought: watch::Sender::new(cursor),
            last: false,
        }
    }

    /// The number of the last fact that was brought.
    pub(crate) fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The newest fact of the log behind which nothing is left to bring; closed when the source is dropped. Whoever waits for
    /// it knows that the reader has taken, and asked for more than, all that comes before.
    pub(crate) fn brought(&self) -> watch::Receiver<Seq> {
        self.brought.subscribe()
    }

    /// Looks for a run of the session that is at work already, whose beginning lies before the cursor.
    pub(crate) async fn find_running(&mut self) {
        let Target::Session(session) = &self.target else { return };
        let filter = RunFilter {
            session: Some(session.clone()),
            status: Some(RunStatus::Running),
            limit: 1,
            ..RunFilter::default()
        };
        if let Ok(runs) = self.app.runs.runs(filter).await {
            self.candidate = runs.into_iter().next().map(|run| (run.run_id, run.session));
        }
    }

    /// The next thing heard; `None` at the end of the run, of the daemon, or of what can be read.
    ///
    /// # Cancel safety
    /// Cancel safe: what was not returned is returned the next time.
    pub(crate) async fn next(&mut self) -> Option<News> {
        if let Some(session) = &self.unseen {
            match self.app.visibility(&self.principal).session(session).await {
                Ok(true) => self.unseen = None,
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
                    return Some(self.heard(earlier));
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
            let tip = *self.tip.borrow_and_update(); // seen before the read: a commit after it wakes us
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
            self.brought.send_if_modified(|brought| std::mem::replace(brought, tip) != tip);
            if let Some(news) = self.wait().await? {
                return Some(self.heard(news));
            }
        }
    }

    /// What was heard of the run at work. Where fragments were dropped, those behind them continue a text with a hole: they
    /// are let go, and the run is attached to anew, with the whole of what it has said so far.
    fn heard(&mut self, news: News) -> News {
        if let News::Lost(run, session, _) = &news {
            self.live = None;
            self.candidate = Some((*run, session.clone()));
        }
        news
    }

    /// The end of a run, with its record.
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
            self.page.clear(); // what follows the end of a run is no part of its course
        }
        news
    }

    /// Takes the first fact of the page.
    fn take(&mut self, record: Option<Arc<RunRecord>>) -> Option<News> {
        let fact = self.page.pop_front()?;
        self.cursor = fact.seq;
        self.order.bring(&fact);
        if let (EventKind::RunStarted { .. }, Some(run), Some(session)) = (&fact.kind, fact.run_id, &fact.session)
            && self.live.as_ref().is_none_or(|live| live.run != run)
        {
            self.candidate = Some((run, session.clone()));
        }
        Some(News::Fact(fact, record))
    }

    /// Reads what follows the cursor: up to `tip`, so that no cursor is ahead of what the log calls its newest fact, or all.
    /// `None`: it cannot be read; the reader comes again with the last number it saw.
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

    /// Reads what is left where nothing more will be stored. The stream ends when the last page of it has been taken.
    async fn read_rest(&mut self) -> Option<()> {
        self.read_page(None).await?;
        self.last = self.page.len() < PAGE as usize;
        Some(())
    }

    /// Whether the run that is followed has ended, though all that was read did not say so: the reader has seen the end
    /// before, or it was deleted, perhaps with the run itself. Nothing would ever wake who waited for it.
    async fn is_over(&self) -> bool {
        let Target::Run(run) = self.target else { return false };
        if self.live.is_some() {
            return false;
        }
        match self.app.runs.run(run).await {
            Ok(record) => record.is_none_or(|record| record.status.is_end()),
            Err(error) => {
                tracing::warn!(%error, %run, "whether a run has ended cannot be read; it is followed on");
                false
            }
        }
    }

    /// Begins to take the fragments of the run at work, once the past has been read. Whether there is something to say now.
    async fn attach_candidate(&mut self) -> bool {
        let Some((run, session)) = self.candidate.clone() else { return false };
        let watch = self.app.watch(self.principal.clone(), run, true).await;
        self.candidate = None;
        if let Ok(Some(watch)) = watch {
            self.attach(session, watch);
        }
        // The run may have ended meanwhile: its end is read before anything is waited for.
        true
    }

    fn attach(&mut self, session: SessionKey, watch: RunWatch) {
        let Some(deltas) = watch.deltas else { return };
        if !self.from_the_start {
            self.order.join(watch.run_id, watch.so_far.step);
        }
        self.live = Some(Live::new(watch.run_id, session, watch.so_far, deltas));
    }

    /// Waits for a commit, a fragment, or the end of the daemon. `None`: the stream ends here.
    async fn wait(&mut self) -> Option<Option<News>> {
        tokio::select! {
            changed = self.tip.changed() => changed.ok().map(|()| None),
            news = next_of(&mut self.live, &mut self.order) => {
                if news.is_none() {
                    // The run rests or has ended. Who asks for it once more learns whether it is at work again by now.
                    self.candidate = self.live.take().map(Live::into_run);
                }
                Some(news)
            }
            // The agent has ended: what is stored is all there is.
            () = self.app.draining.cancelled() => self.read_rest().await.map(|()| None),
        }
    }
}

/// What comes next of the run at work, `None` when nothing more will; never, where there is none.
async fn next_of(live: &mut Option<Live>, order: &mut Order) -> Option<News> {
    match live {
        Some(live) => live.next(order).await,
        None => std::future::pending().await,
    }
}
