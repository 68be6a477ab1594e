//! Follows a claimed routine run to its end. Each step can be repeated: the message of its run has an idempotency key
//! made of the routine run's id, its job's id is derived from the same id, and the end is committed once, together
//! with its notices. After a crash, the same steps continue the routine run.

use std::sync::Arc;
use std::time::Duration;

use belay_crash_point::crash_point;
use belay_protocol::job::JOB_TASK_MAX_BYTES;
use belay_protocol::{
    Body, IdempotencyKey, Inbound, JobId, JobOrder, Refusal, RoutineAction, RoutineOrigin, RoutineRecord,
    RoutineRunEnd, RoutineRunRecord, RoutineRunStatus, RunOptions, RunRecord, SessionNotice, Settled, SkipReason, Work,
    WorkSource, routine_run_session,
};
use tokio::time::sleep;

use super::outcome::{Outcome, conversation_of};
use super::service::RoutineService;
use super::{heartbeat, text};
use crate::jobs::{self, JobRequester};
use crate::submitter::Submitted;
use belay_run::metrics;
use belay_run::retry::{STORE, until_stored};
use belay_run::rights::{self, Revoked};

/// Longest time between two looks at the job of a routine run. The end of a job at this node leads to a look at once;
/// that of a job at another node of a cluster does not.
const JOB_LOOK: Duration = Duration::from_secs(5);
/// Pause between two looks at a run without a watch.
const RUN_LOOK: Duration = Duration::from_secs(1);

/// Follows a routine run to its end, or until the daemon ends. Reads the row of its routine once, after the claim: the
/// list of due routines may be older than a change of the routine's creator.
///
/// # Cancel safety
/// When dropped, the next start continues the routine run.
pub(super) async fn drive(service: Arc<RoutineService>, routine_run: RoutineRunRecord) {
    crash_point!("routine.claimed");
    let name = &routine_run.routine;
    let Some(routine) = until_stored(&service.draining, || service.routines.routine(name)).await else { return };
    // A routine with another id was created under the same name later.
    let routine = routine.filter(|routine| routine.routine_id == routine_run.routine_id);
    if let Some(routine) = routine.as_ref().filter(|routine| routine.origin == RoutineOrigin::Heartbeat) {
        if let Some(end) = heartbeat::beat(&service, &routine_run, routine).await {
            settle(&service, &routine_run, end).await;
        }
        return;
    }
    let routine = match &routine {
        None => None,
        Some(made) => match rights::of_routine(&service.access, made) {
            Ok(routine) => Some(routine),
            // A run that a restart has resumed makes the same check and ends.
            Err(gone) => return refuse(&service, &routine_run, made, gone).await,
        },
    };
    let outcome = match &routine {
        Some(RoutineRecord { spec, .. }) if matches!(spec.action, RoutineAction::FullJob { .. }) => {
            by_job(&service, &routine_run, routine.as_ref()).await
        }
        _ if routine_run.job_id.is_some() => by_job(&service, &routine_run, routine.as_ref()).await,
        _ => by_run(&service, &routine_run, routine.as_ref()).await,
    };
    if let Some(outcome) = outcome {
        let told_in = routine.as_ref().and_then(|routine| conversation_of(&service.access, routine));
        settle(&service, &routine_run, outcome.end(&routine_run, routine.as_ref(), told_in, service.clock.now())).await;
    }
}

/// Ends a routine run whose supervisor crashed.
pub(super) async fn give_up(service: Arc<RoutineService>, routine_run: RoutineRunRecord) {
    let routine = service.routines.routine(&routine_run.routine).await.ok().flatten();
    let routine = routine.filter(|routine| routine.routine_id == routine_run.routine_id);
    let outcome = Outcome::failed("it ended by an internal error of Belay; see the log");
    let told_in = routine.as_ref().and_then(|routine| conversation_of(&service.access, routine));
    settle(&service, &routine_run, outcome.end(&routine_run, routine.as_ref(), told_in, service.clock.now())).await;
}

/// Ends a routine run and disables its routine, because the creator has no permission any more.
async fn refuse(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: &RoutineRecord,
    Revoked(why): Revoked,
) {
    let told = routine.reply_to.as_ref().is_some_and(|route| rights::may_tell(&service.access, route));
    settle(service, routine_run, Outcome::failed(why).last(routine_run, routine, told, service.clock.now())).await;
}

async fn settle(service: &RoutineService, routine_run: &RoutineRunRecord, end: RoutineRunEnd) {
    let (status, why) = (end.status.word(), end.summary.clone());
    crash_point!("routine.before-settlement");
    let settled = until_stored(&service.draining, || service.routine_run_store.settle(end.clone())).await;
    tracing::info!(routine_run = %routine_run.routine_run_id, routine = routine_run.routine, status, "routine run ended");
    crash_point!("routine.settled");
    let Some(Settled::Now { disabled, .. }) = settled else { return };
    if let Some(SessionNotice { session, .. }) = end.told_in {
        service.submitter.refresh(session).await;
    }
    metrics::routine_run_ended(end.status);
    if end.status == RoutineRunStatus::Skipped
        && let Some(reason) = why.as_deref().and_then(SkipReason::from_word)
    {
        metrics::heartbeat_skipped(reason);
    }
    if disabled {
        tracing::warn!(routine = routine_run.routine, why, "a routine is disabled");
        service.registry.remove(&routine_run.routine); // nothing triggers it until it is enabled
    }
}

/// Executes a routine run by a run, and waits for the end of that run. Returns `None` when the daemon ends first.
pub(super) async fn by_run(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: Option<&RoutineRecord>,
) -> Option<Outcome> {
    let known = match routine_run.run_id {
        Some(run) => Some(run),
        None => {
            let key = key_of(routine_run, routine);
            until_stored(&service.draining, || service.inputs.find(&key)).await?.map(|known| known.run_id)
        }
    };
    let begun = match (known, routine) {
        (Some(run), _) => Ok(Submitted { run, watch: None }),
        (None, Some(routine)) => begin(service, routine_run, routine).await?,
        (None, None) => Err("the routine was deleted before it had begun".to_owned()),
    };
    let submitted = match begun {
        Ok(submitted) => submitted,
        Err(why) => return Some(Outcome::failed(why)),
    };
    crash_point!("routine.submitted");
    until_stored(&service.draining, || {
        service.routine_run_store.note_work(routine_run.routine_run_id, Some(submitted.run), None)
    })
    .await?;
    Some(match follow(service, submitted).await? {
        Some(record) => Outcome::of_run(&record),
        None => Outcome::failed("its run was deleted before it could be read".to_owned()),
    })
}

/// The idempotency key of a routine run's message.
pub(super) fn key_of(routine_run: &RoutineRunRecord, routine: Option<&RoutineRecord>) -> IdempotencyKey {
    let id = routine_run.routine_run_id.to_string();
    let channel = work_of(routine_run, routine).purpose().channel();
    IdempotencyKey { channel, account: "routine_run".into(), message_id: id.into() }
}

/// The kind of work of a routine run.
fn work_of(routine_run: &RoutineRunRecord, routine: Option<&RoutineRecord>) -> Work {
    let id = routine_run.routine_run_id;
    match routine.map(|routine| routine.origin) {
        Some(RoutineOrigin::Heartbeat) => Work::Heartbeat { id },
        Some(RoutineOrigin::Made | RoutineOrigin::Config) | None => Work::RoutineRun { id },
    }
}

/// Submits the message of a routine run. The run has no reply route: the end of the routine run notifies the owner.
/// Returns `None` when the daemon ends first.
async fn begin(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: &RoutineRecord,
) -> Option<Result<Submitted, String>> {
    let RoutineAction::Lightweight { prompt, .. } = &routine.spec.action else {
        return Some(Err("the routine does its work by jobs now; it did not when it fired".to_owned()));
    };
    thawed(service, routine).await?;
    let (work, session) = (work_of(routine_run, Some(routine)), routine_run_session(routine_run.routine_run_id));
    let (principal, body) = (rights::principal(&routine.creator), Body::Text(prompt.clone()));
    let options = match work {
        Work::Heartbeat { .. } => heartbeat::options(service),
        _ => RunOptions::default(),
    };
    let message = Inbound {
        key: Some(key_of(routine_run, Some(routine))),
        work,
        source: Some(Arc::new(WorkSource {
            channel: routine.channel.clone(),
            routine: Some(routine.spec.name.clone()),
            asked_in: routine.made_in.clone(),
        })),
        options,
        ..Inbound::new(work.purpose().channel(), session, principal, body)
    };
    service.submitter.submit(&message, &service.draining).await
}

/// Waits until no freeze keeps the routine from beginning. Returns `None` when the daemon ends first.
async fn thawed(service: &RoutineService, routine: &RoutineRecord) -> Option<()> {
    tokio::select! {
        () = service.run.freezer.routine_thawed(routine) => Some(()),
        () = service.draining.cancelled() => None,
    }
}

/// Waits for the end of a run. Returns `Some(None)` when the run no longer exists, and `None` when the daemon ends
/// first.
async fn follow(service: &RoutineService, Submitted { run, watch }: Submitted) -> Option<Option<Arc<RunRecord>>> {
    if let Some(mut watch) = watch
        && let Some(record) = watch.ended().await
    {
        return Some(Some(record));
    }
    // A restart has resumed the run, or its lane has closed. The store learns of the end of the run.
    while !service.draining.is_cancelled() {
        match until_stored(&service.draining, || service.runs.run(run)).await? {
            Some(record) if !record.status.is_end() => sleep(RUN_LOOK).await,
            ended_or_gone => return Some(ended_or_gone.map(Arc::new)),
        }
    }
    None
}

/// Executes a routine run by a job, and waits for the end of that job. The routine run is in progress meanwhile.
/// Returns `None` when the daemon ends first.
async fn by_job(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: Option<&RoutineRecord>,
) -> Option<Outcome> {
    // The id is derived from the routine run's, so that a repetition creates no second job.
    let id = routine_run.job_id.unwrap_or_else(|| JobId::from(routine_run.routine_run_id.as_uuid()));
    if until_stored(&service.draining, || service.jobs.jobs.job(id)).await?.is_none() {
        let Some(routine) = routine.filter(|_| routine_run.job_id.is_none()) else {
            return Some(Outcome::failed("its job is gone"));
        };
        if let Err(why) = order(service, routine_run, routine, id).await? {
            return Some(Outcome::failed(why));
        }
    }
    until_stored(&service.draining, || service.routine_run_store.note_work(routine_run.routine_run_id, None, Some(id)))
        .await?;
    let mut ends = service.jobs.bell.ends(); // before the first look, so that no end is missed
    loop {
        match until_stored(&service.draining, || service.jobs.jobs.job(id)).await? {
            Some(job) if job.state.is_over() => {
                let used = until_stored(&service.draining, || jobs::spent(&service.jobs, &job, None)).await?;
                return Some(Outcome::of_job(&job, used));
            }
            Some(_) => {}
            None => return Some(Outcome::failed("its job is gone")),
        }
        if service.draining.is_cancelled() {
            return None;
        }
        tokio::select! {
            () = service.draining.cancelled() => {}
            _ = ends.changed() => {} // the sender lives as long as `service`, so this cannot fail
            () = sleep(JOB_LOOK) => {}
        }
    }
}

/// Precedes the task of a routine's job.
const WITHIN: &str = "A routine started this task automatically: create no routines and no jobs, and ask nobody.";

/// Creates the job of a routine run. A repetition finds the same job. Returns `None` when the daemon ends first.
async fn order(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: &RoutineRecord,
    id: JobId,
) -> Option<Result<(), String>> {
    let RoutineAction::FullJob { task, plan, runs_in: room, budget } = &routine.spec.action else {
        return Some(Err("the routine does its work without a job now; it did not when it fired".to_owned()));
    };
    thawed(service, routine).await?;
    let mut words = format!("{WITHIN}\n\n{task}");
    if let Some(payload) = &routine_run.payload {
        // The payload is cut before it is marked, so that the closing marker remains.
        let room = JOB_TASK_MAX_BYTES.saturating_sub(words.len()) / 2;
        words = format!(
            "{words}\n\n{}",
            text::payload(routine_run.routine_run_id, &payload[..payload.floor_char_boundary(room)])
        );
    }
    words.truncate(words.floor_char_boundary(JOB_TASK_MAX_BYTES));
    let order = JobOrder {
        job_id: Some(id),
        title: Some(format!("Routine {}", routine.spec.name)),
        task: words,
        plan: *plan,
        runs_in: *room,
        budget: *budget,
        allow: Vec::new(),
    };
    let client = JobRequester {
        asker: routine.creator.clone(),
        channel: routine.channel.clone(),
        session: routine_run_session(routine_run.routine_run_id),
        reply_to: None, // the end of the routine run notifies the owner
        parent: None,
        routine_run: Some(routine_run.routine_run_id),
    };
    let mut pauses = STORE.pauses();
    while !service.draining.is_cancelled() {
        match jobs::create(&service.jobs, order.clone(), client.clone()).await {
            Ok(_) => return Some(Ok(())),
            // Too many open jobs are no failure of the routine.
            Err(Refusal::Store(_) | Refusal::ShuttingDown | Refusal::Busy { .. } | Refusal::Overloaded { .. }) => {
                pauses.wait(&service.draining).await;
            }
            Err(refusal) => return Some(Err(refusal.to_string())),
        }
    }
    None
}
