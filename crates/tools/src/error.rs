//! The errors of building the tools. A later failure of a tool is a result for the model, not an error.

use std::path::PathBuf;

/// The tools could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ToolsError {
    /// No workspace is configured, and the caller has not set the default.
    #[error("tools.workspace: no directory is set")]
    NoWorkspace,
    /// The workspace cannot be created or opened. Check the path, its owner and its mode.
    #[error("tools.workspace: {} cannot be used", path.display())]
    Workspace {
        /// The configured path.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// The directory of stored outputs cannot be created or read. Check the data directory, its owner and its mode.
    #[error("the outputs of tools cannot be kept in {}", path.display())]
    Outputs {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: std::io::Error,
    },
    /// A directory of programs lies inside the workspace, where the model can write. Remove it from the list, or move
    /// the workspace.
    #[error("tools.commands.path: {} lies in the workspace, where programs could be put by the model", path.display())]
    ProgramsInWorkspace {
        /// The directory.
        path: PathBuf,
    },
    /// A list of programs contains an invalid glob.
    #[error("tools.commands.{key}: not a list of globs")]
    Globs {
        /// The key of the list.
        key: &'static str,
        /// The error of the glob parser.
        #[source]
        source: globset::Error,
    },
    /// The web tools cannot be built. The text begins with the wrong setting.
    #[error("{0}")]
    Web(String),
}
