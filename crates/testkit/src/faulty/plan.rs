//! What goes wrong, and when.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_protocol::StoreError;
#[cfg(doc)]
use belay_protocol::{
    Archive, EventLog, GateStore, JobStore, NoteStore, Outbox, RoutineStore, RunReader, SecretVault, SpendLedger,
    ThreadStore,
};
use tokio::sync::watch;

/// The operations of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreOp {
    /// [`ThreadStore::open_lane`].
    OpenLane,
    /// [`ThreadStore::accept`].
    Accept,
    /// [`ThreadStore::find`].
    Find,
    /// [`ThreadStore::start_run`].
    StartRun,
    /// [`ThreadStore::start_together`].
    StartTogether,
    /// [`ThreadStore::checkpoint`].
    Checkpoint,
    /// [`ThreadStore::pause_run`].
    PauseRun,
    /// [`ThreadStore::finish_runs`].
    FinishRuns,
    /// [`ThreadStore::edit_thread`].
    EditThread,
    /// [`ThreadStore::set_options`].
    SetOptions,
    /// [`ThreadStore::set_loop_detection`].
    SetLoopDetection,
    /// [`ThreadStore::compact`] and [`ThreadStore::compact_turn`].
    Compact,
    /// [`ThreadStore::note_acted_on`].
    NoteActedOn,
    /// [`ThreadStore::acted_on`].
    ActedOn,
    /// [`ThreadStore::recent_inputs`].
    RecentInputs,
    /// [`ThreadStore::unfinished_sessions`].
    UnfinishedSessions,
    /// [`GateStore::decide`].
    Decide,
    /// [`GateStore::gate`].
    Gate,
    /// [`GateStore::gates`].
    Gates,
    /// [`GateStore::gates_of`].
    GatesOf,
    /// [`GateStore::granted`].
    Granted,
    /// [`GateStore::forget_grants`].
    ForgetGrants,
    /// [`SecretVault::keep`].
    KeepSecret,
    /// [`SecretVault::find`].
    FindSecret,
    /// [`SecretVault::forget`] and [`SecretVault::forget_all`].
    ForgetSecret,
    /// [`RunReader::run`].
    Run,
    /// [`RunReader::runs`].
    Runs,
    /// [`RunReader::sessions`].
    Sessions,
    /// [`RunReader::session`].
    Session,
    /// [`RunReader::history`].
    History,
    /// [`RunReader::run_messages`].
    RunMessages,
    /// Every operation of an [`Archive`].
    Archive,
    /// [`RunReader::ping`].
    Ping,
    /// [`JobStore::create`].
    CreateJob,
    /// [`JobStore::begin_next`] and [`JobStore::begin_again`].
    BeginJob,
    /// [`JobStore::change`].
    ChangeJob,
    /// [`JobStore::note_run`], [`JobStore::note_progress`] and [`JobStore::park`].
    NoteJob,
    /// [`JobStore::take_up`].
    TakeUpJobs,
    /// [`JobStore::job`] and [`JobStore::jobs`].
    ReadJobs,
    /// [`RoutineStore::put`], [`RoutineStore::enable`] and [`RoutineStore::delete`].
    ChangeRoutine,
    /// [`RoutineStore::routine`] and [`RoutineStore::routines`].
    ReadRoutines,
    /// [`RoutineStore::due`] and [`RoutineStore::next_due`].
    DueRoutines,
    /// [`RoutineStore::claim`].
    ClaimFiring,
    /// [`RoutineStore::miss`].
    MissFirings,
    /// [`RoutineStore::note_work`].
    NoteFiring,
    /// [`RoutineStore::settle`].
    SettleFiring,
    /// [`RoutineStore::firing`], [`RoutineStore::firings`] and [`RoutineStore::open_firings`].
    ReadFirings,
    /// [`EventLog::append`].
    AppendEvents,
    /// [`EventLog::read`].
    ReadEvents,
    /// [`Outbox::enqueue`].
    Enqueue,
    /// [`Outbox::due`].
    Due,
    /// [`Outbox::next_due`].
    NextDue,
    /// [`Outbox::mark`].
    Mark,
    /// [`Outbox::settle_interrupted`].
    SettleInterrupted,
    /// [`NoteStore::remember`].
    Remember,
    /// [`NoteStore::recall`].
    Recall,
    /// [`SpendLedger::spent`].
    Spent,
    /// [`SpendLedger::session_spent`].
    SessionSpent,
    /// [`SpendLedger::reserve`].
    Reserve,
    /// [`SpendLedger::settle`].
    Settle,
}

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
}

/// Which operations go wrong. Clones share it, so that a test changes it while the store is in use.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    asked: AtomicU64,
    released: watch::Sender<u64>,
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
        match self.next(op) {
            None => work.await,
            Some(Fault::Fail) => Err(injected(op)),
            Some(Fault::LoseAnswer) => work.await.and(Err(injected(op))),
            Some(Fault::Panic) => panic!("injected panic at {op:?}"),
            Some(Fault::Stall) => {
                released.changed().await.map_err(|_| injected(op))?;
                work.await
            }
        }
    }
}

fn injected(op: StoreOp) -> StoreError {
    StoreError::Unavailable(format!("injected fault at {op:?}"))
}
