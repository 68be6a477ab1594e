//! The acceptance of messages, and the messages that were accepted.
//!
//! A function that writes for the owner of a lane begins with the check of [`lane_guard`], which refuses other callers. A
//! function that is refused after it has written is rolled back as a whole by the writer.

use std::sync::Arc;

use belay_protocol::store::{KnownInput, MailPlace, QueuedInput, RECENT_INPUTS};
use belay_protocol::{
    Acceptance, EditedMessage, EventKind, IdempotencyKey, Lease, Message, NewEvent, NewInput, Provenance, RunId,
    RunStatus, SentMessage, SessionKey, with_spoken,
};

use super::acted_on;
use super::archive;
use super::connection::{Connection, Engine, Row};
use super::edits;
use super::lane_guard::{self, Guard, Lane, is_held, lane};
use super::lanes::options_json;
use super::ledger::append_events;
use super::node_mail;
use super::principals;
use super::rows;
use super::threads::{begin_turn, set_thread};
use super::tx::{Done, Failure, Tx, not_found, to_sql_int};
use super::uploads;
use crate::value::{Param, named_params, params};

/// Inserts a run. The arguments enclose its values. A run that starts is in the next turn of the active thread, which is
/// read here if the check of the lease is not answered.
macro_rules! insert_run {
    ($before:expr, $after:expr) => {
        concat!(
            "INSERT OR FAIL INTO runs (id, session, status, attempt, thread, turn, accepted_at, started_at, work, channel,
                               principal, authority, relayed, reply_to, key_channel, key_account, key_message, digest,
                               text, history, state, options, from_person, provenance, message_ref) ",
            $before,
            ":id, :session, :status, :attempt,
             COALESCE(:thread, CASE :start WHEN 1 THEN (SELECT s.thread FROM sessions s WHERE ",
            is_held!(":session", ":owner", ":epoch"),
            ") END),
             COALESCE(:turn, CASE :start WHEN 1 THEN (SELECT t.turns + 1 FROM sessions s JOIN threads t ON t.id = s.thread WHERE ",
            is_held!(":session", ":owner", ":epoch"),
            ") END),
             :at, :started_at, :work, :channel, :principal, :authority, :relayed, :reply_to,
             :key_channel, :key_account, :key_message, :digest, :text, :history, :state, :options, :from_person,
             :provenance, :message_ref",
            $after,
            " ON CONFLICT (key_channel, key_account, key_message) WHERE key_message IS NOT NULL DO NOTHING
             RETURNING (SELECT last_seen_at FROM principals p WHERE p.channel = :channel AND p.id = :principal) AS last_seen_at,
                       EXISTS (SELECT 1 FROM handled_inputs h WHERE h.key_channel = :key_channel
                                   AND h.key_account = :key_account AND h.key_message = :key_message) AS used"
        )
    };
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
    let sql = match tx.engine() {
        // Rows of a SELECT would be copied into a temporary table.
        Engine::Sqlite => insert_run!("VALUES (", ")"),
        Engine::Postgres => {
            insert_run!("SELECT ", concat!(" FROM sessions s WHERE ", is_held!(":session", ":owner", ":epoch")))
        }
    };
    let inserted = tx.row(
        sql,
        named_params! {
            ":id": input.run_id.as_uuid(),
            ":session": lease.session.as_str(),
            ":owner": lease.owner.as_uuid(),
            ":epoch": to_sql_int(lease.epoch),
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
    archive::show(tx, &lease.session, lane.hidden)?;
    principals::note(tx, input, last_seen_at)?;
    if input.replaces_turn {
        edits::replace_turn(tx, &mut lane, &lease.session, input.at)?;
    }
    if let Some(provenance) = &input.provenance {
        uploads::refer(tx, input.run_id.as_uuid(), &provenance.attachments)?;
    }
    let run = Some(input.run_id);
    let event = |kind| NewEvent { at: input.at, session: Some(lease.session.clone()), run_id: run, kind };
    let mut events = [&[event(EventKind::RunAccepted)][..], &input.events].concat();
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

pub(super) fn provenance_json(provenance: Option<&Provenance>) -> Done<Option<String>> {
    provenance.map(rows::to_json).transpose()
}
