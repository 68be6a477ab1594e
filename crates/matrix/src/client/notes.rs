//! What the operator reads: lines of the log that are written once, and why no messages arrive.

use std::sync::PoisonError;

use super::room::Rooms;

/// Lines of the log that are written once. Beyond that, they are written again.
const NOTED_MAX: usize = 1024;

impl Rooms {
    /// Writes a line of the log once.
    pub(crate) fn note_once(&self, about: &str, write: impl FnOnce()) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if noted.len() >= NOTED_MAX {
            noted.clear();
        }
        if noted.insert(about.to_owned()) {
            drop(noted);
            write();
        }
    }

    /// Notes why no messages arrive; `None`: they do.
    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}
