//! The files that runs have sent. The event [`EventKind::FileSent`] says that a run has sent a file; the same write adds
//! the file to the run.

use belay_protocol::{EventKind, NewEvent, RunId, SentFile};

use super::connection::{Connection, Row};
use super::rows;
use super::tx::{self, Done, Tx};
use super::uploads;
use crate::value::{ValueRef, params};

/// Adds the sent files among these events to their run.
pub(super) fn keep(tx: &mut Tx<'_>, run: RunId, events: &[NewEvent]) -> Done<()> {
    let sent = events.iter().filter_map(|event| match &event.kind {
        EventKind::FileSent { file } => Some(file),
        _ => None,
    });
    for file in sent {
        tx.post(
            "UPDATE runs SET files = json_insert(COALESCE(files, '[]'), '$[#]', json(?2)) WHERE id = ?1",
            params![run.as_uuid(), rows::to_json(file)?],
        )?;
        uploads::refer_to(tx, run.as_uuid(), &file.sha256)?;
    }
    Ok(())
}

/// The files in the column `files` of a run.
pub(super) fn of_row(row: &Row<'_>) -> Done<Vec<SentFile>> {
    match row.get_ref("files")? {
        ValueRef::Null => Ok(Vec::new()),
        _ => rows::from_json(row.text("files")?),
    }
}

/// The files of a run.
pub(super) fn of_run(conn: &Connection, run: RunId) -> Done<Vec<SentFile>> {
    Ok(tx::row(conn, "SELECT files FROM runs WHERE id = ?1", params![run.as_uuid()], of_row)?.unwrap_or_default())
}
