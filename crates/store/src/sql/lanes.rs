//! The lanes of sessions: their owners and their settings.

use belay_protocol::{
    BootId, ClaimMode, LaneClaim, Lease, OpenedLane, Opening, PendingRun, RunOptions, SessionKey, SessionLifetime,
    StoreError, ThreadId, UnixMillis,
};
use uuid::Uuid;

use super::approvals;
use super::connection::{Engine, Row};
use super::jobs;
use super::lane_guard::lane;
use super::rows;
use super::sent_files;
use super::threads::{insert_thread, snapshot};
use super::tx::{Done, Failure, Tx, to_sql_int};
use crate::value::params;

/// Creates a session, or takes its lane if no other living node owns it.
macro_rules! claim_free {
    () => {
        "INSERT INTO sessions (session, owner, epoch, thread, opened_at) VALUES (?1, ?2, 1, ?3, ?4)
         ON CONFLICT (session) DO UPDATE SET owner = excluded.owner, epoch = sessions.epoch + 1, opened_at = excluded.opened_at
         WHERE sessions.owner IS NULL OR sessions.owner = excluded.owner
            OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.boot = sessions.owner AND n.ended_at IS NULL)"
    };
}

/// The columns of a claimed session.
macro_rules! claimed {
    () => {
        " RETURNING epoch, thread, loop_detection, options"
    };
}

const CLAIM_FREE: &str = concat!(claim_free!(), claimed!());

const CLAIM_IDLE: &str = concat!(
    claim_free!(),
    " OR NOT EXISTS (SELECT 1 FROM runs r
                     WHERE r.indexed = 0 AND r.session = sessions.session AND r.ended_at IS NULL)",
    claimed!()
);

const CLAIM_OWN: &str = concat!(
    "UPDATE sessions SET epoch = epoch + 1, opened_at = ?3 WHERE session = ?1 AND owner = ?2 AND epoch >= ?4",
    claimed!()
);

/// `fresh` is the id of the first thread of a new session. The caller chooses it, so that a repeated execution has the
/// same result.
///
/// On PostgreSQL the claim is a statement after the one that locks the row: a statement that waits for a row sees the
/// new row, but all other tables as they were before it waited.
pub(super) fn open_lane(
    tx: &mut Tx<'_>,
    session: &SessionKey,
    lifetime: SessionLifetime,
    claim: LaneClaim,
    fresh: ThreadId,
    at: UnixMillis,
) -> Done<Opening> {
    let (owner, fresh) = (claim.owner, fresh.as_uuid());
    if tx.engine() == Engine::Postgres {
        if claim.mode == ClaimMode::Idle {
            // A row that does not exist cannot be locked: waits for another node that creates the session.
            tx.exclusive(&format!("lane {session}"))?;
        }
        tx.post("SELECT epoch FROM sessions WHERE session = ?1 FOR UPDATE", params![session.as_str()])?;
    }
    let read = |row: &Row<'_>| {
        let options = rows::readable(row, session, "options")?.unwrap_or_default();
        Ok((rows::count(row, "epoch")?, row.get::<_, Uuid>("thread")?, row.get("loop_detection")?, options))
    };
    let opened = match claim.mode {
        ClaimMode::Free | ClaimMode::Idle => {
            let sql = if claim.mode == ClaimMode::Idle { CLAIM_IDLE } else { CLAIM_FREE };
            tx.row(sql, params![session.as_str(), owner.as_uuid(), fresh, at.0], read)?
        }
        ClaimMode::Own(epoch) => {
            tx.row(CLAIM_OWN, params![session.as_str(), owner.as_uuid(), at.0, to_sql_int(epoch)], read)?
        }
    };
    let Some((epoch, thread, loop_detection, options)) = opened else { return refused(tx, session, claim.mode) };
    if thread == fresh {
        insert_thread(tx, session, fresh, lifetime, at)?;
    }
    let lease = Lease { session: session.clone(), owner, epoch };
    let begun = tx.row("SELECT turns > 0 FROM threads WHERE id = ?1", params![thread], |row| row.get::<_, bool>(0))?;
    let spoken_at = tx.row(
        "SELECT accepted_at, seq FROM runs WHERE indexed = 0 AND session = ?1 AND from_person = 1
         UNION ALL SELECT accepted_at, seq FROM runs WHERE indexed = 1 AND session = ?1 AND from_person = 1
         ORDER BY seq DESC LIMIT 1",
        params![session.as_str()],
        |row| rows::date(row, "accepted_at"),
    )?;
    let (thread, unfinished) = (snapshot(tx, session, thread)?, unfinished(tx, session)?);
    let fresh = begun == Some(false) && unfinished.is_empty();
    let opened = OpenedLane { lease, thread, unfinished, loop_detection, options, fresh, spoken_at };
    Ok(Opening::Opened(Box::new(opened)))
}

/// The result of a claim that was refused.
fn refused(tx: &mut Tx<'_>, session: &SessionKey, mode: ClaimMode) -> Done<Opening> {
    if let ClaimMode::Own(_) = mode {
        return Err(StoreError::LeaseLost(session.clone()).into());
    }
    let owner = tx.row("SELECT owner FROM sessions WHERE session = ?1", params![session.as_str()], |row| {
        rows::id::<BootId>(row, "owner")
    })?;
    owner.map(Opening::OwnedBy).ok_or_else(|| Failure::damaged("a session without a row"))
}

pub(super) fn set_options(tx: &mut Tx<'_>, lease: &Lease, options: &RunOptions) -> Done<()> {
    lane(tx, lease)?;
    let sql = "UPDATE sessions SET options = ?2 WHERE session = ?1";
    tx.post(sql, params![lease.session.as_str(), options_json(options)?])?;
    Ok(())
}

pub(super) fn options_json(options: &RunOptions) -> Done<Option<String>> {
    (!options.is_default()).then(|| rows::to_json(options)).transpose()
}

pub(super) fn set_loop_detection(tx: &mut Tx<'_>, lease: &Lease, on: bool) -> Done<()> {
    lane(tx, lease)?;
    let sql = "UPDATE sessions SET loop_detection = ?2 WHERE session = ?1";
    tx.post(sql, params![lease.session.as_str(), on])?;
    Ok(())
}

pub(super) fn release_lane(tx: &mut Tx<'_>, lease: &Lease) -> Done<()> {
    let sql = "UPDATE sessions SET owner = NULL WHERE session = ?1 AND owner = ?2 AND epoch = ?3";
    tx.post(sql, params![lease.session.as_str(), lease.owner.as_uuid(), to_sql_int(lease.epoch)])
}

fn unfinished(tx: &mut Tx<'_>, session: &SessionKey) -> Done<Vec<PendingRun>> {
    let pending = tx.rows(
        "SELECT id, text, principal, authority, relayed, work, channel, reply_to, status, attempt, accepted_at, started_at, input_tokens,
                output_tokens, model_calls, tool_calls, estimated_calls, cost_micro_usd, state, history, thread, options,
                provenance, files
         FROM runs WHERE indexed = 0 AND session = ?1 AND ended_at IS NULL ORDER BY seq",
        params![session.as_str()],
        |row| Ok((pending_run(row)?, row.get::<_, Option<Uuid>>("thread")?)),
    )?;
    let mut runs = Vec::with_capacity(pending.len());
    for (mut run, thread) in pending {
        if run.work.is_autonomous() {
            run.source = tx.read(|conn| jobs::source_of(conn, run.work))?;
        }
        if let Some(thread) = thread {
            run.messages = tx.rows(
                "SELECT position, body FROM messages
                 WHERE thread = ?1 AND run_id = ?2 AND summarised = 0 ORDER BY position",
                params![thread, run.run_id.as_uuid()],
                rows::message,
            )?;
            run.approval = approvals::newest_of(tx, run.run_id)?;
        }
        runs.push(run);
    }
    Ok(runs)
}

fn pending_run(row: &Row<'_>) -> Done<PendingRun> {
    let reply_to: Option<String> = row.get("reply_to")?;
    let run_id = rows::id(row, "id")?;
    let state = rows::readable(row, run_id, "state")?;
    let options = rows::readable(row, run_id, "options")?;
    let history = rows::readable(row, run_id, "history")?;
    Ok(PendingRun {
        run_id,
        text: row.get("text")?,
        provenance: rows::readable(row, run_id, "provenance")?,
        asker: rows::asker(row)?,
        channel: row.get::<_, String>("channel")?.into(),
        work: rows::work(row)?,
        source: None,
        reply_to: reply_to.map(|text| rows::from_json(&text)).transpose()?,
        approval: None,
        status: rows::status(row)?,
        options: options.unwrap_or_default(),
        attempt: row.get("attempt")?,
        accepted_at: rows::date(row, "accepted_at")?,
        started_at: rows::optional_date(row, "started_at")?,
        usage: rows::usage(row)?,
        cost_micro_usd: rows::count(row, "cost_micro_usd")?,
        state,
        history: history.unwrap_or_default(),
        messages: Vec::new(),
        files: sent_files::of_row(row)?,
    })
}
