//! The outbox.

use belay_protocol::cluster::{LeasedWork, WorkLease};
use belay_protocol::{
    ApprovalId, ChannelId, EventKind, NewEvent, Outbound, OutboxId, OutboxRow, OutboxState, Question, ReplyRoute,
    RunId, StoreError, TextKind, UnixMillis,
};
use uuid::Uuid;

use super::connection::{Connection, Engine, Row};
use super::ledger::append_events;
use super::rows;
use super::tx::{self, Done, Failure, Tx, to_sql_int};
use super::uploads;
use crate::value::{Kind, Value, params};

pub(super) fn insert(tx: &mut Tx<'_>, message: &Outbound) -> Done<()> {
    tx.post(
        "INSERT INTO outbox (id, run_id, channel, conversation, reply_to, text, pieces_sent, question, preview, callback,
                             unchecked, file)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        params![
            message.id.as_uuid(),
            message.run_id.map(|run| run.as_uuid()),
            message.route.channel.as_str(),
            message.route.conversation,
            message.route.reply_to,
            message.text,
            message.pieces_sent,
            message.question.as_ref().map(rows::to_json).transpose()?,
            message.preview,
            message.callback,
            message.unchecked.map(TextKind::word),
            message.file.as_ref().map(rows::to_json).transpose()?
        ],
    )?;
    if let Some(file) = &message.file {
        uploads::refer_to(tx, message.id.as_uuid(), &file.digest)?;
    }
    tx.effects.outbox = true;
    Ok(())
}

/// Records the start or the end of an attempt. Only a waiting message begins to be sent: of two daemons that read it as
/// due, one sends it. The number of accepted parts never falls, because a daemon may have read it before another sent.
///
/// The end of an attempt is written only under the epoch with which it began: a node that lost the lease cannot settle an
/// attempt of the next holder.
pub(super) fn mark(
    tx: &mut Tx<'_>,
    id: OutboxId,
    state: &OutboxState,
    at: UnixMillis,
    lease: Option<&WorkLease>,
) -> Done<()> {
    let attempt = Attempt { id: id.as_uuid(), lease, engine: tx.engine() };
    let marked = match state {
        OutboxState::Sending => {
            let sql = format!(
                "UPDATE outbox SET state = 'sending', attempts = attempts + 1, send_epoch = ?2,
                     unsure_since = COALESCE(unsure_since, ?3)
                 WHERE id = ?1 AND state = 'waiting'{}",
                attempt.fence(4)
            );
            tx.exec(&sql, attempt.values([at.0.into()]))?
        }
        OutboxState::Waiting { until, pieces_sent, unsure_since } => {
            let sql = format!(
                "UPDATE outbox SET state = 'waiting', due_at = ?3, unsure_since = ?5,
                     pieces_sent = CASE WHEN ?4 > pieces_sent THEN ?4 ELSE pieces_sent END WHERE {}",
                attempt.open(6)
            );
            let unsure_since = unsure_since.map_or(Value::Null(Kind::Int), |since| since.0.into());
            tx.exec(&sql, attempt.values([until.0.into(), (*pieces_sent).into(), unsure_since]))?
        }
        OutboxState::Sent => end(tx, &attempt, "sent", at)?,
        OutboxState::Ambiguous => end(tx, &attempt, "ambiguous", at)?,
        OutboxState::Failed => end(tx, &attempt, "failed", at)?,
    };
    if marked > 0 {
        return Ok(());
    }
    let error = match lease {
        Some(lease) if !is_held(tx, lease)? => StoreError::WorkLost(lease.work.clone()),
        _ => StoreError::NotFound(format!("undelivered message {id}")),
    };
    Err(Failure::Refused(error))
}

/// The conditions of the statements that record an attempt. Their first two parameters are the message and the epoch.
struct Attempt<'a> {
    id: Uuid,
    lease: Option<&'a WorkLease>,
    engine: Engine,
}

impl Attempt<'_> {
    /// The condition that the lease of the message's channel is held, until the commit. `first`: the number of its first
    /// parameter.
    fn fence(&self, first: usize) -> String {
        if self.lease.is_none() {
            return String::new();
        }
        let lock = match self.engine {
            Engine::Sqlite => "", // one writer
            Engine::Postgres => " FOR SHARE",
        };
        let (name, owner, epoch) = (first, first + 1, first + 2);
        format!(
            " AND channel = ?{name} AND EXISTS (SELECT 1 FROM work_leases WHERE kind = 'channel' AND name = ?{name}
                                                AND owner = ?{owner} AND epoch = ?{epoch}{lock})"
        )
    }

    /// The condition that the attempt is in progress, or that none has begun.
    fn open(&self, first: usize) -> String {
        format!("id = ?1 AND (state = 'sending' AND send_epoch IS ?2 OR state = 'waiting'{})", self.fence(first))
    }

    /// The values of a statement: `own` are those between the first two and those of the fence.
    fn values<const N: usize>(&self, own: [Value; N]) -> Vec<Value> {
        let epoch = self.lease.map_or(Value::Null(Kind::Int), |lease| to_sql_int(lease.epoch).into());
        let mut values = Vec::with_capacity(2 + N + 3); // no second allocation
        values.extend([Value::Id(self.id), epoch]);
        values.extend(own);
        values.extend(self.lease.into_iter().flat_map(of_lease));
        values
    }
}

/// The name, the owner and the epoch of a channel's lease. The lease of a task has no name of a channel.
fn of_lease(lease: &WorkLease) -> [Value; 3] {
    let name = channel(lease).unwrap_or_default().to_owned();
    [Value::Text(name.into()), Value::Id(lease.owner.as_uuid()), to_sql_int(lease.epoch).into()]
}

fn channel(lease: &WorkLease) -> Option<&str> {
    match &lease.work {
        LeasedWork::Channel(channel) => Some(channel.as_str()),
        LeasedWork::Task(_) => None,
    }
}

fn is_held(tx: &mut Tx<'_>, lease: &WorkLease) -> Done<bool> {
    let sql = "SELECT epoch FROM work_leases WHERE kind = 'channel' AND name = ?1 AND owner = ?2 AND epoch = ?3";
    Ok(tx.row(sql, Vec::from(of_lease(lease)), |_| Ok(()))?.is_some())
}

/// Stores a text as hooks have changed it.
pub(super) fn put_checked(tx: &mut Tx<'_>, message: &Outbound) -> Done<()> {
    tx.post(
        "UPDATE outbox SET text = ?2, question = ?3, unchecked = NULL WHERE id = ?1 AND state IN ('waiting', 'sending')",
        params![
            message.id.as_uuid(),
            message.text,
            message.question.as_ref().map(rows::to_json).transpose()?
        ],
    )?;
    Ok(())
}

/// Ends a delivery, and tells its outcome. Returns the number of ended deliveries.
fn end(tx: &mut Tx<'_>, attempt: &Attempt<'_>, state: &'static str, at: UnixMillis) -> Done<usize> {
    let sql = format!("UPDATE OR FAIL outbox SET state = ?3 WHERE {} RETURNING run_id", attempt.open(4));
    let ended = tx.row(&sql, attempt.values([Value::Text(state.into())]), |row| rows::optional_id(row, "run_id"))?;
    let Some(run) = ended else { return Ok(0) };
    append_events(tx, &[delivered(run, state, at)])?;
    Ok(1)
}

/// The event of the outcome of a delivery.
fn delivered(run_id: Option<RunId>, outcome: &str, at: UnixMillis) -> NewEvent {
    NewEvent { at, session: None, run_id, kind: EventKind::Delivered { outcome: outcome.into() } }
}

/// With leases, the rows of one channel after another: an attempt of the same epoch is of this node, before its delivery
/// task was restarted.
pub(super) fn settle_interrupted(
    tx: &mut Tx<'_>,
    at: UnixMillis,
    leases: Option<&[WorkLease]>,
    settling: &[ChannelId],
) -> Done<Vec<OutboxRow>> {
    let settles = rows::to_json(&settling)?;
    // Uses the index of undelivered rows: a start does not read the rows that were delivered over months. One statement:
    // of two daemons that start together, one reports a row.
    let sql = |of: &str| {
        format!(
            "UPDATE outbox INDEXED BY outbox_open
             SET state = CASE WHEN callback IS NULL AND channel NOT IN (SELECT value FROM json_each(?1))
                              THEN 'ambiguous' ELSE 'waiting' END
             WHERE state = 'sending' AND state IN ('waiting', 'sending'){of} RETURNING seq, {}",
            rows::OUTBOX_COLUMNS
        )
    };
    let read = |row: &Row<'_>| Ok((row.get::<_, i64>("seq")?, rows::outbox_row(row)?));
    let mut found = Vec::new();
    match leases {
        None => found = tx.rows(&sql(""), params![settles], read)?,
        Some(leases) => {
            let sql = sql(" AND channel = ?2 AND COALESCE(send_epoch <= ?3, TRUE)");
            for lease in leases {
                let Some(channel) = channel(lease) else { continue };
                found.extend(tx.rows(&sql, params![settles, channel, to_sql_int(lease.epoch)], read)?);
            }
        }
    }
    found.retain(|(_, row)| row.message.callback.is_none() && !settling.contains(&row.message.route.channel));
    found.sort_unstable_by_key(|(seq, _)| *seq);
    let found: Vec<_> = found.into_iter().map(|(_, row)| row).collect();
    let events: Vec<_> = found.iter().map(|row| delivered(row.message.run_id, "ambiguous", at)).collect();
    append_events(tx, &events)?;
    Ok(found)
}

/// The oldest rows of the conversations that may be sent now. An oldest row that is being sent or is not due holds back
/// the later rows.
pub(super) fn due(
    conn: &Connection,
    now: UnixMillis,
    busy: &[ReplyRoute],
    leases: Option<&[WorkLease]>,
    (limit, callbacks): (u32, u32),
) -> Done<Vec<OutboxRow>> {
    let (of, mut values) = of_channels(leases)?;
    values.insert(0, now.0.into());
    let sql = format!(
        "SELECT {} FROM outbox WHERE seq IN (SELECT MIN(seq) FROM outbox WHERE state IN ('waiting', 'sending'){}
                                             GROUP BY channel, conversation)
           AND state = 'waiting' AND COALESCE(due_at <= ?1, TRUE)
         ORDER BY seq",
        rows::OUTBOX_COLUMNS,
        of(2)
    );
    let heads = tx::rows(conn, &sql, values, rows::outbox_row)?;
    let mut left = callbacks;
    let fits = |head: &OutboxRow| {
        let counts = u32::from(head.message.callback.is_some());
        counts <= left && {
            left -= counts;
            true
        }
    };
    Ok(heads.into_iter().filter(|head| !is_busy(head, busy)).filter(fits).take(limit as usize).collect())
}

fn is_busy(row: &OutboxRow, busy: &[ReplyRoute]) -> bool {
    let route = &row.message.route;
    busy.iter().any(|other| other.channel == route.channel && other.conversation == route.conversation)
}

/// The condition that a row's channel has a lease, from the number of its parameter, and its value. Without leases, there
/// are neither.
fn of_channels(leases: Option<&[WorkLease]>) -> Done<(impl Fn(usize) -> String, Vec<Value>)> {
    let channels =
        leases.map(|leases| rows::to_json(&leases.iter().filter_map(channel).collect::<Vec<_>>())).transpose()?;
    let has_leases = channels.is_some();
    let condition = move |number: usize| match has_leases {
        true => format!(" AND channel IN (SELECT value FROM json_each(?{number}))"),
        false => String::new(),
    };
    Ok((condition, channels.into_iter().map(|channels| Value::Text(channels.into())).collect()))
}

/// The question that the newest message of a conversation shows, of those that were sent since the first question of this
/// run.
pub(super) fn newest_question(conn: &Connection, route: &ReplyRoute, run: RunId) -> Done<Option<ApprovalId>> {
    let sql = "SELECT question FROM outbox
               WHERE seq >= (SELECT MIN(seq) FROM outbox WHERE run_id = ?3 AND question IS NOT NULL)
                 AND channel = ?1 AND conversation = ?2 AND attempts > 0
               ORDER BY seq DESC LIMIT 1";
    let question = |row: &Row<'_>| row.get::<_, Option<String>>("question");
    let question = tx::row(conn, sql, params![route.channel.as_str(), route.conversation, run.as_uuid()], question)?;
    let question: Option<Question> = question.flatten().map(|question| rows::from_json(&question)).transpose()?;
    Ok(question.map(|question| question.approval))
}

/// Rows that were never deferred have no date and are due already.
pub(super) fn next_due(conn: &Connection, leases: Option<&[WorkLease]>) -> Done<Option<UnixMillis>> {
    let (of, values) = of_channels(leases)?;
    let sql = format!(
        "SELECT MIN(due_at) AS due_at FROM outbox WHERE state = 'waiting' AND state IN ('waiting', 'sending'){}",
        of(1)
    );
    Ok(tx::row(conn, &sql, values, |row| rows::optional_date(row, "due_at"))?.flatten())
}
