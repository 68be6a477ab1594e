//! What goes wrong, and when.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use belay_protocol::StoreError;
use tokio::sync::watch;

use super::StoreOp;

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It fails with [`StoreError::Unavailable`] and has done nothing.
    Fail,
    /// It does its work, and the answer is lost: the caller sees [`StoreError::Unavailable`].
    LoseAnswer,
    /// It waits for [`FaultPlan::release`], then does its work.
    Stall,
    /// It panics and has done nothing: a fault in the program, in whoever asked.
    Panic,
    /// The daemon dies before its work is begun: neither this nor any later operation is ever answered.
    Die,
    /// The daemon dies when its work is done and not yet answered, and nothing is answered any more.
    DieAfter,
}

/// Which operations go wrong. Clones share it, so that a test changes it while the store is in use.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    asked: AtomicU64,
    released: watch::Sender<u64>,
    /// The operation of which the daemon has died.
    died_of: watch::Sender<Option<StoreOp>>,
    /// Whether paused time stands still while an operation is at work.
    holds_time: AtomicBool,
}

#[derive(Debug)]
struct Rule {
    /// None: any.
    op: Option<StoreOp>,
    fault: Fault,
    /// Matching operations that pass before the fault.
    passing: u64,
    /// Whether it strikes once, or from then on always.
    once: bool,
}

impl FaultPlan {
    /// The `nth` operation from now on, from 1, whatever it is.
    pub fn nth(&self, nth: u64, fault: Fault) {
        self.add(Rule { op: None, fault, passing: nth.saturating_sub(1), once: true });
    }

    /// The `nth` operation of that kind from now on, from 1.
    pub fn nth_of(&self, op: StoreOp, nth: u64, fault: Fault) {
        self.add(Rule { op: Some(op), fault, passing: nth.saturating_sub(1), once: true });
    }

    /// Every operation of that kind.
    pub fn every(&self, op: StoreOp, fault: Fault) {
        self.add(Rule { op: Some(op), fault, passing: 0, once: false });
    }

    /// Every operation.
    pub fn all(&self, fault: Fault) {
        self.add(Rule { op: None, fault, passing: 0, once: false });
    }

    /// No further faults. What stalls goes on stalling until it is released.
    pub fn clear(&self) {
        self.rules().clear();
    }

    /// Lets everything go on that stalls now.
    pub fn release(&self) {
        self.0.released.send_modify(|times| *times += 1);
    }

    /// Operations asked for so far, failed ones included; the number for [`FaultPlan::nth`] in a second run.
    pub fn asked(&self) -> u64 {
        self.0.asked.load(Ordering::SeqCst)
    }

    /// Waits until the daemon has died of [`Fault::Die`] or [`Fault::DieAfter`]. Returns the operation that it died at.
    pub async fn died(&self) -> StoreOp {
        let mut died_of = self.0.died_of.subscribe();
        loop {
            if let Some(op) = *died_of.borrow_and_update() {
                return op;
            }
            // The sender is borrowed for as long as we wait, so this cannot fail.
            let _ = died_of.changed().await;
        }
    }

    /// From now on paused time stands still while an operation is at work. Without this it runs on to the next timer
    /// whenever a store on disk works in threads of its own, as if the disk took that long.
    pub fn hold_time(&self) {
        self.0.holds_time.store(true, Ordering::SeqCst);
    }

    fn add(&self, rule: Rule) {
        self.rules().push(rule);
    }

    fn rules(&self) -> MutexGuard<'_, Vec<Rule>> {
        self.0.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of this operation. Of several rules that strike, the first added wins; all of them count it.
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
            None => self.do_it(work).await,
            Some(Fault::Fail) => Err(injected(op)),
            Some(Fault::LoseAnswer) => self.do_it(work).await.and(Err(injected(op))),
            Some(Fault::Panic) => panic!("injected panic at {op:?}"),
            Some(Fault::Stall) => {
                released.changed().await.map_err(|_| injected(op))?;
                self.do_it(work).await
            }
            Some(Fault::Die) => {
                self.0.died_of.send_replace(Some(op));
                Err(injected(op))
            }
            Some(Fault::DieAfter) => {
                let done = self.do_it(work).await;
                self.0.died_of.send_replace(Some(op));
                done
            }
        };
        self.unless_dead().await;
        done
    }

    /// Never returns where the daemon has died.
    async fn unless_dead(&self) {
        let dead = self.0.died_of.borrow().is_some();
        if dead {
            std::future::pending::<()>().await;
        }
    }

    async fn do_it<T>(&self, work: impl Future<Output = T>) -> T {
        let _still = self.0.holds_time.load(Ordering::SeqCst).then(Still::begin);
        work.await
    }
}

/// Keeps paused time from running on by itself, which it does not while anything is at work on the blocking pool. Ends when
/// it is dropped.
struct Still(#[expect(dead_code, reason = "its end is what the pool waits for")] mpsc::SyncSender<()>);

impl Still {
    fn begin() -> Self {
        let (sender, end) = mpsc::sync_channel::<()>(0);
        // Nothing is ever sent: it returns when the sender is gone.
        drop(tokio::task::spawn_blocking(move || end.recv()));
        Self(sender)
    }
}

fn injected(op: StoreOp) -> StoreError {
    StoreError::Unavailable(format!("injected fault at {op:?}"))
}
