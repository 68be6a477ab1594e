//! The size of the terminal.

use std::io;

use rustix::termios::tcgetwinsize;

/// Columns and rows of the terminal of standard output. 80 × 24 if it does not know.
pub(super) fn size() -> (usize, usize) {
    match tcgetwinsize(io::stdout()).map(|size| (size.ws_col, size.ws_row)) {
        Ok((columns @ 1.., rows @ 1..)) => (columns.into(), rows.into()),
        _ => (80, 24),
    }
}
