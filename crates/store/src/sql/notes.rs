//! Notes, and the search for messages of their owners.

use std::collections::HashSet;

use belay_protocol::{
    Forgotten, Found, MemoryOwner, NewNote, Note, NoteFilter, NoteSelection, Remembered, SaidQuery, SearchQuery,
    UnixMillis,
};

use super::connection::{Connection, Row};
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use super::{index, rows};
use crate::limits::PAGE_MAX;
use crate::notes;
use crate::value::{named_params, params};

/// The maximum number of notes of a prompt. A note takes at least a line.
const PROMPT_NOTES_MAX: u32 = 100;

/// The messages of an owner that match.
pub(super) const SAID: &str = "SELECT t.session, m.thread, m.position, m.role, m.run_id, m.at, m.body
         FROM message_index JOIN messages m ON m.index_row = message_index.rowid JOIN threads t ON t.id = m.thread
            JOIN runs r ON r.id = m.run_id
         WHERE message_index MATCH :words AND m.visibility = 'visible' AND r.id <> :except AND r.relayed = 0
            AND CASE :kind WHEN 'person' THEN r.channel = :channel AND r.principal = :owner
                        AND COALESCE(r.provenance ->> 'audience', 'person') <> 'group'
                     ELSE t.session = :owner END
         ORDER BY message_index.rank, m.at DESC, m.position DESC LIMIT :limit";

/// The columns of a note.
pub(super) const COLUMNS: &str = "id, kind, channel, owner, key, at, untrusted, session, text";

/// An owner in its columns: kind, channel, owner.
pub(super) fn columns(owner: &MemoryOwner) -> (&'static str, &str, &str) {
    match owner {
        MemoryOwner::Person { channel, id } => ("person", channel.as_str(), id),
        MemoryOwner::Group { session } => ("group", "", session.as_str()),
    }
}

fn owner(row: &Row<'_>) -> Done<MemoryOwner> {
    let name: String = row.get("owner")?;
    Ok(match row.get_ref("kind")?.as_str() {
        Some("person") => MemoryOwner::Person { channel: row.get::<_, String>("channel")?.into(), id: name.into() },
        _ => MemoryOwner::Group { session: name.into() },
    })
}

pub(super) fn note(row: &Row<'_>) -> Done<Note> {
    Ok(Note {
        id: from_sql_int(row.get("id")?),
        owner: owner(row)?,
        key: row.get("key")?,
        text: row.get("text")?,
        at: rows::date(row, "at")?,
        session: row.get::<_, String>("session")?.into(),
        untrusted: row.get("untrusted")?,
    })
}

pub(super) fn remember(tx: &mut Tx<'_>, new: &NewNote) -> Done<Remembered> {
    notes::check_size(new.key.as_deref().unwrap_or_default(), &new.text)?;
    let (kind, channel, owner) = columns(&new.owner);
    // No index finds a second note without a key, or one too many.
    tx.exclusive(&format!("notes {kind} {channel} {owner}"))?;
    // A note without a key is the same if its text is, so that a repeated call makes no second one.
    let same = "SELECT id, untrusted FROM notes WHERE kind = ?1 AND channel = ?2 AND owner = ?3 AND key IS ?4
                   AND (?4 IS NOT NULL OR text = ?5)";
    let known = tx.locked(same, "notes", params![kind, channel, owner, new.key, new.text], |row| {
        Ok((row.get::<_, i64>("id")?, row.get::<_, bool>("untrusted")?))
    })?;
    if let Some((id, untrusted)) = known {
        if new.untrusted && !untrusted {
            let id = from_sql_int(id);
            return Ok(if new.key.is_some() { Remembered::Protected(id) } else { Remembered::Stored(id) });
        }
        tx.post(
            "UPDATE notes SET at = ?2, text = ?3, untrusted = ?4, session = ?5 WHERE id = ?1",
            params![id, new.at.0, new.text, new.untrusted, new.session.as_str()],
        )?;
        return Ok(Remembered::Stored(from_sql_int(id)));
    }
    let count = "SELECT COUNT(*) FROM notes WHERE kind = ?1 AND channel = ?2 AND owner = ?3";
    let count = tx.row(count, params![kind, channel, owner], |row| Ok(from_sql_int(row.get(0)?)))?;
    if count.unwrap_or(0) >= notes::NOTES_MAX as u64 {
        return Err(notes::too_many().into());
    }
    let id = tx.insert(
        "INSERT INTO notes (kind, channel, owner, key, at, untrusted, session, text)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![kind, channel, owner, new.key, new.at.0, new.untrusted, new.session.as_str(), new.text],
        "id",
    )?;
    Ok(Remembered::Stored(id))
}

pub(super) fn forget(tx: &mut Tx<'_>, owner: &MemoryOwner, id: u64, untrusted: bool) -> Done<Forgotten> {
    let (kind, channel, name) = columns(owner);
    let known = "SELECT untrusted FROM notes WHERE id = ?1 AND kind = ?2 AND channel = ?3 AND owner = ?4";
    let known = tx.locked(known, "notes", params![to_sql_int(id), kind, channel, name], |row| row.get::<_, bool>(0))?;
    match known {
        None => Ok(Forgotten::Missing),
        Some(false) if untrusted => Ok(Forgotten::Protected),
        Some(_) => {
            tx.post("DELETE FROM notes WHERE id = ?1", params![to_sql_int(id)])?;
            Ok(Forgotten::Deleted)
        }
    }
}

pub(super) fn edit(tx: &mut Tx<'_>, id: u64, text: &str, at: UnixMillis) -> Done<bool> {
    notes::check_size("", text)?;
    let sql = "UPDATE notes SET text = ?2, at = ?3, untrusted = 0 WHERE id = ?1";
    Ok(tx.exec(sql, params![to_sql_int(id), text, at.0])? > 0)
}

pub(super) fn delete(tx: &mut Tx<'_>, which: &NoteSelection) -> Done<u64> {
    let deleted = match which {
        NoteSelection::One(id) => tx.exec("DELETE FROM notes WHERE id = ?1", params![to_sql_int(*id)])?,
        NoteSelection::AllOf(owner) => {
            let (kind, channel, owner) = columns(owner);
            let sql = "DELETE FROM notes WHERE kind = ?1 AND channel = ?2 AND owner = ?3";
            tx.exec(sql, params![kind, channel, owner])?
        }
    };
    Ok(deleted as u64)
}

/// All owners of notes, for the store's start.
pub(super) fn owners(conn: &Connection) -> Done<HashSet<MemoryOwner>> {
    let sql = "SELECT DISTINCT kind, channel, owner FROM notes";
    Ok(tx::rows(conn, sql, [], owner)?.into_iter().collect())
}

pub(super) fn list(conn: &Connection, filter: &NoteFilter) -> Done<Vec<Note>> {
    let limit = if filter.limit == 0 { PAGE_MAX } else { filter.limit.min(PAGE_MAX) };
    let (kind, channel, owner) = filter
        .owner
        .as_ref()
        .map(columns)
        .map_or((None, None, None), |(kind, channel, owner)| (Some(kind), Some(channel), Some(owner)));
    tx::rows(
        conn,
        &format!(
            "SELECT {COLUMNS} FROM notes WHERE id > :after AND (:id IS NULL OR id = :id)
                AND (:kind IS NULL OR (kind = :kind AND channel = :channel AND owner = :owner)) ORDER BY id LIMIT :limit"
        ),
        named_params! {
            ":after": to_sql_int(filter.after), ":id": filter.id.map(to_sql_int), ":kind": kind, ":channel": channel,
            ":owner": owner, ":limit": limit,
        },
        note,
    )
}

/// The notes of a list that contain words of the filter. Reads page by page.
pub(super) fn search(conn: &Connection, filter: &NoteFilter) -> Done<Vec<Note>> {
    let limit = if filter.limit == 0 { PAGE_MAX } else { filter.limit.min(PAGE_MAX) };
    let mut page = NoteFilter { limit: 0, words: String::new(), ..filter.clone() };
    let mut found = Vec::new();
    loop {
        let notes = list(conn, &page)?;
        let Some(last) = notes.last() else { return Ok(found) };
        page.after = last.id;
        found.extend(notes);
        found = notes::rank(found, &filter.words, limit);
    }
}

pub(super) fn of_owner(conn: &Connection, owner: &MemoryOwner) -> Done<Vec<Note>> {
    let (kind, channel, owner) = columns(owner);
    let sql = format!("SELECT {COLUMNS} FROM notes WHERE kind = ?1 AND channel = ?2 AND owner = ?3");
    tx::rows(conn, &sql, params![kind, channel, owner], note)
}

/// The notes for a prompt, newest first.
pub(super) fn prompt_sql() -> String {
    format!(
        "SELECT {COLUMNS} FROM notes WHERE kind = ?1 AND channel = ?2 AND owner = ?3 AND untrusted = 0
            AND length(text) <= ?4 ORDER BY at DESC, id DESC LIMIT {PROMPT_NOTES_MAX}"
    )
}

/// The notes for a prompt. Longer texts than fit are not read.
pub(super) fn for_prompt(conn: &Connection, owner: &MemoryOwner, max_chars: u32) -> Done<Vec<Note>> {
    let (kind, channel, owner) = columns(owner);
    let sql = prompt_sql();
    let mut left = max_chars as usize;
    let fitting = tx::rows(conn, &sql, params![kind, channel, owner, max_chars], note)?.into_iter().filter(|note| {
        let chars = note.text.chars().count() + note.key.as_deref().unwrap_or_default().chars().count();
        let fits = chars <= left;
        left -= if fits { chars } else { 0 };
        fits
    });
    Ok(fitting.collect())
}

/// The messages that contain any word of a query.
pub(super) fn said(conn: &Connection, query: &SaidQuery) -> Done<Vec<Found>> {
    let terms = SearchQuery { words: query.words.clone(), ..SearchQuery::default() }.terms();
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    let (kind, channel, owner) = columns(&query.owner);
    tx::rows(
        conn,
        SAID,
        named_params! {
            ":words": index::matching_any(conn.engine(), &terms), ":except": query.except.as_uuid(), ":kind": kind,
            ":channel": channel, ":owner": owner, ":limit": query.limit.min(PAGE_MAX),
        },
        |row| index::found(row, &terms),
    )
}
