//! The freezes in force, for everything that begins work. While nothing is frozen, a check reads one flag.
//!
//! A freeze takes effect in memory first, and then in the store: nothing begins while it is written. A thaw is durable
//! first, so that one that fails can be repeated. The dispatcher changes the freezes; lanes, turns, jobs and routines
//! read them.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};

use belay_protocol::{
    Freeze, FreezeId, FreezeReceipt, FreezeScope, FreezeStore, HeldJobs, RoutineRecord, RunId, StopReason, StoreError,
    UnixMillis,
};
use tokio::sync::{Mutex, watch};

use crate::live::{RunOrigin, StopCause};

/// The freezes in force.
pub struct Freezer {
    store: Arc<dyn FreezeStore>,
    /// Whether anything is frozen. Set before and cleared after `in_force` changes, under the lock of `in_force`.
    any: AtomicBool,
    in_force: watch::Sender<Arc<[Freeze]>>,
    /// Held while the store writes, so that writes follow each other. A write reads the freeze under this lock. The freezes
    /// that the store has, as far as this daemon knows.
    writing: Mutex<HashSet<FreezeId>>,
}

impl Freezer {
    /// Loads the freezes of earlier starts.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn load(store: Arc<dyn FreezeStore>) -> Result<Self, StoreError> {
        let in_force: Arc<[Freeze]> = store.freezes().await?.into();
        let any = AtomicBool::new(!in_force.is_empty());
        let writing = Mutex::new(in_force.iter().map(|freeze| freeze.id).collect());
        Ok(Self { store, any, in_force: watch::Sender::new(in_force), writing })
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

    /// Whether something is frozen.
    pub fn holds_anything(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The freeze of this routine, of its creator, or of everything.
    pub fn holds_routine(&self, routine: &RoutineRecord) -> Option<Freeze> {
        self.in_force().iter().find(|freeze| covers_routine(freeze, routine)).cloned()
    }

    /// The pending jobs that a freeze of a part keeps from beginning.
    pub fn held_jobs(&self) -> HeldJobs {
        let mut held = HeldJobs::default();
        for freeze in self.in_force().iter() {
            match &freeze.scope {
                FreezeScope::Person { channel, id } => held.creators.push((channel.clone(), id.clone())),
                FreezeScope::Routine { name } => held.routines.push(name.clone()),
                FreezeScope::All | FreezeScope::Channel { .. } => {}
            }
        }
        held
    }

    /// Waits until something is frozen.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn frozen(&self) {
        let mut changes = self.in_force.subscribe();
        // The sender lives as long as `self`, so the wait cannot fail.
        let _ = changes.wait_for(|in_force| !in_force.is_empty()).await;
    }

    /// Waits until nothing keeps the work of this origin from beginning.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn thawed(&self, origin: &RunOrigin) {
        self.wait_until(|in_force| first(in_force, origin).is_none()).await;
    }

    /// Waits until nothing keeps this routine from beginning.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn routine_thawed(&self, routine: &RoutineRecord) {
        self.wait_until(|in_force| !in_force.iter().any(|freeze| covers_routine(freeze, routine))).await;
    }

    async fn wait_until(&self, mut thawed: impl FnMut(&[Freeze]) -> bool) {
        if self.any.load(Ordering::Acquire) {
            let mut changes = self.in_force.subscribe();
            // The sender lives as long as `self`, so the wait cannot fail.
            let _ = changes.wait_for(|in_force| thawed(in_force)).await;
        }
    }

    /// Puts a freeze in force, in memory. Returns the freeze of this scope: this one, or the one that was in force
    /// before.
    pub fn hold(&self, freeze: Freeze) -> Freeze {
        let mut held = None;
        self.in_force.send_if_modified(|in_force| {
            // Under the lock of `in_force`, because a thaw that clears the flag may run beside this.
            self.any.store(true, Ordering::Release);
            held = in_force.iter().find(|other| other.scope == freeze.scope).cloned();
            if held.is_none() {
                *in_force = in_force.iter().cloned().chain([freeze.clone()]).collect();
            }
            held.is_none()
        });
        fence(Ordering::SeqCst);
        held.unwrap_or(freeze)
    }

    /// Adds stopped runs to the receipt of a freeze, in memory. Until [`Freezer::amend`] says otherwise, some of their
    /// processes may be left.
    pub fn note_stopped(&self, freeze: FreezeId, runs: &[RunId]) {
        self.amend(freeze, |receipt| {
            let new: Vec<RunId> = runs.iter().filter(|run| !receipt.stopped.contains(run)).copied().collect();
            if !new.is_empty() {
                receipt.stopped.extend(new);
                receipt.trees_empty_ms = None;
            }
        });
    }

    /// Changes the receipt of a freeze, in memory. Returns it; `None`: the freeze has ended.
    pub fn amend(&self, freeze: FreezeId, change: impl FnOnce(&mut FreezeReceipt)) -> Option<FreezeReceipt> {
        let mut amended = None;
        self.in_force.send_if_modified(|in_force| {
            let mut freezes = in_force.to_vec();
            if let Some(freeze) = freezes.iter_mut().find(|other| other.id == freeze) {
                let receipt = freeze.receipt.get_or_insert_default();
                change(receipt);
                amended = Some(receipt.clone());
                *in_force = freezes.into();
            }
            false // nobody waits for a receipt
        });
        amended
    }

    /// Writes a freeze with its receipt to the store, unless it has ended. Returns the id of the freeze of its scope that
    /// is in force: another one if another daemon has written one first. It then takes the place of this one. `None`: the
    /// freeze has ended, here or in another daemon.
    ///
    /// # Errors
    /// The store fails; then a restart may forget the freeze, or its receipt.
    pub async fn keep(&self, freeze: FreezeId) -> Result<Option<FreezeId>, StoreError> {
        let mut stored_ids = self.writing.lock().await;
        let Some(own) = self.in_force().iter().find(|other| other.id == freeze).cloned() else { return Ok(None) };
        let Some(stored) = self.store.put_freeze(own).await? else {
            self.end(freeze);
            return Ok(None);
        };
        let in_force = stored.id;
        stored_ids.insert(in_force);
        self.in_force.send_if_modified(|freezes| {
            let mut changed = freezes.to_vec();
            if let Some(own) = changed.iter_mut().find(|other| other.id == freeze) {
                merge(own, stored);
                *freezes = changed.into();
            }
            false // the scope is the same
        });
        Ok(Some(in_force))
    }

    /// Ends the freeze of this scope, in the store and then in memory. Returns it; `None`: there is no such freeze.
    ///
    /// # Errors
    /// The store fails; the freeze stays in force, and the thaw can be repeated.
    pub async fn thaw(&self, scope: &FreezeScope, at: UnixMillis) -> Result<Option<Freeze>, StoreError> {
        let _writing = self.writing.lock().await;
        let is_it = |freeze: &&Freeze| freeze.scope == *scope;
        let known = self.in_force().iter().find(is_it).cloned();
        let known = match known {
            Some(known) => Some(known),
            // Another daemon may have begun it.
            None => self.store.freezes().await?.iter().find(is_it).cloned(),
        };
        let Some(freeze) = known else { return Ok(None) };
        self.store.thaw(freeze.clone(), at).await?;
        self.end(freeze.id);
        Ok(Some(freeze))
    }

    /// Reads the freezes in the store, which other daemons may have begun or ended, and returns the changes. A freeze that
    /// is being written here stays in force.
    ///
    /// # Errors
    /// The store does not answer; nothing has changed.
    pub async fn adopt(&self) -> Result<Adopted, StoreError> {
        let mut stored_ids = self.writing.lock().await;
        let stored = self.store.freezes().await?;
        let ids: HashSet<FreezeId> = stored.iter().map(|freeze| freeze.id).collect();
        let mut adopted = Adopted::default();
        self.in_force.send_if_modified(|in_force| {
            let has_ended = |freeze: &Freeze| stored_ids.contains(&freeze.id) && !ids.contains(&freeze.id);
            let mut freezes: Vec<Freeze> = in_force.iter().filter(|freeze| !has_ended(freeze)).cloned().collect();
            adopted.some_ended = freezes.len() < in_force.len();
            for stored in stored {
                match freezes.iter_mut().find(|own| own.scope == stored.scope) {
                    Some(own) if own.id == stored.id => merge(own, stored),
                    Some(_) => {} // `keep` finds the stored one
                    None => {
                        freezes.push(stored.clone());
                        adopted.new.push(stored);
                    }
                }
            }
            // Under the lock of `in_force`, as in `hold`.
            self.any.store(!freezes.is_empty(), Ordering::Release);
            *in_force = freezes.into();
            adopted.some_ended || !adopted.new.is_empty()
        });
        fence(Ordering::SeqCst);
        *stored_ids = ids;
        Ok(adopted)
    }

    /// Ends a freeze in memory.
    fn end(&self, freeze: FreezeId) {
        self.in_force.send_modify(|in_force| {
            *in_force = in_force.iter().filter(|other| other.id != freeze).cloned().collect();
            self.any.store(!in_force.is_empty(), Ordering::Release);
        });
    }
}

/// What other daemons have changed. See [`Freezer::adopt`].
#[derive(Debug, Default, PartialEq)]
pub struct Adopted {
    /// The freezes that began.
    pub new: Vec<Freeze>,
    /// Whether a freeze has ended.
    pub some_ended: bool,
}

/// The cause of the stops of a freeze.
pub fn cause(freeze: FreezeId) -> StopCause {
    StopCause { freeze: Some(freeze), ..StopCause::of(StopReason::OperatorStop) }
}

/// Replaces a freeze by the stored one of its scope. The receipt in memory may be newer than the stored one.
fn merge(own: &mut Freeze, stored: Freeze) {
    let is_same = own.id == stored.id;
    let known = std::mem::replace(own, stored).receipt.filter(|_| is_same);
    let stored = std::mem::replace(&mut own.receipt, known);
    match (&mut own.receipt, stored) {
        (Some(own), Some(stored)) => {
            let others: Vec<RunId> = stored.stopped.into_iter().filter(|run| !own.stopped.contains(run)).collect();
            own.stopped.extend(others);
        }
        (own, stored) => *own = own.take().or(stored),
    }
}

fn first<'a>(in_force: &'a [Freeze], origin: &RunOrigin) -> Option<&'a Freeze> {
    in_force.iter().find(|freeze| origin.is_covered_by(&freeze.scope))
}

fn covers_routine(freeze: &Freeze, routine: &RoutineRecord) -> bool {
    freeze.scope.covers_work(Some(&routine.spec.name), &routine.channel, &routine.creator.principal)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use async_trait::async_trait;
    use belay_protocol::Work;

    use super::*;

    /// A store that keeps the newest written freeze, and fails as often as `failures` says.
    #[derive(Default)]
    struct Last {
        failures: AtomicUsize,
        written: std::sync::Mutex<Option<Freeze>>,
        /// The freeze that another daemon has put in force, or its end.
        other: std::sync::Mutex<Option<Option<Freeze>>>,
    }

    impl Last {
        fn fail(&self) -> Result<(), StoreError> {
            let left = self.failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if left.is_ok() { Err(StoreError::Unavailable("it fails".into())) } else { Ok(()) }
        }
    }

    #[async_trait]
    impl FreezeStore for Last {
        async fn freezes(&self) -> Result<Vec<Freeze>, StoreError> {
            Ok(self.other.lock().unwrap().clone().flatten().into_iter().collect())
        }

        async fn past_freezes(&self, _: u32) -> Result<Vec<Freeze>, StoreError> {
            Ok(Vec::new())
        }

        async fn put_freeze(&self, freeze: Freeze) -> Result<Option<Freeze>, StoreError> {
            tokio::task::yield_now().await;
            *self.written.lock().unwrap() = Some(freeze.clone());
            self.fail()?;
            Ok(self.other.lock().unwrap().clone().unwrap_or(Some(freeze)))
        }

        async fn thaw(&self, _: Freeze, _: UnixMillis) -> Result<(), StoreError> {
            self.fail()
        }
    }

    fn freeze(scope: FreezeScope) -> Freeze {
        let (id, actor) = (FreezeId::new(), "op".to_owned());
        Freeze {
            id,
            scope,
            detail: None,
            actor,
            source: "http".into(),
            at: UnixMillis(1),
            receipt: None,
            thawed_at: None,
        }
    }

    fn origin(principal: &str) -> RunOrigin {
        RunOrigin { work: Work::Chat, source: None, channel: "telegram".into(), principal: principal.into() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_freeze_holds_its_scope_until_the_thaw_and_a_second_one_changes_nothing() {
        let freezer = Freezer::load(Arc::new(Last::default())).await.expect("loaded");
        let (ann, bob) = (origin("ann"), origin("bob"));
        freezer.thawed(&ann).await;
        let first = freezer.hold(freeze(FreezeScope::person("ann")));
        assert_eq!(freezer.hold(freeze(FreezeScope::person("ann"))).id, first.id);
        assert_eq!((freezer.holds(&ann).map(|freeze| freeze.id), freezer.holds(&bob)), (Some(first.id), None));
        assert!(!freezer.holds_everything());
        let tick = freezer.hold(freeze(FreezeScope::Routine { name: "tick".into() }));
        let held = HeldJobs { creators: vec![(None, "ann".into())], routines: vec!["tick".into()] };
        assert_eq!(freezer.held_jobs(), held);

        let waiting = freezer.thawed(&ann);
        tokio::pin!(waiting);
        let moment = std::time::Duration::from_secs(1);
        assert!(tokio::time::timeout(moment, &mut waiting).await.is_err(), "it is held");
        let thaw = async |scope: &FreezeScope| {
            freezer.thaw(scope, UnixMillis(2)).await.expect("stored").map(|freeze| freeze.id)
        };
        assert_eq!(thaw(&FreezeScope::All).await, None);
        assert_eq!(thaw(&first.scope).await, Some(first.id));
        waiting.await;
        assert!(thaw(&tick.scope).await.is_some() && freezer.in_force().is_empty() && !freezer.holds_anything());
    }

    #[tokio::test]
    async fn a_thaw_that_is_not_stored_can_be_repeated() {
        let store = Arc::new(Last::default());
        let freezer = Freezer::load(store.clone()).await.expect("loaded");
        let all = freezer.hold(freeze(FreezeScope::All));
        store.failures.store(1, Ordering::SeqCst);
        assert!(freezer.thaw(&FreezeScope::All, UnixMillis(2)).await.is_err());
        assert!(freezer.holds_everything());
        let ended = freezer.thaw(&FreezeScope::All, UnixMillis(3)).await.expect("stored");
        assert_eq!((ended.map(|freeze| freeze.id), freezer.holds_anything()), (Some(all.id), false));
    }

    #[tokio::test]
    async fn freezes_of_another_daemon_are_adopted_and_one_that_is_being_written_stays() {
        let store = Arc::new(Last::default());
        let freezer = Freezer::load(store.clone()).await.expect("loaded");
        let (own, other) = (freezer.hold(freeze(FreezeScope::person("ann"))), freeze(FreezeScope::All));
        let adopted = async |stored: Option<Freeze>| {
            *store.other.lock().unwrap() = Some(stored);
            freezer.adopt().await.expect("readable")
        };
        let new = Adopted { new: vec![other.clone()], some_ended: false };
        assert_eq!(adopted(Some(other.clone())).await, new);
        assert_eq!(adopted(Some(other)).await, Adopted::default(), "known");
        assert!(freezer.holds_everything());
        assert_eq!(adopted(None).await, Adopted { new: Vec::new(), some_ended: true });
        assert_eq!(*freezer.in_force(), *std::slice::from_ref(&own), "the store does not have it yet");
        *store.other.lock().unwrap() = Some(Some(own.clone()));
        assert_eq!(freezer.keep(own.id).await.expect("stored"), Some(own.id));
        assert_eq!(adopted(None).await, Adopted { new: Vec::new(), some_ended: true });
        assert!(!freezer.holds_anything());
    }

    /// Both writers change the receipt before either of them writes. The last write has the changes of both.
    #[tokio::test]
    async fn two_requests_at_once_share_one_receipt() {
        let store = Arc::new(Last::default());
        let freezer = Freezer::load(store.clone()).await.expect("loaded");
        let all = freezer.hold(freeze(FreezeScope::All));
        let (one, two) = (RunId::new(), RunId::new());
        freezer.note_stopped(all.id, &[one]);
        let (first, second) = tokio::join!(freezer.keep(all.id), async {
            freezer.note_stopped(all.id, &[one, two]);
            freezer.amend(all.id, |receipt| receipt.acknowledged_ms = Some(3));
            freezer.keep(all.id).await
        });
        first.and(second).expect("stored");
        let receipt = FreezeReceipt { acknowledged_ms: Some(3), stopped: vec![one, two], ..FreezeReceipt::default() };
        let written = store.written.lock().unwrap().clone().and_then(|freeze| freeze.receipt);
        assert_eq!((written, freezer.in_force()[0].receipt.clone()), (Some(receipt.clone()), Some(receipt)));
    }

    #[tokio::test]
    async fn the_freeze_that_another_daemon_has_written_first_takes_the_place_of_the_own_one() {
        let store = Arc::new(Last::default());
        let freezer = Freezer::load(store.clone()).await.expect("loaded");
        let own = freezer.hold(freeze(FreezeScope::All));
        let first = freeze(FreezeScope::All);
        *store.other.lock().unwrap() = Some(Some(first.clone()));
        assert_eq!(freezer.keep(own.id).await.expect("stored"), Some(first.id));
        assert_eq!(*freezer.in_force(), *std::slice::from_ref(&first));
        freezer.note_stopped(first.id, &[RunId::new()]);
        assert_eq!(freezer.keep(first.id).await.expect("stored"), Some(first.id));
        assert_eq!(freezer.in_force()[0].receipt.as_ref().map(|receipt| receipt.stopped.len()), Some(1));

        *store.other.lock().unwrap() = Some(None); // another daemon thaws
        assert_eq!(freezer.keep(first.id).await.expect("stored"), None);
        assert!(!freezer.holds_anything());
    }

    #[tokio::test]
    async fn a_freeze_of_another_daemon_can_be_thawed_before_this_one_knows_it() {
        let store = Arc::new(Last::default());
        let freezer = Freezer::load(store.clone()).await.expect("loaded");
        let other = freeze(FreezeScope::All);
        *store.other.lock().unwrap() = Some(Some(other.clone()));
        let thawed = freezer.thaw(&FreezeScope::All, UnixMillis(2)).await.expect("stored");
        assert_eq!(thawed, Some(other));
        assert_eq!(freezer.thaw(&FreezeScope::person("ann"), UnixMillis(2)).await.expect("read"), None);
    }
}
