//! Jobs. The rules are in [`crate::jobs`]; this module stores and counts jobs, by index.
//!
//! Several daemons may write. A check of a limit begins with `tx.exclusive`. A change of a job locks its row before it
//! reads the row, and the session of its notice before that, as the owner of a lane does. A job that holds a slot has an
//! owner. [`change`] and [`begin_again`] refuse an attempt of another daemon, because the owner repeats or follows it.

use belay_protocol::{
    BootId, HeldJobs, JobCaps, JobChange, JobChanged, JobCreated, JobFilter, JobId, JobNumbers, JobRecord, JobState,
    NewJob, RunId, UnixMillis, Work, WorkSource,
};

use super::connection::{Connection, Row};
use super::ledger::append_events;
use super::reads::cursor;
use super::tx::{self, Done, Failure, Tx, from_sql_int};
use super::{outbox, rows, takeover, threads};
use crate::jobs::{Step, begun, changed, jobs_limit, no_job, pending, revoked, step, too_many, too_many_each};
use crate::value::{Params, Value, named_params, params};

/// The subject of `tx.exclusive` for the checks of [`JobCaps`].
const CAPS: &str = "jobs";

/// Searches for a pending job before [`begin_next`] finds none. Another daemon can cancel each job that a search finds.
const SEARCHES: usize = 16;

/// The columns that [`record`] reads.
const COLUMNS: &str = "id, session, state, detail, title, task, plan, runs_in, budget, grants, channel, principal, authority, relayed, \
     requested_in, reply_to, parent_run_id, routine_run_id, attempt, crashes, run_id, result, created_at, \
     started_at, changed_at, ended_at";

/// The open jobs of all creators, and of the creator `?1`.
pub(super) const OPEN: &str = "SELECT COUNT(*) FROM jobs WHERE ended_at IS NULL";
pub(super) const OPEN_OF: &str = "SELECT COUNT(*) FROM jobs WHERE ended_at IS NULL AND creator = json_array(?1, ?2)";

pub(super) const AT_WORK: &str =
    "SELECT COUNT(*) FROM jobs INDEXED BY jobs_at_work WHERE state IN ('in_progress', 'stuck')";

/// The oldest pending job of the creators that have fewer than `?1` running jobs. It reads one job for each creator
/// from the index: a thousand jobs of a creator without a free slot cost as much as one.
pub(super) fn next_sql() -> String {
    oldest_pending("", "")
}

/// The same without the jobs of the creators `?2` and of the routines `?3`, see [`HeldJobs`].
pub(super) fn next_unheld_sql() -> String {
    oldest_pending(
        "AND NOT EXISTS (SELECT 1 FROM json_each(?2) h WHERE h.value ->> 1 = c.creator ->> 1
                         AND COALESCE(h.value ->> 0, c.creator ->> 0) = c.creator ->> 0)",
        "AND NOT EXISTS (SELECT 1 FROM routine_runs r WHERE r.id = (SELECT j.routine_run_id FROM jobs j WHERE j.seq = p.seq)
                         AND r.routine IN (SELECT value FROM json_each(?3)))",
    )
}

/// The statement with further conditions on the creators `c` and on the jobs `p`.
fn oldest_pending(creators: &str, jobs: &str) -> String {
    format!(
        "WITH RECURSIVE creators (creator) AS (
            SELECT MIN(creator) FROM jobs p INDEXED BY jobs_pending WHERE state = 'pending'
            UNION ALL
            SELECT (SELECT MIN(p.creator) FROM jobs p INDEXED BY jobs_pending
                    WHERE p.state = 'pending' AND p.creator > c.creator)
            FROM creators c WHERE c.creator IS NOT NULL
         )
         SELECT MIN((SELECT MIN(p.seq) FROM jobs p INDEXED BY jobs_pending
                     WHERE p.state = 'pending' AND p.creator = c.creator {jobs})) AS seq
         FROM creators c
         WHERE c.creator IS NOT NULL {creators}
           AND (SELECT COUNT(*) FROM jobs w INDEXED BY jobs_at_work
                WHERE w.state IN ('in_progress', 'stuck') AND w.creator = c.creator) < ?1"
    )
}

pub(super) fn create(tx: &mut Tx<'_>, new: &NewJob, caps: JobCaps) -> Done<JobCreated> {
    tx.exclusive(CAPS)?;
    if let Some(known) = find(tx, new.id)? {
        return Ok(JobCreated::Known(Box::new(known)));
    }
    if count(tx, OPEN, [])? >= u64::from(caps.open) {
        return Ok(too_many(caps.open));
    }
    if count(tx, OPEN_OF, params![new.channel.as_str(), new.creator.principal])? >= u64::from(caps.open_each) {
        return Ok(too_many_each(caps.open_each));
    }
    let job = pending(new.clone());
    insert(tx, &job)?;
    append_events(tx, &[changed(&job, None)])?;
    Ok(JobCreated::New(Box::new(job)))
}

fn count(tx: &mut Tx<'_>, sql: &str, params: impl Params) -> Done<u64> {
    Ok(tx.row(sql, params, |row| Ok(from_sql_int(row.get(0)?)))?.unwrap_or(0))
}

fn insert(tx: &mut Tx<'_>, job: &JobRecord) -> Done<()> {
    tx.post(
        "INSERT INTO jobs (id, session, state, detail, title, task, plan, runs_in, budget, grants, channel, principal, creator, authority,
                           relayed, requested_in, reply_to, parent_run_id, routine_run_id, attempt, crashes, created_at, changed_at)
         VALUES (:id, :session, :state, :detail, :title, :task, :plan, :runs_in, :budget, :grants, :channel, :principal,
                 json_array(:channel, :principal), :authority, :relayed, :requested_in, :reply_to, :parent_run_id, :routine_run_id,
                 :attempt, :crashes, :created_at, :changed_at)",
        named_params! {
            ":id": job.job_id.as_uuid(),
            ":session": job.session.as_str(),
            ":state": job.state.word(),
            ":detail": job.detail,
            ":title": job.title,
            ":task": job.task,
            ":plan": job.plan,
            ":runs_in": rows::to_json(&job.runs_in)?,
            ":budget": rows::to_json(&job.budget)?,
            ":grants": (!job.grants.is_empty()).then(|| rows::to_json(&job.grants)).transpose()?,
            ":channel": job.channel.as_str(),
            ":principal": job.creator.principal,
            ":authority": rows::authority_word(job.creator.authority),
            ":relayed": job.creator.relayed,
            ":requested_in": job.asked_in.as_str(),
            ":reply_to": job.reply_to.as_ref().map(rows::to_json).transpose()?,
            ":parent_run_id": job.parent.map(|run| run.as_uuid()),
            ":routine_run_id": job.routine_run.map(|routine_run| routine_run.as_uuid()),
            ":attempt": job.attempt,
            ":crashes": job.crashes,
            ":created_at": job.created_at.0,
            ":changed_at": job.changed_at.0,
        },
    )?;
    Ok(())
}

fn record(row: &Row<'_>) -> Done<JobRecord> {
    let json = |column| -> Done<String> { row.get(column) };
    let reply_to: Option<String> = row.get("reply_to")?;
    Ok(JobRecord {
        job_id: rows::id(row, "id")?,
        title: row.get("title")?,
        task: row.get("task")?,
        state: JobState::from_word(&json("state")?).ok_or_else(|| Failure::damaged("state of a job"))?,
        detail: row.get("detail")?,
        plan: row.get("plan")?,
        runs_in: rows::from_json(&json("runs_in")?)?,
        budget: rows::from_json(&json("budget")?)?,
        grants: row
            .get::<_, Option<String>>("grants")?
            .map(|text| rows::from_json(&text))
            .transpose()?
            .unwrap_or_default(),
        session: row.get::<_, String>("session")?.into(),
        creator: rows::asker(row)?,
        channel: row.get::<_, String>("channel")?.into(),
        asked_in: row.get::<_, String>("requested_in")?.into(),
        reply_to: reply_to.map(|text| rows::from_json(&text)).transpose()?,
        parent: rows::optional_id(row, "parent_run_id")?,
        routine_run: rows::optional_id(row, "routine_run_id")?,
        attempt: row.get("attempt")?,
        crashes: row.get("crashes")?,
        run_id: rows::optional_id(row, "run_id")?,
        result: row.get("result")?,
        created_at: rows::date(row, "created_at")?,
        started_at: rows::optional_date(row, "started_at")?,
        changed_at: rows::date(row, "changed_at")?,
        ended_at: rows::optional_date(row, "ended_at")?,
    })
}

/// Revokes the grant with this number, from 1.
pub(super) fn revoke(tx: &mut Tx<'_>, id: JobId, number: usize, by: &str, at: UnixMillis) -> Done<JobChanged> {
    let Some(Owned { mut job, .. }) = locked(tx, id)? else { return Ok(JobChanged::Unknown) };
    let Some(grant) = number.checked_sub(1).and_then(|at| job.grants.get_mut(at)) else {
        return Ok(JobChanged::Not(Box::new(job)));
    };
    let was_revoked = std::mem::replace(&mut grant.revoked, true);
    let event = revoked(&job.session, format!("job {id}"), grant, by, at);
    if !was_revoked {
        append_events(tx, &[event])?;
    }
    tx.post("UPDATE jobs SET grants = ?2 WHERE id = ?1", params![id.as_uuid(), rows::to_json(&job.grants)?])?;
    Ok(JobChanged::Now(Box::new(job)))
}

/// The source of this work.
pub(super) fn source_of(conn: &Connection, work: Work) -> Done<Option<WorkSource>> {
    let (sql, id) = match work {
        Work::Chat => return Ok(None),
        Work::Job { job, .. } => (
            "SELECT j.channel, r.routine, COALESCE(o.created_in, j.requested_in) AS asked_in FROM jobs j
             LEFT JOIN routine_runs r ON r.id = j.routine_run_id LEFT JOIN routines o ON o.id = r.routine_id WHERE j.id = ?1",
            job.as_uuid(),
        ),
        Work::RoutineRun { id } | Work::Heartbeat { id } => (
            "SELECT o.channel, r.routine, o.created_in AS asked_in FROM routine_runs r JOIN routines o ON o.id = r.routine_id WHERE r.id = ?1",
            id.as_uuid(),
        ),
    };
    tx::row(conn, sql, params![id], |row| {
        Ok(WorkSource {
            channel: row.get::<_, String>("channel")?.into(),
            routine: row.get("routine")?,
            asked_in: row.get::<_, String>("asked_in")?.into(),
        })
    })
}

fn find(tx: &mut Tx<'_>, id: JobId) -> Done<Option<JobRecord>> {
    tx.row(&format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1"), params![id.as_uuid()], record)
}

/// A job and its owner.
struct Owned {
    job: JobRecord,
    /// The start of the daemon that works on it; `None`: it waits, has ended, or was released.
    owner: Option<BootId>,
}

/// The job, which no other daemon can change until the commit.
fn locked(tx: &mut Tx<'_>, id: JobId) -> Done<Option<Owned>> {
    let sql = format!("SELECT {COLUMNS}, owner FROM jobs WHERE id = ?1");
    let owned = |row: &Row<'_>| Ok(Owned { job: record(row)?, owner: rows::optional_id(row, "owner")? });
    tx.locked(&sql, "jobs", params![id.as_uuid()], owned)
}

pub(super) fn begin_next(
    tx: &mut Tx<'_>,
    caps: JobCaps,
    held: &HeldJobs,
    boot: BootId,
    at: UnixMillis,
) -> Done<Option<JobRecord>> {
    tx.exclusive(CAPS)?;
    if count(tx, AT_WORK, [])? >= u64::from(caps.at_work) {
        return Ok(None);
    }
    let sql = format!("SELECT {COLUMNS} FROM jobs WHERE seq = ?1 AND state = 'pending'");
    for _ in 0..SEARCHES {
        let Some(seq) = next_pending(tx, caps, held)? else { return Ok(None) };
        // No row: the job was cancelled between the two statements.
        if let Some(job) = tx.locked(&sql, "jobs", params![seq], record)? {
            return keep(tx, job.state, begun(&job, at), Some(boot)).map(Some);
        }
    }
    Ok(None)
}

/// The number of the job that begins next.
fn next_pending(tx: &mut Tx<'_>, caps: JobCaps, held: &HeldJobs) -> Done<Option<i64>> {
    let seq = |row: &Row<'_>| row.get::<_, Option<i64>>("seq");
    let next = if held.is_empty() {
        tx.row(&next_sql(), params![caps.at_work_each], seq)?
    } else {
        let (creators, routines) = (rows::to_json(&held.creators)?, rows::to_json(&held.routines)?);
        tx.row(&next_unheld_sql(), params![caps.at_work_each, creators, routines], seq)?
    };
    Ok(next.flatten())
}

pub(super) fn begin_again(tx: &mut Tx<'_>, id: JobId, boot: BootId, at: UnixMillis) -> Done<JobChanged> {
    let Some(Owned { job, owner }) = locked(tx, id)? else { return Ok(JobChanged::Unknown) };
    if job.state != JobState::Stuck || owner != Some(boot) {
        return Ok(JobChanged::Not(Box::new(job)));
    }
    Ok(JobChanged::Now(Box::new(keep(tx, job.state, begun(&job, at), owner)?)))
}

pub(super) fn change(tx: &mut Tx<'_>, change: &JobChange) -> Done<JobChanged> {
    change.told_in.iter().try_for_each(|notice| threads::lock_session(tx, &notice.session))?;
    let Some(Owned { job, owner }) = locked(tx, change.job)? else { return Ok(JobChanged::Unknown) };
    match step(&job, owner, change) {
        Step::No => Ok(JobChanged::Not(Box::new(job))),
        Step::Same => Ok(JobChanged::Now(Box::new(job))),
        Step::To(next) => {
            let kept = keep(tx, job.state, *next, owner)?;
            change.notice.iter().try_for_each(|notice| outbox::insert(tx, notice))?;
            change.told_in.iter().try_for_each(|notice| threads::append_notice(tx, notice, change.at))?;
            Ok(JobChanged::Now(Box::new(kept)))
        }
    }
}

/// Writes the changes of a transition and its event. `owner`: the owner if the job holds a slot now.
fn keep(tx: &mut Tx<'_>, from: JobState, job: JobRecord, owner: Option<BootId>) -> Done<JobRecord> {
    let owner = owner.filter(|_| job.state.holds_slot());
    tx.post(
        "UPDATE jobs SET state = ?2, detail = ?3, attempt = ?4, run_id = ?5, result = ?6, started_at = ?7, changed_at = ?8,
                         ended_at = ?9, owner = ?10, parked = 0
         WHERE id = ?1",
        params![
            job.job_id.as_uuid(),
            job.state.word(),
            job.detail,
            job.attempt,
            job.run_id.map(|run| run.as_uuid()),
            job.result,
            job.started_at.map(|at| at.0),
            job.changed_at.0,
            job.ended_at.map(|at| at.0),
            owner.map(|boot| boot.as_uuid())
        ],
    )?;
    append_events(tx, &[changed(&job, Some(from))])?;
    Ok(job)
}

pub(super) fn note_run(tx: &mut Tx<'_>, id: JobId, attempt: u32, run: RunId) -> Done<()> {
    let noted = tx.exec(
        "UPDATE jobs SET run_id = CASE attempt WHEN ?2 THEN ?3 ELSE run_id END WHERE id = ?1",
        params![id.as_uuid(), attempt, run.as_uuid()],
    )?;
    if noted == 0 { Err(no_job(id).into()) } else { Ok(()) }
}

pub(super) fn note_progress(tx: &mut Tx<'_>, id: JobId) -> Done<()> {
    let noted = tx.exec("UPDATE jobs SET crashes = 0 WHERE id = ?1", params![id.as_uuid()])?;
    if noted == 0 { Err(no_job(id).into()) } else { Ok(()) }
}

pub(super) fn suspend(tx: &mut Tx<'_>, boot: BootId) -> Done<()> {
    tx.post(
        "UPDATE jobs SET parked = 1 WHERE state IN ('in_progress', 'stuck') AND owner = ?1",
        params![boot.as_uuid()],
    )
}

/// The jobs that the daemon `?1` may take over.
pub(super) fn takeable_sql() -> String {
    format!(
        "SELECT t.id FROM jobs t INDEXED BY jobs_at_work WHERE t.state IN ('in_progress', 'stuck') AND {}",
        takeover::takeable("t.owner")
    )
}

/// The jobs of the daemon `?1` that hold a slot.
pub(super) fn owned_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM jobs INDEXED BY jobs_at_work
         WHERE state IN ('in_progress', 'stuck') AND owner = ?1 ORDER BY seq"
    )
}

pub(super) fn has_takeable(conn: &Connection, boot: BootId) -> Done<bool> {
    takeover::any(conn, &takeable_sql(), params![boot.as_uuid()])
}

pub(super) fn owned(conn: &Connection, boot: BootId) -> Done<Vec<JobRecord>> {
    tx::rows(conn, &owned_sql(), params![boot.as_uuid()], record)
}

/// Takes over the jobs whose owner has ended. Those of `boot` itself are not written, so that no crash is counted for them.
pub(super) fn reclaim(tx: &mut Tx<'_>, boot: BootId) -> Done<Vec<JobRecord>> {
    tx.post(
        // A job whose run waits for a person did nothing that could crash the daemon.
        &format!(
            "UPDATE jobs SET crashes = crashes + CASE WHEN parked = 0 AND NOT EXISTS
                 (SELECT 1 FROM runs WHERE runs.id = jobs.run_id AND runs.status = 'paused') AND NOT EXISTS
                 (SELECT 1 FROM approvals WHERE approvals.run_id = jobs.run_id AND approvals.state = 'waiting') THEN 1 ELSE 0 END,
                 parked = 0, owner = ?1
             WHERE id IN ({} {})",
            takeable_sql(),
            takeover::skip_locked(tx.engine())
        ),
        params![boot.as_uuid()],
    )?;
    tx.read(|conn| owned(conn, boot))
}

pub(super) fn job(conn: &Connection, id: JobId) -> Done<Option<JobRecord>> {
    tx::row(conn, &format!("SELECT {COLUMNS} FROM jobs WHERE id = ?1"), params![id.as_uuid()], record)
}

pub(super) fn jobs(conn: &Connection, filter: &JobFilter) -> Done<Vec<JobRecord>> {
    let mut wanted: Vec<String> = Vec::new();
    let mut values: Vec<Value> = Vec::new();
    if let Some(prefix) = &filter.id {
        wanted.push(rows::BEGINS.to_owned());
        values.extend(rows::span_of(prefix));
    }
    if let Some(session) = &filter.asked_in {
        wanted.push("requested_in = ?".to_owned());
        values.push(session.to_string().into());
    }
    if let Some((principal, channel)) = &filter.creator {
        wanted.push("creator = json_array(?, ?)".to_owned());
        values.extend([channel.as_str().to_owned().into(), principal.clone().into()]);
    }
    if !filter.states.is_empty() {
        wanted.push(format!("state IN ({})", vec!["?"; filter.states.len()].join(", ")));
        values.extend(filter.states.iter().map(|state| Value::from(state.word().to_owned())));
    }
    for (condition, date) in [("created_at >= ?", filter.since), ("created_at < ?", filter.until)] {
        wanted.extend(date.map(|_| condition.to_owned()));
        values.extend(date.map(|date| Value::from(date.0)));
    }
    if let Some(before) = filter.before {
        wanted.push("seq < ?".to_owned());
        // A job of another creator is no more known than one that does not exist.
        let (own, creator) = match &filter.creator {
            Some((principal, channel)) => {
                (" AND creator = json_array(?, ?)", vec![channel.as_str().to_owned().into(), principal.clone().into()])
            }
            None => ("", Vec::new()),
        };
        values.push(cursor(conn, "jobs", before.as_uuid(), (own, creator), "job")?.into());
    }
    let filtered = if wanted.is_empty() { String::new() } else { format!("WHERE {}", wanted.join(" AND ")) };
    values.push(i64::from(jobs_limit(filter)).into());
    let sql = format!("SELECT {COLUMNS} FROM jobs {filtered} ORDER BY seq DESC LIMIT ?");
    tx::rows(conn, &sql, values, record)
}

/// The numbers of open jobs, counted by index.
pub(super) const NUMBERS: &str = "SELECT state, COUNT(*) AS jobs FROM jobs INDEXED BY jobs_by_state
     WHERE state IN ('pending', 'in_progress', 'stuck') GROUP BY state";
pub(super) const OLDEST_PENDING: &str =
    "SELECT created_at FROM jobs INDEXED BY jobs_by_state WHERE state = 'pending' ORDER BY seq LIMIT 1";

pub(super) fn numbers(conn: &Connection) -> Done<JobNumbers> {
    let each = tx::rows(conn, NUMBERS, [], |row| {
        Ok((row.get::<_, String>("state")?, from_sql_int(row.get::<_, i64>("jobs")?)))
    })?;
    let of = |state: JobState| each.iter().find(|(word, _)| word == state.word()).map_or(0, |(_, jobs)| *jobs);
    Ok(JobNumbers {
        pending: of(JobState::Pending),
        in_progress: of(JobState::InProgress),
        stuck: of(JobState::Stuck),
        oldest_pending_at: tx::row(conn, OLDEST_PENDING, [], |row| rows::date(row, "created_at"))?,
    })
}
