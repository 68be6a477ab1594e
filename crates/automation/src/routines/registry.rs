//! State that the engine shares with the sources of its requests: the signal that wakes it, the claims for it, and the
//! routines that wait for messages and events.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use belay_protocol::{RoutineId, RoutineRecord, RoutineRunId, RoutineRunRecord, RoutineSpec};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::RoutinesConfig;
use super::events::EventSet;

/// The span in which webhook calls are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// Most claims without an answer that are kept for another look. Beyond that, the next start finds the routine runs.
const UNSURE_MAX: usize = 256;

/// Webhooks whose calls are kept before those without a call in the last minute are removed.
const WEBHOOKS_KEPT: usize = 256;

/// A claim that is handed to the engine.
#[derive(Debug)]
pub(super) enum Handed {
    /// A claimed routine run.
    Claimed(Box<RoutineRunRecord>),
    /// A claim that the store did not answer. It may have succeeded, although the requester got an error.
    Unsure(RoutineRunId),
}

#[derive(Default)]
struct Events {
    set: Arc<EventSet>,
    /// The number of changes of routines.
    changes: u64,
}

/// Shared by the engine, the dispatcher and the sources of requests.
pub struct RoutineRegistry {
    /// `[routines]`.
    pub config: RoutinesConfig,
    /// The routines of the configuration; a reload of the settings replaces them as a whole.
    defined: ArcSwap<Vec<RoutineSpec>>,
    /// Wakes the engine.
    bell: Notify,
    /// Claims that the engine has not taken yet. At most as many as routine runs may be in progress at once. After a
    /// crash, the next start finds them in the store.
    handed: Mutex<Vec<Handed>>,
    /// The lock is held while the set changes, never across an await.
    events: RwLock<Events>,
    /// When each webhook was last called: the accepted calls of the last minute, at most the permitted number.
    webhooks: Mutex<HashMap<RoutineId, VecDeque<Instant>>>,
}

impl RoutineRegistry {
    /// A registry without any stored routine.
    pub fn new(config: RoutinesConfig) -> Self {
        Self {
            defined: ArcSwap::from_pointee(config.define.clone()),
            config,
            bell: Notify::new(),
            handed: Mutex::default(),
            events: RwLock::default(),
            webhooks: Mutex::default(),
        }
    }

    /// The routines of the configuration.
    pub(super) fn defined(&self) -> Arc<Vec<RoutineSpec>> {
        self.defined.load_full()
    }

    /// Replaces the routines of the configuration.
    pub(super) fn adopt(&self, defined: Vec<RoutineSpec>) {
        self.defined.store(Arc::new(defined));
    }

    /// Wakes the engine.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// Waits until the engine is woken. A wake-up is kept while nobody waits.
    pub(super) async fn changed(&self) {
        self.bell.notified().await;
    }

    /// Hands a claim to the engine. [`Self::ring`] wakes it.
    pub(super) fn hand_over(&self, handed: Handed) {
        let mut all = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(handed, Handed::Unsure(_)) && all.len() >= UNSURE_MAX {
            return tracing::warn!("too many claims are unsure; what was claimed is found by the next start");
        }
        all.push(handed);
    }

    /// Takes the claims that were handed over since the last call.
    pub(super) fn take_handed(&self) -> Vec<Handed> {
        std::mem::take(&mut *self.handed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The routines that wait for messages and events.
    pub fn events(&self) -> Arc<EventSet> {
        self.events.read().unwrap_or_else(PoisonError::into_inner).set.clone()
    }

    /// The number of changes of routines, for [`Self::show`].
    pub(super) fn changes(&self) -> u64 {
        self.events.read().unwrap_or_else(PoisonError::into_inner).changes
    }

    /// Replaces the set by these routines, which were read at change number `changes`. Returns `false`, and replaces
    /// nothing, when a routine has changed since.
    pub(super) fn show(&self, routines: &[RoutineRecord], changes: u64) -> bool {
        let set = Arc::new(EventSet::of(routines, &self.events()));
        let mut events = self.events.write().unwrap_or_else(PoisonError::into_inner);
        let current = events.changes == changes;
        if current {
            events.set = set;
        }
        current
    }

    /// Inserts or replaces a changed routine and wakes the engine.
    pub(super) fn put(&self, routine: &RoutineRecord) {
        self.change(|set| set.put(routine));
    }

    /// Removes a deleted or disabled routine and wakes the engine.
    pub(super) fn remove(&self, name: &str) {
        self.change(|set| set.remove(name));
    }

    fn change(&self, change: impl FnOnce(&mut EventSet)) {
        {
            let mut events = self.events.write().unwrap_or_else(PoisonError::into_inner);
            events.changes += 1;
            change(Arc::make_mut(&mut events.set));
        }
        self.ring();
    }

    /// Admits a call of a routine's webhook, or returns how long to wait. The limit applies to each routine
    /// separately.
    pub(super) fn admit_webhook(&self, routine: RoutineId) -> Result<(), Duration> {
        let (now, most) = (Instant::now(), self.config.webhooks_per_minute as usize);
        let is_old = |called: &Instant| now.duration_since(*called) >= MINUTE;
        let mut all = self.webhooks.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= WEBHOOKS_KEPT && !all.contains_key(&routine) {
            all.retain(|_, calls| calls.back().is_some_and(|newest| !is_old(newest)));
        }
        let calls = all.entry(routine).or_default();
        while calls.front().is_some_and(is_old) {
            calls.pop_front();
        }
        match calls.front() {
            Some(first) if calls.len() >= most => Err(MINUTE.saturating_sub(now.duration_since(*first))),
            _ => {
                calls.push_back(now);
                Ok(())
            }
        }
    }
}
