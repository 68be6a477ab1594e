//! The home directory of a command that runs without the sandbox. The sandbox makes one itself.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use belay_protocol::ToolFailure;
use uuid::Uuid;

use crate::files::blocking;
use crate::sandbox::in_home;

/// An empty directory for one command, which only Belay's user can access. If this is dropped, the directory is removed
/// with its content.
///
/// Programs load settings and code from the home directory. So it is neither the workspace, which models write, nor a
/// directory that an earlier command has used.
#[derive(Debug)]
pub(crate) struct TemporaryHome(PathBuf);

impl TemporaryHome {
    /// # Errors
    /// The directory for temporary files cannot be written; the model reads the explanation.
    pub(crate) async fn create() -> Result<Self, ToolFailure> {
        blocking(|| {
            let path = std::env::temp_dir().join(format!("belay-home-{}", Uuid::new_v4().simple()));
            // Fails if the path exists, so the directory is empty.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => Ok(Self(path)),
                Err(error) => Err(ToolFailure::Failed(format!(
                    "Not run: the home directory of the command, {}, cannot be created: {error}. The operator has to make \
                     the directory writable or set TMPDIR.",
                    path.display()
                ))),
            }
        })
        .await
    }

    /// Adds the variables that lead to this directory. Variables that are set already take precedence.
    pub(crate) fn add_to(&self, env: &mut Vec<(OsString, OsString)>) {
        for (name, value) in std::iter::once(("HOME", self.0.clone())).chain(in_home(&self.0)) {
            if env.iter().all(|(set, _)| set != name) {
                env.push((name.into(), value.into()));
            }
        }
    }

    /// Removes the directory on the blocking pool.
    pub(crate) async fn remove(self) -> Result<(), ToolFailure> {
        blocking(move || {
            drop(self);
            Ok(())
        })
        .await
    }
}

impl Drop for TemporaryHome {
    fn drop(&mut self) {
        match std::fs::remove_dir_all(&self.0) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(path = %self.0.display(), %error, "the home directory of a command was left"),
        }
    }
}
