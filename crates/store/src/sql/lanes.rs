//! The writes of a lane's owner: acceptance, start, progress and end of runs.
//!
//! A function that writes for the owner of a lane begins with the check of [`lane_guard`], which refuses other callers. A
//! function that is refused after it has written is rolled back as a whole by the writer.

use std::sync::Arc;

use belay_protocol::store::{KnownInput, MailPlace, QueuedInput, RECENT_INPUTS, joined_end};
use belay_protocol::{
    Acceptance, BootId, Checkpoint, ClaimMode, CollectedStart, EditedMessage, EventKind, FinishedRun, IdempotencyKey,
    JoinedRun, LaneClaim, Lease, Message, NewEvent, NewInput, OpenedLane, Opening, PendingRun, Provenance, RunId,
    RunOptions, RunStatus, SentMessage, SessionKey, SessionLifetime, StoreError, ThreadId, ThreadState, UnixMillis,
    with_spoken,
};
use uuid::Uuid;

use super::acted_on;
use super::approvals;
use super::connection::{Connection, Engine, Row};
use super::edits;
use super::jobs;
use super::lane_guard::{self, Guard, Lane, lane};
use super::ledger::append_events;
use super::node_mail;
use super::outbox;
use super::principals;
use super::rows;
use super::sent_files;
use super::threads::{Place, append_messages, begin_turn, insert_thread, set_thread, snapshot};
use super::tx::{Done, Failure, Tx, to_sql_int};
use super::uploads;
use crate::value::{Param, named_params, params};

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

fn options_json(options: &RunOptions) -> Done<Option<String>> {
    (!options.is_default()).then(|| rows::to_json(options)).transpose()
}

pub(super) fn set_loop_detection(tx: &mut Tx<'_>, lease: &Lease, on: bool) -> Done<()> {
    lane(tx, lease)?;
    let sql = "UPDATE sessions SET loop_detection = ?2 WHERE session = ?1";
    tx.post(sql, params![lease.session.as_str(), on])?;
    Ok(())
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

/// `digest` is the digest of the received message, if the message can be redelivered or edited.
pub(super) fn accept(tx: &mut Tx<'_>, lease: &Lease, input: &NewInput, digest: Option<&str>) -> Done<Acceptance> {
    let guard = match &input.place {
        None => lane_guard::ask(tx, lease)?,
        Some(place) if place.own.is_none() => lane_guard::ask_with_mail(tx, lease)?,
        // The mail may be answered, and then its run exists: it is not inserted again.
        Some(place) => match turn(tx, lease, place)? {
            Ok(lane) => Guard::answered(lane),
            Err(refused) => return Ok(refused),
        },
    };
    let start = input.start;
    let reply_to = input.reply_to.as_ref().map(rows::to_json).transpose()?;
    // A history that enters the thread now is not kept with the run.
    let history = (!start && !input.history.is_empty()).then(|| rows::to_json(&input.history)).transpose()?;
    let state = input.state.as_ref().map(rows::to_json).transpose()?;
    let key = input.key.as_ref();
    let inserted = tx.row(
        "INSERT OR FAIL INTO runs (id, session, status, attempt, thread, turn, accepted_at, started_at, work, channel,
                           principal, authority, relayed, reply_to, key_channel, key_account, key_message, digest,
                           text, history, state, options, from_person, provenance, message_ref)
         VALUES (:id, :session, :status, :attempt,
                 COALESCE(:thread, CASE :start WHEN 1 THEN (SELECT s.thread FROM sessions s WHERE s.session = :session) END),
                 COALESCE(:turn, CASE :start WHEN 1 THEN (SELECT t.turns + 1 FROM sessions s JOIN threads t ON t.id = s.thread
                                                          WHERE s.session = :session) END),
                 :at, :started_at, :work, :channel, :principal, :authority, :relayed, :reply_to,
                 :key_channel, :key_account, :key_message, :digest, :text, :history, :state, :options, :from_person,
                 :provenance, :message_ref)
         ON CONFLICT (key_channel, key_account, key_message) WHERE key_message IS NOT NULL DO NOTHING
         RETURNING (SELECT last_seen_at FROM principals p WHERE p.channel = :channel AND p.id = :principal) AS last_seen_at,
                   EXISTS (SELECT 1 FROM handled_inputs h WHERE h.key_channel = :key_channel
                               AND h.key_account = :key_account AND h.key_message = :key_message) AS used",
        named_params! {
            ":id": input.run_id.as_uuid(),
            ":session": lease.session.as_str(),
            ":status": if start { RunStatus::Running } else { RunStatus::Queued }.word(),
            ":attempt": u32::from(start),
            ":start": start,
            ":thread": guard.known().filter(|_| start).map(|lane| lane.thread),
            ":turn": guard.known().filter(|_| start).map(|lane| lane.turns + 1),
            ":at": input.at.0,
            ":started_at": start.then_some(input.at.0),
            ":work": rows::to_json(&input.work)?,
            ":channel": input.channel.as_str(),
            ":principal": input.asker.principal,
            ":authority": rows::authority_word(input.asker.authority),
            ":relayed": input.asker.relayed,
            ":reply_to": reply_to,
            ":key_channel": key.map(|key| key.channel.as_str()),
            ":key_account": key.map(|key| &*key.account),
            ":key_message": key.map(|key| &*key.message_id),
            ":digest": digest,
            ":text": input.text,
            ":history": history,
            ":state": state,
            ":options": options_json(&input.options)?,
            ":from_person": input.spoken,
            ":provenance": provenance_json(input.provenance.as_deref())?,
            ":message_ref": input.provenance.as_ref().and_then(|provenance| provenance.message_id.as_deref()),
        },
        |row| Ok((rows::optional_date(row, "last_seen_at")?, row.get::<_, bool>("used")?)),
    )?;
    let (mut lane, oldest_mail) = guard.answer_with_mail(tx, lease)?;
    let refused = match input.place.as_ref().filter(|place| place.own.is_none()) {
        None => None,
        Some(place) => node_mail::turn(tx, lease, place, oldest_mail)?,
    };
    // A condition of the insertion would have SQLite copy each message into a temporary table.
    let used = inserted.is_some_and(|(_, used)| used);
    if inserted.is_some() && (used || refused.is_some()) {
        tx.exec("DELETE FROM runs WHERE id = ?1", params![input.run_id.as_uuid()])?;
    }
    if let Some(refused) = refused {
        return Ok(refused);
    }
    let Some((last_seen_at, false)) = inserted else { return known(tx, input, digest) };
    if let Some(place) = &input.place {
        node_mail::accepted(tx, place)?;
    }
    principals::note(tx, input, last_seen_at)?;
    if input.replaces_turn {
        edits::replace_turn(tx, &mut lane, &lease.session, input.at)?;
    }
    if let Some(provenance) = &input.provenance {
        uploads::refer(tx, input.run_id.as_uuid(), &provenance.attachments)?;
    }
    let run = Some(input.run_id);
    let event = |kind| NewEvent { at: input.at, session: Some(lease.session.clone()), run_id: run, kind };
    let mut events = vec![event(EventKind::RunAccepted)];
    events.extend(input.events.iter().cloned());
    if start {
        let message = Message::sent(&input.text, input.provenance.clone());
        begin_turn(tx, &lane, input.run_id, &input.history, &message, input.at)?;
        events.push(event(EventKind::RunStarted { attempt: 1 }));
    } else {
        set_thread(tx, lane.thread, None, input.at)?;
    }
    append_events(tx, &events)?;
    Ok(Acceptance::New)
}

/// The lane of a message that came as mail, or why it is not accepted.
fn turn(tx: &mut Tx<'_>, lease: &Lease, place: &MailPlace) -> Done<Result<Lane, Acceptance>> {
    let (lane, oldest) = lane_guard::ask_with_mail(tx, lease)?.answer_with_mail(tx, lease)?;
    Ok(node_mail::turn(tx, lease, place, oldest)?.map_or(Ok(lane), Err))
}

fn known(tx: &mut Tx<'_>, input: &NewInput, digest: Option<&str>) -> Done<Acceptance> {
    let key = input.key.as_ref().ok_or_else(|| Failure::damaged("a duplicate without a key"))?;
    let known = tx.row(FIND, find_params(key), known_input)?;
    let Some(known) = known else {
        let used = acted_on::find(tx, key)?;
        let (digest, state) = used.ok_or_else(|| Failure::damaged("a duplicate without its original"))?;
        return Ok(Acceptance::Used { digest, state });
    };
    Ok(if digest == Some(&*known.digest) { Acceptance::Known(known) } else { Acceptance::Conflict(known) })
}

const FIND: &str = "SELECT id, session, accepted_at, digest FROM runs
     WHERE key_channel = ?1 AND key_account = ?2 AND key_message = ?3";

pub(super) fn find_params(key: &IdempotencyKey) -> [Param<'_>; 3] {
    [
        Param::Text(key.channel.as_str().into()),
        Param::Text((&*key.account).into()),
        Param::Text((&*key.message_id).into()),
    ]
}

fn known_input(row: &Row<'_>) -> Done<KnownInput> {
    Ok(KnownInput {
        run_id: rows::id(row, "id")?,
        session: row.get::<_, String>("session")?.into(),
        accepted_at: rows::date(row, "accepted_at")?,
        digest: row.get("digest")?,
    })
}

/// The inputs of queued runs, for readers.
pub(super) fn queued_inputs(conn: &Connection, runs: &[RunId]) -> Done<Vec<QueuedInput>> {
    let mut inputs = Vec::with_capacity(runs.len());
    for run in runs {
        let sql = "SELECT text, provenance, history FROM runs WHERE id = ?1";
        let input = super::tx::row(conn, sql, params![run.as_uuid()], |row| {
            let history = rows::readable(row, *run, "history")?.unwrap_or_default();
            let provenance = rows::readable(row, *run, "provenance")?;
            Ok(QueuedInput { run_id: *run, text: row.get("text")?, provenance, history })
        })?;
        inputs.extend(input);
    }
    Ok(inputs)
}

/// Those of the newest messages that have a key, oldest first.
pub(super) fn recent_inputs(conn: &Connection) -> Done<Vec<(IdempotencyKey, KnownInput)>> {
    // The limit counts all runs, not those with keys: if keys are rare, a start must not read all runs.
    let recent = "SELECT * FROM (SELECT seq, id, session, accepted_at, key_channel, key_account, key_message, digest
                                 FROM runs ORDER BY seq DESC LIMIT ?1)
                  WHERE key_message IS NOT NULL ORDER BY seq";
    super::tx::rows(conn, recent, params![RECENT_INPUTS as i64], |row| Ok((rows::key(row)?, known_input(row)?)))
}

/// The run of a key, for readers.
pub(super) fn find(conn: &Connection, key: &IdempotencyKey) -> Done<Option<KnownInput>> {
    super::tx::row(conn, FIND, find_params(key), known_input)
}

pub(super) fn start_run(tx: &mut Tx<'_>, lease: &Lease, run: RunId, at: UnixMillis) -> Done<()> {
    let lane = lane(tx, lease)?;
    let started = tx.row(
        "UPDATE OR FAIL runs SET status = 'running', attempt = attempt + CASE WHEN status <> 'paused' THEN 1 ELSE 0 END, started_at = COALESCE(started_at, ?3),
                         thread = COALESCE(thread, ?4), turn = COALESCE(turn, ?5)
         WHERE id = ?1 AND session = ?2 AND ended_at IS NULL
         RETURNING attempt, thread, turn, text, history, provenance",
        params![run.as_uuid(), lease.session.as_str(), at.0, lane.thread, lane.turns + 1],
        |row| {
            let history: Vec<Message> = rows::readable(row, run, "history")?.unwrap_or_default();
            let thread: Uuid = row.get("thread")?;
            // The turn of an earlier attempt has a lower number or is in an earlier thread.
            let first = thread == lane.thread && row.get::<_, u32>("turn")? > lane.turns;
            let provenance = rows::readable(row, run, "provenance")?;
            let message = Message::sent(row.get::<_, String>("text")?, provenance);
            Ok((row.get::<_, u32>("attempt")?, first, thread, message, history))
        },
    )?;
    let (attempt, first, thread, message, history) = started.ok_or_else(|| not_found("unfinished run", run))?;
    if first {
        begin_turn(tx, &lane, run, &history, &message, at)?;
    } else {
        set_thread(tx, thread, Some(ThreadState::Processing), at)?;
    }
    let kind = EventKind::RunStarted { attempt };
    append_events(tx, &[NewEvent { at, session: Some(lease.session.clone()), run_id: Some(run), kind }])
}

pub(super) fn start_together(tx: &mut Tx<'_>, lease: &Lease, together: &CollectedStart) -> Done<()> {
    lane(tx, lease)?;
    let sql = "UPDATE runs SET text = ?3, provenance = ?4
               WHERE id = ?1 AND session = ?2 AND ended_at IS NULL AND thread IS NULL";
    let CollectedStart { run, text, provenance, joined, at } = together;
    let provenance = provenance_json(provenance.as_deref())?;
    if tx.exec(sql, params![run.as_uuid(), lease.session.as_str(), text, provenance])? == 0 {
        return Err(not_found("queued run", *run));
    }
    start_run(tx, lease, *run, *at)?;
    join(tx, lease, *run, joined)
}

/// Replaces the text and the facts of a waiting message. It keeps its attachments, and the words of its voice messages
/// follow the new text. Returns the facts that it has now.
pub(super) fn replace_message(tx: &mut Tx<'_>, lease: &Lease, edited: &EditedMessage) -> Done<Option<Arc<Provenance>>> {
    lane(tx, lease)?;
    let EditedMessage { run, text, provenance, digest } = edited;
    let waiting = "SELECT provenance FROM runs WHERE id = ?1 AND session = ?2 AND ended_at IS NULL AND thread IS NULL";
    let known =
        tx.row(waiting, params![run.as_uuid(), lease.session.as_str()], |row| row.get::<_, Option<String>>(0))?;
    let Some(known) = known else { return Err(not_found("queued run", *run)) };
    let known: Option<Provenance> = known.as_deref().map(rows::from_json).transpose()?;
    let provenance = match (provenance.clone(), known) {
        (Some(new), Some(Provenance { attachments, not_read, .. }))
            if !attachments.is_empty() || !not_read.is_empty() =>
        {
            Some(Arc::new(Provenance { attachments, not_read, ..Provenance::clone(&new) }))
        }
        (new, _) => new,
    };
    let text = with_spoken(text, provenance.as_deref().map_or(&[], |known| &known.attachments));
    tx.post(
        "UPDATE runs SET text = ?3, provenance = ?4, edited = ?5 WHERE id = ?1 AND session = ?2",
        params![run.as_uuid(), lease.session.as_str(), text, provenance_json(provenance.as_deref())?, digest],
    )?;
    Ok(provenance)
}

/// The message with this id, for readers.
pub(super) fn sent_message(conn: &Connection, session: &SessionKey, message_id: &str) -> Done<Option<SentMessage>> {
    super::tx::row(
        conn,
        "SELECT id, session, accepted_at, digest, edited FROM runs
         WHERE session = ?1 AND message_ref = ?2 ORDER BY seq DESC LIMIT 1",
        params![session.as_str(), message_id],
        |row| Ok(SentMessage { known: known_input(row)?, edited: row.get("edited")? }),
    )
}

fn provenance_json(provenance: Option<&Provenance>) -> Done<Option<String>> {
    provenance.map(rows::to_json).transpose()
}

/// Ends the runs whose messages have become part of this run.
fn join(tx: &mut Tx<'_>, lease: &Lease, into: RunId, joined: &[JoinedRun]) -> Done<()> {
    let mut events = Vec::with_capacity(joined.len());
    for JoinedRun { run, how, at } in joined {
        let end = joined_end(into, how);
        let ended = tx.exec(
            "UPDATE runs SET status = ?3, reason = ?4, evidence = ?5, ended_at = ?6, state = NULL, history = NULL
             WHERE id = ?1 AND session = ?2 AND ended_at IS NULL",
            params![
                run.as_uuid(),
                lease.session.as_str(),
                end.reason.status().word(),
                end.reason.word(),
                rows::to_json(&end.evidence)?,
                at.0
            ],
        )?;
        if ended == 0 {
            must_exist(tx, lease, *run)?;
            continue;
        }
        let kind = EventKind::RunEnded { status: end.reason.status(), reason: end.reason, evidence: end.evidence };
        events.push(NewEvent { at: *at, session: Some(lease.session.clone()), run_id: Some(*run), kind });
    }
    append_events(tx, &events)
}

pub(super) fn checkpoint(tx: &mut Tx<'_>, lease: &Lease, checkpoint: &Checkpoint) -> Done<()> {
    progress(tx, lease, checkpoint, RunStatus::Running).map(|_| ())
}

/// Writes the progress of a running run and its new status. Returns its thread.
pub(super) fn progress(tx: &mut Tx<'_>, lease: &Lease, checkpoint: &Checkpoint, status: RunStatus) -> Done<Uuid> {
    let guard = lane_guard::ask(tx, lease)?;
    let usage = checkpoint.usage;
    let running = tx.row(
        "UPDATE OR FAIL runs SET input_tokens = ?3, output_tokens = ?4, model_calls = ?5, tool_calls = ?6, cost_micro_usd = ?7,
                         state = COALESCE(?8, state), status = ?9, estimated_calls = ?10
         WHERE id = ?1 AND session = ?2 AND status = 'running'
         RETURNING thread, turn, started_at",
        params![
            checkpoint.run.as_uuid(),
            lease.session.as_str(),
            to_sql_int(usage.input),
            to_sql_int(usage.output),
            usage.model_calls,
            usage.tool_calls,
            to_sql_int(checkpoint.cost_micro_usd),
            checkpoint.state.as_ref().map(rows::to_json).transpose()?,
            status.word(),
            usage.estimated_calls
        ],
        |row| Ok((row.get::<_, Uuid>("thread")?, row.get("turn")?, rows::date(row, "started_at")?)),
    )?;
    guard.answer(tx, lease)?;
    let (thread, turn, started_at) = running.ok_or_else(|| not_found("running run", checkpoint.run))?;
    approvals::use_up(tx, checkpoint.run, &checkpoint.used)?;
    let at = checkpoint.events.iter().map(|event| event.at).max().unwrap_or(started_at);
    let place = Place { thread, turn, run: Some(checkpoint.run), at };
    append_messages(tx, &place, &checkpoint.messages)?;
    append_events(tx, &checkpoint.events)?;
    sent_files::keep(tx, checkpoint.run, &checkpoint.events)?;
    join(tx, lease, checkpoint.run, &checkpoint.joined)?;
    checkpoint.outbound.iter().try_for_each(|message| outbox::insert(tx, message))?;
    Ok(thread)
}

pub(super) fn finish_runs(tx: &mut Tx<'_>, lease: &Lease, finished: &[FinishedRun]) -> Done<()> {
    let Some((first, others)) = finished.split_first() else { return lane(tx, lease).map(drop) };
    let guard = lane_guard::ask(tx, lease)?;
    let ended = end_run(tx, lease, first)?;
    let lane = guard.answer(tx, lease)?;
    finish_run(tx, lease, &lane, first, ended)?;
    for run in others {
        let ended = end_run(tx, lease, run)?;
        finish_run(tx, lease, &lane, run, ended)?;
    }
    Ok(())
}

/// A run that was ended now.
struct Ended {
    /// The thread and the turn, if it has started.
    place: (Option<Uuid>, Option<u32>),
    /// Whether it has asked a question that is open.
    asking: bool,
}

/// Ends a run. `None`: there is none, or it has ended before.
fn end_run(tx: &mut Tx<'_>, lease: &Lease, finished: &FinishedRun) -> Done<Option<Ended>> {
    let status = finished.end.reason.status();
    let usage = finished.usage;
    tx.row(
        concat!("UPDATE OR FAIL runs SET status = ?3, reason = ?4, evidence = ?5, reply = ?6, input_tokens = ?7, output_tokens = ?8,
                         model_calls = ?9, tool_calls = ?10, cost_micro_usd = ?11, ended_at = ?12, estimated_calls = ?13, state = NULL,
                         history = NULL
         WHERE id = ?1 AND session = ?2 AND ended_at IS NULL
         RETURNING thread, turn, EXISTS (SELECT 1 FROM approvals WHERE run_id = runs.id AND ", approvals::open!(), ") AS asking"),
        params![
            finished.run.as_uuid(),
            lease.session.as_str(),
            status.word(),
            finished.end.reason.word(),
            (!finished.end.evidence.is_empty()).then(|| rows::to_json(&finished.end.evidence)).transpose()?,
            finished.reply,
            to_sql_int(usage.input),
            to_sql_int(usage.output),
            usage.model_calls,
            usage.tool_calls,
            to_sql_int(finished.cost_micro_usd),
            finished.at.0,
            usage.estimated_calls
        ],
        |row| {
            let place = (row.get("thread")?, row.get("turn")?);
            Ok(Ended { place, asking: row.get("asking")? })
        },
    )
}

/// Writes what belongs to the end of a run.
fn finish_run(tx: &mut Tx<'_>, lease: &Lease, lane: &Lane, finished: &FinishedRun, ended: Option<Ended>) -> Done<()> {
    let Some(Ended { place, asking }) = ended else { return must_exist(tx, lease, finished.run) };
    let status = finished.end.reason.status();
    if let (Some(thread), Some(turn)) = place {
        let place = Place { thread, turn, run: Some(finished.run), at: finished.at };
        append_messages(tx, &place, &finished.messages)?;
    }
    set_thread(tx, place.0.unwrap_or(lane.thread), finished.thread_state, finished.at)?;
    finished
        .said
        .iter()
        .chain(&finished.outbound)
        .chain(&finished.callback)
        .try_for_each(|message| outbox::insert(tx, message))?;
    let kind = EventKind::RunEnded { status, reason: finished.end.reason, evidence: finished.end.evidence.clone() };
    let ended = NewEvent { at: finished.at, session: Some(lease.session.clone()), run_id: Some(finished.run), kind };
    sent_files::keep(tx, finished.run, &finished.events)?;
    let mut events = finished.events.clone();
    if asking {
        events.extend(approvals::withdraw(tx, &lease.session, finished.run, finished.at)?);
    }
    events.push(ended);
    append_events(tx, &events)
}

/// Checks that a run that was not ended now has ended before: otherwise the lane does not know it.
fn must_exist(tx: &mut Tx<'_>, lease: &Lease, run: RunId) -> Done<()> {
    let found = tx.row(
        "SELECT 1 FROM runs WHERE id = ?1 AND session = ?2",
        params![run.as_uuid(), lease.session.as_str()],
        |_| Ok(()),
    )?;
    found.ok_or_else(|| not_found("run", run))
}

fn not_found(what: &str, run: RunId) -> Failure {
    StoreError::NotFound(format!("{what} {run}")).into()
}
