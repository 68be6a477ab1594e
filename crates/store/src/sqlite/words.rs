//! The errors of SQLite in words for operators.

use rusqlite::ErrorCode;

use crate::error::{RESTORE, is_damage};

/// What has happened, and what to do.
pub(crate) fn explain(error: &rusqlite::Error) -> String {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => format!("the disk is full ({error}). Free space on it; nothing else is needed"),
        // A limit of file sizes and a quota are no full disk for SQLite.
        Some(ErrorCode::SystemIoFailure) if is_write(error) => format!(
            "the disk cannot be written ({error}): it is full, a quota or a limit of file sizes is reached, or it fails"
        ),
        Some(_) if is_damage(error) => format!("the database is damaged ({error}). {RESTORE}"),
        _ => error.to_string(),
    }
}

/// Whether an input/output error is of a write. Source: SQLite, "Result and Error Codes", the extended codes of
/// `SQLITE_IOERR`.
fn is_write(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_FSYNC, SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_TRUNCATE, SQLITE_IOERR_WRITE};
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_WRITE | SQLITE_IOERR_FSYNC | SQLITE_IOERR_TRUNCATE | SQLITE_IOERR_SHMSIZE))
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn a_full_disk_and_a_damage_are_named_with_the_next_step() {
        for (code, words) in [
            (ffi::SQLITE_FULL, "the disk is full"),
            (ffi::SQLITE_IOERR_WRITE, "a limit of file sizes"),
            (ffi::SQLITE_IOERR_SHMSIZE, "it is full"),
            (ffi::SQLITE_CORRUPT, "belay backup restore FILE --force"),
            (ffi::SQLITE_CORRUPT_INDEX, "the database is damaged"),
            (ffi::SQLITE_NOTADB, "belay backup restore FILE --force"),
            (ffi::SQLITE_IOERR_READ, "disk I/O error"),
            (ffi::SQLITE_BUSY, "database is locked"),
        ] {
            let said = explain(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
            assert!(said.contains(words), "{code}: {said}");
        }
    }
}
