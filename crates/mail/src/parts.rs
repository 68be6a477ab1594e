//! The parts of the channel that the daemon makes.

use std::sync::Arc;

use belay_protocol::{AttachmentIntake, BlobStore, CommandInfo, Cursors, TextChecker};

use crate::people::MailPeople;

/// The parts of the channel that the daemon makes.
pub struct MailParts {
    /// The people who may write to Belay. The daemon may replace them while the channel runs.
    pub people: MailPeople,
    /// The commands: a mail whose first line is one of them is that command.
    pub commands: Vec<CommandInfo>,
    /// Takes the files of mails.
    pub attachments: Arc<dyn AttachmentIntake>,
    /// The stored files that are sent.
    pub blobs: Arc<dyn BlobStore>,
    /// Lets hooks check the channel's own lines.
    pub texts: Arc<dyn TextChecker>,
    /// Keeps how far the mailbox was read.
    pub cursors: Arc<dyn Cursors>,
}
