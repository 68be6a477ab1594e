//! Approved programs of the workspace: the executed bytes are the bytes that were hashed for the approval.
//!
//! The file is copied once into sealed memory, which nobody can change. The copy is compared with the approved digest
//! and then executed. So changing or replacing the file at any moment has no effect.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use belay_protocol::{Approved, ToolFailure};

use crate::digest;
use crate::workspace::Workspace;
use belay_exec::SealedProgram;

/// Variable with the path of the original file; the program's own path is that of the copy.
pub(super) const SCRIPT_VARIABLE: &str = "BELAY_SCRIPT";

/// Largest program that an approval can be bound to. 256 MiB: it can be hashed within the time limit of a question. It
/// stays in memory while it runs.
const MAX_PROGRAM_BYTES: u64 = 256 * 1024 * 1024;

/// The result for the model if the program was changed after the approval.
const CHANGED: &str = "denied: the program has changed since it was approved, so it was not run. Inspect it again, \
                       then repeat the call to request a new approval.";

/// The digest of a program's whole content.
///
/// # Errors
/// Why no approval can be bound to the program, as the end of a sentence.
pub(super) fn digest_of(workspace: &Workspace, path: &str) -> Result<String, String> {
    let unreadable = |error: std::io::Error| format!("{path:?} could not be read: {error}");
    let (file, bytes) = workspace.file(path).map_err(|failure| match failure {
        ToolFailure::Failed(text) => text.trim_end_matches('.').to_owned(),
        _ => format!("{path:?} could not be looked at"),
    })?;
    if bytes > MAX_PROGRAM_BYTES {
        return Err(format!(
            "{path:?} has more than {} MiB, which is more than an approval can cover",
            MAX_PROGRAM_BYTES / (1024 * 1024)
        ));
    }
    digest::of_all(file.take(MAX_PROGRAM_BYTES)).map_err(unreadable)
}

/// Makes a sealed copy of the approved program. Blocks.
///
/// # Errors
/// The program has changed since the approval, or cannot be read or copied.
pub(super) fn seal(workspace: &Workspace, path: &str, approved: &Approved) -> Result<SealedProgram, ToolFailure> {
    let failed = |error: std::io::Error| {
        ToolFailure::Denied(format!(
            "denied: what was approved of {path:?} cannot be kept from changing ({error}), so it was not run. The operator \
             can see to it that this machine allows memory that is sealed and executed (memfd_create, vm.memfd_noexec)."
        ))
    };
    let (file, _) = workspace.file(path)?;
    let executable = file.metadata().map_err(failed)?.permissions().mode() & 0o111 != 0;
    let sealed = match SealedProgram::copy(file, MAX_PROGRAM_BYTES, executable) {
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => {
            return Err(ToolFailure::Denied(CHANGED.to_owned()));
        }
        made => made.map_err(failed)?,
    };
    let found = sealed.bytes().and_then(digest::of_all).map_err(failed)?;
    match approved.get(&format!("file {path}")) {
        Some(digest) if digest == found => Ok(sealed),
        _ => Err(ToolFailure::Denied(CHANGED.to_owned())),
    }
}
