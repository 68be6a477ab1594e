//! What can go wrong when the tools are built. A tool that fails later says so to the model instead.

use std::path::PathBuf;

/// The tools could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// No workspace is configured and nobody filled in the default.
    #[error("tools.workspace: no directory is set")]
    NoWorkspace,
    /// The workspace cannot be created or opened. Check the path, its owner and its mode.
    #[error("tools.workspace: {} cannot be used", path.display())]
    Workspace {
        /// The configured path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The tools that reach the web cannot be built. The text begins with the setting that is wrong.
    #[error("{0}")]
    Web(String),
}
