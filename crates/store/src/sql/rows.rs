//! Conversion between the words of protocol and columns.

use std::sync::Arc;

use belay_protocol::run::RunUsage;
use belay_protocol::{
    Asker, Authority, ChannelId, Event, IdPrefix, IdempotencyKey, Message, MessageBody, MessageScope, Outbound,
    OutboxRow, Purpose, ReplyRoute, RunRecord, RunStatus, Seq, SessionLifetime, StopReason, TextKind, ThreadState,
    UnixMillis, Work,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use super::connection::Row;
use super::sent_files;
use super::tx::{Done, Failure, from_sql_int};
use crate::value::Value;

/// The condition of an id with a prefix, with the values of [`span_of`].
pub(super) const BEGINS: &str = "(id BETWEEN ? AND ?)";

/// The first and the last id with this prefix.
pub(super) fn span_of(prefix: &IdPrefix) -> [Value; 2] {
    let (first, last) = prefix.range().into_inner();
    [first.into(), last.into()]
}

pub(super) fn to_json<T: Serialize>(value: &T) -> Done<String> {
    serde_json::to_string(value).map_err(not_json)
}

/// A value that has no JSON.
pub(super) fn not_json(error: serde_json::Error) -> Failure {
    Failure::Broken(format!("cannot be serialised: {error}"))
}

pub(super) fn from_json<T: DeserializeOwned>(text: &str) -> Done<T> {
    // The text of the error could quote stored data; its column cannot.
    serde_json::from_str(text).map_err(|error| Failure::damaged(&format!("JSON at column {}", error.column())))
}

/// Reads a JSON column of a run or a session `of`. A damaged value is logged and counts as absent: an error would keep
/// the whole lane from opening, at every start.
pub(super) fn readable<T: DeserializeOwned>(
    row: &Row<'_>,
    of: impl std::fmt::Display,
    column: &'static str,
) -> Done<Option<T>> {
    let Some(text) = row.get::<_, Option<String>>(column)? else { return Ok(None) };
    match from_json(&text) {
        Ok(value) => Ok(Some(value)),
        Err(failure) => {
            let error = failure.into_store_error();
            tracing::error!(%of, column, %error, "a stored value is damaged and is ignored");
            Ok(None)
        }
    }
}

/// The id in a column.
pub(super) fn id<T: From<Uuid>>(row: &Row<'_>, column: &str) -> Done<T> {
    row.get::<_, Uuid>(column).map(T::from).map_err(|_| Failure::damaged(column))
}

/// The id in a column, if there is one.
pub(super) fn optional_id<T: From<Uuid>>(row: &Row<'_>, column: &str) -> Done<Option<T>> {
    let id: Option<Uuid> = row.get(column).map_err(|_| Failure::damaged(column))?;
    Ok(id.map(T::from))
}

pub(super) fn count(row: &Row<'_>, column: &str) -> Done<u64> {
    Ok(from_sql_int(row.get(column)?))
}

pub(super) fn date(row: &Row<'_>, column: &str) -> Done<UnixMillis> {
    Ok(UnixMillis(row.get(column)?))
}

pub(super) fn optional_date(row: &Row<'_>, column: &str) -> Done<Option<UnixMillis>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(UnixMillis))
}

pub(super) fn key(row: &Row<'_>) -> Done<IdempotencyKey> {
    Ok(IdempotencyKey {
        channel: ChannelId::new(row.get::<_, String>("key_channel")?),
        account: row.get::<_, String>("key_account")?.into(),
        message_id: row.get::<_, String>("key_message")?.into(),
    })
}

pub(super) fn thread_state_word(state: ThreadState) -> &'static str {
    match state {
        ThreadState::Idle => "idle",
        ThreadState::Processing => "processing",
        ThreadState::AwaitingApproval => "awaiting_approval",
        ThreadState::Interrupted => "interrupted",
        ThreadState::Completed => "completed",
    }
}

pub(super) fn lifetime(row: &Row<'_>) -> Done<SessionLifetime> {
    Ok(if row.get("ephemeral")? { SessionLifetime::Ephemeral } else { SessionLifetime::Lasting })
}

pub(super) fn thread_state(row: &Row<'_>) -> Done<ThreadState> {
    use ThreadState::{AwaitingApproval, Completed, Idle, Interrupted, Processing};
    let word: String = row.get("state")?;
    [Idle, Processing, AwaitingApproval, Interrupted, Completed]
        .into_iter()
        .find(|state| thread_state_word(*state) == word)
        .ok_or_else(|| Failure::damaged("state of a thread"))
}

pub(super) fn status(row: &Row<'_>) -> Done<RunStatus> {
    let word: String = row.get("status")?;
    RunStatus::from_word(&word).ok_or_else(|| Failure::damaged("status of a run"))
}

/// The kind of work of a run.
/// The reason of an ended run.
pub(super) fn reason(row: &Row<'_>) -> Done<StopReason> {
    StopReason::from_word(&row.get::<_, String>("reason")?).ok_or_else(|| Failure::damaged("reason of a run"))
}

pub(super) fn work(row: &Row<'_>) -> Done<Work> {
    from_json(&row.get::<_, String>("work")?)
}

pub(super) fn purpose(row: &Row<'_>) -> Done<Purpose> {
    let word: String = row.get("purpose")?;
    Purpose::from_word(&word).ok_or_else(|| Failure::damaged("purpose of money"))
}

pub(super) fn authority_word(authority: Authority) -> &'static str {
    match authority {
        Authority::Conversation => "conversation",
        Authority::Token => "token",
        Authority::Operator => "operator",
    }
}

/// The asker of a run, in the columns that runs and approval requests share.
pub(super) fn asker(row: &Row<'_>) -> Done<Asker> {
    Ok(Asker {
        principal: row.get("principal")?,
        authority: authority(row, "authority")?,
        relayed: row.get("relayed")?,
    })
}

/// The authority in this column.
pub(super) fn authority(row: &Row<'_>, column: &str) -> Done<Authority> {
    let word: String = row.get(column)?;
    [Authority::Conversation, Authority::Token, Authority::Operator]
        .into_iter()
        .find(|authority| authority_word(*authority) == word)
        .ok_or_else(|| Failure::damaged("authority of a principal"))
}

pub(super) fn usage(row: &Row<'_>) -> Done<RunUsage> {
    Ok(RunUsage {
        input: count(row, "input_tokens")?,
        output: count(row, "output_tokens")?,
        model_calls: row.get("model_calls")?,
        tool_calls: row.get("tool_calls")?,
        estimated_calls: row.get("estimated_calls")?,
    })
}

/// The number of the approval request that a row of `runs` waits for; `NULL` if it waits for none.
macro_rules! question {
    () => {
        "(SELECT MAX(approvals.seq) FROM approvals WHERE approvals.run_id = runs.id AND approvals.state = 'waiting')"
    };
}

macro_rules! status {
    () => {
        concat!("CASE WHEN status = 'paused' AND ", question!(), " IS NULL THEN 'queued' ELSE status END")
    };
}

/// The status of a row of `runs` for readers. A paused run whose approval request was answered is queued until its lane
/// continues it.
pub(super) const RUN_STATUS: &str = status!();

macro_rules! columns {
    () => {
        concat!(
            "id, session, reason, evidence, reply, input_tokens, output_tokens, model_calls, tool_calls, estimated_calls, \
             cost_micro_usd, attempt, accepted_at, started_at, ended_at, files, ",
            status!(),
            " AS status, CASE WHEN status = 'paused' THEN ",
            question!(),
            " END AS question"
        )
    };
}

/// The columns that [`run_record`] and [`question()`] read. One statement reads the status and the approval request, so
/// that they belong together.
pub(super) const RUN_COLUMNS: &str = columns!();

/// The query of a run by its id. Each message reads its run, so the text is made once.
pub(super) const RUN_BY_ID: &str = concat!("SELECT ", columns!(), " FROM runs WHERE id = ?1");

/// The number of the approval request that a run waits for.
pub(super) fn question(row: &Row<'_>) -> Done<Option<i64>> {
    row.get("question")
}

/// A run without its approval request, which is in another table.
pub(super) fn run_record(row: &Row<'_>) -> Done<RunRecord> {
    let reason: Option<String> = row.get("reason")?;
    let evidence: Option<String> = row.get("evidence")?;
    Ok(RunRecord {
        run_id: id(row, "id")?,
        session: row.get::<_, String>("session")?.into(),
        status: status(row)?,
        reason: reason
            .map(|word| StopReason::from_word(&word).ok_or_else(|| Failure::damaged("reason of a run")))
            .transpose()?,
        evidence: evidence.map(|text| from_json(&text)).transpose()?.unwrap_or_default(),
        reply: row.get("reply")?,
        usage: usage(row)?,
        cost_micro_usd: count(row, "cost_micro_usd")?,
        attempt: row.get("attempt")?,
        accepted_at: date(row, "accepted_at")?,
        started_at: optional_date(row, "started_at")?,
        ended_at: optional_date(row, "ended_at")?,
        waiting_for: None,
        files: sent_files::of_row(row)?,
    })
}

/// A message and its position.
pub(super) fn message(row: &Row<'_>) -> Done<(u64, Arc<Message>)> {
    let body = row.text("body")?;
    Ok((count(row, "position")?, Arc::new(from_json(body)?)))
}

pub(super) fn role_word(message: &Message) -> &'static str {
    match message.body {
        // In the history for people, both are messages of the system.
        MessageBody::System { .. } | MessageBody::Data { .. } => "system",
        MessageBody::User { .. } => "user",
        MessageBody::Assistant { .. } => "assistant",
        MessageBody::Tool(_) => "tool",
    }
}

pub(super) fn scope_word(scope: MessageScope) -> &'static str {
    match scope {
        MessageScope::Thread => "thread",
        MessageScope::Run => "run",
    }
}

pub(super) fn event(row: &Row<'_>) -> Done<Event> {
    Ok(Event {
        seq: Seq(count(row, "seq")?),
        at: date(row, "at")?,
        session: row.get::<_, Option<String>>("session")?.map(Into::into),
        run_id: optional_id(row, "run_id")?,
        kind: from_json(row.text("kind")?)?,
    })
}

/// The columns that [`outbox_row`] reads.
pub(super) const OUTBOX_COLUMNS: &str = "id, run_id, channel, conversation, reply_to, text, pieces_sent, attempts, \
     unsure_since, question, preview, callback, unchecked, file";

pub(super) fn outbox_row(row: &Row<'_>) -> Done<OutboxRow> {
    let route = ReplyRoute {
        channel: row.get::<_, String>("channel")?.into(),
        conversation: row.get::<_, Arc<str>>("conversation")?,
        reply_to: row.get::<_, Option<Arc<str>>>("reply_to")?,
    };
    let question: Option<String> = row.get("question")?;
    let file: Option<String> = row.get("file")?;
    let message = Outbound {
        id: id(row, "id")?,
        run_id: optional_id(row, "run_id")?,
        route,
        text: row.get("text")?,
        pieces_sent: row.get("pieces_sent")?,
        question: question.map(|text| from_json(&text)).transpose()?,
        preview: row.get("preview")?,
        callback: row.get("callback")?,
        unchecked: row
            .get::<_, Option<String>>("unchecked")?
            .map(|word| TextKind::from_word(&word).ok_or_else(|| Failure::damaged("kind of a text")))
            .transpose()?,
        file: file.map(|text| from_json(&text)).transpose()?,
    };
    Ok(OutboxRow { message, attempts: row.get("attempts")?, unsure_since: optional_date(row, "unsure_since")? })
}
