//! Approval requests: paused runs, answers, and grants.
//!
//! A pause, the use of an approval and a withdrawal belong to the run, and the lease of the run is checked. An answer
//! may come from any principal, and from any daemon: the statement of an answer checks the state of the row that it
//! changes, so that the first answer counts.

use belay_protocol::{
    ApprovalFilter, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, Asker, Authority, ChildQuestion,
    ClientResult, Decided, Lease, NewEvent, Outbound, PausedRun, RunId, RunOptions, RunRecord, RunStatus, SecondYes,
    SessionKey, StoreError, ThreadState, UnixMillis, WaitingFor,
};

use serde_json::{Map, Value as Json};

use super::connection::{Connection, Row};
use super::lane_guard::lane;
use super::ledger::append_events;
use super::reads::cursor;
use super::tx::{self, Done, Failure, Tx};
use super::{outbox, rows, runs, threads};
use crate::approvals::{
    CLIENT_CALLS, ENDED_CALL, ENDED_RUN, FORM, approvals_limit, asked, check_answer, check_child_question,
    check_question, decided, kind_word, not_approved, withdrawn,
};
use crate::value::{Value, named_params, params};

/// The columns that [`approval_row`] reads.
macro_rules! columns {
    () => {
        "id, run_id, session, call_id, tool, kind, secret_name, results, summary, arguments, detail, bound, digest, covers, \
         added, principal, authority, relayed, place, second, asked_at, expires_at, reminded_at, state, decided_by, decided_at"
    };
}

/// The names of the states that can still change. The end of the run withdraws such an approval request.
macro_rules! open {
    () => {
        "(state = 'waiting' OR state = 'approved')"
    };
}
pub(super) use open;

/// The subject of the lock for grants. One for all sessions: an answer takes it before it knows its session.
const GRANTS: &str = "grants";

/// Pauses a run for its approval request.
pub(super) fn pause_run(tx: &mut Tx<'_>, lease: &Lease, paused: &PausedRun) -> Done<()> {
    check_question(lease, paused)?;
    let thread = runs::progress(tx, lease, &paused.checkpoint, RunStatus::Paused)?;
    insert(tx, &paused.approval)?;
    threads::set_thread(tx, thread, Some(ThreadState::AwaitingApproval), paused.approval.asked_at)?;
    for outbound in paused.outbound.iter().chain(&paused.callback) {
        outbox::insert(tx, outbound)?;
    }
    append_events(tx, &asked(&paused.approval))
}

fn insert(tx: &mut Tx<'_>, approval: &ApprovalRequest) -> Done<()> {
    let secret_name = match &approval.kind {
        ApprovalKind::Approval | ApprovalKind::ClientCalls { .. } | ApprovalKind::Form { .. } => None,
        ApprovalKind::Credential { name } => Some(name),
    };
    let arguments = match &approval.kind {
        ApprovalKind::ClientCalls { calls, .. } => rows::to_json(calls)?,
        ApprovalKind::Form { form, .. } => rows::to_json(form)?,
        ApprovalKind::Approval | ApprovalKind::Credential { .. } => rows::to_json(&approval.arguments)?,
    };
    tx.post(
        "INSERT INTO approvals (id, run_id, session, call_id, tool, kind, secret_name, summary, arguments, detail, bound,
                            digest, covers, added, principal, authority, relayed, place, second, asked_at, expires_at)
         VALUES (:id, :run_id, :session, :call_id, :tool, :kind, :secret_name, :summary, :arguments, :detail, :bound,
                 :digest, :covers, :added, :principal, :authority, :relayed, :place, :second, :asked_at, :expires_at)",
        named_params! {
            ":id": approval.id.as_uuid(),
            ":run_id": approval.run_id.as_uuid(),
            ":session": approval.session.as_str(),
            ":call_id": approval.call_id.as_str(),
            ":tool": approval.tool,
            ":kind": kind_word(&approval.kind),
            ":secret_name": secret_name,
            ":summary": approval.summary,
            ":arguments": arguments,
            ":detail": approval.detail,
            ":bound": rows::to_json(&approval.bound)?,
            ":digest": approval.digest,
            ":covers": approval.covers,
            ":added": approval.added.as_ref().map(rows::to_json).transpose()?,
            ":principal": approval.asker.principal,
            ":authority": rows::authority_word(approval.asker.authority),
            ":relayed": approval.asker.relayed,
            ":place": approval.place.as_ref().map(rows::to_json).transpose()?,
            ":second": approval.second.as_ref().map(rows::to_json).transpose()?,
            ":asked_at": approval.asked_at.0,
            ":expires_at": approval.expires_at.0,
        },
    )?;
    Ok(())
}

/// Uses up approvals of a run. An approval that is not in the state `approved` fails the whole write.
pub(super) fn use_up(tx: &mut Tx<'_>, run: RunId, approvals: &[ApprovalId]) -> Done<()> {
    approvals.iter().try_for_each(|id| {
        let used = tx.exec(
            "UPDATE approvals SET state = 'used' WHERE id = ?1 AND run_id = ?2 AND state = 'approved'",
            params![id.as_uuid(), run.as_uuid()],
        )?;
        if used == 0 { Err(not_approved(*id).into()) } else { Ok(()) }
    })
}

/// Withdraws the open and unused approval requests of a run that ends. Returns their events.
pub(super) fn withdraw(tx: &mut Tx<'_>, session: &SessionKey, run: RunId, at: UnixMillis) -> Done<Vec<NewEvent>> {
    // One statement: a request that another daemon answers meanwhile is not reported as withdrawn.
    let mut open: Vec<(i64, ApprovalId, String)> = tx.rows(
        concat!("UPDATE approvals SET state = 'withdrawn' WHERE run_id = ?1 AND ", open!(), " RETURNING seq, id, kind"),
        params![run.as_uuid()],
        |row| Ok((row.get("seq")?, rows::id(row, "id")?, row.get("kind")?)),
    )?;
    open.retain(|(_, _, kind)| kind != CLIENT_CALLS); // no person was asked
    open.sort_unstable_by_key(|(seq, _, _)| *seq);
    Ok(open.into_iter().map(|(_, approval, _)| withdrawn(approval, session, run, ENDED_RUN, at)).collect())
}

/// Stores an approval request of a running run, which goes on.
pub(super) fn ask_in_place(tx: &mut Tx<'_>, lease: &Lease, question: &ChildQuestion) -> Done<()> {
    let approval = &question.approval;
    check_child_question(lease, approval)?;
    lane(tx, lease)?;
    if tx.row(BY_ID, params![approval.id.as_uuid()], approval_row)?.is_some() {
        return Ok(()); // the answer to an earlier write of it was lost
    }
    let running = tx.row(
        "SELECT 1 FROM runs WHERE id = ?1 AND session = ?2 AND status = 'running'",
        params![approval.run_id.as_uuid(), lease.session.as_str()],
        |_| Ok(()),
    )?;
    if running.is_none() {
        return Err(StoreError::NotFound(format!("running run {}", approval.run_id)).into());
    }
    insert(tx, approval)?;
    question.outbound.iter().try_for_each(|outbound| outbox::insert(tx, outbound))?;
    append_events(tx, &asked(approval))
}

/// Withdraws one open approval request, whose run goes on.
pub(super) fn withdraw_one(tx: &mut Tx<'_>, id: ApprovalId, at: UnixMillis) -> Done<bool> {
    let withdrew = tx.row(
        concat!("UPDATE approvals SET state = 'withdrawn' WHERE id = ?1 AND ", open!(), " RETURNING session, run_id"),
        params![id.as_uuid()],
        |row| Ok((SessionKey::from(row.get::<_, String>("session")?), rows::id::<RunId>(row, "run_id")?)),
    )?;
    let Some((session, run)) = withdrew else { return Ok(false) };
    append_events(tx, &[withdrawn(id, &session, run, ENDED_CALL, at)])?;
    Ok(true)
}

pub(super) fn decide(
    tx: &mut Tx<'_>,
    id: ApprovalId,
    state: ApprovalState,
    always: Option<Authority>,
    by: &str,
    at: UnixMillis,
) -> Done<Decided> {
    check_answer(state)?;
    if always.is_some() && state == ApprovalState::Approved {
        tx.exclusive(GRANTS)?;
    }
    let answered = tx.row(
        concat!(
            "UPDATE approvals SET state = ?2, decided_by = ?3, decided_at = ?4 WHERE id = ?1 AND state = 'waiting'
               AND (?2 <> 'approved' OR second IS NULL OR second ->> '$.first' IS NOT NULL)
               AND (?2 <> 'expired' OR expires_at <= ?4)
             RETURNING ",
            columns!()
        ),
        params![id.as_uuid(), state.word(), by, at.0],
        approval_row,
    )?;
    let Some(approval) = answered else {
        let before = tx.row(BY_ID, params![id.as_uuid()], approval_row)?;
        return Ok(before.map_or(Decided::Unknown, |approval| Decided::Before(Box::new(approval))));
    };
    if let (Some(authority), ApprovalState::Approved, Some(covers)) = (always, state, &approval.covers) {
        let by = Asker { principal: by.to_owned(), authority, relayed: false };
        grant(tx, &approval, covers, &by, at)?;
    }
    append_events(tx, &[decided(&approval, by, at)])?;
    Ok(Decided::Now(Box::new(approval)))
}

/// Stores the results of calls that a client carries out, and the options with which its run continues.
pub(super) fn answer_client_calls(
    tx: &mut Tx<'_>,
    id: ApprovalId,
    results: &[ClientResult],
    options: &RunOptions,
    (by, at): (&str, UnixMillis),
) -> Done<Decided> {
    let answered = tx.row(
        concat!(
            "UPDATE approvals SET state = 'approved', results = ?2, decided_by = ?3, decided_at = ?4
             WHERE id = ?1 AND state = 'waiting' AND kind = 'client_calls' RETURNING ",
            columns!()
        ),
        params![id.as_uuid(), rows::to_json(&results)?, by, at.0],
        approval_row,
    )?;
    let Some(approval) = answered else {
        let before = tx.row(BY_ID, params![id.as_uuid()], approval_row)?;
        return Ok(before.map_or(Decided::Unknown, |approval| Decided::Before(Box::new(approval))));
    };
    tx.post(
        "UPDATE runs SET options = ?2 WHERE id = ?1",
        params![approval.run_id.as_uuid(), super::lanes::options_json(options)?],
    )?;
    Ok(Decided::Now(Box::new(approval)))
}

/// Stores the answer to a form, which is used with that: no call uses it later.
pub(super) fn answer_form(
    tx: &mut Tx<'_>,
    id: ApprovalId,
    answers: &Map<String, Json>,
    (by, at): (&str, UnixMillis),
) -> Done<Decided> {
    let answered = tx.row(
        concat!(
            "UPDATE approvals SET state = 'used', results = ?2, decided_by = ?3, decided_at = ?4
             WHERE id = ?1 AND state = 'waiting' AND kind = 'form' RETURNING ",
            columns!()
        ),
        params![id.as_uuid(), rows::to_json(answers)?, by, at.0],
        approval_row,
    )?;
    let Some(approval) = answered else {
        let before = tx.row(BY_ID, params![id.as_uuid()], approval_row)?;
        return Ok(before.map_or(Decided::Unknown, |approval| Decided::Before(Box::new(approval))));
    };
    let event = decided(&ApprovalRequest { state: ApprovalState::Approved, ..approval.clone() }, by, at);
    append_events(tx, &[event])?;
    Ok(Decided::Now(Box::new(approval)))
}

fn grant(tx: &mut Tx<'_>, approval: &ApprovalRequest, covers: &str, by: &Asker, at: UnixMillis) -> Done<()> {
    tx.post(
        "INSERT INTO grants (session, tool, covers, principal, authority, asked, asked_authority, at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING",
        params![
            approval.session.as_str(),
            approval.tool,
            covers,
            by.principal,
            rows::authority_word(by.authority),
            approval.asker.principal,
            rows::authority_word(approval.asker.authority),
            at.0
        ],
    )?;
    Ok(())
}

pub(super) fn first_yes(
    tx: &mut Tx<'_>,
    id: ApprovalId,
    second: &SecondYes,
    expires_at: UnixMillis,
    question: Option<&Outbound>,
) -> Done<Decided> {
    let Some(first) = &second.first else { return Err(Failure::damaged("a first approval without a person")) };
    let stored = tx.row(
        concat!(
            "UPDATE approvals SET second = ?2, expires_at = ?3, reminded_at = NULL
             WHERE id = ?1 AND state = 'waiting' AND second IS NOT NULL AND second ->> '$.first' IS NULL
             RETURNING ",
            columns!()
        ),
        params![id.as_uuid(), rows::to_json(second)?, expires_at.0],
        approval_row,
    )?;
    let Some(approval) = stored else {
        let before = tx.row(BY_ID, params![id.as_uuid()], approval_row)?;
        return Ok(before.map_or(Decided::Unknown, |approval| Decided::Before(Box::new(approval))));
    };
    if let Some(question) = question {
        outbox::insert(tx, question)?;
    }
    append_events(tx, &crate::approvals::first_yes(&approval, first))?;
    Ok(Decided::Now(Box::new(approval)))
}

pub(super) fn remind(tx: &mut Tx<'_>, id: ApprovalId, reminder: &Outbound, at: UnixMillis) -> Done<bool> {
    let noted = tx.exec(
        "UPDATE approvals SET reminded_at = ?2 WHERE id = ?1 AND state = 'waiting' AND reminded_at IS NULL",
        params![id.as_uuid(), at.0],
    )?;
    if noted > 0 {
        outbox::insert(tx, reminder)?;
    }
    Ok(noted > 0)
}

pub(super) fn forget_grants(tx: &mut Tx<'_>, session: &SessionKey) -> Done<u32> {
    // A grant that is not committed yet would outlive this deletion.
    tx.exclusive(GRANTS)?;
    let forgotten = tx.exec("DELETE FROM grants WHERE session = ?1", params![session.as_str()])?;
    Ok(u32::try_from(forgotten).unwrap_or(u32::MAX))
}

const BY_ID: &str = concat!("SELECT ", columns!(), " FROM approvals WHERE id = ?1");

const NEWEST_OF_RUN: &str =
    concat!("SELECT ", columns!(), " FROM approvals WHERE run_id = ?1 ORDER BY seq DESC LIMIT 1");

/// The newest approval request of a run.
pub(super) fn newest_of(tx: &mut Tx<'_>, run: RunId) -> Done<Option<ApprovalRequest>> {
    tx.row(NEWEST_OF_RUN, params![run.as_uuid()], approval_row)
}

/// The record of a run with the approval request of this number, which the same statement has read. The request may have
/// been answered since then.
pub(super) fn with_question(conn: &Connection, (mut record, question): (RunRecord, Option<i64>)) -> Done<RunRecord> {
    if let Some(seq) = question {
        let sql = concat!("SELECT ", columns!(), " FROM approvals WHERE seq = ?1");
        record.waiting_for = tx::row(conn, sql, params![seq], approval_row)?.as_ref().map(WaitingFor::from);
    }
    Ok(record)
}

pub(super) fn approval(conn: &Connection, id: ApprovalId) -> Done<Option<ApprovalRequest>> {
    tx::row(conn, BY_ID, params![id.as_uuid()], approval_row)
}

pub(super) fn approvals(conn: &Connection, filter: &ApprovalFilter) -> Done<Vec<ApprovalRequest>> {
    let mut table = "approvals";
    let mut wanted: Vec<&str> = vec!["kind <> 'client_calls'"]; // they ask no person
    let mut values: Vec<Value> = Vec::new();
    if filter.waiting {
        // Waiting approval requests are few and have an index of their own.
        table = "approvals INDEXED BY approvals_waiting";
        wanted.push("state = 'waiting'");
    }
    if let Some(state) = filter.state {
        wanted.push("state = ?");
        values.push(state.word().to_owned().into());
    }
    if let Some(prefix) = &filter.id {
        wanted.push(rows::BEGINS);
        values.extend(rows::span_of(prefix));
    }
    if let Some(session) = &filter.session {
        // Few requests wait, so those that are asked in this conversation for other work are found without an index.
        if filter.waiting {
            wanted.push("(session = ? OR place ->> 'session' = ? OR second ->> '$.place.session' = ?)");
            values.push(session.to_string().into());
            values.push(session.to_string().into());
        } else {
            wanted.push("session = ?");
        }
        values.push(session.to_string().into());
    }
    if let Some(channel) = &filter.channel {
        wanted.push("(SELECT channel FROM runs WHERE runs.id = approvals.run_id) = ?");
        values.push(channel.to_string().into());
    }
    for (condition, date) in [("asked_at >= ?", filter.since), ("asked_at < ?", filter.until)] {
        wanted.extend(date.map(|_| condition));
        values.extend(date.map(|date| Value::from(date.0)));
    }
    if let Some(before) = filter.before {
        wanted.push("seq < ?");
        values.push(cursor(conn, "approvals", before.as_uuid(), ("", Vec::new()), "question")?.into());
    }
    let filtered = format!("WHERE {}", wanted.join(" AND "));
    values.push(i64::from(approvals_limit(filter)).into());
    let sql = format!("SELECT {} FROM {table} {filtered} ORDER BY seq DESC LIMIT ?", columns!());
    tx::rows(conn, &sql, values, approval_row)
}

pub(super) fn approvals_of(conn: &Connection, run: RunId) -> Done<Vec<ApprovalRequest>> {
    let sql = concat!("SELECT ", columns!(), " FROM approvals WHERE run_id = ?1 ORDER BY seq");
    tx::rows(conn, sql, params![run.as_uuid()], approval_row)
}

pub(super) fn granted(
    conn: &Connection,
    session: &SessionKey,
    tool: &str,
    covers: &str,
    work_for: &Asker,
) -> Done<bool> {
    let sql = "SELECT principal, authority, asked, asked_authority FROM grants
               WHERE session = ?1 AND tool = ?2 AND covers = ?3";
    let grants = tx::rows(conn, sql, params![session.as_str(), tool, covers], |row| {
        let asker = |principal: &str, authority: &str| -> Done<Asker> {
            Ok(Asker { principal: row.get(principal)?, authority: rows::authority(row, authority)?, relayed: false })
        };
        Ok((asker("principal", "authority")?, asker("asked", "asked_authority")?))
    })?;
    Ok(grants.iter().any(|(by, asked)| work_for.is_served_by(by, asked, session)))
}

fn kind(row: &Row<'_>, run: RunId) -> Done<ApprovalKind> {
    if row.get::<_, String>("kind")? == CLIENT_CALLS {
        let results = rows::readable(row, run, "results")?.unwrap_or_default();
        return Ok(ApprovalKind::ClientCalls {
            calls: rows::readable(row, run, "arguments")?.unwrap_or_default(),
            results,
        });
    }
    if row.get::<_, String>("kind")? == FORM {
        let form = rows::readable(row, run, "arguments")?.ok_or_else(|| Failure::damaged("form of a question"))?;
        return Ok(ApprovalKind::Form { form, answers: rows::readable(row, run, "results")?.unwrap_or_default() });
    }
    Ok(match row.get("secret_name")? {
        None => ApprovalKind::Approval,
        Some(name) => ApprovalKind::Credential { name },
    })
}

fn approval_row(row: &Row<'_>) -> Done<ApprovalRequest> {
    let run_id = rows::id(row, "run_id")?;
    let state: String = row.get("state")?;
    Ok(ApprovalRequest {
        id: rows::id(row, "id")?,
        run_id,
        session: row.get::<_, String>("session")?.into(),
        call_id: row.get::<_, String>("call_id")?.into(),
        tool: row.get("tool")?,
        kind: kind(row, run_id)?,
        summary: row.get("summary")?,
        // Arguments are only shown: the digest contains the values that an answer is bound to.
        arguments: rows::readable(row, run_id, "arguments")?.unwrap_or_default(),
        detail: row.get("detail")?,
        bound: rows::readable(row, run_id, "bound")?.unwrap_or_default(),
        digest: row.get("digest")?,
        covers: row.get("covers")?,
        added: row.get::<_, Option<String>>("added")?.map(|text| rows::from_json(&text)).transpose()?,
        asker: rows::asker(row)?,
        place: row.get::<_, Option<String>>("place")?.map(|text| rows::from_json(&text)).transpose()?,
        second: row.get::<_, Option<String>>("second")?.map(|text| rows::from_json(&text)).transpose()?,
        reminded_at: rows::optional_date(row, "reminded_at")?,
        asked_at: rows::date(row, "asked_at")?,
        expires_at: rows::date(row, "expires_at")?,
        state: ApprovalState::from_word(&state).ok_or_else(|| Failure::damaged("state of a question"))?,
        decided_by: row.get("decided_by")?,
        decided_at: rows::optional_date(row, "decided_at")?,
    })
}
