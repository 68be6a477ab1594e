//! The parts of the channel that the daemon makes.

use std::sync::Arc;

use belay_protocol::{AttachmentIntake, BlobStore, CommandInfo, Cursors, MoveStore, TextChecker};

use crate::people::MatrixPeople;

/// The parts of the channel that the daemon makes.
pub struct MatrixParts {
    /// The people who may talk to Belay. The daemon may replace them while the channel runs.
    pub people: MatrixPeople,
    /// The commands, which people may also write with `!`.
    pub commands: Vec<CommandInfo>,
    /// Takes the files of messages.
    pub attachments: Arc<dyn AttachmentIntake>,
    /// The stored files that are sent.
    pub blobs: Arc<dyn BlobStore>,
    /// Lets hooks check the channel's own lines.
    pub texts: Arc<dyn TextChecker>,
    /// Keeps the rooms that were replaced.
    pub moves: Arc<dyn MoveStore>,
    /// Keeps how far the events were read.
    pub cursors: Arc<dyn Cursors>,
}
