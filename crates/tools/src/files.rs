//! The file tools: a model reads, searches and changes the files of the workspace.
//!
//! Reading order: `read_file` → `list_files` → `search_files` → `write_file` → `edit_file` (and `misses`: why the old
//! text of an edit was not found).

mod edit_file;
mod list_files;
mod misses;
mod read_file;
mod search_files;
#[cfg(test)]
mod tests;
mod write_file;

use belay_protocol::ToolFailure;

pub(crate) use self::edit_file::EditFile;
pub(crate) use self::list_files::ListFiles;
pub(crate) use self::read_file::ReadFile;
pub(crate) use self::search_files::{SearchFiles, compile_within};
pub(crate) use self::write_file::WriteFile;

/// Runs file work on the blocking pool and waits for it. The work regularly checks the token of its call, so a
/// cancelled call ends by itself and leaves nothing behind.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ToolFailure> + Send + 'static,
) -> Result<T, ToolFailure> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "file tool panicked");
        Err(ToolFailure::failed("The file tool crashed; its work may be unfinished."))
    })
}
