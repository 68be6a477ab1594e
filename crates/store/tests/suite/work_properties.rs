//! Any sequence of writes about jobs and routines has the same answers, and leaves the same rows, in memory and on disk, and
//! keeps caps, unique routine runs and what has ended.

use std::collections::{BTreeMap, BTreeSet};

use belay_protocol::{
    BootId, Claim, Deferral, EventKind, EventQuery, HeldJobs, JobAttempt, JobCaps, JobChange, JobFilter, JobId,
    JobState, NewRoutine, NewRoutineRun, Outbound, Retention, RoutineId, RoutineRunEnd, RoutineRunFilter, RoutineRunId,
    RoutineRunRecord, RoutineRunStatus, RoutineRunStore, RoutineSchedule, UnixMillis,
};
use belay_store::SqlStore;
use proptest::prelude::*;

use crate::kit::*;

/// Jobs, routine runs and boots are named by the order in which they come.
#[derive(Clone, Debug)]
enum Step {
    Create {
        creator: u8,
        again: bool,
    },
    BeginNext {
        at_work: u32,
        each: u32,
    },
    BeginAgain(usize),
    Change {
        job: usize,
        to: JobState,
        attempt: Option<u32>,
    },
    NoteProgress(usize),
    Suspend,
    /// By the boot of before, or by another.
    TakeUp {
        again: bool,
    },
    Put {
        name: u8,
        variant: u8,
    },
    Enable {
        name: u8,
        on: bool,
    },
    Delete(u8),
    /// For so many steps.
    Defer {
        name: u8,
        steps: i64,
    },
    Claim {
        name: u8,
        key: u8,
        scheduled: bool,
        by_hand: bool,
        content: Option<u8>,
        missed: bool,
        global: u32,
    },
    Miss {
        name: u8,
        times: Vec<u8>,
    },
    Settle {
        routine_run: usize,
        status: RoutineRunStatus,
    },
    /// Delete what is older than this many steps.
    Prune {
        age: i64,
        routine_runs_alone: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let one = 0..6_usize;
    let status = prop_oneof![
        1 => Just(RoutineRunStatus::Ok),
        1 => Just(RoutineRunStatus::Attention),
        3 => Just(RoutineRunStatus::Failed),
        1 => Just(RoutineRunStatus::Missed)
    ];
    let state = prop::sample::select(JobState::ALL);
    prop_oneof![
        4 => (0..3_u8, prop::bool::weighted(0.1)).prop_map(|(creator, again)| Step::Create { creator, again }),
        4 => (0..5_u32, 0..3_u32).prop_map(|(at_work, each)| Step::BeginNext { at_work, each }),
        1 => one.clone().prop_map(Step::BeginAgain),
        6 => (one.clone(), state, prop::option::weighted(0.3, 0..3_u32))
            .prop_map(|(job, to, attempt)| Step::Change { job, to, attempt }),
        1 => one.clone().prop_map(Step::NoteProgress),
        1 => Just(Step::Suspend),
        1 => any::<bool>().prop_map(|again| Step::TakeUp { again }),
        3 => (0..3_u8, 0..4_u8).prop_map(|(name, variant)| Step::Put { name, variant }),
        1 => (0..3_u8, any::<bool>()).prop_map(|(name, on)| Step::Enable { name, on }),
        1 => (0..3_u8).prop_map(Step::Delete),
        2 => (0..3_u8, 0..6_i64).prop_map(|(name, steps)| Step::Defer { name, steps }),
        8 => (0..3_u8, 0..12_u8, any::<bool>(), any::<bool>(), prop::option::of(0..2_u8), any::<bool>(), 0..5_u32)
            .prop_map(|(name, key, scheduled, by_hand, content, missed, global)| {
                Step::Claim { name, key, scheduled, by_hand, content, missed, global }
            }),
        2 => (0..3_u8, prop::collection::vec(0..12_u8, 0..3)).prop_map(|(name, times)| Step::Miss { name, times }),
        5 => (one, status).prop_map(|(routine_run, status)| Step::Settle { routine_run, status }),
        1 => (0..20_i64, any::<bool>()).prop_map(|(age, routine_runs_alone)| Step::Prune { age, routine_runs_alone }),
    ]
}

/// A step with its ids and dates, which are the same for both.
struct Played {
    step: Step,
    now: UnixMillis,
    notice: Outbound,
    jobs: Vec<JobId>,
    routine_runs: Vec<RoutineRunId>,
    /// Of the routine that is made, if one is.
    routine: RoutineId,
    /// The boot of before, and another.
    boots: [BootId; 2],
}

const SECOND: i64 = 1_000;

/// Most jobs that are open, of one creator and of all.
const OPEN_EACH: u32 = 3;
const OPEN: u32 = 6;

/// Most routine runs of one routine that run at once.
const AT_ONCE: u32 = 2;

impl Played {
    fn job(&self, n: usize) -> JobId {
        self.jobs.get(n).copied().unwrap_or_else(nobody)
    }

    fn routine(&self, name: u8, variant: u8) -> NewRoutine {
        let name = format!("r{name}");
        let mut new = if variant == 0 { routine(&name) } else { scheduled(&name, self.now.0 + SECOND) };
        new.spec.description = format!("variant {variant}");
        let guard = &mut new.spec.guard;
        (guard.max_concurrent, guard.max_failures) = (AT_ONCE, 2);
        (guard.cooldown_s, guard.dedup_window_s) = if variant == 3 { (5, 8) } else { (0, 0) };
        NewRoutine { id: self.routine, at: self.now, ..new }
    }

    /// The answer, without what is made up within a store.
    async fn play(&self, store: &dyn Everything) -> String {
        let at = self.now;
        match self.step.clone() {
            Step::Create { creator, again } => {
                let id = if again { self.jobs[0] } else { self.jobs[self.jobs.len() - 1] };
                let caps = JobCaps { at_work: 0, at_work_each: 0, open_each: OPEN_EACH, open: OPEN };
                let new = belay_protocol::NewJob { id, at, parent: None, ..job(&format!("p{creator}")) };
                format!("{:?}", store.create(new, caps).await)
            }
            Step::BeginNext { at_work, each } => {
                let caps = JobCaps { at_work, at_work_each: each, open_each: 0, open: 0 };
                format!("{:?}", store.begin_next(caps, HeldJobs::default(), self.boots[0], at).await)
            }
            Step::BeginAgain(job) => format!("{:?}", store.begin_again(self.job(job), self.boots[0], at).await),
            Step::Change { job, to, attempt } => {
                let (why, result) = (format!("at {}", at.0), (at.0 % 2 == 0).then(|| "a result".to_owned()));
                let notice = Some(self.notice.clone());
                let attempt = attempt.map(|number| JobAttempt { number, owner: self.boots[0] });
                format!(
                    "{:?}",
                    store
                        .change(JobChange {
                            job: self.job(job),
                            to,
                            attempt,
                            detail: why,
                            result,
                            notice,
                            told_in: None,
                            at
                        })
                        .await
                )
            }
            Step::NoteProgress(job) => format!("{:?}", store.note_progress(self.job(job)).await),
            Step::Suspend => format!("{:?}", store.suspend(self.boots[0]).await),
            Step::TakeUp { again } => format!("{:?}", store.reclaim(self.boots[usize::from(!again)]).await),
            Step::Put { name, variant } => format!("{:?}", store.put(self.routine(name, variant), FREELY).await),
            Step::Enable { name, on } => {
                let next = Some(UnixMillis(at.0 + SECOND));
                format!("{:?}", store.enable(current(store, name).await, on, "switched", next, at).await)
            }
            Step::Defer { name, steps } => {
                let there = store.routine(&format!("r{name}")).await.unwrap();
                let waits_for = there.and_then(|routine| routine.next_at).unwrap_or(at);
                let (until, least) = (UnixMillis(at.0 + steps * SECOND), u32::from(steps % 2 == 0));
                let aside = Deferral { waits_for, until, at_work: least };
                format!("{:?}", store.defer(current(store, name).await, aside).await)
            }
            Step::Delete(name) => format!("{:?}", store.delete(&format!("r{name}"), None).await),
            Step::Claim { name, key, scheduled, by_hand, content, missed, global } => {
                let time = i64::from(key) * SECOND;
                let new = NewRoutineRun {
                    routine_id: current(store, name).await,
                    id: self.routine_runs[self.routine_runs.len() - 1],
                    by_hand,
                    content: content.map(|content| content.to_string()),
                    missed: if missed {
                        vec![UnixMillis(time - 2 * SECOND), UnixMillis(time - SECOND)]
                    } else {
                        Vec::new()
                    },
                    next_at: Some(UnixMillis(time + SECOND)),
                    scheduled_at: scheduled.then_some(UnixMillis(time)),
                    at,
                    ..routine_run(&format!("r{name}"), &time.to_string())
                };
                match store.claim(new, global).await.unwrap() {
                    Claim::Known(known) => format!("known: {:?}", plain(*known)),
                    claim => format!("{claim:?}"),
                }
            }
            Step::Miss { name, times } => {
                let times = times.into_iter().map(|time| UnixMillis(i64::from(time) * SECOND)).collect();
                let next = Some(UnixMillis(at.0 + SECOND));
                format!("{:?}", store.miss(current(store, name).await, times, next, at).await)
            }
            Step::Settle { routine_run, status } => {
                let routine_run = self.routine_runs.get(routine_run).copied().unwrap_or_else(nobody);
                let notice = Some(self.notice.clone());
                format!(
                    "{:?}",
                    RoutineRunStore::settle(store, RoutineRunEnd { notice, at, ..end(routine_run, status) }).await
                )
            }
            Step::Prune { age, routine_runs_alone } => {
                let before = UnixMillis(at.0 - age * SECOND);
                let old = Retention {
                    threads_before: Some(before).filter(|_| !routine_runs_alone),
                    ended_routine_runs_before: Some(before).filter(|_| routine_runs_alone),
                    ephemeral_before: None,
                    events_before: None,
                    keys_before: before,
                };
                format!(
                    "{:?} {:?}",
                    store.prunable(old).await.map(|it| (it.jobs, it.routine_runs)),
                    store.prune(old, 10_000).await
                )
            }
        }
    }
}

/// The routine that has the name now.
async fn current(store: &dyn Everything, name: u8) -> RoutineId {
    store.routine(&format!("r{name}")).await.unwrap().map_or_else(nobody, |routine| routine.routine_id)
}

/// An id that is nobody's.
fn nobody<T: std::str::FromStr<Err: std::fmt::Debug>>() -> T {
    "01890000-0000-7000-8000-000000000000".parse().unwrap()
}

/// A routine run without its id, where the store has made that up.
fn plain(routine_run: RoutineRunRecord) -> RoutineRunRecord {
    if routine_run.status == RoutineRunStatus::Missed && routine_run.detail.is_empty() {
        return RoutineRunRecord { routine_run_id: nobody(), ..routine_run };
    }
    routine_run
}

/// All that there is, without what is made up within a store.
async fn rows(store: &dyn Everything, now: UnixMillis) -> Vec<String> {
    let jobs = store.jobs(JobFilter { limit: 1_000, ..JobFilter::default() }).await.unwrap();
    let routines = store.routines().await.unwrap();
    let routine_runs =
        store.routine_runs(RoutineRunFilter { limit: 1_000, ..RoutineRunFilter::default() }).await.unwrap();
    let open = store.open_routine_runs(boot()).await.unwrap();
    let events = store.read(EventQuery { limit: 1_000, ..EventQuery::default() }).await.unwrap();
    let kinds = events.into_iter().map(|event| match event.kind {
        EventKind::RoutineRunStarted { routine, trigger: by, scheduled_ms, .. } => {
            format!("fired {routine} {by} {scheduled_ms:?}")
        }
        EventKind::RoutineRunEnded { routine, status, disabled, .. } => {
            format!("ended {routine} {status:?} {disabled}")
        }
        kind => format!("{kind:?}"),
    });
    let due = RoutineSchedule::due(store, now, 2).await.unwrap();
    let due = due.into_iter().map(|routine| routine.spec.name);
    let mut rows = vec![format!("{:?} {:?}", RoutineSchedule::next_due(store).await.unwrap(), due.collect::<Vec<_>>())];
    rows.extend(jobs.into_iter().map(|job| format!("{job:?}")));
    rows.extend(routines.into_iter().map(|routine| format!("{routine:?}")));
    rows.extend(routine_runs.into_iter().map(|routine_run| format!("{:?}", plain(routine_run))));
    rows.extend(open.into_iter().map(|routine_run| format!("{routine_run:?}")));
    rows.extend(kinds);
    rows.extend(told(store).await);
    rows
}

/// What has ended, by its id, as it was first seen to have.
type Ended = BTreeMap<String, String>;

/// What no sequence of writes may break. `pruned`: the last one was a deletion of what is old.
async fn rules_hold(store: &dyn Everything, ended: &mut Ended, pruned: bool) {
    let jobs = store.jobs(JobFilter { limit: 1_000, ..JobFilter::default() }).await.unwrap();
    let mut open = BTreeMap::<_, u32>::new();
    for job in &jobs {
        assert_eq!(job.ended_at.is_some(), job.state.is_over(), "{job:?}");
        if job.state.is_over() {
            // It may still be submitted and accepted; its end, its attempts and its run stay.
            let end = format!("{:?} {} {:?}", job.ended_at, job.attempt, job.run_id);
            assert_eq!(*ended.entry(job.job_id.to_string()).or_insert_with(|| end.clone()), end, "{job:?}");
        } else {
            assert!(!ended.contains_key(&job.job_id.to_string()), "it began again: {job:?}");
            *open.entry(&job.creator.principal).or_default() += 1;
        }
    }
    assert!(open.values().all(|each| *each <= OPEN_EACH) && open.values().sum::<u32>() <= OPEN, "{open:?}");

    let routine_runs =
        store.routine_runs(RoutineRunFilter { limit: 1_000, ..RoutineRunFilter::default() }).await.unwrap();
    let (mut causes, mut running) = (BTreeSet::new(), BTreeMap::<_, u32>::new());
    for routine_run in &routine_runs {
        assert!(causes.insert((routine_run.routine_id, &routine_run.key)), "a cause fired twice: {routine_run:?}");
        if routine_run.ended_at.is_some() {
            let end = format!("{routine_run:?}");
            assert_eq!(*ended.entry(routine_run.routine_run_id.to_string()).or_insert_with(|| end.clone()), end);
        } else {
            assert!(!ended.contains_key(&routine_run.routine_run_id.to_string()), "it began again: {routine_run:?}");
            *running.entry(routine_run.routine_id).or_default() += 1;
        }
    }
    assert!(running.values().all(|each| *each <= AT_ONCE), "{running:?}");
    let listed: BTreeSet<String> = jobs
        .iter()
        .map(|job| job.job_id.to_string())
        .chain(routine_runs.iter().map(|routine_run| routine_run.routine_run_id.to_string()))
        .collect();
    if pruned {
        // What is not known any more may be made anew under the same id.
        ended.retain(|id, _| listed.contains(id));
    }
    assert!(ended.keys().all(|id| listed.contains(id)), "only pruning deletes what has ended");
    for routine in store.routines().await.unwrap() {
        assert!(routine.enabled || routine.next_at.is_none(), "{routine:?}");
    }
}

async fn play_on_both(steps: Vec<Step>) {
    let (sqlite, _directory) = sqlite();
    let memory = SqlStore::in_memory().unwrap();
    let mut ended = Ended::new();
    let (mut jobs, mut routine_runs, mut boot) = (Vec::new(), Vec::new(), BootId::new());
    for (n, step) in (1..).zip(steps) {
        match &step {
            Step::Create { again, .. } if jobs.is_empty() || !again => jobs.push(JobId::new()),
            Step::Claim { .. } => routine_runs.push(RoutineRunId::new()),
            _ => {}
        }
        let boots = [boot, BootId::new()];
        if matches!(step, Step::TakeUp { again: false }) {
            boot = boots[1];
        }
        let notice = outbound(&format!("c{n}"), &format!("notice {n}"));
        let played = Played { step, now: at(n * SECOND), notice, jobs, routine_runs, routine: RoutineId::new(), boots };
        let (first, second) = (played.play(&memory).await, played.play(&sqlite).await);
        assert_eq!(first, second, "{:?} at {n}", played.step);
        assert_eq!(rows(&memory, played.now).await, rows(&sqlite, played.now).await, "after {:?} at {n}", played.step);
        rules_hold(&memory, &mut ended, matches!(played.step, Step::Prune { .. })).await;
        (jobs, routine_runs) = (played.jobs, played.routine_runs);
    }
    sqlite.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn after_any_sequence_memory_and_disk_keep_the_same_jobs_and_routines_within_their_rules(steps in prop::collection::vec(step(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play_on_both(steps));
    }
}
