//! The troubles of the machine: the disk of the data, and the sandbox of commands.

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use belay_program::disk::{DISK_FREE, Space};
use belay_protocol::{Trouble, TroubleSource, TroubledPart};
use belay_tools::sandbox::LazySandbox;
use metrics::gauge;

/// Looks at the machine when somebody asks for the status.
pub(super) struct Machine {
    /// The directory of the data.
    data: PathBuf,
    /// The sandbox of commands; `None`: there are no commands.
    sandbox: Option<LazySandbox>,
}

impl Machine {
    pub(super) fn new(data: &Path, sandbox: Option<LazySandbox>) -> Self {
        Self { data: data.to_owned(), sandbox }
    }

    fn disk(&self) -> Option<Trouble> {
        let space = Space::of(&self.data)?;
        gauge!(DISK_FREE).set(space.free as f64);
        if space.is_full() {
            return Some(Trouble::critical(TroubledPart::Disk, space.words(&self.data)));
        }
        space.is_low().then(|| Trouble::warning(TroubledPart::Disk, space.words(&self.data)))
    }

    fn sandbox(&self) -> Option<Trouble> {
        let missing = self.sandbox.as_ref()?.tried()?.err()?;
        Some(Trouble::warning(TroubledPart::Sandbox, format!("commands are refused: {missing}")))
    }
}

#[async_trait]
impl TroubleSource for Machine {
    async fn troubles(&self) -> Vec<Trouble> {
        self.disk().into_iter().chain(self.sandbox()).collect()
    }
}
