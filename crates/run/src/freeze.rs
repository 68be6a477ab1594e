//! The freezes in force, for everything that begins work. While nothing is frozen, a check reads one flag.
//!
//! A freeze takes effect in memory first, and then in the store: nothing begins while it is written. The dispatcher
//! changes it; lanes, turns, jobs and routines read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use belay_protocol::{Freeze, FreezeId, FreezeScope, FreezeStore, StopReason, StoreError, UnixMillis};
use tokio::sync::watch;

use crate::live::{RunOrigin, StopCause};

/// The freezes in force.
pub struct Freezer {
    store: Arc<dyn FreezeStore>,
    /// Whether anything is frozen. Set before and cleared after `in_force` changes.
    any: AtomicBool,
    in_force: watch::Sender<Arc<[Freeze]>>,
}

impl Freezer {
    /// Loads the freezes of earlier starts.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn load(store: Arc<dyn FreezeStore>) -> Result<Self, StoreError> {
        let in_force: Arc<[Freeze]> = store.freezes().await?.into();
        Ok(Self { store, any: AtomicBool::new(!in_force.is_empty()), in_force: watch::Sender::new(in_force) })
    }

    /// The freezes in force, oldest first.
    pub fn in_force(&self) -> Arc<[Freeze]> {
        if !self.any.load(Ordering::Acquire) {
            return Arc::default();
        }
        self.in_force.borrow().clone()
    }

    /// The freeze that keeps the work of this origin from beginning.
    pub fn holds(&self, origin: &RunOrigin) -> Option<Freeze> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        first(&self.in_force.borrow(), origin).cloned()
    }

    /// Like [`Freezer::holds`], for a run that has just begun: either this call sees a freeze, or the stop of the
    /// freeze sees the run.
    pub fn holds_begun(&self, origin: &RunOrigin) -> Option<Freeze> {
        fence(Ordering::SeqCst);
        self.holds(origin)
    }

    /// Whether everything is frozen.
    pub fn holds_everything(&self) -> bool {
        self.any.load(Ordering::Acquire) && self.in_force.borrow().iter().any(|freeze| freeze.scope == FreezeScope::All)
    }

    /// The freeze of this routine, or of everything.
    pub fn holds_routine(&self, routine: &str) -> Option<Freeze> {
        let is_meant = |scope: &FreezeScope| match scope {
            FreezeScope::All => true,
            FreezeScope::Routine { name } => name == routine,
            FreezeScope::Person { .. } | FreezeScope::Channel { .. } => false,
        };
        self.in_force().iter().find(|freeze| is_meant(&freeze.scope)).cloned()
    }

    /// Waits until nothing keeps the work of this origin from beginning.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn thawed(&self, origin: &RunOrigin) {
        if self.any.load(Ordering::Acquire) {
            let mut changes = self.in_force.subscribe();
            // The sender lives as long as `self`, so the wait cannot fail.
            let _ = changes.wait_for(|in_force| first(in_force, origin).is_none()).await;
        }
    }

    /// Puts a freeze in force, in memory. Returns the freeze of this scope: this one, or the one that was in force
    /// before.
    pub fn hold(&self, freeze: Freeze) -> Freeze {
        let mut held = None;
        self.any.store(true, Ordering::Release);
        self.in_force.send_if_modified(|in_force| {
            held = in_force.iter().find(|other| other.scope == freeze.scope).cloned();
            if held.is_none() {
                *in_force = in_force.iter().cloned().chain([freeze.clone()]).collect();
            }
            held.is_none()
        });
        fence(Ordering::SeqCst);
        held.unwrap_or(freeze)
    }

    /// Ends the freeze of this scope, in memory.
    pub fn release(&self, scope: &FreezeScope) -> Option<Freeze> {
        let mut released = None;
        self.in_force.send_if_modified(|in_force| {
            released = in_force.iter().find(|freeze| freeze.scope == *scope).cloned();
            if released.is_some() {
                *in_force = in_force.iter().filter(|freeze| freeze.scope != *scope).cloned().collect();
                self.any.store(!in_force.is_empty(), Ordering::Release);
            }
            released.is_some()
        });
        released
    }

    /// Writes a freeze, or its receipt, to the store and to the freezes in force.
    ///
    /// # Errors
    /// The store fails; then a restart may forget the freeze.
    pub async fn keep(&self, freeze: Freeze) -> Result<(), StoreError> {
        self.in_force.send_if_modified(|in_force| {
            *in_force = in_force
                .iter()
                .map(|other| if other.id == freeze.id { freeze.clone() } else { other.clone() })
                .collect();
            false // nobody waits for a receipt
        });
        self.store.put_freeze(freeze).await
    }

    /// Writes the end of a freeze to the store.
    ///
    /// # Errors
    /// The store fails; then a restart may find the freeze in force.
    pub async fn end(&self, freeze: Freeze, at: UnixMillis) -> Result<(), StoreError> {
        self.store.thaw(freeze, at).await
    }
}

/// The cause of the stops of a freeze.
pub fn cause(freeze: FreezeId) -> StopCause {
    StopCause { freeze: Some(freeze), ..StopCause::of(StopReason::OperatorStop) }
}

fn first<'a>(in_force: &'a [Freeze], origin: &RunOrigin) -> Option<&'a Freeze> {
    in_force.iter().find(|freeze| freeze.scope.covers(origin.work, &origin.channel, &origin.principal))
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use belay_protocol::Work;

    use super::*;

    /// A store that keeps nothing.
    struct Nowhere;

    #[async_trait]
    impl FreezeStore for Nowhere {
        async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
            Ok(Vec::new())
        }

        async fn put_freeze(&self, _: Freeze) -> Result<(), StoreError> {
            Ok(())
        }

        async fn thaw(&self, _: Freeze, _: UnixMillis) -> Result<(), StoreError> {
            Ok(())
        }
    }

    fn freeze(scope: FreezeScope) -> Freeze {
        let (id, actor) = (FreezeId::new(), "op".to_owned());
        Freeze { id, scope, detail: None, actor, source: "http".into(), at: UnixMillis(1), receipt: None }
    }

    fn origin(principal: &str) -> RunOrigin {
        RunOrigin { work: Work::Chat, channel: "telegram".into(), principal: principal.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_holds_its_scope_until_the_release_and_a_second_one_changes_nothing() {
        let freezer = Freezer::load(Arc::new(Nowhere)).await.expect("loaded");
        let (ann, bob) = (origin("ann"), origin("bob"));
        freezer.thawed(&ann).await;
        let first = freezer.hold(freeze(FreezeScope::person("ann")));
        assert_eq!(freezer.hold(freeze(FreezeScope::person("ann"))).id, first.id);
        assert_eq!((freezer.holds(&ann).map(|freeze| freeze.id), freezer.holds(&bob)), (Some(first.id), None));
        assert!(!freezer.holds_everything());
        let tick = freezer.hold(freeze(FreezeScope::Routine { name: "tick".into() }));
        assert_eq!(freezer.holds_routine("tick").map(|freeze| freeze.id), Some(tick.id));
        assert_eq!((freezer.holds_routine("tock"), freezer.in_force().len()), (None, 2));

        let waiting = freezer.thawed(&ann);
        tokio::pin!(waiting);
        let moment = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(moment, &mut waiting).await.is_err(), "it is held");
        assert_eq!(freezer.release(&FreezeScope::All), None);
        assert_eq!(freezer.release(&FreezeScope::person("ann")).map(|freeze| freeze.id), Some(first.id));
        waiting.await;
        assert!(freezer.release(&tick.scope).is_some() && freezer.in_force().is_empty());
    }
}
