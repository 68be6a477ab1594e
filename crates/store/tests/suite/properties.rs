//! Any sequence of writes shows the same thread in memory and on disk, and leaves only what fits together.

use std::sync::Arc;

use belay_protocol::{
    Acceptance, ApprovalFilter, ApprovalId, ApprovalRequest, ApprovalState, ApprovalStore as _, Authority, Checkpoint,
    CollectedStart, Decided, EditOutcome, EventLog as _, EventQuery, JoinedRun, Lease, Message, NewInput, Removed,
    Retention, RunFilter, RunId, RunReader as _, RunStatus, SearchQuery, SessionFilter, SessionReader as _, StoreError,
    StoreHealth as _, ThreadEdit, ThreadSnapshot, ThreadState,
};
use belay_store::{SqlStore, StoreOptions};
use proptest::prelude::*;

use crate::kit::*;

#[derive(Clone, Debug)]
enum Step {
    /// Accept a message; `key` repeats keys now and then.
    Accept {
        start: bool,
        history: bool,
        key: Option<u8>,
        text: u8,
    },
    /// Begin a run, or take it up again. Runs are named by the order of their acceptance.
    Start(usize),
    Checkpoint {
        run: usize,
        for_run: bool,
        /// An approval that it uses up.
        used: Option<usize>,
        /// A run whose message joins it.
        joined: Option<usize>,
    },
    /// Begin a run together with another one.
    CollectedStart {
        run: usize,
        other: usize,
    },
    /// Pause a run on an approval request. Questions are named by the order of asking.
    Pause(usize),
    Decide {
        approval: usize,
        state: ApprovalState,
        always: bool,
    },
    Finish {
        run: usize,
        state: Option<ThreadState>,
    },
    Edit(ThreadEdit),
    Compact(u32),
    Reopen,
    /// Delete what was used last before this date.
    Prune(i64),
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    let run = 0..6_usize;
    let state = prop_oneof![Just(None), Just(Some(ThreadState::Idle)), Just(Some(ThreadState::Interrupted))];
    let decision = prop_oneof![3 => Just(ApprovalState::Approved), 1 => Just(ApprovalState::Denied), 1 => Just(ApprovalState::Expired)];
    prop_oneof![
        5 => (any::<bool>(), prop::bool::weighted(0.2), prop::option::weighted(0.3, 0..4_u8), 0..3_u8)
            .prop_map(|(start, history, key, text)| Step::Accept { start, history, key, text }),
        2 => run.clone().prop_map(Step::Start),
        3 => (run.clone(), any::<bool>(), prop::option::weighted(0.5, 0..3_usize), prop::option::weighted(0.3, 1..6_usize))
            .prop_map(|(run, for_run, used, joined)| Step::Checkpoint { run, for_run, used, joined }),
        2 => (run.clone(), 1..6_usize).prop_map(|(run, by)| Step::CollectedStart { run, other: (run + by) % 6 }),
        3 => run.clone().prop_map(Step::Pause),
        3 => (0..3_usize, decision, any::<bool>()).prop_map(|(approval, state, always)| Step::Decide { approval, state, always }),
        5 => (run, state).prop_map(|(run, state)| Step::Finish { run, state }),
        6 => prop_oneof![
            4 => Just(ThreadEdit::Undo), 3 => Just(ThreadEdit::Redo), 1 => Just(ThreadEdit::Clear), 1 => Just(ThreadEdit::New)
        ].prop_map(Step::Edit),
        1 => (0..5_u32).prop_map(Step::Compact),
        1 => Just(Step::Reopen),
        1 => prop_oneof![Just(900), Just(1_700), Just(10_000)].prop_map(Step::Prune),
        1 => Just(Step::Delete),
    ]
}

/// What a store answers to a step, without what a store makes up by itself: the ids of threads.
type Answer = Result<Option<Shown>, std::mem::Discriminant<StoreError>>;

/// Messages with their positions.
type Lines = Vec<(u64, Arc<Message>)>;

#[derive(Clone, Debug, PartialEq)]
struct Shown {
    state: ThreadState,
    summary: Option<String>,
    messages: Lines,
    /// Runs that have not ended, with the question each rests on and its messages.
    unfinished: Vec<(RunId, RunStatus, u32, Option<ApprovalRequest>, Lines)>,
    /// Whether a message was new.
    new: bool,
    /// What became of an answer.
    decided: Option<Decided>,
    /// What was deleted.
    removed: Option<Removed>,
}

impl Shown {
    /// Without the attempts, which each look raises.
    fn settled(&self) -> Self {
        let mut settled = self.clone();
        settled.unfinished.iter_mut().for_each(|run| run.2 = 0);
        settled
    }
}

fn shown(thread: ThreadSnapshot) -> Shown {
    let ThreadSnapshot { state, summary, messages, .. } = thread;
    Shown { state, summary, messages, unfinished: Vec::new(), new: false, decided: None, removed: None }
}

/// One store and the lane in it.
struct Player<'a> {
    store: &'a dyn Store,
    lease: Lease,
}

impl Player<'_> {
    async fn play(&mut self, step: &Step, fresh: RunId, runs: &[RunId], asked: &[ApprovalId]) -> Answer {
        let named = |n: usize| runs.get(runs.len().wrapping_sub(1 + n)).copied().unwrap_or(fresh);
        let new_question = question_of(fresh);
        let question = |n: usize| asked.get(asked.len().wrapping_sub(1 + n)).copied().unwrap_or(new_question);
        let done = |()| None;
        let answer = match step {
            Step::Accept { start, history, key: number, text } => {
                let history = if *history { vec![Message::user("old"), Message::assistant("yes")] } else { Vec::new() };
                let key = number.map(|number| key(&number.to_string()));
                let input = NewInput { run_id: fresh, start: *start, history, key, ..input(&text.to_string()) };
                let outcome = self.store.accept(&self.lease, input).await;
                outcome.map(|acceptance| (acceptance == Acceptance::New).then(|| self.empty()))
            }
            Step::Start(run) => self.store.start_run(&self.lease, named(*run), at(1_500)).await.map(done),
            Step::CollectedStart { run, other } => {
                let joined = vec![joined(named(*other), "collect")];
                let together =
                    CollectedStart { run: named(*run), text: "both".into(), provenance: None, joined, at: at(1_600) };
                match named(*run) == named(*other) {
                    true => Ok(None), // there are fewer runs than names; no run joins itself
                    false => self.store.start_together(&self.lease, together).await.map(done),
                }
            }
            Step::Checkpoint { run, for_run, used, joined: other } => {
                let message = Message::assistant("draft");
                let message = if *for_run { message.for_run() } else { message };
                let used = used.map(question).into_iter().collect();
                let others = other.map(|by| named((run + by) % 6)).filter(|other| *other != named(*run));
                let joined = others.map(|other| joined(other, "steer")).into_iter().collect();
                let progress = Checkpoint { used, joined, ..checkpoint(named(*run), vec![message]) };
                self.store.checkpoint(&self.lease, progress).await.map(done)
            }
            Step::Pause(run) => {
                let approval = ApprovalRequest { id: new_question, ..approval(&self.lease, named(*run)) };
                self.store.pause_run(&self.lease, paused(approval)).await.map(|()| Some(self.empty()))
            }
            Step::Decide { approval, state, always } => {
                let always = always.then_some(Authority::Conversation);
                let decided = self.store.decide(question(*approval), *state, always, "ann", at(1_800)).await;
                decided.map(|decided| Some(Shown { new: false, decided: Some(decided), ..self.empty() }))
            }
            Step::Finish { run, state } => {
                let run = named(*run);
                let end = belay_protocol::FinishedRun { thread_state: *state, ..finished(run, "reply") };
                self.store.finish_runs(&self.lease, vec![end]).await.map(done)
            }
            Step::Edit(edit) => {
                self.store.edit_thread(&self.lease, *edit, at(3_000)).await.map(|outcome| match outcome {
                    EditOutcome::Done(thread) => Some(shown(thread)),
                    EditOutcome::Nothing => None,
                })
            }
            Step::Compact(keep) => {
                self.store.compact(&self.lease, *keep, format!("all but {keep}"), Vec::new()).await.map(done)
            }
            Step::Reopen => Ok(Some(self.look().await)),
            Step::Prune(before) => {
                Ok(Some(Shown { new: false, removed: Some(self.prune(*before).await), ..self.empty() }))
            }
            Step::Delete => {
                let removed = self.store.delete_session(&self.lease, at(3_000)).await;
                removed.map(|removed| Some(Shown { new: false, removed: Some(in_order(removed)), ..self.empty() }))
            }
        };
        answer.map_err(|error| std::mem::discriminant(&error))
    }

    /// Two rows at a time, until nothing is too old any more.
    async fn prune(&self, before: i64) -> Removed {
        let old = Retention {
            threads_before: Some(at(before)),
            events_before: None,
            ended_routine_runs_before: None,
            ephemeral_before: None,
            keys_before: at(before),
        };
        let mut all = Removed::default();
        loop {
            let removed = self.store.prune(old, 2).await.unwrap();
            if removed.is_nothing() {
                return in_order(all);
            }
            all.add(removed);
        }
    }

    /// What a new owner of the lane finds.
    async fn look(&mut self) -> Shown {
        let opened = reload(self.store, &mut self.lease).await;
        let unfinished = opened.unfinished.into_iter();
        let unfinished =
            unfinished.map(|run| (run.run_id, run.status, run.attempt, run.approval, run.messages)).collect();
        Shown { unfinished, ..shown(opened.thread) }
    }

    fn empty(&self) -> Shown {
        let (state, messages, unfinished) = (ThreadState::Idle, Vec::new(), Vec::new());
        Shown { state, summary: None, messages, unfinished, new: true, decided: None, removed: None }
    }
}

fn in_order(mut removed: Removed) -> Removed {
    removed.run_ids.sort();
    removed
}

fn joined(run: RunId, how: &'static str) -> JoinedRun {
    JoinedRun { run, how, at: at(1_600) }
}

/// The question that a step may ask.
fn question_of(fresh: RunId) -> ApprovalId {
    fresh.as_uuid().into()
}

async fn play_on_both(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let memory = SqlStore::in_memory().unwrap();
    let (sqlite, directory) = sqlite();
    let mut expected = Player { store: &memory, lease: open(&memory, "s").await.lease };
    let mut actual = Player { store: &sqlite, lease: open(&sqlite, "s").await.lease };
    let (mut runs, mut asked) = (Vec::new(), Vec::new());
    let mut before = expected.look().await;
    actual.look().await;
    for step in steps {
        let fresh = RunId::new();
        let one = expected.play(&step, fresh, &runs, &asked).await;
        let other = actual.play(&step, fresh, &runs, &asked).await;
        prop_assert_eq!(&one, &other, "answers to {:?}", step);
        if matches!(&one, Ok(Some(answer)) if answer.new) {
            match step {
                Step::Pause(_) => asked.push(question_of(fresh)),
                _ => runs.push(fresh),
            }
        }
        let after = expected.look().await;
        prop_assert_eq!(&after, &actual.look().await, "after {:?}", step);
        if one.is_err() {
            prop_assert_eq!(before.settled(), after.settled(), "refused, and changed something: {:?}", step);
        }
        before = after;
        what_is_left_fits_together(&memory).await?;
    }
    sqlite.ping().await.unwrap(); // readers see what is committed
    what_is_left_fits_together(&sqlite).await?;
    for run in runs {
        prop_assert_eq!(memory.run(run).await.unwrap(), sqlite.run(run).await.unwrap());
    }
    let filter = ApprovalFilter { limit: 1_000, ..ApprovalFilter::default() };
    prop_assert_eq!(memory.approvals(filter.clone()).await.unwrap(), sqlite.approvals(filter).await.unwrap());
    let (one, other) = (memory.forget_grants(&"s".into()).await, sqlite.forget_grants(&"s".into()).await);
    prop_assert_eq!(one.unwrap(), other.unwrap());
    let session = "s".into();
    let (one, other) = (memory.history(&session, 0, 500).await, sqlite.history(&session, 0, 500).await);
    prop_assert_eq!(one.unwrap(), other.unwrap());
    prop_assert_eq!(
        memory.sessions(SessionFilter::lasting(9)).await.unwrap(),
        sqlite.sessions(SessionFilter::lasting(9)).await.unwrap()
    );
    let all = EventQuery { limit: 1_000, ..EventQuery::default() };
    let (one, other) = (memory.read(all.clone()).await.unwrap(), sqlite.read(all).await.unwrap());
    prop_assert_eq!(one, other);
    sqlite.close().await;
    let reopened = SqlStore::open(&directory.path().join("belay.db"), StoreOptions::default()).unwrap();
    what_is_left_fits_together(&reopened).await?;
    let shown = Player { store: &reopened, lease: actual.lease }.look().await;
    prop_assert_eq!(before.settled(), shown.settled(), "after a restart");
    Ok(())
}

/// Every run, message, question and fact that is left belongs to something that is left.
async fn what_is_left_fits_together(store: &dyn Store) -> Result<(), TestCaseError> {
    let runs = store.runs(RunFilter { limit: 1_000, ..RunFilter::default() }).await.unwrap();
    let known = |run: RunId| runs.iter().any(|record| record.run_id == run);
    let approvals = store.approvals(ApprovalFilter { limit: 1_000, ..ApprovalFilter::default() }).await.unwrap();
    prop_assert!(approvals.iter().all(|approval| known(approval.run_id)), "a question of no run: {:?}", approvals);
    for record in &runs {
        let own = |approval: &ApprovalRequest| approval.run_id == record.run_id;
        prop_assert_eq!(record.ended_at.is_some(), record.reason.is_some(), "{:?}", record);
        let asked = record
            .waiting_for
            .as_ref()
            .is_none_or(|it| approvals.iter().any(|approval| own(approval) && approval.id == it.approval));
        prop_assert!(asked, "it waits for a question that is gone: {:?}", record);
        prop_assert!(
            record.status != RunStatus::Paused || approvals.iter().any(own),
            "it is paused without a request: {:?}",
            record
        );
    }
    for thread in store.threads(&"s".into()).await.unwrap() {
        let lines = store.transcript(thread.thread, 0, 1_000).await.unwrap();
        prop_assert!(lines.is_sorted_by(|one, other| one.id < other.id), "{:?}", lines);
        prop_assert!(lines.iter().all(|line| line.run_id.is_none_or(known)), "a message of no run: {:?}", lines);
        prop_assert!(thread.active || thread.state == ThreadState::Completed, "{:?}", thread);
    }
    let query = SearchQuery { words: "reply".into(), limit: 1_000, ..SearchQuery::default() };
    for hit in store.search(query).await.unwrap() {
        prop_assert!(hit.run_id.is_none_or(known), "a hit of no run: {:?}", hit);
    }
    let events = store.read(EventQuery { limit: 1_000, ..EventQuery::default() }).await.unwrap();
    prop_assert!(events.is_sorted_by(|one, other| one.seq < other.seq));
    prop_assert_eq!(events.last().map(|event| event.seq).unwrap_or_default(), *store.tip().borrow());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn after_any_sequence_memory_and_disk_show_the_same_and_what_is_left_fits_together(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play_on_both(steps))?;
    }
}
