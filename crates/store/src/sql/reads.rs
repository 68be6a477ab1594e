//! The queries of readers over committed data.

use std::collections::BTreeSet;
use std::sync::Arc;

use belay_protocol::store::UnfinishedRun;
use belay_protocol::{
    CallId, ChannelId, ClientNote, Conversation, ConversationSummary, Event, EventQuery, HistoryEntry, IdPrefix,
    Message, Presence, ReplyRoute, RunFilter, RunId, RunOptions, RunRecord, SEND_FILE, SentFile, SessionFilter,
    SessionKey, SessionSummary, StoreError, UnixMillis,
};
use uuid::Uuid;

use super::approvals;
use super::connection::{Connection, Row};
use super::jobs;
use super::node_mail;
use super::rows::{self, RUN_BY_ID, RUN_COLUMNS, RUN_STATUS};
use super::sent_files;
use super::threads::SEEN;
use super::tx::{Done, from_sql_int, row, rows as all, to_sql_int};
use crate::excerpt::title;
use crate::limits::{PAGE_MAX, PRESENCE_RUNS, events_limit, id_before, runs_limit};
use crate::notices::behind_results;
use crate::value::{Value, params};

/// The runs from an id on, before the number of the parameter. There is no index by date, and an id begins with one.
///
/// A list by date takes the least number of all of them, not that of the first id: after a clock has jumped back, a run
/// with a later id has a lower number. `seq + 0` keeps PostgreSQL from looking for it along the numbers.
macro_rules! from_id {
    () => {
        "FROM runs INDEXED BY sqlite_autoindex_runs_1 WHERE id >= ?"
    };
}
pub(super) use from_id;

pub(super) fn run(conn: &Connection, id: RunId) -> Done<Option<RunRecord>> {
    match row(conn, RUN_BY_ID, params![id.as_uuid()], with_number)? {
        Some(record) => approvals::with_question(conn, record).map(Some),
        None => node_mail::run(conn, id),
    }
}

pub(super) fn runs(conn: &Connection, filter: &RunFilter) -> Done<Vec<RunRecord>> {
    let mut wanted: Vec<String> = Vec::new();
    let mut values: Vec<Value> = vec![i64::from(runs_limit(filter)).into()];
    if let Some(prefix) = &filter.id {
        values.extend(rows::span_of(prefix));
        wanted.push(format!("id BETWEEN ?{} AND ?{}", values.len() - 1, values.len()));
    }
    if let Some(session) = &filter.session {
        values.push(session.to_string().into());
        wanted.push(format!("session = ?{}", values.len()));
    }
    if !filter.statuses.is_empty() {
        let words = quoted(filter.statuses.iter().map(|status| status.word()));
        wanted.push(format!("{RUN_STATUS} IN ({words})"));
    }
    let reasons: BTreeSet<&str> = filter.reasons.iter().map(|reason| reason.word()).collect();
    if !reasons.is_empty() {
        wanted.push(format!("reason IN ({})", quoted(reasons.iter().copied())));
    }
    for (condition, date) in [("accepted_at >= ?", filter.since), ("accepted_at < ?", filter.until)] {
        if let Some(date) = date {
            values.push(date.0.into());
            wanted.push(format!("{condition}{}", values.len()));
        }
    }
    if let Some(since) = filter.since {
        let until = filter.until.map_or(i64::MAX, |until| until.0);
        values.extend([since.0.saturating_sub(ID_LEAD_MS), until.saturating_add(ID_LEAD_MS)].map(id_value));
        let (first, last) = (values.len() - 1, values.len());
        let within = format!("{}{first} AND id <= ?{last}", from_id!());
        wanted.push(format!("seq >= (SELECT MIN(seq + 0) {within}) AND seq <= (SELECT MAX(seq + 0) {within})"));
    }
    if let Some(before) = filter.before {
        // A message that waits as mail is before all runs.
        if !node_mail::is_waiting(conn, before)? {
            let seq = cursor(conn, "runs", before.as_uuid(), ("", Vec::new()), "run")?;
            values.push(seq.into());
            wanted.push(format!("seq < ?{}", values.len()));
        }
    }
    // Open runs are few. The runs of a session and those of a reason are in two indexes, each in the order of their
    // numbers. Each reason has a part of its own, so that SQLite merges the parts and sorts none of them.
    let open = !filter.statuses.is_empty() && filter.statuses.iter().all(|status| !status.is_end());
    let unindexed = || ("runs INDEXED BY runs_unindexed", "indexed = 0".to_owned());
    let parts = match (open, &filter.session) {
        (true, _) => vec![("runs INDEXED BY runs_unindexed", "indexed = 0 AND ended_at IS NULL".to_owned())],
        (false, Some(_)) => vec![unindexed(), ("runs INDEXED BY runs_of_session", "indexed = 1".to_owned())],
        (false, None) if reasons.is_empty() => vec![("runs", "TRUE".to_owned())],
        (false, None) => {
            let of_reason = |reason| ("runs INDEXED BY runs_by_reason", format!("indexed = 1 AND reason = '{reason}'"));
            std::iter::once(unindexed()).chain(reasons.iter().map(of_reason)).collect()
        }
    };
    let selects = parts.iter().map(|(table, part)| {
        let conditions: String = wanted.iter().map(|condition| format!(" AND {condition}")).collect();
        format!("SELECT seq, {RUN_COLUMNS} FROM {table} WHERE {part}{conditions}")
    });
    let sql = format!("{} ORDER BY seq DESC LIMIT ?1", selects.collect::<Vec<_>>().join(" UNION ALL "));
    // Mail is read first: a message that is accepted meanwhile is in both.
    let mut listed = node_mail::waiting(conn, filter, runs_limit(filter))?;
    for record in all(conn, &sql, values, with_number)? {
        if !listed.iter().any(|waiting| waiting.run_id == record.0.run_id) {
            listed.push(approvals::with_question(conn, record)?);
        }
    }
    listed.truncate(runs_limit(filter) as usize);
    Ok(listed)
}

/// A run and the number of the approval request that it waits for.
fn with_number(row: &Row<'_>) -> Done<(RunRecord, Option<i64>)> {
    Ok((rows::run_record(row)?, rows::question(row)?))
}

/// These words of our own as a list of SQL strings. They have no quote.
fn quoted<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.map(|word| format!("'{word}'")).collect::<Vec<_>>().join(", ")
}

/// The number of the row that a list of this table continues after. `own` is a further condition, from ` AND`, with its
/// values: a row that the list cannot have is refused as one that does not exist.
pub(super) fn cursor(
    conn: &Connection,
    table: &str,
    id: Uuid,
    (own, values): (&str, Vec<Value>),
    what: &str,
) -> Done<i64> {
    let sql = format!("SELECT seq FROM {table} WHERE id = ?{own}");
    let values = std::iter::once(Value::from(id)).chain(values).collect::<Vec<_>>();
    let found = row(conn, &sql, values, |row| row.get(0))?;
    found.ok_or_else(|| StoreError::InvalidCursor(format!("there is no {what} {id} any more")).into())
}

/// The longest time between the creation of a run's id and its commit that a filter by date allows for. A minute: ids
/// are made when a message arrives, and a commit takes milliseconds.
const ID_LEAD_MS: i64 = 60_000;

/// A bound of ids by date, see [`id_before`].
fn id_value(ms: i64) -> Value {
    id_before(UnixMillis(ms)).into()
}

pub(super) fn presence(conn: &Connection, place: Option<&ReplyRoute>, since: UnixMillis) -> Done<Presence> {
    let here = |row: &Row<'_>| -> Done<bool> {
        let Some(place) = place else { return Ok(true) };
        let route: Option<String> = row.get("reply_to")?;
        let route: Option<ReplyRoute> = route.map(|text| rows::from_json(&text)).transpose()?;
        Ok(route.is_some_and(|route| route.channel == place.channel && route.conversation == place.conversation))
    };
    let mut presence = Presence::default();
    conn.each(
        "SELECT reply_to FROM runs INDEXED BY runs_unindexed WHERE indexed = 0 AND ended_at IS NULL AND status <> 'paused' AND from_person = 1",
        [],
        |row| {
            presence.at_work = here(row)?;
            Ok(!presence.at_work)
        },
    )?;
    // From the newest run back to the date: there is no index by date, and there may be many older runs.
    let newest = "SELECT accepted_at, from_person, reply_to FROM runs ORDER BY seq DESC LIMIT ?1";
    conn.each(newest, params![PRESENCE_RUNS], |row| {
        if rows::date(row, "accepted_at")? < since {
            return Ok(false);
        }
        presence.spoken = row.get::<_, bool>("from_person")? && here(row)?;
        Ok(!presence.spoken)
    })?;
    Ok(presence)
}

/// The sessions with the columns that [`summary`] reads.
macro_rules! summaries {
    () => {
        "SELECT s.session, t.state, t.last_active_at, t.ephemeral, t.title, s.hidden,
                (SELECT body FROM messages m WHERE m.thread = t.id AND m.role = 'user' AND m.scope = 'thread'
                    AND m.visibility = 'visible' ORDER BY m.position LIMIT 1) AS first,
                (SELECT COUNT(*) FROM runs r WHERE r.indexed = 0 AND r.session = s.session AND r.ended_at IS NULL) AS open_runs
         FROM sessions s JOIN threads t ON t.id = s.thread "
    };
}

pub(super) fn sessions(conn: &Connection, filter: &SessionFilter) -> Done<Vec<SessionSummary>> {
    let since = filter.since.map_or(i64::MIN, |since| since.0);
    let after = filter.after.as_ref();
    let (date, session) = after.map_or((i64::MAX, ""), |after| (after.last_active_at.0, after.session.as_str()));
    // The rows are chosen first: the title and the number of runs are read for one page of them alone.
    all(
        conn,
        concat!(
            summaries!(),
            "WHERE s.session IN (SELECT s.session FROM sessions s JOIN threads t ON t.id = s.thread
                 WHERE (t.ephemeral = 0 OR ?2 = 1) AND t.last_active_at >= ?3 AND s.hidden = ?6
                   AND (t.last_active_at < ?4 OR (t.last_active_at = ?4 AND s.session > ?5))
                 ORDER BY t.last_active_at DESC, s.session LIMIT ?1)
             ORDER BY t.last_active_at DESC, s.session"
        ),
        params![filter.limit.min(PAGE_MAX), filter.ephemeral, since, date, session, filter.hidden],
        summary,
    )
}

pub(super) fn session(conn: &Connection, key: &SessionKey) -> Done<Option<SessionSummary>> {
    row(conn, concat!(summaries!(), "WHERE s.session = ?1"), params![key.as_str()], summary)
}

fn summary(row: &Row<'_>) -> Done<SessionSummary> {
    Ok(SessionSummary {
        session: row.get::<_, String>("session")?.into(),
        state: rows::thread_state(row)?,
        open_runs: row.get("open_runs")?,
        last_active_at: rows::date(row, "last_active_at")?,
        title: title_of(row)?,
        lifetime: rows::lifetime(row)?,
        hidden: row.get("hidden")?,
    })
}

pub(super) fn conversations(
    conn: &Connection,
    session: &SessionKey,
    id: Option<&IdPrefix>,
    limit: u32,
) -> Done<Vec<ConversationSummary>> {
    let (first, last) = id.map_or((Uuid::nil(), Uuid::max()), |id| id.range().into_inner());
    all(
        conn,
        "SELECT t.id, t.last_active_at, t.title, s.session IS NOT NULL AS active,
                (SELECT COUNT(*) FROM messages m WHERE m.thread = t.id AND m.role = 'user' AND m.scope = 'thread'
                    AND m.visibility = 'visible') AS messages,
                (SELECT body FROM messages m WHERE m.thread = t.id AND m.role = 'user' AND m.scope = 'thread'
                    AND m.visibility = 'visible' ORDER BY m.position LIMIT 1) AS first
         FROM threads t LEFT JOIN sessions s ON s.session = t.session AND s.thread = t.id
         WHERE t.session = ?1 AND t.id BETWEEN ?2 AND ?3
           AND EXISTS (SELECT 1 FROM messages m WHERE m.thread = t.id AND m.role = 'user' AND m.scope = 'thread'
                          AND m.visibility = 'visible')
         ORDER BY t.last_active_at DESC, t.id DESC LIMIT ?4",
        params![session.as_str(), first, last, limit.min(PAGE_MAX)],
        |row| {
            Ok(ConversationSummary {
                thread: rows::id(row, "id")?,
                active: row.get("active")?,
                last_active_at: rows::date(row, "last_active_at")?,
                messages: row.get("messages")?,
                title: title_of(row)?,
            })
        },
    )
}

/// The title of a conversation: its own, or else the first words of its person.
fn title_of(row: &Row<'_>) -> Done<Option<String>> {
    if let Some(own) = row.get("title")? {
        return Ok(Some(own));
    }
    Ok(rows::readable::<Message>(row, "a message", "first")?.map(|message| title(&message.for_people())))
}

/// Reads no text: `octet_length` takes the length from the head of the row.
pub(super) fn unfinished_runs(conn: &Connection) -> Done<Vec<UnfinishedRun>> {
    let mut runs = all(
        conn,
        "SELECT id, session, channel, principal, work, octet_length(text) + COALESCE(octet_length(history), 0)
                + COALESCE(octet_length(provenance), 0) AS bytes,
                status
         FROM runs INDEXED BY runs_unindexed
         WHERE indexed = 0 AND ended_at IS NULL
           AND NOT EXISTS (SELECT 1 FROM sessions s JOIN nodes n ON n.boot = s.owner
                           WHERE s.session = runs.session AND n.ended_at IS NULL)
         ORDER BY accepted_at, seq",
        [],
        |row| {
            Ok(UnfinishedRun {
                run_id: rows::id(row, "id")?,
                session: row.get::<_, String>("session")?.into(),
                channel: row.get::<_, String>("channel")?.into(),
                principal: row.get("principal")?,
                work: rows::work(row)?,
                source: None,
                bytes: rows::count(row, "bytes")?,
                status: rows::status(row)?,
            })
        },
    )?;
    for run in &mut runs {
        run.source = jobs::source_of(conn, run.work)?;
    }
    Ok(runs)
}

/// The messages that people see of the active conversation of session `?1`.
macro_rules! history_of {
    () => {
        "SELECT position, role, run_id, at, body FROM messages
         WHERE thread = (SELECT thread FROM sessions WHERE session = ?1) AND visibility = 'visible' AND scope = 'thread'
           AND (role = 'user' OR role = 'assistant' OR (role = 'system' AND COALESCE(CAST(body ->> 'untrusted' AS TEXT), '') IN ('1', 'true')))"
    };
}

pub(super) fn history(conn: &Connection, session: &SessionKey, after: u64, limit: u32) -> Done<Vec<HistoryEntry>> {
    history_lines(conn, concat!(history_of!(), " AND position > ?2 ORDER BY position LIMIT ?3"), session, after, limit)
}

pub(super) fn recent_history(conn: &Connection, session: &SessionKey, limit: u32) -> Done<Vec<HistoryEntry>> {
    let sql = concat!(history_of!(), " AND position < ?2 ORDER BY position DESC LIMIT ?3");
    let mut entries = history_lines(conn, sql, session, u64::MAX, limit)?;
    entries.reverse();
    Ok(entries)
}

/// The first `limit` lines of history among the rows of this query, from a position on. Rows without a line are passed
/// over, so the rows are read in batches.
fn history_lines(conn: &Connection, sql: &str, session: &SessionKey, from: u64, limit: u32) -> Done<Vec<HistoryEntry>> {
    let limit = limit.min(PAGE_MAX) as usize;
    let batch = 2 * limit + 8;
    let mut entries = Vec::new();
    let mut last = to_sql_int(from);
    while entries.len() < limit {
        let (mut read, after) = (0, last);
        conn.each(sql, params![session.as_str(), after, u32::try_from(batch).unwrap_or(u32::MAX)], |row| {
            read += 1;
            last = row.get("position")?;
            entries.extend(history_line(conn, row)?);
            Ok(entries.len() < limit)
        })?;
        if read < batch {
            break;
        }
    }
    Ok(entries)
}

/// A line of history. `None`: the model only called tools, or chose to be silent.
fn history_line(conn: &Connection, row: &Row<'_>) -> Done<Option<HistoryEntry>> {
    let message: Message = rows::from_json(row.text("body")?)?;
    let run_id = rows::optional_id(row, "run_id")?;
    let files = sent_with(conn, &message, run_id)?;
    if message.says_nothing() && files.is_empty() {
        return Ok(None);
    }
    Ok(Some(HistoryEntry {
        id: rows::count(row, "position")?,
        role: row.get("role")?,
        text: message.for_people().into_owned(),
        run_id,
        at: rows::date(row, "at")?,
        files,
    }))
}

/// The files that the calls of a message have sent.
fn sent_with(conn: &Connection, message: &Message, run: Option<RunId>) -> Done<Vec<SentFile>> {
    let is_sent_by = |call: &CallId| message.tool_calls().iter().any(|made| made.id == *call);
    let (true, Some(run)) = (message.tool_calls().iter().any(|call| call.name == SEND_FILE), run) else {
        return Ok(Vec::new());
    };
    let mut files = sent_files::of_run(conn, run)?;
    files.retain(|file| is_sent_by(&file.call_id));
    Ok(files)
}

pub(super) fn conversation(conn: &Connection, session: &SessionKey) -> Done<Option<Conversation>> {
    let head = row(
        conn,
        "SELECT t.id, t.summary, t.summary_upto, t.skills IS NOT NULL AS has_skills, s.options,
                newest.channel, newest.principal
         FROM sessions s JOIN threads t ON t.id = s.thread
            LEFT JOIN runs newest ON newest.seq =
                (SELECT seq FROM
                    (SELECT r.seq FROM runs r WHERE r.indexed = 0 AND r.session = s.session
                     UNION ALL SELECT r.seq FROM runs r WHERE r.indexed = 1 AND r.session = s.session
                     ORDER BY seq DESC LIMIT 1))
         WHERE s.session = ?1",
        params![session.as_str()],
        |row| {
            let options = row.get::<_, Option<String>>("options")?;
            let conversation = Conversation {
                summary: row.get("summary")?,
                messages: Vec::new(),
                options: options.map(|text| rows::from_json(&text)).transpose()?.unwrap_or_default(),
                channel: row.get::<_, Option<String>>("channel")?.map(ChannelId::new),
                principal: row.get::<_, Option<String>>("principal")?.map(Into::into),
                has_skills: row.get("has_skills")?,
            };
            Ok((row.get::<_, Uuid>("id")?, row.get::<_, i64>("summary_upto")?, conversation))
        },
    )?;
    let Some((thread, upto, conversation)) = head else { return Ok(None) };
    let messages = all(conn, SEEN, params![thread, upto, session.as_str()], rows::message)?;
    let messages = behind_results(messages).into_iter().map(|(_, message)| message).collect();
    Ok(Some(Conversation { messages, ..conversation }))
}

/// Reads all rows of the thread: they are few, and nothing waits for this query.
pub(super) fn run_messages(conn: &Connection, run: RunId) -> Done<Vec<Arc<Message>>> {
    all(
        conn,
        "SELECT body FROM messages
         WHERE thread = (SELECT thread FROM runs WHERE id = ?1) AND run_id = ?1 AND visibility != 'cleared'
         ORDER BY position",
        params![run.as_uuid()],
        |row| Ok(Arc::new(rows::from_json(&row.get::<_, String>("body")?)?)),
    )
}

pub(super) fn client_notes(conn: &Connection, run: RunId) -> Done<Vec<ClientNote>> {
    let options = row(conn, "SELECT options FROM runs WHERE id = ?1", params![run.as_uuid()], |row| {
        rows::readable::<RunOptions>(row, run, "options")
    })?;
    Ok(options.flatten().map(|options| options.notes).unwrap_or_default())
}

pub(super) fn events(conn: &Connection, query: &EventQuery) -> Done<Vec<Event>> {
    let (after, limit) = (to_sql_int(query.after.0), events_limit(query));
    match (query.run, &query.session) {
        (None, None) => all(
            conn,
            "SELECT seq, at, session, run_id, kind FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2",
            params![after, limit],
            rows::event,
        ),
        // Uses the primary key, which is the order: a reader continues from its cursor, behind which few rows follow.
        (None, Some(session)) => all(
            conn,
            "SELECT seq, at, session, run_id, kind FROM events NOT INDEXED WHERE session = ?3 AND seq > ?1 ORDER BY seq LIMIT ?2",
            params![after, limit, session.as_str()],
            rows::event,
        ),
        (Some(run), session) => all(
            conn,
            "SELECT seq, at, session, run_id, kind FROM events
             WHERE indexed = 1 AND run_id = ?3 AND seq > ?1 AND (?4 IS NULL OR session = ?4)
             UNION ALL
             SELECT seq, at, session, run_id, kind FROM events NOT INDEXED
             WHERE run_id = ?3 AND seq > MAX(?1, (SELECT event FROM indexed)) AND (?4 IS NULL OR session = ?4)
             ORDER BY seq LIMIT ?2",
            params![after, limit, run.as_uuid(), session.as_ref().map(|session| session.as_str())],
            rows::event,
        ),
    }
}

pub(super) fn last_event(conn: &Connection) -> Done<u64> {
    let last = row(conn, "SELECT COALESCE(MAX(seq), 0) FROM events", [], |row| Ok(from_sql_int(row.get(0)?)))?;
    Ok(last.unwrap_or(0))
}

pub(super) fn sealed(conn: &Connection, session: &SessionKey, name: &str) -> Done<Option<Vec<u8>>> {
    let sql = "SELECT sealed FROM secrets WHERE session = ?1 AND name = ?2";
    row(conn, sql, params![session.as_str(), name], |row| row.get(0))
}
