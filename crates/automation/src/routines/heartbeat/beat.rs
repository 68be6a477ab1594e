//! Executes a claimed beat to its end. Each step can be repeated, as for every routine run. After a crash, the beat
//! checks again whether there is something to do, unless its run has begun.

use belay_protocol::{
    HEARTBEAT, Outbound, RoutineRecord, RoutineRunEnd, RoutineRunFilter, RoutineRunRecord, RoutineRunStatus,
    SkipReason, StopReason, StoreError, UnixMillis,
};

use super::look::{Facts, time_of};
use super::{alert, back_off};
use crate::routines::RoutineService;
use crate::routines::outcome::{Outcome, conversation_of, notice_in};
use crate::routines::routine_run::{by_run, key_of};
use belay_run::retry::until_stored;

/// Time within which the same alert is not sent again, in milliseconds: a day.
const SAME_MS: i64 = 86_400_000;
/// Most alerts of that time that are compared. The shortest interval gives no more.
const ALERTS_MAX: u32 = 300;
/// Failures in a row at which people are notified. A single failure may pass by itself.
const TOLD_AT: u32 = 3;

/// Executes a beat and returns its end for the commit. Returns `None` when the daemon ends first.
///
/// # Cancel safety
/// When dropped, the next start continues the beat.
pub(crate) async fn beat(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: &RoutineRecord,
) -> Option<RoutineRunEnd> {
    let facts = until_stored(&service.draining, || Facts::gather(service, Some(routine), time_of(routine_run))).await?;
    let outcome = if has_begun(service, routine_run, routine).await? {
        by_run(service, routine_run, Some(routine)).await?
    } else {
        match facts.reason(&service.heartbeat, routine_run.trigger == "manual") {
            Ok(None) => by_run(service, routine_run, Some(routine)).await?,
            Ok(Some(reason)) => skipped(reason, None),
            Err(why) => Outcome::failed(why),
        }
    };
    end(service, routine_run, routine, &facts, outcome).await
}

/// Returns whether a run has already begun.
async fn has_begun(service: &RoutineService, routine_run: &RoutineRunRecord, routine: &RoutineRecord) -> Option<bool> {
    if routine_run.run_id.is_some() {
        return Some(true);
    }
    let key = key_of(routine_run, Some(routine));
    Some(until_stored(&service.draining, || service.inputs.find(&key)).await?.is_some())
}

/// The outcome of a skipped beat. `outcome`: contains the usage of a run that achieved nothing, if there was one.
fn skipped(reason: SkipReason, outcome: Option<Outcome>) -> Outcome {
    let used = outcome.unwrap_or_else(|| Outcome::failed(""));
    Outcome { status: RoutineRunStatus::Skipped, summary: Some(reason.word().to_owned()), ..used }
}

/// The end of the beat, with the notice to people.
async fn end(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    routine: &RoutineRecord,
    facts: &Facts,
    outcome: Outcome,
) -> Option<RoutineRunEnd> {
    let now = service.clock.now();
    let to = routine.spec.notify.to.clone();
    let send = |text: String| to.clone().map(|route| Outbound::new(None, route, text));
    let (outcome, notice) = match outcome.status {
        RoutineRunStatus::Attention => {
            let words = alert::words(outcome.summary.as_deref().unwrap_or_default());
            let outcome = Outcome { summary: Some(words.clone()), ..outcome };
            match until_stored(&service.draining, || told_before(service, routine, &words, now))
                .await?
                .filter(|_| to.is_some())
            {
                Some(before) => (same_as(&before, outcome), None),
                None => (outcome, send(format!("Heartbeat: {words}"))),
            }
        }
        // The day's budget did not cover the first call. Nothing was done, and nothing is wrong.
        RoutineRunStatus::Failed
            if outcome.reason == Some(StopReason::CostRefused) && outcome.usage.model_calls == 0 =>
        {
            (skipped(SkipReason::NoBudget, Some(outcome)), None)
        }
        RoutineRunStatus::Failed => {
            let told = failure(service, routine_run, facts, &outcome);
            (outcome, told.and_then(send))
        }
        _ => (outcome, None),
    };
    let told_in = notice.as_ref().and_then(|notice| {
        let session = conversation_of(&service.access, routine)?;
        Some(notice_in(session, routine_run, &notice.text))
    });
    Some(RoutineRunEnd { notice, disabled_notice: None, told_in, ..outcome.end(routine_run, None, None, now) })
}

/// Finds an alert of the last day that says the same. An alert of another revision is ignored, since it may have had
/// another recipient or subject.
async fn told_before(
    service: &RoutineService,
    routine: &RoutineRecord,
    words: &str,
    now: UnixMillis,
) -> Result<Option<RoutineRunRecord>, StoreError> {
    let filter = RoutineRunFilter {
        routine: Some(HEARTBEAT.into()),
        status: Some(RoutineRunStatus::Attention),
        limit: ALERTS_MAX,
        ..RoutineRunFilter::default()
    };
    let signature = alert::signature(words);
    let same = |before: &RoutineRunRecord| {
        // An alert with a future time was sent before the clock was set back, so that its age is unknown.
        let lately = before.ended_at.is_some_and(|at| at <= now && now.0.saturating_sub(at.0) < SAME_MS);
        let text = before.summary.as_deref().unwrap_or_default();
        let as_now = before.routine_id == routine.routine_id && before.revision == routine.revision;
        lately && as_now && alert::signature(text) == signature
    };
    Ok(service.routines.routine_runs(filter).await?.into_iter().find(same))
}

/// The outcome of a repeated alert: it is not sent, and does not count as an alert.
fn same_as(before: &RoutineRunRecord, outcome: Outcome) -> Outcome {
    let at = before.ended_at.unwrap_or(before.claimed_at).to_rfc3339();
    let summary = format!("same as {}, told at {at}: not sent again", before.routine_run_id);
    Outcome { status: RoutineRunStatus::Ok, summary: Some(summary), ..outcome }
}

/// The notice about a failure, if there is one: after the first rejected key, and after the third failure in a row.
/// Other failures are only recorded.
fn failure(
    service: &RoutineService,
    routine_run: &RoutineRunRecord,
    facts: &Facts,
    outcome: &Outcome,
) -> Option<String> {
    let before = facts.failed;
    let in_a_row = before.map_or(0, |failed| failed.in_a_row).saturating_add(1);
    let key_refused = matches!(outcome.reason, Some(StopReason::ProviderAuth | StopReason::ProviderQuota));
    let newly_refused = key_refused && !before.is_some_and(|failed| failed.key_refused);
    if !newly_refused && in_a_row != TOLD_AT {
        return None;
    }
    let why = outcome.summary.as_deref().unwrap_or_default();
    let failed = back_off::Failed { in_a_row, at: time_of(routine_run), key_refused };
    let again = match back_off::until(service.heartbeat.interval(), failed) {
        Some(until) => {
            format!("It is not tried again before {}; `belay heartbeat now` tries at once.", until.to_rfc3339())
        }
        None => "It is tried again at its next time; `belay heartbeat now` tries at once.".to_owned(),
    };
    Some(format!("The heartbeat failed ({in_a_row} in a row): {why} {again}"))
}
