//! Notes for the operator: lines of the log that are written once, and why no messages arrive.

use std::sync::PoisonError;

use tracing::info;

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

    /// Whether a user may talk to Belay. A stranger is noted.
    pub(crate) fn admits(&self, user: &str) -> bool {
        let is_admitted = self.people.role(user).is_some();
        if !is_admitted {
            self.note_once(user, || info!(user, "a message of somebody not in channels.matrix.allow was dropped"));
        }
        is_admitted
    }

    /// Notes why no messages arrive; `None`: they do.
    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }
}
