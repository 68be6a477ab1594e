//! Brings what is heard of a run, or of all runs of a session, in its order: stored facts from any number on, without a gap or a
//! double where the past meets the present, and between them the fragments of the run that is at work.
//!
//! The reader pulls. Nothing is read from the log before the last page has been taken, and fragments that nobody takes are
//! dropped at their source, so that a slow reader costs a page of memory and slows nothing but itself.

use std::collections::VecDeque;
use std::sync::Arc;

use belay_protocol::{
    Delta, Event, EventKind, EventQuery, Partial, Principal, RunFilter, RunId, RunRecord, RunStatus, RunWatch, Seq,
    SessionKey,
};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};

use crate::app::Shared;

/// Facts read at a time.
const PAGE: u32 = 256;

/// Fragments of text that wait are handed on as one of at most so many bytes, so that who comes behind catches up.
const JOINED_MAX_BYTES: usize = 4096;

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
    cursor: Seq,
    tip: watch::Receiver<Seq>,
    page: VecDeque<Event>,
    /// The run that is at work as far as is known, whose fragments nobody takes yet.
    candidate: Option<(RunId, SessionKey)>,
    live: Option<Live>,
    /// Whether nothing follows what has been read.
    last: bool,
}

/// A fragment, or how many were dropped.
type Heard = Result<Delta, u64>;

/// The fragments of a run at work.
struct Live {
    run: RunId,
    session: SessionKey,
    so_far: Option<Partial>,
    deltas: broadcast::Receiver<Delta>,
    /// What was taken while the fragments before it were joined.
    held: Option<Heard>,
}

impl Live {
    /// What was said before the fragments that follow.
    fn said_before(&mut self) -> Option<News> {
        self.so_far.take().map(|said| News::SoFar(self.run, self.session.clone(), said))
    }

    /// What is there already.
    fn waiting(&mut self) -> Option<News> {
        self.pull().map(|heard| self.joined(heard))
    }

    fn pull(&mut self) -> Option<Heard> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        match self.deltas.try_recv() {
            Ok(delta) => Some(Ok(delta)),
            Err(TryRecvError::Lagged(lost)) => Some(Err(lost)),
            Err(TryRecvError::Empty | TryRecvError::Closed) => None,
        }
    }

    /// What comes next; never, when the run is being forgotten: its end is in the log, and wakes the reader. Cancel safe.
    async fn next(&mut self) -> News {
        let heard = match self.held.take() {
            Some(held) => held,
            None => match self.deltas.recv().await {
                Ok(delta) => Ok(delta),
                Err(RecvError::Lagged(lost)) => Err(lost),
                Err(RecvError::Closed) => std::future::pending().await,
            },
        };
        self.joined(heard)
    }

    /// The same, with the fragments of the same text that wait behind it.
    fn joined(&mut self, heard: Heard) -> News {
        let mut delta = match heard {
            Ok(delta) => delta,
            Err(lost) => return News::Lost(self.run, self.session.clone(), lost),
        };
        if let Delta::Text { step, text } = &mut delta {
            while text.len() < JOINED_MAX_BYTES
                && let Some(next) = self.pull()
            {
                match next {
                    Ok(Delta::Text { step: same, text: more }) if same == *step => text.push_str(&more),
                    other => {
                        self.held = Some(other);
                        break;
                    }
                }
            }
        }
        News::Delta(self.run, self.session.clone(), delta)
    }
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
        let mut source = Self::new(app, principal, Target::Run(run), after);
        match watch.filter(|watch| watch.deltas.is_some()) {
            Some(watch) => source.attach(session, watch),
            None => source.candidate = Some((run, session)),
        }
        source
    }

    /// Follows a session from behind the fact `after`; `None`: from now on.
    pub(crate) fn of_session(app: Shared, principal: Principal, session: SessionKey, after: Option<Seq>) -> Self {
        let after = after.unwrap_or_else(|| *app.events.tip().borrow());
        Self::new(app, principal, Target::Session(session), after)
    }

    fn new(app: Shared, principal: Principal, target: Target, cursor: Seq) -> Self {
        let tip = app.events.tip();
        let page = VecDeque::new();
        Self { app, principal, target, cursor, tip, page, candidate: None, live: None, last: false }
    }

    /// The number of the last fact that was brought.
    pub(crate) fn cursor(&self) -> Seq {
        self.cursor
    }

    /// Looks for a run of the session that is at work already, whose beginning lies before the cursor.
    pub(crate) async fn find_running(&mut self) {
        let Target::Session(session) = &self.target else { return };
        let filter = RunFilter { session: Some(session.clone()), status: Some(RunStatus::Running), limit: 1 };
        if let Ok(runs) = self.app.runs.runs(filter).await {
            self.candidate = runs.into_iter().next().map(|run| (run.run_id, run.session));
        }
    }

    /// The next thing heard; `None` at the end of the run, of the daemon, or of what can be read.
    ///
    /// # Cancel safety
    /// Cancel safe: what was not returned is returned the next time.
    pub(crate) async fn next(&mut self) -> Option<News> {
        loop {
            if let Some(said) = self.live.as_mut().and_then(Live::said_before) {
                return Some(said);
            }
            if let Some(fact) = self.page.front() {
                let end = fact.run_id.filter(|_| matches!(fact.kind, EventKind::RunEnded { .. }));
                return match end {
                    Some(run) => self.end(run).await,
                    None => self.take(None),
                };
            }
            if self.last {
                return None;
            }
            self.tip.borrow_and_update(); // seen before the read: a commit after it wakes us
            self.read_page().await?;
            if !self.page.is_empty() || self.attach_candidate().await {
                continue;
            }
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

    /// The end of a run, behind the fragments that belong before it.
    async fn end(&mut self, run: RunId) -> Option<News> {
        if let Some(live) = self.live.as_mut().filter(|live| live.run == run)
            && let Some(waiting) = live.waiting()
        {
            return Some(self.heard(waiting));
        }
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
        if let (EventKind::RunStarted { .. }, Some(run), Some(session)) = (&fact.kind, fact.run_id, &fact.session)
            && self.live.as_ref().is_none_or(|live| live.run != run)
        {
            self.candidate = Some((run, session.clone()));
        }
        Some(News::Fact(fact, record))
    }

    /// Reads what follows the cursor. `None`: it cannot be read; the reader comes again with the last number it saw.
    async fn read_page(&mut self) -> Option<()> {
        let (run, session) = match &self.target {
            Target::Run(run) => (Some(*run), None),
            Target::Session(session) => (None, Some(session.clone())),
        };
        match self.app.events.read(EventQuery { after: self.cursor, run, session, limit: PAGE }).await {
            Ok(page) => {
                self.page = page.into();
                Some(())
            }
            Err(error) => {
                tracing::warn!(%error, "the event log cannot be read; a stream ends");
                None
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
        let so_far = Some(watch.so_far).filter(|said| !said.text.is_empty() || !said.reasoning.is_empty());
        self.live = Some(Live { run: watch.run_id, session, so_far, deltas, held: None });
    }

    /// Waits for a commit, a fragment, or the end of the daemon. `None`: the stream ends here.
    async fn wait(&mut self) -> Option<Option<News>> {
        tokio::select! {
            changed = self.tip.changed() => changed.ok().map(|()| None),
            news = next_of(&mut self.live) => Some(Some(news)),
            () = self.app.draining.cancelled() => {
                self.last = true; // the agent has ended: what is stored is all there is
                self.read_page().await.map(|()| None)
            }
        }
    }
}

/// What comes next of the run at work; never, where there is none.
async fn next_of(live: &mut Option<Live>) -> News {
    match live {
        Some(live) => live.next().await,
        None => std::future::pending().await,
    }
}
