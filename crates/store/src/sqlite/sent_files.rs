//! The files that runs have sent. The event [`EventKind::FileSent`] says that a run has sent a file; the same write adds
//! the file to the run.

use belay_protocol::{EventKind, NewEvent, RunId, SentFile};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, params};

use super::rows;
use super::tx::{self, Done, Tx};
use super::uploads;

/// Adds the sent files among these events to their run.
pub(super) fn keep(tx: &mut Tx<'_>, run: RunId, events: &[NewEvent]) -> Done<()> {
    let sent = events.iter().filter_map(|event| match &event.kind {
        EventKind::FileSent { file } => Some(file),
        _ => None,
    });
    for file in sent {
        tx.exec(
            "UPDATE runs SET files = json_insert(COALESCE(files, '[]'), '$[#]', json(?2)) WHERE id = ?1",
            params![run.as_uuid(), rows::to_json(file)?],
        )?;
        uploads::refer_to(tx, run.as_uuid(), &file.sha256)?;
    }
    Ok(())
}

/// The files in the column `files` of a run.
pub(super) fn of_row(row: &Row<'_>) -> Done<Vec<SentFile>> {
    let column = row.get_ref("files")?;
    if column.data_type() == Type::Null {
        return Ok(Vec::new());
    }
    rows::from_json(column.as_str().map_err(rusqlite::Error::from)?)
}

/// The files of a run.
pub(super) fn of_run(conn: &Connection, run: RunId) -> Done<Vec<SentFile>> {
    Ok(tx::row(conn, "SELECT files FROM runs WHERE id = ?1", [run.as_uuid()], of_row)?.unwrap_or_default())
}
