//! What the engine and those who ask for routines share: what wakes it, what was claimed for it, and which messages and events
//! set routines off.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use belay_protocol::{RoutineId, RoutineRecord, RoutineRunId, RoutineRunRecord, RoutineSpec};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::config::RoutinesConfig;
use super::events::EventSet;

/// The span in which calls of webhooks are counted.
const MINUTE: Duration = Duration::from_secs(60);

/// Claims whose answer was lost that are kept to be asked about again. Then: the next start finds what was claimed.
const UNSURE_MAX: usize = 256;

/// Webhooks whose calls are kept before those are looked for that were silent for a minute.
const WEBHOOKS_KEPT: usize = 256;

/// What the engine is handed.
#[derive(Debug)]
pub(super) enum Handed {
    /// A routine run that was claimed.
    Claimed(Box<RoutineRunRecord>),
    /// A claim that the store did not answer: it may have been made, though whoever asked was told that it was not.
    Unsure(RoutineRunId),
}

#[derive(Default)]
struct Events {
    set: Arc<EventSet>,
    /// How often a routine was changed.
    changes: u64,
}

/// Shared by the engine, the dispatcher, and whoever asks for routines.
pub struct RoutineRegistry {
    /// Its settings.
    pub config: RoutinesConfig,
    /// The routines of the configuration, swapped as a whole when the settings are reloaded.
    defined: ArcSwap<Vec<RoutineSpec>>,
    /// Wakes the engine.
    bell: Notify,
    /// Not taken by the engine yet. No more is claimed than may be at work at once; after a crash the next start finds it in
    /// the store.
    handed: Mutex<Vec<Handed>>,
    /// Held for a change of the set, never across an await.
    events: RwLock<Events>,
    /// When the newest calls of each webhook were let through: those of the last minute, and no more than may be.
    webhooks: Mutex<HashMap<RoutineId, VecDeque<Instant>>>,
}

impl RoutineRegistry {
    /// Nothing is known of any routine yet.
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

    /// The configuration has these routines now.
    pub(super) fn adopt(&self, defined: Vec<RoutineSpec>) {
        self.defined.store(Arc::new(defined));
    }

    /// Something has changed: the engine looks again.
    pub(super) fn ring(&self) {
        self.bell.notify_one();
    }

    /// Waits until something has changed. What changes while nobody waits is not missed.
    pub(super) async fn changed(&self) {
        self.bell.notified().await;
    }

    /// Hands something to the engine, which [`Self::ring`] tells of it.
    pub(super) fn hand_over(&self, handed: Handed) {
        let mut all = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(handed, Handed::Unsure(_)) && all.len() >= UNSURE_MAX {
            return tracing::warn!("too many claims are unsure; what was claimed is found by the next start");
        }
        all.push(handed);
    }

    /// What was handed over since.
    pub(super) fn take_handed(&self) -> Vec<Handed> {
        std::mem::take(&mut *self.handed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What sets routines off that wait for messages and events.
    pub fn events(&self) -> Arc<EventSet> {
        self.events.read().unwrap_or_else(PoisonError::into_inner).set.clone()
    }

    /// How often a routine was changed: for [`Self::show`].
    pub(super) fn changes(&self) -> u64 {
        self.events.read().unwrap_or_else(PoisonError::into_inner).changes
    }

    /// Shows the routines as they were read after `changes` of them. Whether they are shown: not where one was changed since.
    pub(super) fn show(&self, routines: &[RoutineRecord], changes: u64) -> bool {
        let set = Arc::new(EventSet::of(routines, &self.events()));
        let mut events = self.events.write().unwrap_or_else(PoisonError::into_inner);
        let current = events.changes == changes;
        if current {
            events.set = set;
        }
        current
    }

    /// A routine was changed; the engine looks again.
    pub(super) fn put(&self, routine: &RoutineRecord) {
        self.change(|set| set.put(routine));
    }

    /// A routine is gone.
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

    /// Lets a call of a routine's webhook through, or says how long to wait. What one of them is called with holds back no other.
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
