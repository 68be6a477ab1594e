//! `read_file` and `list_files`: what lies in the workspace, for a model to read.

mod list_files;
mod read_file;
#[cfg(test)]
mod tests;

use belay_protocol::{ToolFailure, ToolOutput};

pub(crate) use self::list_files::ListFiles;
pub(crate) use self::read_file::ReadFile;

/// Runs file work on the blocking pool and waits for it. The work looks at the token of its call between two pieces,
/// so a cancelled call ends by itself and leaves nothing behind.
async fn blocking(work: impl FnOnce() -> ToolOutput + Send + 'static) -> ToolOutput {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "file tool panicked");
        Err(ToolFailure::failed("The file tool broke down; this call had no effect."))
    })
}
