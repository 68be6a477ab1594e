//! The engine: starts the routines that are due, and follows each claimed routine run to its end.
//!
//! ```text
//!            due ──▶ reckon ──▶ claim (store) ──┐
//!  requests, messages, events ──▶ claim (store) ─┴─▶ a task for each routine run ──▶ run or job ──▶ settle (store)
//! ```
//!
//! It decides from the store alone. A durable claim of a scheduled time precedes its routine run. Of two engines on
//! one store, therefore, only one gets a time, and changes of the clock do no harm. At a start, the engine takes over the
//! open routine runs of earlier starts. In a cluster, it also looks after each change of routines by another node, and
//! takes over the routine runs of nodes that end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{RoutineRecord, RoutineRunRecord, StoreError, Topic, UnixMillis};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::define::define;
use super::heartbeat;
use super::registry::Handed;
use super::routine_run::{drive, give_up};
use super::service::RoutineService;
use super::step::{Done, carry_out, decide};
use crate::wakes::Wakes;
use belay_run::restart::persist;

/// Longest sleep: the engine notices a change of the clock within this time.
const TICK: Duration = Duration::from_secs(15);
/// How often the engine reloads the routines that wait for messages and events. Another daemon may have changed them.
const REFRESH_MS: u64 = 15_000;
/// Due routines that are read at once.
const DUE_PAGE: u32 = 256;
/// Concurrent writes about due routines. Concurrent writes share a commit.
const ABREAST: usize = 32;
/// Pause when a routine is due and could not be started. Routines that become due meanwhile are hardly late.
const SOON: Duration = Duration::from_millis(100);
/// Pause when the store counts more routine runs in progress than this engine follows. A claim by a request is handed
/// over sooner. No message reports the end of a run of another daemon.
const ELSEWHERE: Duration = Duration::from_secs(1);
/// How long a due routine is deferred while its own routine runs use its concurrency. The end of one of them also ends
/// the deferral.
const ASIDE_MS: i64 = 60_000;
/// Least time between two looks because another node of a cluster has changed routines.
const AFTER_CHANGES: Duration = Duration::from_millis(100);
/// Least time between two looks for routine runs of nodes that have ended.
const AFTER_NODES: Duration = Duration::from_secs(1);
/// Pause before a failed start or tick is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// Whether there were enough slots for the due routines.
enum Capacity {
    /// Each due routine was handled.
    Enough,
    /// The engine's own routine runs use all slots; the other due routines wait.
    TakenHere,
    /// The store counts as many routine runs in progress as there are slots; the other due routines wait.
    TakenElsewhere,
}

/// The task of the engine.
pub struct Engine {
    service: Arc<RoutineService>,
    /// When cancelled, the engine starts no more routines and waits for the routine runs in progress.
    stop: CancellationToken,
    /// One task for each routine run in progress; all end with the engine.
    at_work: JoinSet<()>,
    routine_runs: HashMap<Id, RoutineRunRecord>,
    /// The store's change number of the routines that the registry shows for messages and events.
    shown: Option<u64>,
    /// When the engine last compared that number with the store's.
    shown_at: Option<UnixMillis>,
}

impl Engine {
    /// An engine that ends when `stop` is cancelled.
    pub fn new(service: Arc<RoutineService>, stop: CancellationToken) -> Self {
        Self { service, stop, at_work: JoinSet::new(), routine_runs: HashMap::new(), shown: None, shown_at: None }
    }

    /// Works until `stop` is cancelled. Then waits until the routine runs in progress have ended.
    ///
    /// # Cancel safety
    /// When dropped, everything continues at the next start.
    pub async fn run(mut self) {
        while let Err(error) = self.set_up().await {
            tracing::error!(%error, "routines could not be resumed; trying again");
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(AGAIN) => {}
            }
        }
        let service = self.service.clone();
        let mut changes = Wakes::new(service.hints.as_ref(), Topic::Routines, AFTER_CHANGES);
        let mut nodes = Wakes::new(service.hints.as_ref(), Topic::Nodes, AFTER_NODES);
        while !self.stop.is_cancelled() {
            let pause = self.tick().await.unwrap_or_else(|error| {
                tracing::error!(%error, "routines could not be looked at; trying again");
                AGAIN
            });
            tokio::select! {
                biased; // the end first; then a free slot
                () = self.stop.cancelled() => {}
                Some(ended) = self.at_work.join_next_with_id() => self.ended(ended),
                () = service.registry.changed() => {}
                () = nodes.next() => self.take_over().await.unwrap_or_else(|error| {
                    tracing::warn!(%error, "the routine runs of ended nodes could not be looked for; trying again");
                }),
                () = changes.next() => self.shown_at = None, // looks at the triggers too
                () = sleep(pause) => {}
            }
        }
        while let Some(ended) = self.at_work.join_next_with_id().await {
            self.ended(ended);
        }
    }

    /// Stores the routines of the configuration, and follows the open routine runs of the store. A repetition changes
    /// nothing.
    async fn set_up(&mut self) -> Result<(), StoreError> {
        if self.service.registry.config.enabled {
            define(&self.service, &self.service.registry.defined()).await?;
        }
        heartbeat::set_up(&self.service).await?;
        self.take_over().await
    }

    /// Takes over the open routine runs of earlier starts and of ended nodes. A repetition follows each of them once.
    async fn take_over(&mut self) -> Result<(), StoreError> {
        for routine_run in self.service.routine_run_store.open_routine_runs(self.service.boot).await? {
            self.lead(routine_run);
        }
        Ok(())
    }

    /// Takes over the claims of requests, and starts the routines that are due. Returns the time until the next tick.
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
            return Ok(TICK); // the end of a routine run wakes the engine
        }
        // After the thaw, which wakes the engine, times that have passed follow the misfire rule of their routine.
        if service.run.freezer.holds_everything() {
            return Ok(TICK);
        }
        let due = service.schedule.due(now, DUE_PAGE).await?;
        let found = due.len();
        let is_held = |routine: &RoutineRecord| service.run.freezer.holds_routine(routine).is_some();
        let (held, due): (Vec<_>, Vec<_>) = due.into_iter().partition(is_held);
        match self.fire(due).await? {
            Capacity::Enough => {}
            Capacity::TakenHere => return Ok(TICK), // the end of a routine run wakes the engine
            Capacity::TakenElsewhere => return Ok(ELSEWHERE),
        }
        if !held.is_empty() {
            return Ok(ELSEWHERE); // they stay due, so that neither the page nor the next due time says what else is
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

    /// Handles due routines concurrently, so that their writes share commits. It claims no more routine runs than
    /// there are free slots. It stops when the store reports that no slot is free, since the store also counts claims
    /// that were not handed over yet. A routine that cannot be started does not block the others.
    ///
    /// # Errors
    /// The last error of the store.
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
                under_way.push(async move { (claim, done.await) });
            }
            let Some((claim, done)) = under_way.next().await else { break };
            claims -= usize::from(claim);
            match done {
                Ok(Done::Fired(routine_run)) => self.lead(*routine_run),
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

    /// Follows the routine runs that requests have claimed, also those whose claim had no answer from the store. A
    /// claim that the store does not have is dropped: the requester already got an error. Returns whether a claim is
    /// still uncertain.
    async fn take_handed(&mut self) -> bool {
        let service = self.service.clone();
        let mut unsure = false;
        for handed in service.registry.take_handed() {
            let id = match handed {
                Handed::Claimed(routine_run) => {
                    self.lead(*routine_run);
                    continue;
                }
                Handed::Unsure(id) => id,
            };
            match service.routines.routine_run(id).await {
                Ok(Some(routine_run)) if routine_run.ended_at.is_none() => self.lead(routine_run),
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

    /// The number of free slots.
    fn places(&self) -> usize {
        (self.service.registry.config.max_concurrent as usize).saturating_sub(self.at_work.len())
    }

    /// Until when a routine is deferred that has as many routine runs here as it may. `None`: it has fewer.
    fn busy_until(&self, routine: &RoutineRecord, now: UnixMillis) -> Option<UnixMillis> {
        let own = self.routine_runs.values().filter(|routine_run| routine_run.routine_id == routine.routine_id).count();
        let busy = own >= routine.spec.guard.max_concurrent as usize;
        busy.then(|| UnixMillis(now.0.saturating_add(ASIDE_MS)))
    }

    /// Follows a routine run to its end, unless a task already does.
    fn lead(&mut self, routine_run: RoutineRunRecord) {
        if self.routine_runs.values().any(|known| known.routine_run_id == routine_run.routine_run_id) {
            return;
        }
        let span = tracing::info_span!("routine_run", id = %routine_run.routine_run_id, routine = routine_run.routine);
        let task = self.at_work.spawn(drive(self.service.clone(), routine_run.clone()).instrument(span));
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
                    // When the daemon ends first, the next start follows the routine run to its end.
                    persist("routine_settlement", &stop, || give_up(service.clone(), given_up.clone())).await;
                });
                self.routine_runs.insert(task.id(), routine_run);
            }
        }
    }
}

/// Loads the routines that wait for messages and events into the registry, unless nothing has changed since `seen`.
/// Returns the store's change number of the loaded routines, or `None` when a routine changed during the load. A start
/// must call it before it accepts the first message; otherwise a trigger message would be answered as a conversation.
///
/// # Errors
/// The store does not answer.
pub async fn show(service: &RoutineService, seen: Option<u64>) -> Result<Option<u64>, StoreError> {
    let number = service.schedule.changes().await?; // before the list: a change in between leads to another load
    if seen == Some(number) {
        return Ok(seen);
    }
    let changes = service.registry.changes();
    let routines = service.routines.routines().await?;
    Ok(service.registry.show(&routines, changes).then_some(number))
}
