//! The outbox.

use belay_protocol::{Outbound, OutboxId, OutboxRow, OutboxState, ReplyRoute, StoreError, TextKind, UnixMillis};
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::rows;
use super::tx::{self, Done, Failure, Tx};
use super::uploads;

pub(super) fn insert(tx: &mut Tx<'_>, message: &Outbound) -> Done<()> {
    tx.exec(
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

pub(super) fn mark(tx: &mut Tx<'_>, id: OutboxId, state: &OutboxState) -> Done<()> {
    let key = id.as_uuid();
    let marked = match state {
        OutboxState::Sending => tx.exec(
            "UPDATE outbox SET state = 'sending', attempts = attempts + 1
             WHERE id = ?1 AND state IN ('waiting', 'sending')",
            params![key],
        )?,
        OutboxState::Waiting { until, pieces_sent } => tx.exec(
            "UPDATE outbox SET state = 'waiting', due_at = ?2, pieces_sent = ?3
             WHERE id = ?1 AND state IN ('waiting', 'sending')",
            params![key, until.0, pieces_sent],
        )?,
        OutboxState::Sent => end(tx, key, "sent")?,
        OutboxState::Ambiguous => end(tx, key, "ambiguous")?,
        OutboxState::Failed => end(tx, key, "failed")?,
    };
    if marked == 0 {
        return Err(Failure::Refused(StoreError::NotFound(format!("undelivered message {id}"))));
    }
    Ok(())
}

/// Stores a text as hooks have changed it.
pub(super) fn put_checked(tx: &mut Tx<'_>, message: &Outbound) -> Done<()> {
    tx.exec(
        "UPDATE outbox SET text = ?2, question = ?3, unchecked = NULL WHERE id = ?1 AND state IN ('waiting', 'sending')",
        params![
            message.id.as_uuid(),
            message.text,
            message.question.as_ref().map(rows::to_json).transpose()?
        ],
    )?;
    Ok(())
}

fn end(tx: &mut Tx<'_>, id: Uuid, state: &str) -> Done<usize> {
    tx.exec("UPDATE outbox SET state = ?2 WHERE id = ?1 AND state IN ('waiting', 'sending')", params![id, state])
}

pub(super) fn settle_interrupted(tx: &mut Tx<'_>) -> Done<Vec<OutboxRow>> {
    // Uses the index of undelivered rows: a start does not read the rows that were delivered over months.
    let sql = format!(
        "SELECT {} FROM outbox INDEXED BY outbox_open
         WHERE state = 'sending' AND state IN ('waiting', 'sending') ORDER BY seq",
        rows::OUTBOX_COLUMNS
    );
    let mut found = tx.rows(&sql, [], rows::outbox_row)?;
    if !found.is_empty() {
        tx.exec(
            "UPDATE outbox INDEXED BY outbox_open
             SET state = CASE WHEN callback IS NULL THEN 'ambiguous' ELSE 'waiting' END
             WHERE state = 'sending' AND state IN ('waiting', 'sending')",
            [],
        )?;
    }
    found.retain(|row| row.message.callback.is_none());
    Ok(found)
}

/// The oldest rows of the conversations that may be sent now. An oldest row that is being sent or is not due holds back
/// the later rows.
pub(super) fn due(
    conn: &Connection,
    now: UnixMillis,
    busy: &[ReplyRoute],
    limit: u32,
    callbacks: u32,
) -> Done<Vec<OutboxRow>> {
    let sql = format!(
        "SELECT {} FROM outbox WHERE seq IN (SELECT MIN(seq) FROM outbox WHERE state IN ('waiting', 'sending')
                                             GROUP BY channel, conversation)
           AND state = 'waiting' AND COALESCE(due_at <= ?1, TRUE)
         ORDER BY seq",
        rows::OUTBOX_COLUMNS
    );
    let heads = tx::rows(conn, &sql, params![now.0], rows::outbox_row)?;
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

/// Rows that were never deferred have no date and are due already.
pub(super) fn next_due(conn: &Connection) -> Done<Option<UnixMillis>> {
    let next = tx::row(
        conn,
        "SELECT MIN(due_at) AS due_at FROM outbox WHERE state = 'waiting' AND state IN ('waiting', 'sending')",
        [],
        |row| rows::optional_date(row, "due_at"),
    )?;
    Ok(next.flatten())
}
