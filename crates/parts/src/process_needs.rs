//! The processes and the sandbox that programs of tools need.

use std::path::PathBuf;
use std::sync::Arc;

use belay_exec::{Processes, ProcessesConfig};
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_settings::{Settings, sandbox_config, workspace_of};
use belay_tools::sandbox::LazySandbox;

/// Says whether this node may act for its runs, by the clock at the moment of the question.
pub(crate) type IsMember = Arc<dyn Fn() -> bool + Send + Sync>;

/// The parts of the daemon that start programs of tools.
pub struct ProcessNeeds {
    /// The processes of all runs.
    pub processes: Arc<Processes>,
    /// The sandbox, not tested yet.
    pub sandbox: LazySandbox,
    /// Whether this node may act for its runs; `None`: it is alone.
    pub membership: Option<IsMember>,
}

impl ProcessNeeds {
    /// Prepares for starting programs. The workspace must exist when the sandbox is tested.
    ///
    /// # Errors
    /// This machine cannot manage processes.
    pub fn find(settings: &Settings, env: &Environment, paths: &Paths) -> Result<Self, Failure> {
        let internal = |error: &dyn std::error::Error| Failure::new(Exit::Internal, words(error));
        let launcher = std::env::current_exe().map_err(|error| internal(&error))?;
        let config = ProcessesConfig { launcher: Some(launcher.clone()), ..ProcessesConfig::default() };
        let processes = Processes::new(config).map_err(|error| internal(&error))?;
        let workspace = workspace_of(settings, env, paths);
        let sandbox = LazySandbox::new(&sandbox_config(settings, env, paths), &workspace, &launcher);
        Ok(Self { processes: Arc::new(processes), sandbox, membership: None })
    }

    /// Remembers successful tests of the sandbox in this file, and uses a remembered one.
    pub fn remembering(self, file: PathBuf) -> Self {
        Self { sandbox: self.sandbox.remembered_in(file), ..self }
    }
}
