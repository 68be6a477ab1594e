//! A claimed firing, from its claim to its end. Every step can be repeated: the run that does it has an idempotency key made of
//! the firing, its job has the firing's id, and the end is committed once, together with what is told of it. So after a crash
//! it is led to its end by the same steps.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::job::JOB_TASK_MAX_BYTES;
use belay_protocol::{
    Ack, Body, Control, FiringEnd, FiringRecord, FiringStatus, IdempotencyKey, Inbound, JobId, JobOrder, Principal,
    Purpose, Refusal, RoutineAction, RoutineOrigin, RoutineRecord, RunId, RunOptions, RunRecord, SessionLifetime,
    Settled, SkipReason, StoreError, firing_session,
};
use tokio::time::sleep;

use super::outcome::Outcome;
use super::service::RoutineService;
use super::{heartbeat, text};
use crate::jobs::{self, Client};
use belay_run::metrics;
use belay_run::rights::{self, NoLonger};

/// First and longest pause between two attempts to reach the store, or a lane that is busy.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often the job of a firing is looked at.
const JOB_LOOK: Duration = Duration::from_secs(5);
/// How often a run is looked at that nobody can follow yet.
const RUN_LOOK: Duration = Duration::from_secs(1);

/// Leads a firing to its end, or until the daemon ends.
///
/// # Cancel safety
/// Dropped, the next start leads it on.
pub(super) async fn pursue(service: Arc<RoutineService>, firing: FiringRecord) {
    let name = &firing.routine;
    let Some(routine) = insist(&service, || service.routines.routine(name)).await else { return };
    let routine = routine.filter(|routine| routine.routine_id == firing.routine_id); // else it is another one
    if let Some(routine) = routine.as_ref().filter(|routine| routine.origin == RoutineOrigin::Heartbeat) {
        if let Some(end) = heartbeat::beat(&service, &firing, routine).await {
            settle(&service, &firing, end).await;
        }
        return;
    }
    let routine = match &routine {
        None => None,
        Some(made) => match rights::of_routine(&service.access, made) {
            Ok(routine) => Some(routine),
            // A run that a restart has taken up finds the same, and ends.
            Err(gone) => return refuse(&service, &firing, made, gone).await,
        },
    };
    let outcome = match &routine {
        Some(RoutineRecord { spec, .. }) if matches!(spec.action, RoutineAction::FullJob { .. }) => {
            by_job(&service, &firing, routine.as_ref()).await
        }
        _ if firing.job_id.is_some() => by_job(&service, &firing, routine.as_ref()).await,
        _ => by_run(&service, &firing, routine.as_ref()).await,
    };
    if let Some(outcome) = outcome {
        settle(&service, &firing, outcome.end(&firing, routine.as_ref(), service.clock.now())).await;
    }
}

/// Ends a firing that nobody could lead to its end.
pub(super) async fn give_up(service: Arc<RoutineService>, firing: FiringRecord) {
    let routine = service.routines.routine(&firing.routine).await.ok().flatten();
    let routine = routine.filter(|routine| routine.routine_id == firing.routine_id);
    let outcome = Outcome::failed("it ended by an internal error of Belay; see the log");
    settle(&service, &firing, outcome.end(&firing, routine.as_ref(), service.clock.now())).await;
}

/// Ends a firing of a routine whose creator is let in no more, and the routine with it.
async fn refuse(service: &RoutineService, firing: &FiringRecord, routine: &RoutineRecord, NoLonger(why): NoLonger) {
    let told = routine.reply_to.as_ref().is_some_and(|route| rights::may_tell(&service.access, route));
    settle(service, firing, Outcome::failed(why).last(firing, routine, told, service.clock.now())).await;
}

async fn settle(service: &RoutineService, firing: &FiringRecord, end: FiringEnd) {
    let (status, why) = (end.status.word(), end.summary.clone());
    let settled = insist(service, || service.routines.settle(end.clone())).await;
    tracing::info!(firing = %firing.firing_id, routine = firing.routine, status, "firing ended");
    let Some(Settled::Now { disabled, .. }) = settled else { return };
    metrics::firing_ended(end.status);
    if end.status == FiringStatus::Skipped
        && let Some(reason) = why.as_deref().and_then(SkipReason::from_word)
    {
        metrics::heartbeat_skipped(reason);
    }
    if disabled {
        tracing::warn!(routine = firing.routine, why, "a routine is disabled");
        service.board.remove(&firing.routine); // nothing sets it off until it is switched on
    }
}

/// Asks the store until it answers; `None`: the daemon ends before it did.
pub(super) async fn insist<T, F>(service: &RoutineService, mut ask: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = BACKOFF.0;
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(error) if service.draining.is_cancelled() => {
                tracing::warn!(%error, "a firing is left to the next start");
                return None;
            }
            Err(error) => tracing::error!(%error, "the store did not take what became of a firing; trying again"),
        }
        sleep(pause).await;
        pause = (pause * 2).min(BACKOFF.1);
    }
}

/// Has a run do it. `None`: the daemon ends.
pub(super) async fn by_run(
    service: &RoutineService,
    firing: &FiringRecord,
    routine: Option<&RoutineRecord>,
) -> Option<Outcome> {
    let run = match firing.run_id {
        Some(run) => run,
        None => {
            let key = key_of(firing, routine);
            let known = insist(service, || service.threads.find(&key)).await?;
            let begun = match (known, routine) {
                (Some(known), _) => Ok(known.run_id),
                (None, Some(routine)) => begin(service, firing, routine, key).await?,
                (None, None) => Err("the routine was deleted before it had begun".to_owned()),
            };
            match begun {
                Ok(run) => run,
                Err(why) => return Some(Outcome::failed(why)),
            }
        }
    };
    insist(service, || service.routines.note_work(firing.firing_id, Some(run), None)).await?;
    Some(match follow(service, run).await? {
        Some(record) => Outcome::of_run(&record),
        None => Outcome::failed("what it had done was deleted before it could be read".to_owned()),
    })
}

/// What makes a second sending of a firing's message recognisable.
pub(super) fn key_of(firing: &FiringRecord, routine: Option<&RoutineRecord>) -> IdempotencyKey {
    let id = firing.firing_id.to_string();
    IdempotencyKey { channel: purpose_of(routine).channel(), account: "firing".into(), message_id: id.into() }
}

/// What the run of a firing is for.
fn purpose_of(routine: Option<&RoutineRecord>) -> Purpose {
    match routine.map(|routine| routine.origin) {
        Some(RoutineOrigin::Heartbeat) => Purpose::Heartbeat,
        Some(RoutineOrigin::Made | RoutineOrigin::Config) | None => Purpose::Routine,
    }
}

/// Sends the message that is the firing's work. Sent again, it is the same run. `None`: the daemon ends.
async fn begin(
    service: &RoutineService,
    firing: &FiringRecord,
    routine: &RoutineRecord,
    key: IdempotencyKey,
) -> Option<Result<RunId, String>> {
    let RoutineAction::Lightweight { prompt, .. } = &routine.spec.action else {
        return Some(Err("the routine does its work by jobs now; it did not when it fired".to_owned()));
    };
    let message = message(firing, Body::Text(prompt.clone()), routine, Some(key));
    let message = match routine.origin {
        RoutineOrigin::Heartbeat => Inbound { options: heartbeat::options(service), ..message },
        RoutineOrigin::Made | RoutineOrigin::Config => message,
    };
    let mut pause = BACKOFF.0;
    while !service.draining.is_cancelled() {
        match service.inlet.send(message.clone()).await {
            Some(Ack::Accepted(accepted)) => return Some(Ok(accepted.run_id)),
            // It was sent before, and the routine has other words by now.
            Some(Ack::Refused(Refusal::Conflict { run_id })) => return Some(Ok(run_id)),
            Some(Ack::Refused(Refusal::Forbidden(why) | Refusal::Invalid(why))) => return Some(Err(why)),
            // Busy, a store that does not answer, a lane that was let go: sent again it is the same message.
            _ => sleep(pause).await,
        }
        pause = (pause * 2).min(BACKOFF.1);
    }
    None
}

/// Its run answers nobody: what there is to say is told with the end of the firing.
fn message(firing: &FiringRecord, body: Body, routine: &RoutineRecord, key: Option<IdempotencyKey>) -> Inbound {
    Inbound {
        channel: purpose_of(Some(routine)).channel(),
        session: firing_session(firing.firing_id),
        principal: rights::principal(&routine.creator),
        key,
        reply_to: None,
        body,
        history: Vec::new(),
        want_deltas: false,
        outputs: Vec::new(),
        lifetime: SessionLifetime::Lasting,
        relayed: true,
        provenance: None,
        options: RunOptions::default(),
    }
}

/// Waits for the end of a run; within, `None`: there is no such run any more. `None`: the daemon ends.
async fn follow(service: &RoutineService, run: RunId) -> Option<Option<RunRecord>> {
    while !service.draining.is_cancelled() {
        let record = insist(service, || service.runs.run(run)).await?;
        match record {
            Some(record) if !record.status.is_end() => {}
            ended_or_gone => return Some(ended_or_gone),
        }
        let Some(Ack::Watch(Some(watch))) = service.inlet.send(watch_of(run)).await else {
            sleep(RUN_LOOK).await;
            continue;
        };
        let mut finished = watch.finished;
        let ended = finished.wait_for(|record| record.as_ref().is_some_and(|record| record.status.is_end())).await;
        if let Ok(record) = ended
            && let Some(record) = record.as_ref()
        {
            return Some(Some(RunRecord::clone(record)));
        }
    }
    None
}

fn watch_of(run: RunId) -> Inbound {
    Inbound {
        channel: Purpose::Routine.channel(),
        session: "routine:".into(),
        principal: Principal::operator("routine"),
        key: None,
        reply_to: None,
        body: Body::Control(Control::Watch(run)),
        history: Vec::new(),
        want_deltas: false,
        outputs: Vec::new(),
        lifetime: SessionLifetime::Lasting,
        relayed: false,
        provenance: None,
        options: RunOptions::default(),
    }
}

/// Has a job do it, and waits until that is over; the firing is at work all the while. `None`: the daemon ends.
async fn by_job(service: &RoutineService, firing: &FiringRecord, routine: Option<&RoutineRecord>) -> Option<Outcome> {
    // Of the firing, so that it is one job however often it is made.
    let id = firing.job_id.unwrap_or_else(|| JobId::from(firing.firing_id.as_uuid()));
    if insist(service, || service.jobs.jobs.job(id)).await?.is_none() {
        let Some(routine) = routine.filter(|_| firing.job_id.is_none()) else {
            return Some(Outcome::failed("its job is gone"));
        };
        if let Err(why) = order(service, firing, routine, id).await? {
            return Some(Outcome::failed(why));
        }
    }
    insist(service, || service.routines.note_work(firing.firing_id, None, Some(id))).await?;
    loop {
        match insist(service, || service.jobs.jobs.job(id)).await? {
            Some(job) if job.state.is_over() => {
                let used = insist(service, || jobs::spent(&service.jobs, &job, None)).await?;
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
            () = sleep(JOB_LOOK) => {}
        }
    }
}

/// What stands before the task of a routine's job.
const WITHIN: &str = "A routine started this task automatically: create no routines and no jobs, and ask nobody.";

/// Makes the job of a firing. Made again, it is the same one. `None`: the daemon ends.
async fn order(
    service: &RoutineService,
    firing: &FiringRecord,
    routine: &RoutineRecord,
    id: JobId,
) -> Option<Result<(), String>> {
    let RoutineAction::FullJob { task, plan, room, budget } = &routine.spec.action else {
        return Some(Err("the routine does its work without a job now; it did not when it fired".to_owned()));
    };
    let mut words = format!("{WITHIN}\n\n{task}");
    if let Some(payload) = &firing.payload {
        // Cut before it is marked, so that the marker is closed.
        let room = JOB_TASK_MAX_BYTES.saturating_sub(words.len()) / 2;
        words =
            format!("{words}\n\n{}", text::payload(firing.firing_id, &payload[..payload.floor_char_boundary(room)]));
    }
    words.truncate(words.floor_char_boundary(JOB_TASK_MAX_BYTES));
    let order = JobOrder {
        job_id: Some(id),
        title: Some(format!("Routine {}", routine.spec.name)),
        task: words,
        plan: *plan,
        room: *room,
        budget: *budget,
    };
    let client = Client {
        asker: routine.creator.clone(),
        channel: routine.channel.clone(),
        session: firing_session(firing.firing_id),
        reply_to: None, // what there is to say is told with the end of the firing
        parent: None,
        firing: Some(firing.firing_id),
    };
    let mut pause = BACKOFF.0;
    while !service.draining.is_cancelled() {
        match jobs::create(&service.jobs, order.clone(), client.clone()).await {
            Ok(_) => return Some(Ok(())),
            // Too many jobs are open: that is no failure of the routine.
            Err(Refusal::Store(_) | Refusal::ShuttingDown | Refusal::Busy { .. } | Refusal::Overloaded { .. }) => {
                sleep(pause).await;
            }
            Err(refusal) => return Some(Err(refusal.to_string())),
        }
        pause = (pause * 2).min(BACKOFF.1);
    }
    None
}
