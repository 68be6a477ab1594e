//! The faults of a test, and their times.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use belay_protocol::StoreError;
use tokio::sync::watch;

use super::StoreOp;

/// The fault of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with [`StoreError::Unavailable`] and has no effect.
    Fail,
    /// It takes effect, and its result is lost: the caller gets [`StoreError::Unavailable`].
    LoseAnswer,
    /// It waits for [`FaultPlan::release`] and then takes effect.
    Stall,
    /// It panics and has no effect: a bug in the calling code.
    Panic,
    /// The daemon dies before the operation: neither this nor any later operation returns.
    Die,
    /// The daemon dies after the operation and before its result: neither this nor any later operation returns.
    DieAfter,
}

/// The faults of operations. Clones share the plan, so that a test changes it while the store is in use.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    asked: AtomicU64,
    released: watch::Sender<u64>,
    /// The operation at which the daemon has died.
    died_of: watch::Sender<Option<StoreOp>>,
    /// Whether paused time stops while an operation is running.
    holds_time: AtomicBool,
}

#[derive(Debug)]
struct Rule {
    /// `None`: any operation.
    op: Option<StoreOp>,
    fault: Fault,
    /// The number of matching operations before the fault.
    passing: u64,
    /// Whether the fault applies once, or always from then on.
    once: bool,
}

impl FaultPlan {
    /// Sets a fault for the `nth` operation from now on, from 1, of any kind.
    pub fn nth(&self, nth: u64, fault: Fault) {
        self.add(Rule { op: None, fault, passing: nth.saturating_sub(1), once: true });
    }

    /// Sets a fault for the `nth` operation of this kind from now on, from 1.
    pub fn nth_of(&self, op: StoreOp, nth: u64, fault: Fault) {
        self.add(Rule { op: Some(op), fault, passing: nth.saturating_sub(1), once: true });
    }

    /// Sets a fault for every operation of this kind.
    pub fn every(&self, op: StoreOp, fault: Fault) {
        self.add(Rule { op: Some(op), fault, passing: 0, once: false });
    }

    /// Sets a fault for every operation.
    pub fn all(&self, fault: Fault) {
        self.add(Rule { op: None, fault, passing: 0, once: false });
    }

    /// Removes all faults. Stalled operations wait until they are released.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// Releases all operations that are stalled now.
    pub fn release(&self) {
        self.0.released.send_modify(|times| *times += 1);
    }

    /// The number of operations so far, including failed ones; for [`FaultPlan::nth`] in a second run.
    pub fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// Waits until the daemon has died of [`Fault::Die`] or [`Fault::DieAfter`]. Returns the operation at which it
    /// died.
    pub async fn died(&self) -> StoreOp {
        let mut died_of = self.0.died_of.subscribe();
        loop {
            if let Some(op) = *died_of.borrow_and_update() {
                return op;
            }
            // The sender is borrowed during the wait, so this cannot fail.
            let _ = died_of.changed().await;
        }
    }

    /// Stops paused time while an operation is running. Otherwise it advances to the next timer whenever a store on
    /// disk works in threads of its own, as if the disk took that long.
    pub fn hold_time(&self) {
        self.0.holds_time.store(true, Ordering::SeqCst);
    }

    fn add(&self, rule: Rule) {
        self.rules().push(rule);
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of this operation. If several rules apply, the first added one wins; all of them count the operation.
    fn next(&self, op: StoreOp) -> Option<Fault> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let mut fault = None;
        self.rules().retain_mut(|rule| {
            if rule.op.is_some_and(|wanted| wanted != op) {
                return true;
            }
            if rule.passing > 0 {
                rule.passing -= 1;
                return true;
            }
            fault.get_or_insert(rule.fault);
            !rule.once
        });
        fault
    }

    pub(super) async fn around<T>(
        &self,
        op: StoreOp,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut released = self.0.released.subscribe();
        self.unless_dead().await;
        let done = match self.next(op) {
            None => self.execute(work).await,
            Some(Fault::Fail) => Err(injected(op)),
            Some(Fault::LoseAnswer) => self.execute(work).await.and(Err(injected(op))),
            Some(Fault::Panic) => panic!("injected panic at {op:?}"),
            Some(Fault::Stall) => {
                released.changed().await.map_err(|_| injected(op))?;
                self.execute(work).await
            }
            Some(Fault::Die) => {
                self.0.died_of.send_replace(Some(op));
                Err(injected(op))
            }
            Some(Fault::DieAfter) => {
                let done = self.execute(work).await;
                self.0.died_of.send_replace(Some(op));
                done
            }
        };
        self.unless_dead().await;
        done
    }

    /// Never returns after the daemon has died.
    async fn unless_dead(&self) {
        let dead = self.0.died_of.borrow().is_some();
        if dead {
            std::future::pending::<()>().await;
        }
    }

    async fn execute<T>(&self, work: impl Future<Output = T>) -> T {
        let _hold = self.0.holds_time.load(Ordering::SeqCst).then(TimeHold::begin);
        work.await
    }
}

/// Stops paused time until it is dropped: time does not advance while a task is running on the blocking pool.
struct TimeHold(#[expect(dead_code, reason = "its end is what the pool waits for")] mpsc::SyncSender<()>);

impl TimeHold {
    fn begin() -> Self {
        let (sender, end) = mpsc::sync_channel::<()>(0);
        // Nothing is ever sent: `recv` returns when the sender is dropped.
        drop(tokio::task::spawn_blocking(move || end.recv()));
        Self(sender)
    }
}

fn injected(op: StoreOp) -> StoreError {
    StoreError::Unavailable(format!("injected fault at {op:?}"))
}
