//! Mail for lanes that other nodes own, and its place before later messages of the session.
//!
//! A message that waits as mail has a run for its readers: queued while the mail is open, ended if the message was not
//! accepted. The acceptance answers the mail in the same commit, so that a message is never mail and a run at once.

use async_trait::async_trait;
use belay_protocol::cluster::{NodeMail, OpenMail, OrderTarget, Topic};
use belay_protocol::run::RunUsage;
use belay_protocol::store::{MailEnd, MailPlace, MailStore};
use belay_protocol::{
    Acceptance, BootId, Durability, EventKind, Lease, MailId, NewEvent, RunFilter, RunId, RunRecord, RunStatus,
    SessionKey, StoreError, UnixMillis,
};
use serde_json::Value as Json;

use super::connection::{Connection, Row};
use super::lane_guard::lane;
use super::ledger::append_events;
use super::tx::{self, Done, Tx, to_sql_int};
use super::{SqlStore, rows};
use crate::value::{Value, params};

/// The maximum number of ids in one statement.
const IDS: usize = 64;

#[async_trait]
impl MailStore for SqlStore {
    async fn send(&self, mail: NodeMail) -> Result<(), StoreError> {
        let sent = self.write(Durability::Committed, move |tx| send(tx, &mail)).await;
        sent.inspect(|()| self.hint(Topic::Mail))
    }

    async fn open_mail(
        &self,
        owner: BootId,
        session: Option<&SessionKey>,
        limit: u32,
    ) -> Result<Vec<OpenMail>, StoreError> {
        let session = session.cloned();
        self.read(move |conn| open(conn, owner, session.as_ref(), limit)).await
    }

    async fn open_messages(&self, target: &OrderTarget, limit: u32) -> Result<Vec<NodeMail>, StoreError> {
        let target = target.clone();
        self.read(move |conn| messages(conn, &target, limit)).await
    }

    async fn take(&self, mail: MailId, lease: &Lease) -> Result<bool, StoreError> {
        let lease = lease.clone();
        self.write(Durability::Committed, move |tx| take(tx, mail, &lease)).await
    }

    async fn answer(&self, mail: MailId, ack: Json, end: Option<MailEnd>) -> Result<bool, StoreError> {
        let answer = move |tx: &mut Tx<'_>| answer(tx, mail, &ack, end.as_ref(), KeepEnd::Always);
        self.write(Durability::Committed, answer).await.inspect(|_| self.hint(Topic::Mail))
    }

    async fn refuse(&self, mail: MailId, ack: Json, end: Option<MailEnd>) -> Result<bool, StoreError> {
        let answer = move |tx: &mut Tx<'_>| answer(tx, mail, &ack, end.as_ref(), KeepEnd::IfPromised);
        self.write(Durability::Committed, answer).await.inspect(|_| self.hint(Topic::Mail))
    }

    async fn promise(&self, mail: MailId) -> Result<bool, StoreError> {
        self.write(Durability::Committed, move |tx| {
            let sql = "UPDATE node_mail SET promised = 1 WHERE id = ?1 AND ack IS NULL";
            Ok(tx.exec(sql, params![mail.as_uuid()])? > 0)
        })
        .await
    }

    async fn answers(&self, mails: &[MailId]) -> Result<Vec<(MailId, Json)>, StoreError> {
        let mails = mails.to_vec();
        self.read(move |conn| answers(conn, &mails)).await
    }
}

fn send(tx: &mut Tx<'_>, mail: &NodeMail) -> Done<()> {
    tx.post(
        "INSERT INTO node_mail (id, session, source, at, run_id, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO NOTHING",
        params![
            mail.id.as_uuid(),
            mail.session.as_str(),
            mail.source.as_uuid(),
            mail.at.0,
            mail.run.map(|run| run.as_uuid()),
            rows::to_json(&mail.body)?
        ],
    )
}

/// Mail was begun under an earlier lease unless the reader itself has taken it with the lease that it holds now.
fn open(conn: &Connection, owner: BootId, session: Option<&SessionKey>, limit: u32) -> Done<Vec<OpenMail>> {
    macro_rules! open_sql {
        ($of:literal) => {
            concat!(
                "SELECT m.id, m.session, m.source, m.at, m.run_id, m.body,
                   CASE WHEN m.taken_by IS NULL THEN 0
                        WHEN m.taken_by = ?1 AND s.owner = ?1 AND m.taken_epoch = s.epoch THEN 0 ELSE 1 END AS begun
               FROM node_mail m LEFT JOIN sessions s ON s.session = m.session
               WHERE m.ack IS NULL
                 AND (s.owner IS NULL OR s.owner = ?1
                      OR NOT EXISTS (SELECT 1 FROM nodes n WHERE n.boot = s.owner AND n.ended_at IS NULL))
                 ",
                $of,
                "ORDER BY m.seq LIMIT ?2"
            )
        };
    }
    let read = |row: &Row<'_>| Ok(OpenMail { mail: mail(row)?, begun: row.get("begun")? });
    match session {
        None => tx::rows(conn, open_sql!(""), params![owner.as_uuid(), limit], read),
        Some(session) => {
            let sql = open_sql!("AND m.session = ?3 ");
            tx::rows(conn, sql, params![owner.as_uuid(), limit, session.as_str()], read)
        }
    }
}

fn messages(conn: &Connection, target: &OrderTarget, limit: u32) -> Done<Vec<NodeMail>> {
    macro_rules! messages_sql {
        ($of:literal) => {
            concat!(
                "SELECT id, session, source, at, run_id, body FROM node_mail
                 WHERE ack IS NULL AND run_id IS NOT NULL ",
                $of,
                "ORDER BY seq LIMIT ?1"
            )
        };
    }
    match target {
        OrderTarget::Run(run) => tx::rows(conn, messages_sql!("AND run_id = ?2 "), params![limit, run.as_uuid()], mail),
        OrderTarget::Session(session) => {
            tx::rows(conn, messages_sql!("AND session = ?2 "), params![limit, session.as_str()], mail)
        }
        OrderTarget::All => tx::rows(conn, messages_sql!(""), params![limit], mail),
    }
}

fn mail(row: &Row<'_>) -> Done<NodeMail> {
    Ok(NodeMail {
        id: rows::id(row, "id")?,
        session: row.get::<_, String>("session")?.into(),
        source: rows::id(row, "source")?,
        at: rows::date(row, "at")?,
        run: rows::optional_id(row, "run_id")?,
        body: rows::from_json(row.text("body")?)?,
    })
}

fn take(tx: &mut Tx<'_>, mail: MailId, lease: &Lease) -> Done<bool> {
    lane(tx, lease)?;
    let taken = tx.exec(
        "UPDATE node_mail SET taken_by = ?3, taken_epoch = ?4
         WHERE id = ?1 AND session = ?2 AND ack IS NULL
           AND (taken_by IS NULL OR taken_by <> ?3 OR taken_epoch <> ?4)",
        params![mail.as_uuid(), lease.session.as_str(), lease.owner.as_uuid(), to_sql_int(lease.epoch)],
    )?;
    Ok(taken > 0)
}

/// When the end of a message is kept with its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepEnd {
    /// Always.
    Always,
    /// If its sender has acknowledged the message. Without an end, such mail stays open.
    IfPromised,
}

fn answer(tx: &mut Tx<'_>, mail: MailId, ack: &Json, end: Option<&MailEnd>, keep: KeepEnd) -> Done<bool> {
    let (each, open) = (keep == KeepEnd::Always, keep == KeepEnd::IfPromised && end.is_none());
    let answered = tx.row(
        "UPDATE node_mail SET ack = ?2, body = NULL,
                reason = CASE WHEN run_id IS NOT NULL AND (?6 = 1 OR promised = 1) THEN ?3 END,
                evidence = CASE WHEN run_id IS NOT NULL AND (?6 = 1 OR promised = 1) THEN ?4 END,
                ended_at = CASE WHEN run_id IS NOT NULL AND (?6 = 1 OR promised = 1) THEN ?5 END
         WHERE id = ?1 AND ack IS NULL AND (?7 = 0 OR promised = 0)
         RETURNING session, at, run_id, reason IS NOT NULL AS ended",
        params![
            mail.as_uuid(),
            rows::to_json(ack)?,
            end.map(|MailEnd { end, .. }| end.reason.word()),
            end.map(|MailEnd { end, .. }| rows::to_json(&end.evidence)).transpose()?,
            end.map(|MailEnd { at, .. }| at.0),
            each,
            open
        ],
        |row| {
            let ended: bool = row.get("ended")?;
            let run: Option<RunId> = rows::optional_id(row, "run_id")?.filter(|_| ended);
            Ok((SessionKey::from(row.get::<_, String>("session")?), rows::date(row, "at")?, run))
        },
    )?;
    let Some((session, sent_at, run)) = answered else { return Ok(false) };
    if let (Some(MailEnd { end, at }), Some(run)) = (end, run) {
        let (status, reason, evidence) = (end.reason.status(), end.reason, end.evidence.clone());
        let event = |at, kind| NewEvent { at, session: Some(session.clone()), run_id: Some(run), kind };
        let ended = event(*at, EventKind::RunEnded { status, reason, evidence });
        append_events(tx, &[event(sent_at, EventKind::RunAccepted), ended])?;
    }
    Ok(true)
}

/// Why a message is not accepted: earlier mail is open, or its own mail is answered. `oldest`: the oldest open mail of the
/// session, see [`accept`](super::acceptance::accept). Locks the mail of the message, so that nobody else can answer it before the
/// commit.
pub(super) fn turn(
    tx: &mut Tx<'_>,
    lease: &Lease,
    place: &MailPlace,
    oldest: Option<MailId>,
) -> Done<Option<Acceptance>> {
    let own = place.own.as_ref().map(|(own, _)| *own);
    if oldest.is_some() && oldest != own {
        // Mail that this lane has begun, such as a command that takes long, is handled already.
        let waiting: Vec<MailId> = tx.rows(
            "SELECT id FROM node_mail
             WHERE session = ?1 AND ack IS NULL AND (taken_by IS NULL OR taken_by <> ?2 OR taken_epoch <> ?3)
             ORDER BY seq",
            params![lease.session.as_str(), lease.owner.as_uuid(), to_sql_int(lease.epoch)],
            |row| rows::id(row, "id"),
        )?;
        let earlier = waiting.into_iter().take_while(|mail| Some(*mail) != own);
        let earlier: Vec<MailId> = earlier.filter(|mail| !place.handled.contains(mail)).collect();
        if !earlier.is_empty() {
            return Ok(Some(Acceptance::Behind(earlier)));
        }
    }
    let Some(own) = own else { return Ok(None) };
    let open = tx.locked(
        "SELECT m.id FROM node_mail m WHERE m.id = ?1 AND m.ack IS NULL",
        "m",
        params![own.as_uuid()],
        |_| Ok(()),
    )?;
    Ok(open.is_none().then_some(Acceptance::Answered))
}

/// Answers the mail of an accepted message, see [`turn`].
pub(super) fn accepted(tx: &mut Tx<'_>, place: &MailPlace) -> Done<()> {
    let Some((own, ack)) = &place.own else { return Ok(()) };
    let sql = "UPDATE node_mail SET ack = ?2, body = NULL WHERE id = ?1";
    tx.post(sql, params![own.as_uuid(), rows::to_json(ack)?])
}

/// The columns that [`record`] reads.
macro_rules! record_columns {
    () => {
        "SELECT run_id, session, at, reason, evidence, ended_at FROM node_mail "
    };
}

/// The run of a message that no lane has accepted: it waits as mail, or has ended as mail. For readers.
pub(super) fn run(conn: &Connection, id: RunId) -> Done<Option<RunRecord>> {
    let sql =
        concat!(record_columns!(), "WHERE run_id = ?1 AND (ack IS NULL OR reason IS NOT NULL) ORDER BY seq LIMIT 1");
    tx::row(conn, sql, params![id.as_uuid()], record)
}

/// The runs of messages that wait as mail, as a page of the list of runs begins with them: newest first, at most `limit`.
pub(super) fn waiting(conn: &Connection, filter: &RunFilter, limit: u32) -> Done<Vec<RunRecord>> {
    let RunFilter { id, session, statuses, reasons, since, until, before, limit: _ } = filter;
    if !reasons.is_empty() || !(statuses.is_empty() || statuses.contains(&RunStatus::Queued)) {
        return Ok(Vec::new());
    }
    let after = match before {
        None => i64::MAX,
        Some(before) => match place_of(conn, *before)? {
            Some(seq) => seq,
            None => return Ok(Vec::new()), // the page before has shown them
        },
    };
    let (first, last) = id.as_ref().map(|prefix| prefix.range().into_inner()).unzip();
    let (since, until) = (since.map_or(i64::MIN, |date| date.0), until.map_or(i64::MAX, |date| date.0));
    let sql = concat!(
        record_columns!(),
        "WHERE ack IS NULL AND run_id IS NOT NULL AND seq < ?2 AND at >= ?3 AND at < ?4
           AND (?5 IS NULL OR session = ?5) AND (?6 IS NULL OR run_id BETWEEN ?6 AND ?7)
         ORDER BY seq DESC LIMIT ?1"
    );
    let session = session.as_ref().map(SessionKey::as_str);
    tx::rows(conn, sql, params![limit, after, since, until, session, first, last], record)
}

/// The place of a message that waits as mail; `None`: it does not.
fn place_of(conn: &Connection, run: RunId) -> Done<Option<i64>> {
    let sql = "SELECT seq FROM node_mail WHERE run_id = ?1 AND ack IS NULL ORDER BY seq LIMIT 1";
    tx::row(conn, sql, params![run.as_uuid()], |row| row.get("seq"))
}

/// Whether the run of a message waits as mail.
pub(super) fn is_waiting(conn: &Connection, run: RunId) -> Done<bool> {
    Ok(place_of(conn, run)?.is_some())
}

fn record(row: &Row<'_>) -> Done<RunRecord> {
    let id = rows::id(row, "run_id")?;
    let reason = row.get::<_, Option<String>>("reason")?.map(|_| rows::reason(row)).transpose()?;
    Ok(RunRecord {
        run_id: id,
        session: row.get::<_, String>("session")?.into(),
        status: reason.map_or(RunStatus::Queued, |reason| reason.status()),
        reason,
        evidence: rows::readable(row, id, "evidence")?.unwrap_or_default(),
        reply: None,
        usage: RunUsage::default(),
        cost_micro_usd: 0,
        attempt: 0,
        accepted_at: rows::date(row, "at")?,
        started_at: None,
        ended_at: rows::optional_date(row, "ended_at")?,
        waiting_for: None,
        files: Vec::new(),
    })
}

fn answers(conn: &Connection, mails: &[MailId]) -> Done<Vec<(MailId, Json)>> {
    let mut answered = Vec::new();
    for some in mails.chunks(IDS) {
        let places = vec!["?"; some.len()].join(", ");
        let sql = format!("SELECT id, ack FROM node_mail WHERE ack IS NOT NULL AND id IN ({places}) ORDER BY seq");
        let ids: Vec<Value> = some.iter().map(|mail| mail.as_uuid().into()).collect();
        let answer = |row: &Row<'_>| Ok((rows::id(row, "id")?, rows::from_json(row.text("ack")?)?));
        answered.extend(tx::rows(conn, &sql, ids, answer)?);
    }
    Ok(answered)
}

/// Deletes what was answered before a date. Mail that is sent again before that is recognised.
pub(super) fn forget_answered(tx: &mut Tx<'_>, before: UnixMillis) -> Done<()> {
    tx.post("DELETE FROM node_mail WHERE ack IS NOT NULL AND at < ?1", params![before.0])
}

/// Deletes secrets of mail from before a date, except of open mail. The secret of mail is deleted after its answer, but a
/// node can end between the two, and mail that its sender has given up keeps it.
pub(super) fn forget_secrets(tx: &mut Tx<'_>, before: UnixMillis) -> Done<()> {
    // The range of names is that of the index `secrets_of_mail`.
    let old = tx.rows(
        "SELECT session, name FROM secrets WHERE name >= 'node_mail:' AND name < 'node_mail;' AND at < ?1",
        params![before.0],
        |row| Ok((row.get::<_, String>("session")?, row.get::<_, String>("name")?)),
    )?;
    for (session, name) in old {
        let Some(mail) = NodeMail::of_secret(&name) else { continue };
        let sql = "SELECT 1 FROM node_mail WHERE id = ?1 AND ack IS NULL";
        if tx.row(sql, params![mail.as_uuid()], |_| Ok(()))?.is_none() {
            tx.post("DELETE FROM secrets WHERE session = ?1 AND name = ?2", params![session, name])?;
        }
    }
    Ok(())
}

/// Deletes the answered mail of a session. The order to delete the session may be mail that is open still.
pub(super) fn forget_session(tx: &mut Tx<'_>, session: &str) -> Done<()> {
    tx.post("DELETE FROM node_mail WHERE ack IS NOT NULL AND session = ?1", params![session])
}
