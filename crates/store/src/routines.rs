//! Routines and routine runs: the rules that the store enforces, its errors and its events.

use belay_protocol::routine::MAX_ROUTINES;
use belay_protocol::{
    Claim, Echo, EventKind, Held, NewEvent, NewRoutine, NewRoutineRun, PutBy, PutRule, RoutineOrigin, RoutinePut,
    RoutineRecord, RoutineRunEnd, RoutineRunFilter, RoutineRunId, RoutineRunRecord, RoutineRunStatus, RunUsage,
    StoreError, Trigger, UnixMillis, routine_run_session,
};

use crate::limits::PAGE_MAX;

/// The rows of a list of routine runs if the filter has the limit 0.
const ROUTINE_RUNS_DEFAULT: u32 = 50;

/// The number of rows that a filter allows.
pub(crate) fn routine_runs_limit(filter: &RoutineRunFilter) -> u32 {
    if filter.limit == 0 { ROUTINE_RUNS_DEFAULT } else { filter.limit.min(PAGE_MAX) }
}

/// The path of the webhook, which is unique among routines.
pub(crate) fn path_of(trigger: &Trigger) -> Option<&str> {
    match trigger {
        Trigger::Webhook { path, .. } => Some(path),
        _ => None,
    }
}

pub(crate) fn name_taken(name: &str) -> RoutinePut {
    RoutinePut::Refused(format!("name: there is a routine named {name}: change that one, or choose another name"))
}

pub(crate) fn path_taken(path: &str, by: &str) -> RoutinePut {
    RoutinePut::Refused(format!("trigger.path: the routine {by} has the webhook path {path}: choose another path"))
}

pub(crate) fn too_many() -> RoutinePut {
    RoutinePut::Refused(format!("there are {MAX_ROUTINES} routines, which is the limit: delete one"))
}

pub(crate) fn too_many_each(most: u32) -> RoutinePut {
    RoutinePut::Refused(format!(
        "you have {most} routines, which is the limit (routines.max_per_person): delete or change one"
    ))
}

/// The refusal for a damaged routine, whose owner is unknown.
pub(crate) fn unreadable(name: &str) -> RoutinePut {
    RoutinePut::Forbidden(format!(
        "The name {name} is taken by a routine that cannot be read any more: choose another, or have an operator \
         delete that one."
    ))
}

/// The maximum number of routines of the author; `None`: unlimited.
pub(crate) fn most_of_owner(rule: PutRule) -> Option<u32> {
    match rule.by {
        PutBy::Owner { most } => Some(most),
        PutBy::Operator | PutBy::Config => None,
    }
}

/// The routine that replaces the stored one of its name, or the refusal.
pub(crate) fn over(old: &RoutineRecord, new: NewRoutine, rule: PutRule) -> Result<NewRoutine, RoutinePut> {
    let name = &new.spec.name;
    let own = old.creator.principal == new.creator.principal && old.channel == new.channel;
    if matches!(rule.by, PutBy::Owner { .. }) && !own {
        return Err(RoutinePut::Forbidden(format!("The name {name} is taken: choose another.")));
    }
    if rule.by != PutBy::Config && old.origin != RoutineOrigin::Made {
        let why = format!("The routine {name} is part of the configuration: change it there.");
        return Err(RoutinePut::Forbidden(why));
    }
    if rule.fresh {
        return Err(name_taken(name));
    }
    if rule.by == PutBy::Operator && !own {
        let RoutineRecord { creator, channel, made_in, reply_to, .. } = old.clone();
        return Ok(NewRoutine { creator, channel, made_in, reply_to, ..new });
    }
    Ok(new)
}

/// The record of a new routine.
pub(crate) fn made(new: NewRoutine) -> RoutineRecord {
    RoutineRecord {
        routine_id: new.id,
        claimed_to: has_schedule(&new.spec.trigger).then_some(new.at),
        spec: new.spec,
        creator: new.creator,
        channel: new.channel,
        made_in: new.made_in,
        reply_to: new.reply_to,
        origin: new.origin,
        enabled: true,
        disabled_detail: String::new(),
        revision: 1,
        next_at: new.next_at,
        fired_at: None,
        set_off_at: None,
        routine_runs: 0,
        failures: 0,
        created_at: new.at,
        changed_at: new.at,
    }
}

/// The record of a routine that is stored again. With the same specification only its owner changes. A routine of
/// another origin is a new routine: it takes over neither the routine runs nor the disabled state of the one whose name
/// it takes.
pub(crate) fn put_again(old: RoutineRecord, new: NewRoutine) -> RoutineRecord {
    if old.origin != new.origin {
        return made(new);
    }
    let differs = old.spec != new.spec;
    let fresh = RoutineRecord { routine_id: old.routine_id, created_at: old.created_at, ..made(new) };
    if !differs {
        let RoutineRecord { creator, channel, made_in, reply_to, .. } = fresh;
        return RoutineRecord { creator, channel, made_in, reply_to, ..old };
    }
    RoutineRecord {
        enabled: old.enabled,
        disabled_detail: old.disabled_detail,
        revision: old.revision.saturating_add(1),
        next_at: fresh.next_at.filter(|_| old.enabled),
        fired_at: old.fired_at,
        set_off_at: old.set_off_at,
        routine_runs: old.routine_runs,
        ..fresh
    }
}

/// The record of an enabled or disabled routine.
pub(crate) fn switched(
    old: RoutineRecord,
    on: bool,
    why: &str,
    next_at: Option<UnixMillis>,
    at: UnixMillis,
) -> RoutineRecord {
    let times = RoutineRecord { enabled: on, next_at: next_at.filter(|_| on), changed_at: at, ..old };
    if !on {
        return RoutineRecord { disabled_detail: why.to_owned(), ..times };
    }
    // Times that passed while it was disabled are not missed.
    let claimed_to = times.claimed_to.max(has_schedule(&times.spec.trigger).then_some(at));
    RoutineRecord { disabled_detail: String::new(), failures: 0, claimed_to, ..times }
}

fn has_schedule(trigger: &Trigger) -> bool {
    matches!(trigger, Trigger::Schedule { .. })
}

/// The result if there is no routine of that name.
pub(crate) fn no_routine(name: &str) -> Claim {
    Claim::Off(format!("there is no routine named {name}"))
}

/// The reason for which nothing can be claimed of the routine, or not this scheduled time.
pub(crate) fn off(routine: &RoutineRecord, scheduled: Option<UnixMillis>) -> Option<Claim> {
    let name = &routine.spec.name;
    if !routine.enabled {
        let why = if routine.disabled_detail.is_empty() { "" } else { ": " };
        return Some(Claim::Off(format!("the routine {name} is disabled{why}{}", routine.disabled_detail)));
    }
    let passed = scheduled.is_some_and(|time| is_settled(routine, time));
    passed.then(|| Claim::Off(format!("that time of the routine {name} has passed: it, or a later one, was claimed")))
}

/// Whether the scheduled time was claimed or missed, or is before the schedule.
pub(crate) fn is_settled(routine: &RoutineRecord, time: UnixMillis) -> bool {
    routine.claimed_to.is_some_and(|upto| time <= upto)
}

/// Moves the routine on to the next time if it waits for `upto` or an earlier time. A later time that it waits for
/// already stays.
pub(crate) fn advance(routine: &mut RoutineRecord, upto: UnixMillis, next_at: Option<UnixMillis>) {
    if routine.enabled && routine.next_at.is_none_or(|waits_for| waits_for <= upto) {
        routine.next_at = next_at;
    }
}

/// Records that this time and all earlier ones are claimed or missed.
pub(crate) fn settle_time(routine: &mut RoutineRecord, time: UnixMillis) {
    routine.claimed_to = routine.claimed_to.max(Some(time));
}

/// The milliseconds that are left of `seconds` since `since`. `None` if the clock was set back to before `since`: an
/// event in the future holds nothing back. Otherwise a clock that was a day ahead would hold it back for a day.
pub(crate) fn left_ms(since: UnixMillis, seconds: u64, now: UnixMillis) -> Option<u64> {
    let gone = u64::try_from(now.0.checked_sub(since.0)?).ok()?;
    seconds.saturating_mul(1000).checked_sub(gone).filter(|left| *left > 0)
}

/// The record of a claimed routine run.
pub(crate) fn claimed(new: &NewRoutineRun, revision: u32) -> RoutineRunRecord {
    RoutineRunRecord {
        routine_run_id: new.id,
        routine_id: new.routine_id,
        routine: new.routine.clone(),
        revision,
        trigger: new.by.to_owned(),
        key: new.key.clone(),
        scheduled_at: new.scheduled_at,
        detail: new.detail.clone(),
        payload: new.payload.clone(),
        status: RoutineRunStatus::Running,
        summary: None,
        run_id: None,
        job_id: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        claimed_at: new.at,
        ended_at: None,
    }
}

/// The record of a scheduled time that a guardrail held back.
pub(crate) fn held_back(new: &NewRoutineRun, revision: u32, held: Held) -> RoutineRunRecord {
    RoutineRunRecord {
        status: RoutineRunStatus::Missed,
        summary: Some(held.word().to_owned()),
        payload: None,
        ended_at: Some(new.at),
        ..claimed(new, revision)
    }
}

/// The record of a missed scheduled time.
pub(crate) fn missed(routine: &RoutineRecord, time: UnixMillis, at: UnixMillis) -> RoutineRunRecord {
    RoutineRunRecord {
        routine_run_id: RoutineRunId::new(),
        routine_id: routine.routine_id,
        routine: routine.spec.name.clone(),
        revision: routine.revision,
        trigger: routine.spec.trigger.word().to_owned(),
        key: time.0.to_string(),
        scheduled_at: Some(time),
        detail: String::new(),
        payload: None,
        status: RoutineRunStatus::Missed,
        summary: None,
        run_id: None,
        job_id: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        claimed_at: at,
        ended_at: Some(at),
    }
}

/// The events of a routine run: its claim, and its end if it has ended.
pub(crate) fn events_of(routine_run: &RoutineRunRecord, disabled: bool) -> Vec<NewEvent> {
    let mut events = Vec::with_capacity(3);
    let missed = routine_run.status == RoutineRunStatus::Missed;
    if routine_run.ended_at.is_none() || missed {
        let kind = EventKind::RoutineRunStarted {
            routine_run: routine_run.routine_run_id,
            routine: routine_run.routine.clone(),
            trigger: routine_run.trigger.clone(),
            scheduled_ms: routine_run.scheduled_at.map(|time| time.0),
        };
        events.push(event(routine_run, routine_run.claimed_at, kind));
    }
    if let Some(at) = routine_run.ended_at {
        let (id, routine, status) = (routine_run.routine_run_id, routine_run.routine.clone(), routine_run.status);
        if status == RoutineRunStatus::Skipped {
            let reason = routine_run.summary.clone().unwrap_or_default();
            events.push(event(routine_run, at, EventKind::HeartbeatSkipped { routine_run: id, reason }));
        }
        events.push(event(routine_run, at, EventKind::RoutineRunEnded { routine_run: id, routine, status, disabled }));
    }
    events
}

fn event(routine_run: &RoutineRunRecord, at: UnixMillis, kind: EventKind) -> NewEvent {
    NewEvent { at, session: Some(routine_run_session(routine_run.routine_run_id)), run_id: None, kind }
}

/// Refuses a status that is not the end of a routine run.
pub(crate) fn check_end(status: RoutineRunStatus) -> Result<(), StoreError> {
    match status {
        RoutineRunStatus::Ok | RoutineRunStatus::Attention | RoutineRunStatus::Failed | RoutineRunStatus::Skipped => {
            Ok(())
        }
        RoutineRunStatus::Running | RoutineRunStatus::Missed => {
            let word = status.word();
            Err(StoreError::Unavailable(format!("{word:?} ends no routine_run: ok, attention, failed and skipped do")))
        }
    }
}

/// The record of an ended routine run.
pub(crate) fn ended(routine_run: RoutineRunRecord, end: &RoutineRunEnd) -> RoutineRunRecord {
    RoutineRunRecord {
        status: end.status,
        summary: end.summary.clone(),
        usage: end.usage,
        cost_micro_usd: end.cost_micro_usd,
        ended_at: Some(end.at),
        ..routine_run
    }
}

/// Whether an earlier routine run counts as the one that is claimed now.
pub(crate) fn is_echo(echo: &Echo, earlier: &RoutineRunRecord) -> bool {
    earlier.key == echo.key && earlier.claimed_at >= echo.since
}

/// Counts the end of a routine run for its routine. Returns whether that disables the routine. A routine run from
/// before a change of the routine does not count, unless it disables the routine explicitly. A skipped one never
/// counts.
pub(crate) fn count_end(routine: &mut RoutineRecord, routine_run: &RoutineRunRecord, end: &RoutineRunEnd) -> bool {
    let at = end.at;
    if let Some(why) = &end.switch_off {
        let was_on = routine.enabled;
        if was_on {
            switch_off(routine, why.clone(), at);
        }
        return was_on;
    }
    if routine.revision != routine_run.revision || routine_run.status == RoutineRunStatus::Skipped {
        return false;
    }
    if routine_run.status != RoutineRunStatus::Failed {
        routine.failures = 0;
        return false;
    }
    routine.failures = routine.failures.saturating_add(1);
    let most = routine.spec.guard.max_failures;
    let too_many = most > 0 && routine.failures >= most && routine.enabled;
    if too_many {
        let why = match routine_run.summary.as_deref().map(str::trim).filter(|why| !why.is_empty()) {
            Some(why) => format!("it failed {} times in a row, the last time: {why}", routine.failures),
            None => format!("it failed {} times in a row", routine.failures),
        };
        switch_off(routine, why, at);
    }
    too_many
}

fn switch_off(routine: &mut RoutineRecord, why: String, at: UnixMillis) {
    *routine = RoutineRecord { enabled: false, disabled_detail: why, next_at: None, changed_at: at, ..routine.clone() };
}

/// The error for an unknown routine run.
pub(crate) fn no_routine_run(id: RoutineRunId) -> StoreError {
    StoreError::NotFound(format!("routine_run {id}"))
}
