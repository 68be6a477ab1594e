//! Routine runs: claimed once, ended once. Guardrails are checked in the transaction of the write, so that two daemons
//! or a burst of requests cannot exceed them. Rows are locked in this order: the session of a notice, the routine, its
//! routine run.

use std::borrow::Cow;

use belay_protocol::{
    BootId, Claim, Held, JobId, NewRoutineRun, RoutineId, RoutineRecord, RoutineRunEnd, RoutineRunFilter, RoutineRunId,
    RoutineRunRecord, RoutineRunStatus, RunId, Settled, UnixMillis, routine_run_session,
};

use super::connection::{Connection, Engine, Row};
use super::damaged::{Sifted, sift, sift_first};
use super::ledger::append_events;
use super::reads::cursor;
use super::routines::{self, Kept};
use super::tx::{self, Done, Failure, Tx, from_sql_int, to_sql_int};
use super::{outbox, rows, takeover, threads};
use crate::routines::{
    advance, check_end, claimed, count_end, ended, events_of, held_back, is_echo, is_settled, left_ms, missed,
    no_routine, no_routine_run, off, routine_runs_limit, settle_time,
};
use crate::value::{Params, Value, named_params, params};

/// The columns that [`record`] reads.
const COLUMNS: &str = "id, routine_id, routine, key, revision, triggered_by, scheduled_at, detail, payload, \
     status, summary, run_id, job_id, input_tokens, output_tokens, model_calls, tool_calls, estimated_calls, \
     cost_micro_usd, claimed_at, ended_at";

pub(super) const RUNNING: &str = "SELECT COUNT(*) FROM routine_runs WHERE status = 'running'";
pub(super) const RUNNING_OF: &str = "SELECT COUNT(*) FROM routine_runs WHERE status = 'running' AND routine_id = ?1";

/// The newest claim with the same content, ignoring dates in the future of a clock that was set back.
pub(super) const SAME_CONTENT: &str = "SELECT MAX(claimed_at) AS claimed_at FROM routine_runs
     WHERE routine_id = ?1 AND content = ?2 AND claimed_at <= ?3";

/// The routine run of a routine `?1` with the key `?2`.
pub(super) fn known_sql() -> String {
    format!("SELECT {COLUMNS} FROM routine_runs WHERE routine_id = ?1 AND key = ?2")
}

/// The open routine runs that the daemon `?1` may take over. Uses the index of open routine runs: a start does not read
/// those that ended over months.
pub(super) fn takeable_sql() -> String {
    format!(
        "SELECT t.id FROM routine_runs t INDEXED BY routine_runs_running WHERE t.status = 'running' AND {}",
        takeover::takeable("t.boot")
    )
}

/// The open routine runs of the daemon `?1`.
pub(super) fn owned_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM routine_runs INDEXED BY routine_runs_running
         WHERE status = 'running' AND boot = ?1 ORDER BY seq"
    )
}

pub(super) fn claim(tx: &mut Tx<'_>, new: &NewRoutineRun, global: u32) -> Done<Claim> {
    // Before the first row: a claim holds it while it waits for its routine.
    tx.exclusive("routine_runs")?;
    let routine = routines::by_id(tx, new.routine_id)?;
    if let Some(known) = known(tx, new)? {
        advance_past(tx, routine, new)?;
        return Ok(Claim::Known(Box::new(known)));
    }
    let Some(mut routine) = routine else { return Ok(no_routine(&new.routine)) };
    if let Some(off) = off(&routine.record, new.scheduled_at) {
        advance_past(tx, Some(routine), new)?;
        return Ok(off);
    }
    let held = held(tx, &routine, new, global)?;
    if let Some(held) = held.filter(|held| new.scheduled_at.is_none() || *held == Held::Global) {
        return Ok(Claim::Held(held));
    }
    record_missed(tx, &mut routine.record, &new.missed, new.at)?;
    if let Some(time) = new.scheduled_at {
        settle_time(&mut routine.record, time);
        advance(&mut routine.record, time, new.next_at);
    }
    let revision = routine.record.revision;
    let claim = match held {
        Some(held) => {
            insert(tx, &held_back(new, revision, held), None)?;
            Claim::Held(held)
        }
        None => {
            routine.record.fired_at = Some(new.at);
            routine.record.routine_runs = routine.record.routine_runs.saturating_add(1);
            if !new.by_hand {
                routine.record.set_off_at = Some(new.at);
            }
            let routine_run = claimed(new, revision);
            insert(tx, &routine_run, Some(new))?;
            Claim::Claimed(Box::new(routine_run))
        }
    };
    routines::keep(tx, &routine)?;
    Ok(claim)
}

/// The earlier claim of this routine run, if any.
fn known(tx: &mut Tx<'_>, new: &NewRoutineRun) -> Done<Option<RoutineRunRecord>> {
    let routine = new.routine_id.as_uuid();
    if let Some(known) = tx.row(&known_sql(), params![routine, new.key], record)? {
        return Ok(Some(known));
    }
    let Some(echo) = &new.echo else { return Ok(None) };
    let earlier = tx.row(&known_sql(), params![routine, echo.key], record)?;
    Ok(earlier.filter(|earlier| is_echo(echo, earlier)))
}

/// Moves the routine on to the next time if it still waits for this settled time.
fn advance_past(tx: &mut Tx<'_>, routine: Option<Kept>, new: &NewRoutineRun) -> Done<()> {
    let (Some(mut routine), Some(time)) = (routine, new.scheduled_at) else { return Ok(()) };
    let before = routine.record.next_at;
    advance(&mut routine.record, time, new.next_at);
    if routine.record.next_at == before { Ok(()) } else { routines::keep(tx, &routine) }
}

/// The guardrail that holds back a routine run of this routine, if any.
fn held(tx: &mut Tx<'_>, routine: &Kept, new: &NewRoutineRun, global: u32) -> Done<Option<Held>> {
    let guard = &routine.record.spec.guard;
    if count(tx, RUNNING_OF, params![new.routine_id.as_uuid()])? >= u64::from(guard.max_concurrent) {
        return Ok(Some(Held::Concurrent));
    }
    if count(tx, RUNNING, [])? >= u64::from(global) {
        return Ok(Some(Held::Global));
    }
    if new.by_hand {
        return Ok(None);
    }
    if let Some(left) = routine.record.set_off_at.and_then(|since| left_ms(since, guard.cooldown_s, new.at)) {
        return Ok(Some(Held::Cooldown(left)));
    }
    let Some(content) = new.content.as_ref().filter(|_| guard.dedup_window_s > 0) else { return Ok(None) };
    let last = tx
        .row(SAME_CONTENT, params![new.routine_id.as_uuid(), content, new.at.0], |row| {
            rows::optional_date(row, "claimed_at")
        })?
        .flatten();
    Ok(last.and_then(|since| left_ms(since, guard.dedup_window_s, new.at)).map(|_| Held::Content))
}

fn count(tx: &mut Tx<'_>, sql: &str, params: impl Params) -> Done<u64> {
    Ok(tx.row(sql, params, |row| Ok(from_sql_int(row.get(0)?)))?.unwrap_or(0))
}

pub(super) fn miss(
    tx: &mut Tx<'_>,
    routine: RoutineId,
    times: &[UnixMillis],
    next_at: Option<UnixMillis>,
    at: UnixMillis,
) -> Done<()> {
    let Some(mut routine) = routines::by_id(tx, routine)?.filter(|routine| routine.record.enabled) else {
        return Ok(());
    };
    record_missed(tx, &mut routine.record, times, at)?;
    advance(&mut routine.record, times.iter().copied().fold(at, UnixMillis::max), next_at);
    routines::keep(tx, &routine)
}

fn record_missed(tx: &mut Tx<'_>, routine: &mut RoutineRecord, times: &[UnixMillis], at: UnixMillis) -> Done<()> {
    for time in times {
        let routine_run = missed(routine, *time, at);
        let sql = "SELECT 1 FROM routine_runs WHERE routine_id = ?1 AND key = ?2";
        if is_settled(routine, *time)
            || tx.row(sql, params![routine_run.routine_id.as_uuid(), routine_run.key], |_| Ok(()))?.is_some()
        {
            continue;
        }
        insert(tx, &routine_run, None)?;
    }
    times.iter().for_each(|time| settle_time(routine, *time));
    Ok(())
}

/// Writes the row, with the data of a claim, and the events.
fn insert(tx: &mut Tx<'_>, routine_run: &RoutineRunRecord, claim: Option<&NewRoutineRun>) -> Done<()> {
    tx.post(
        "INSERT INTO routine_runs (id, session, routine_id, routine, key, revision, triggered_by, scheduled_at, detail, payload,
                                   content, status, summary, boot, claimed_at, ended_at)
         VALUES (:id, :session, :routine_id, :routine, :key, :revision, :triggered_by, :scheduled_at, :detail, :payload, :content,
                 :status, :summary, :boot, :claimed_at, :ended_at)",
        named_params! {
            ":id": routine_run.routine_run_id.as_uuid(),
            ":session": routine_run_session(routine_run.routine_run_id).as_str(),
            ":routine_id": routine_run.routine_id.as_uuid(),
            ":routine": routine_run.routine,
            ":key": routine_run.key,
            ":revision": routine_run.revision,
            ":triggered_by": routine_run.trigger,
            ":scheduled_at": routine_run.scheduled_at.map(|time| time.0),
            ":detail": routine_run.detail,
            ":payload": routine_run.payload,
            ":content": claim.and_then(|new| new.content.as_deref()),
            ":status": routine_run.status.word(),
            ":summary": routine_run.summary,
            ":boot": claim.map(|new| new.boot.as_uuid()),
            ":claimed_at": routine_run.claimed_at.0,
            ":ended_at": routine_run.ended_at.map(|at| at.0),
        },
    )?;
    append_events(tx, &events_of(routine_run, false))
}

fn record(row: &Row<'_>) -> Done<RoutineRunRecord> {
    let status: String = row.get("status")?;
    Ok(RoutineRunRecord {
        routine_run_id: rows::id(row, "id")?,
        routine_id: rows::id(row, "routine_id")?,
        routine: row.get("routine")?,
        revision: row.get("revision")?,
        trigger: row.get("triggered_by")?,
        key: row.get("key")?,
        scheduled_at: rows::optional_date(row, "scheduled_at")?,
        detail: row.get("detail")?,
        payload: row.get("payload")?,
        status: RoutineRunStatus::from_word(&status).ok_or_else(|| Failure::damaged("status of a routine_run"))?,
        summary: row.get("summary")?,
        run_id: rows::optional_id(row, "run_id")?,
        job_id: rows::optional_id(row, "job_id")?,
        usage: rows::usage(row)?,
        cost_micro_usd: rows::count(row, "cost_micro_usd")?,
        claimed_at: rows::date(row, "claimed_at")?,
        ended_at: rows::optional_date(row, "ended_at")?,
    })
}

pub(super) fn note_work(tx: &mut Tx<'_>, id: RoutineRunId, run: Option<RunId>, job: Option<JobId>) -> Done<()> {
    let noted = tx.exec(
        "UPDATE routine_runs SET run_id = COALESCE(?2, run_id), job_id = COALESCE(?3, job_id) WHERE id = ?1",
        params![id.as_uuid(), run.map(|run| run.as_uuid()), job.map(|job| job.as_uuid())],
    )?;
    if noted == 0 { Err(no_routine_run(id).into()) } else { Ok(()) }
}

/// Locks the routine of a routine run until the commit. SQLite has one writer, and does nothing.
fn lock_routine_of(tx: &mut Tx<'_>, id: RoutineRunId) -> Done<()> {
    match tx.engine() {
        Engine::Sqlite => Ok(()),
        Engine::Postgres => tx.post(
            "SELECT 1 FROM routines WHERE id = (SELECT routine_id FROM routine_runs WHERE id = ?1) FOR UPDATE",
            params![id.as_uuid()],
        ),
    }
}

pub(super) fn settle(tx: &mut Tx<'_>, end: &RoutineRunEnd) -> Done<Settled> {
    check_end(end.status)?;
    end.told_in.iter().try_for_each(|notice| threads::lock_session(tx, &notice.session))?;
    lock_routine_of(tx, end.routine_run)?;
    let sql = format!("SELECT {COLUMNS} FROM routine_runs WHERE id = ?1 AND status = 'running'");
    let Some(routine_run) = tx.locked(&sql, "routine_runs", params![end.routine_run.as_uuid()], record)? else {
        return Ok(Settled::Before);
    };
    let routine_run = ended(routine_run, end);
    tx.post(
        "UPDATE routine_runs SET status = ?2, summary = ?3, input_tokens = ?4, output_tokens = ?5, model_calls = ?6,
                            tool_calls = ?7, cost_micro_usd = ?8, ended_at = ?9, estimated_calls = ?10
         WHERE id = ?1",
        params![
            routine_run.routine_run_id.as_uuid(),
            routine_run.status.word(),
            routine_run.summary,
            to_sql_int(routine_run.usage.input),
            to_sql_int(routine_run.usage.output),
            routine_run.usage.model_calls,
            routine_run.usage.tool_calls,
            to_sql_int(routine_run.cost_micro_usd),
            end.at.0,
            routine_run.usage.estimated_calls
        ],
    )?;
    let mut disabled = false;
    if let Some(mut routine) = routines::by_id(tx, routine_run.routine_id)? {
        disabled = count_end(&mut routine.record, &routine_run, end);
        routine.not_before = None; // what it waited for may have been this end
        routines::keep(tx, &routine)?;
    }
    if disabled {
        routines::note_change(tx)?;
    }
    let notices = end.notice.iter().chain(end.disabled_notice.iter().filter(|_| disabled));
    for notice in notices {
        outbox::insert(tx, notice)?;
    }
    end.told_in.iter().try_for_each(|notice| threads::append_notice(tx, notice, end.at))?;
    append_events(tx, &events_of(&routine_run, disabled))?;
    Ok(Settled::Now { routine_run: Box::new(routine_run), disabled })
}

pub(super) fn routine_run(conn: &Connection, id: RoutineRunId) -> Done<Option<RoutineRunRecord>> {
    tx::row(conn, &format!("SELECT {COLUMNS} FROM routine_runs WHERE id = ?1"), params![id.as_uuid()], record)
}

pub(super) fn routine_runs(conn: &Connection, filter: &RoutineRunFilter) -> Done<Sifted<RoutineRunRecord>> {
    let (sql, values) = list_sql(conn, filter)?;
    sift_first(conn, &sql, values, "id", routine_runs_limit(filter) as usize, record)
}

/// The statement of a list, newest first, with its values.
pub(super) fn list_sql(conn: &Connection, filter: &RoutineRunFilter) -> Done<(String, Vec<Value>)> {
    let mut wanted: Vec<Cow<'static, str>> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    let marks = |ids: &[RoutineId]| vec!["?"; ids.len()].join(", ");
    let ids_of = |ids: &[RoutineId]| ids.iter().map(|id| Value::from(id.as_uuid())).collect::<Vec<_>>();
    if let Some(routine) = &filter.routine {
        wanted.push("routine = ?".into());
        values.push(routine.clone().into());
    }
    if let Some(ids) = &filter.routine_ids {
        // Both keep the order of the numbers: the index of this column alone would need a sort of whole rows. Without a
        // name, the numbers are collected from that index, so that the routine runs of others are not read.
        wanted.push(match &filter.routine {
            Some(_) => format!("+routine_id IN ({})", marks(ids)).into(),
            None => format!("seq IN (SELECT o.seq FROM routine_runs o WHERE o.routine_id IN ({}))", marks(ids)).into(),
        });
        values.extend(ids_of(ids));
    }
    if let Some(status) = filter.status {
        wanted.push("status = ?".into());
        values.push(status.word().to_owned().into());
    }
    for (condition, date) in [("claimed_at >= ?", filter.since), ("claimed_at < ?", filter.until)] {
        wanted.extend(date.map(|_| condition.into()));
        values.extend(date.map(|date| Value::from(date.0)));
    }
    if let Some(before) = filter.before {
        wanted.push("seq < ?".into());
        // One of another's routine is no more known than one that does not exist.
        let (own, ids) = match &filter.routine_ids {
            Some(ids) => (format!(" AND routine_id IN ({})", marks(ids)), ids_of(ids)),
            None => (String::new(), Vec::new()),
        };
        values.push(cursor(conn, "routine_runs", before.as_uuid(), (&own, ids), "routine run")?.into());
    }
    let filtered = if wanted.is_empty() { String::new() } else { format!("WHERE {}", wanted.join(" AND ")) };
    Ok((format!("SELECT {COLUMNS} FROM routine_runs {filtered} ORDER BY seq DESC"), values))
}

pub(super) fn has_takeable(conn: &Connection, boot: BootId) -> Done<bool> {
    takeover::any(conn, &takeable_sql(), params![boot.as_uuid()])
}

pub(super) fn owned(conn: &Connection, boot: BootId) -> Done<Sifted<RoutineRunRecord>> {
    sift(conn, &owned_sql(), params![boot.as_uuid()], "id", record)
}

/// Takes over the open routine runs of daemons that have ended, and returns all of `boot`. It waits for no lock, so that it
/// needs none of the locks before these rows.
pub(super) fn take_over(tx: &mut Tx<'_>, boot: BootId) -> Done<Sifted<RoutineRunRecord>> {
    let skip_locked = takeover::skip_locked(tx.engine());
    tx.post(
        &format!("UPDATE routine_runs SET boot = ?1 WHERE id IN ({} {skip_locked})", takeable_sql()),
        params![boot.as_uuid()],
    )?;
    tx.read(|conn| owned(conn, boot))
}
