//! The files that a run has sent, for its record.

use std::sync::{Mutex, PoisonError};

use belay_protocol::SentFile;

/// The files that a run has sent. Its lock is held for an append or a copy, never across an await.
#[derive(Debug, Default)]
pub struct SentFiles(Mutex<Vec<SentFile>>);

impl SentFiles {
    /// Adds a file that a call sends now.
    pub fn add(&self, file: SentFile) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(file);
    }

    /// Replaces the files by those that the store has, for an attempt after a crash.
    pub fn restore(&self, files: Vec<SentFile>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = files;
    }

    /// All files so far.
    pub fn all(&self) -> Vec<SentFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
