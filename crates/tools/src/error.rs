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
    /// The directory of kept outputs cannot be made or read. Check the data directory, its owner and its mode.
    #[error("the outputs of tools cannot be kept in {}", path.display())]
    Outputs {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A directory of programs lies where the model can write. Take it out of the list, or move the workspace.
    #[error("tools.commands.path: {} lies in the workspace, where programs could be put by the model", path.display())]
    ProgramsInWorkspace {
        /// The directory.
        path: PathBuf,
    },
    /// A list of programs has something that is no glob.
    #[error("tools.commands.{key}: not a list of globs")]
    Globs {
        /// Which list.
        key: &'static str,
        /// Why.
        #[source]
        source: globset::Error,
    },
    /// The tools that reach the web cannot be built. The text begins with the setting that is wrong.
    #[error("{0}")]
    Web(String),
}
