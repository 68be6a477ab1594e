//! The engine: fires what is due, and leads what was claimed to its end.
//!
//! ```text
//!            due ──▶ reckon ──▶ claim (store) ──┐
//!  requests, messages, events ──▶ claim (store) ─┴─▶ a task for each routine run ──▶ run or job ──▶ settle (store)
//! ```
//!
//! It decides from the store alone: a scheduled time is claimed, durably, before anything is done for it, so of two engines on
//! one store one has it, and the clock may jump as it likes. On a start it goes on with the routine runs that it finds at work.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{RoutineRecord, RoutineRunRecord, StoreError, UnixMillis};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::define::define;
use super::heartbeat;
use super::registry::Handed;
use super::routine_run::{give_up, pursue};
use super::service::RoutineService;
use super::step::{Done, carry_out, decide};
use belay_run::restart::persist;

/// Longest sleep: by then it is seen that the clock was set.
const TICK: Duration = Duration::from_secs(15);
/// How often it is asked whether what waits for messages and events was changed: another daemon may have.
const REFRESH_MS: u64 = 15_000;
/// Due routines that are read at once.
const DUE_PAGE: u32 = 256;
/// Writes about due routines that are under way at once: they share a commit.
const ABREAST: usize = 32;
/// Pause where routines are due that could not be fired, so that those which become due meanwhile are not late.
const SOON: Duration = Duration::from_millis(100);
/// Pause where the store counts more routine runs at work than are led here: what others have claimed is handed over sooner, and of
/// those of another daemon nobody tells that they have ended.
const ELSEWHERE: Duration = Duration::from_secs(1);
/// How long a late routine is laid aside at a time while its own routine runs are at work; the end of one of them ends that.
const ASIDE_MS: i64 = 60_000;
/// Pause before the beginning is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether there was room for what was due.
enum Capacity {
    /// All of it was looked at.
    Enough,
    /// As many routine runs as may be are at work here; the rest waits.
    TakenHere,
    /// As many are at work by the store's count; the rest waits.
    TakenElsewhere,
}

/// The engine's task.
pub struct Engine {
    service: Arc<RoutineService>,
    /// Fires nothing any more; what is at work is awaited.
    stop: CancellationToken,
    /// One task for each routine run at work; ends with the engine.
    at_work: JoinSet<()>,
    routine_runs: HashMap<Id, RoutineRunRecord>,
    /// As of which number of changes what waits for messages and events is shown.
    shown: Option<u64>,
    /// When that was asked for.
    shown_at: Option<UnixMillis>,
}

impl Engine {
    /// An engine that has not looked yet; it ends when `stop` is cancelled.
    pub fn new(service: Arc<RoutineService>, stop: CancellationToken) -> Self {
        Self { service, stop, at_work: JoinSet::new(), routine_runs: HashMap::new(), shown: None, shown_at: None }
    }

    /// Works until told to stop, and then until what is at work has ended.
    ///
    /// # Cancel safety
    /// Dropped, everything goes on with the next start.
    pub async fn run(mut self) {
        while let Err(error) = self.set_up().await {
            tracing::error!(%error, "routines could not be resumed; trying again");
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(AGAIN) => {}
            }
        }
        let service = self.service.clone();
        while !self.stop.is_cancelled() {
            let pause = self.tick().await.unwrap_or_else(|error| {
                tracing::error!(%error, "routines could not be looked at; trying again");
                AGAIN
            });
            tokio::select! {
                biased; // the end first; then a place that has become free
                () = self.stop.cancelled() => {}
                Some(ended) = self.at_work.join_next_with_id() => self.ended(ended),
                () = service.registry.changed() => {}
                () = sleep(pause) => {}
            }
        }
        while let Some(ended) = self.at_work.join_next_with_id().await {
            self.ended(ended);
        }
    }

    /// Puts the routines of the configuration, and takes up the routine runs that were at work. Done again it changes nothing.
    async fn set_up(&mut self) -> Result<(), StoreError> {
        if self.service.registry.config.enabled {
            define(&self.service, &self.service.registry.defined()).await?;
        }
        heartbeat::set_up(&self.service).await?;
        for routine_run in self.service.routine_run_store.open_routine_runs().await? {
            self.lead(routine_run, None);
        }
        Ok(())
    }

    /// Takes what was handed over, and fires what is due. Returns when to look again.
    async fn tick(&mut self) -> Result<Duration, StoreError> {
        let unsure = self.take_handed().await;
        let pause = self.look().await?;
        Ok(if unsure { pause.min(AGAIN) } else { pause })
    }

    async fn look(&mut self) -> Result<Duration, StoreError> {
        let (service, now) = (self.service.clone(), self.service.clock.now());
        if self.shown_at.is_none_or(|at| now.0.saturating_sub(at.0).unsigned_abs() >= REFRESH_MS) {
            self.shown = show(&service, self.shown).await?;
            self.shown_at = self.shown.map(|_| now);
        }
        if !service.registry.config.enabled || self.places() == 0 {
            return Ok(TICK); // the end of any wakes it
        }
        let due = service.schedule.due(now, DUE_PAGE).await?;
        let found = due.len();
        match self.fire(due).await? {
            Capacity::Enough => {}
            Capacity::TakenHere => return Ok(TICK), // the end of any wakes it
            Capacity::TakenElsewhere => return Ok(ELSEWHERE),
        }
        if found == DUE_PAGE as usize {
            return Ok(Duration::ZERO); // there may be more
        }
        let next = service.schedule.next_due().await?;
        Ok(next.map_or(TICK, |next| {
            let left = u64::try_from(next.0.saturating_sub(service.clock.now().0)).unwrap_or(0);
            Duration::from_millis(left).clamp(if left == 0 { SOON } else { Duration::from_millis(1) }, TICK)
        }))
    }

    /// Does what is to be done about routines whose time has come, many side by side, so that they share commits; no more are
    /// claimed than there are places, and none once the store says that all are taken: it knows of claims that were not handed
    /// over yet. One that cannot be fired keeps no other from it.
    ///
    /// # Errors
    /// The last one.
    async fn fire(&mut self, due: Vec<RoutineRecord>) -> Result<Capacity, StoreError> {
        let (service, mut due) = (self.service.clone(), due.into_iter());
        let (mut under_way, mut claims, mut full, mut failed) = (FuturesUnordered::new(), 0, false, None);
        loop {
            while !full
                && under_way.len() < ABREAST
                && claims < self.places()
                && let Some(routine) = due.next()
            {
                let now = service.clock.now();
                let step = decide(&service, &routine, self.busy_until(&routine, now), now);
                let claim = step.is_claim();
                claims += usize::from(claim);
                let done = carry_out(&service, step);
                under_way.push(async move { (claim, routine, done.await) });
            }
            let Some((claim, routine, done)) = under_way.next().await else { break };
            claims -= usize::from(claim);
            match done {
                Ok(Done::Fired(routine_run)) => self.lead(*routine_run, Some(routine)),
                Ok(Done::NoRoom) => full = true,
                Ok(Done::Settled) => {}
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) => Err(error),
            None if full => Ok(Capacity::TakenElsewhere),
            None if due.len() > 0 => Ok(Capacity::TakenHere),
            None => Ok(Capacity::Enough),
        }
    }

    /// Leads on what others have claimed, and what was claimed by those who were not told so. What was not claimed is given up:
    /// whoever asked was told that it is not done. Returns whether the store has yet to say.
    async fn take_handed(&mut self) -> bool {
        let service = self.service.clone();
        let mut unsure = false;
        for handed in service.registry.take_handed() {
            let id = match handed {
                Handed::Claimed(routine_run) => {
                    self.lead(*routine_run, None);
                    continue;
                }
                Handed::Unsure(id) => id,
            };
            match service.routines.routine_run(id).await {
                Ok(Some(routine_run)) if routine_run.ended_at.is_none() => self.lead(routine_run, None),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, routine_run = %id, "whether a routine run was claimed cannot be seen; asking again");
                    service.registry.hand_over(Handed::Unsure(id));
                    unsure = true;
                }
            }
        }
        unsure
    }

    /// Routine runs for which there is room.
    fn places(&self) -> usize {
        (self.service.registry.config.max_concurrent as usize).saturating_sub(self.at_work.len())
    }

    /// Until when a routine is laid aside that has as many routine runs at work here as it may; `None`: it has fewer.
    fn busy_until(&self, routine: &RoutineRecord, now: UnixMillis) -> Option<UnixMillis> {
        let own = self.routine_runs.values().filter(|routine_run| routine_run.routine_id == routine.routine_id).count();
        let busy = own >= routine.spec.guard.max_concurrent as usize;
        busy.then(|| UnixMillis(now.0.saturating_add(ASIDE_MS)))
    }

    /// Leads a routine run to its end, unless that is being done. `routine`: the row that it was claimed with.
    fn lead(&mut self, routine_run: RoutineRunRecord, routine: Option<RoutineRecord>) {
        if self.routine_runs.values().any(|known| known.routine_run_id == routine_run.routine_run_id) {
            return;
        }
        let span = tracing::info_span!("routine_run", id = %routine_run.routine_run_id, routine = routine_run.routine);
        let task = self.at_work.spawn(pursue(self.service.clone(), routine_run.clone(), routine).instrument(span));
        self.routine_runs.insert(task.id(), routine_run);
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        match ended {
            Ok((id, ())) => {
                self.routine_runs.remove(&id);
            }
            Err(error) => {
                tracing::error!(%error, "the supervisor of a routine run crashed; it is given up");
                let Some(routine_run) = self.routine_runs.remove(&error.id()) else { return };
                let (service, given_up, stop) = (self.service.clone(), routine_run.clone(), self.stop.clone());
                let task = self.at_work.spawn(async move {
                    // Where the daemon ends first, the next start leads the routine run to its end.
                    persist("routine_settlement", &stop, || give_up(service.clone(), given_up.clone())).await;
                });
                self.routine_runs.insert(task.id(), routine_run);
            }
        }
    }
}

/// Reads which routines wait for messages and events, unless nothing was changed since `seen`. Returns the store's number of
/// changes as of which they are shown; `None`: one was changed meanwhile. A start does it before the first message is taken,
/// which would be answered as a conversation's otherwise.
///
/// # Errors
/// The store does not answer.
pub async fn show(service: &RoutineService, seen: Option<u64>) -> Result<Option<u64>, StoreError> {
    let number = service.schedule.changes().await?; // before the list: what is changed in between is read again
    if seen == Some(number) {
        return Ok(seen);
    }
    let changes = service.registry.changes();
    let routines = service.routines.routines().await?;
    Ok(service.registry.show(&routines, changes).then_some(number))
}
