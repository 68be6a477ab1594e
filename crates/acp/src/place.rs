//! The place where a run is told.

use std::path::PathBuf;
use std::sync::Arc;

use crate::daemon::Daemon;
use crate::link::EditorLink;

/// A session of the editor, and what is needed to tell a run there.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) link: EditorLink,
    pub(crate) session: String,
    /// The directory of the file tools, if it is known.
    pub(crate) workspace: Option<PathBuf>,
}
