//! The engine: fires what is due, and leads what was claimed to its end.
//!
//! ```text
//!            due ──▶ reckon ──▶ claim (store) ──┐
//!  requests, messages, events ──▶ claim (store) ─┴─▶ a task for each firing ──▶ run or job ──▶ settle (store)
//! ```
//!
//! It decides from the store alone: a scheduled time is claimed, durably, before anything is done for it, so of two engines on
//! one store one has it, and the clock may jump as it likes. On a start it goes on with the firings that it finds at work.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Asker, Claim, FiringId, FiringRecord, NewFiring, NewRoutine, Place, Purpose, PutBy, PutRule, RoutineId,
    RoutineOrigin, RoutinePut, RoutineRecord, StoreError, UnixMillis,
};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::board::Handed;
use super::firing::{give_up, pursue};
use super::reckon::{Reckoning, cools_until, reckon};
use super::{check, heartbeat};
use crate::house::House;
use crate::metrics;

/// Longest sleep: by then it is seen that the clock was set.
const TICK: Duration = Duration::from_secs(15);
/// How often what waits for messages and events is read anew: another daemon may have changed it.
const REFRESH_MS: i64 = 60_000;
/// Due routines that are read at once.
const DUE_PAGE: u32 = 256;
/// Pause where routines are due that could not be fired, so that those which become due meanwhile are not late.
const SOON: Duration = Duration::from_millis(100);
/// How long a late routine is laid aside at a time while its own firings are at work; the end of one of them ends that.
const ASIDE_MS: i64 = 60_000;
/// Pause before the beginning is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// The engine's task.
pub(crate) struct Engine {
    house: Arc<House>,
    /// Fires nothing any more; what is at work is awaited.
    stop: CancellationToken,
    /// One task for each firing at work; ends with the engine.
    at_work: JoinSet<()>,
    firings: HashMap<Id, FiringRecord>,
    /// When what waits for messages and events was read.
    shown_at: Option<UnixMillis>,
}

impl Engine {
    pub(crate) fn new(house: Arc<House>, stop: CancellationToken) -> Self {
        Self { house, stop, at_work: JoinSet::new(), firings: HashMap::new(), shown_at: None }
    }

    /// Works until told to stop, and then until what is at work has ended.
    ///
    /// # Cancel safety
    /// Dropped, everything goes on with the next start.
    pub(crate) async fn run(mut self) {
        while let Err(error) = self.set_up().await {
            tracing::error!(%error, "routines could not be taken up; trying again");
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep(AGAIN) => {}
            }
        }
        let house = self.house.clone();
        while !self.stop.is_cancelled() {
            let pause = self.tick().await.unwrap_or_else(|error| {
                tracing::error!(%error, "routines could not be looked at; trying again");
                AGAIN
            });
            tokio::select! {
                biased; // the end first; then a place that has become free
                () = self.stop.cancelled() => {}
                Some(ended) = self.at_work.join_next_with_id() => self.ended(ended),
                () = house.routines.changed() => {}
                () = sleep(pause) => {}
            }
        }
        while let Some(ended) = self.at_work.join_next_with_id().await {
            self.ended(ended);
        }
    }

    /// Puts the routines of the configuration, and takes up the firings that were at work. Done again it changes nothing.
    async fn set_up(&mut self) -> Result<(), StoreError> {
        if self.house.routines.config.enabled {
            self.define().await?;
        }
        heartbeat::set_up(&self.house).await?;
        for firing in self.house.store.routines.open_firings().await? {
            self.lead(firing);
        }
        Ok(())
    }

    async fn define(&self) -> Result<(), StoreError> {
        let (store, now) = (&self.house.store.routines, self.house.clock.now());
        let config = &self.house.routines.config;
        let all = store.routines().await?;
        let by_name: BTreeMap<&str, &RoutineRecord> = all.iter().map(|old| (old.spec.name.as_str(), old)).collect();
        for spec in &config.define {
            let old = by_name.get(spec.name.as_str()).copied();
            if old.is_some_and(|old| old.origin == RoutineOrigin::Made) {
                tracing::warn!(
                    routine = spec.name,
                    "somebody has made a routine of this name; the configuration's has it now"
                );
            }
            let (spec, schedule) = match check::written_out(spec.clone(), old, now) {
                Ok(written) => written,
                Err(error) => {
                    tracing::error!(routine = spec.name, %error, "a routine of the configuration is passed over");
                    continue;
                }
            };
            let name = spec.name.clone();
            let new = NewRoutine {
                id: RoutineId::new(),
                spec,
                creator: Asker { principal: "config".into(), place: Place::Operator, relayed: false },
                channel: Purpose::Routine.channel(),
                made_in: "config".into(),
                reply_to: None,
                origin: RoutineOrigin::Config,
                next_at: schedule.and_then(|schedule| schedule.next_after(now)),
                at: now,
            };
            let (next_at, back) = (new.next_at, old.is_some_and(was_gone));
            match store.put(new, PutRule { fresh: false, by: PutBy::Config }).await? {
                RoutinePut::Done(_) if back => {
                    store.enable(&name, true, "", next_at, now).await?;
                }
                RoutinePut::Done(_) => {}
                RoutinePut::Refused(why) | RoutinePut::Forbidden(why) => {
                    tracing::error!(routine = name, why, "a routine of the configuration is passed over");
                }
            }
        }
        for routine in &all {
            let name = &routine.spec.name;
            if routine.origin == RoutineOrigin::Config && routine.enabled && !config.defines(name) {
                tracing::info!(routine = name, "the configuration has this routine no more; it is switched off");
                store.enable(name, false, GONE, None, now).await?;
            }
        }
        Ok(())
    }

    /// Fires what is due. Returns when to look again.
    async fn tick(&mut self) -> Result<Duration, StoreError> {
        let (house, now) = (self.house.clone(), self.house.clock.now());
        self.take_handed().await?;
        if self.shown_at.is_none_or(|at| (now.0.saturating_sub(at.0)).unsigned_abs() >= REFRESH_MS.unsigned_abs()) {
            let shown = show(&house).await?;
            self.shown_at = Some(now).filter(|_| shown);
        }
        if !house.routines.config.enabled || self.is_full() {
            return Ok(TICK);
        }
        let mut failed = None;
        for routine in house.store.routines.due(now, DUE_PAGE).await? {
            if self.is_full() {
                return failed.map_or(Ok(TICK), Err); // the end of any wakes it
            }
            // One that cannot be fired keeps no other from it.
            failed = self.fire(routine, now).await.err().or(failed);
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let next = house.store.routines.next_due().await?;
        Ok(next.map_or(TICK, |next| {
            let left = u64::try_from(next.0.saturating_sub(house.clock.now().0)).unwrap_or(0);
            Duration::from_millis(left).clamp(if left == 0 { SOON } else { Duration::from_millis(1) }, TICK)
        }))
    }

    /// Leads on what others have claimed, and asks again about claims that were not answered.
    async fn take_handed(&mut self) -> Result<(), StoreError> {
        let house = self.house.clone();
        let mut failed = None;
        for handed in house.routines.take_handed() {
            let new = match handed {
                Handed::Claimed(firing) => {
                    self.lead(*firing);
                    continue;
                }
                Handed::Unsure(new) => new,
            };
            match house.store.routines.claim((*new).clone(), house.routines.config.max_concurrent).await {
                Ok(Claim::Claimed(firing)) => self.lead(*firing),
                Ok(Claim::Known(firing)) if firing.firing_id == new.id && firing.ended_at.is_none() => {
                    self.lead(*firing)
                }
                Ok(_) => {}
                Err(error) => {
                    house.routines.hand_over(Handed::Unsure(new));
                    failed = Some(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    fn is_full(&self) -> bool {
        self.at_work.len() >= self.house.routines.config.max_concurrent as usize
    }

    /// Claims the time of a routine that is due, and leads the firing on; or passes its times over, by its policy.
    async fn fire(&mut self, routine: RoutineRecord, now: UnixMillis) -> Result<(), StoreError> {
        let (house, store) = (self.house.clone(), &self.house.store.routines);
        let config = &house.routines.config;
        let name = &routine.spec.name;
        let reckoning = match reckon(&routine, config.grace(), now) {
            Ok(Some(reckoning)) => reckoning,
            Ok(None) => {
                return store.miss(routine.routine_id, Vec::new(), None, now).await; // it has no schedule any more
            }
            Err(error) => {
                tracing::error!(%error, routine = name, "the schedule of a routine cannot be read; it is switched off");
                store.enable(name, false, &format!("its schedule cannot be read: {error}"), None, now).await?;
                return Ok(());
            }
        };
        let Reckoning { fire, missed, next, catches_up } = reckoning;
        let Some(time) = fire else {
            let times = missed.len();
            store.miss(routine.routine_id, missed, next, now).await?;
            metrics::scheduled_missed(times);
            return Ok(());
        };
        if catches_up && let Some(until) = self.held_until(&routine, now) {
            return store.defer(routine.routine_id, until).await; // what is late anyway waits until nothing holds it back
        }
        let passed_over = missed.len();
        let firing = NewFiring {
            id: FiringId::new(),
            routine_id: routine.routine_id,
            routine: name.clone(),
            by: routine.spec.trigger.word(),
            key: time.0.to_string(),
            echo: None,
            scheduled_at: Some(time),
            by_hand: false,
            detail: String::new(),
            payload: None,
            content: None,
            missed,
            next_at: next,
            boot: house.boot,
            at: now,
        };
        let claim = store.claim(firing.clone(), config.max_concurrent).await.inspect_err(|_| {
            house.routines.hand_over(Handed::Unsure(Box::new(firing)));
        })?;
        match claim {
            Claim::Claimed(firing) => {
                metrics::scheduled_fired(now.0.saturating_sub(time.0));
                metrics::scheduled_missed(passed_over);
                self.lead(*firing);
            }
            Claim::Held(held) => {
                metrics::scheduled_missed(passed_over + 1);
                tracing::info!(routine = name, held = held.word(), "a scheduled time is held back");
            }
            Claim::Known(_) => tracing::debug!(routine = name, "this time was claimed before"),
            Claim::Off(why) => tracing::debug!(routine = name, why, "a scheduled time does not fire"),
        }
        Ok(())
    }

    /// Until when a guardrail would hold a routine back, as far as it can be seen here.
    fn held_until(&self, routine: &RoutineRecord, now: UnixMillis) -> Option<UnixMillis> {
        let own = self.firings.values().filter(|firing| firing.routine_id == routine.routine_id).count();
        let busy = own >= routine.spec.guard.max_concurrent as usize;
        busy.then(|| UnixMillis(now.0.saturating_add(ASIDE_MS))).or_else(|| cools_until(routine, now))
    }

    /// Leads a firing to its end, unless that is being done.
    fn lead(&mut self, firing: FiringRecord) {
        if self.firings.values().any(|known| known.firing_id == firing.firing_id) {
            return;
        }
        let span = tracing::info_span!("firing", id = %firing.firing_id, routine = firing.routine);
        let task = self.at_work.spawn(pursue(self.house.clone(), firing.clone()).instrument(span));
        self.firings.insert(task.id(), firing);
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        match ended {
            Ok((id, ())) => {
                self.firings.remove(&id);
            }
            Err(error) => {
                tracing::error!(%error, "the care for a firing crashed; it is given up");
                let Some(firing) = self.firings.remove(&error.id()) else { return };
                let task = self.at_work.spawn(give_up(self.house.clone(), firing.clone()));
                self.firings.insert(task.id(), firing);
            }
        }
    }
}

/// Reads which routines wait for messages and events. Whether they are shown: not where one was changed meanwhile. A start does
/// it before the first message is taken, which would be answered as a conversation's otherwise.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn show(house: &House) -> Result<bool, StoreError> {
    let changes = house.routines.changes();
    let routines = house.store.routines.routines().await?;
    Ok(house.routines.show(&routines, changes))
}

/// Why a routine is off that the configuration has no more.
const GONE: &str = "the configuration has it no more";

/// Whether a routine was switched off since it was gone, and for no other reason.
fn was_gone(routine: &RoutineRecord) -> bool {
    !routine.enabled && routine.disabled_why == GONE
}
