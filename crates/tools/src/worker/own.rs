//! The tools that run inside a worker.

use std::path::PathBuf;
use std::sync::Arc;

use belay_protocol::Tool;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::config::{CommandsConfig, ShellConfig, ToolsConfig};
use crate::outputs::KeptOutputs;
use crate::sandbox::{Policy, Sandbox, SandboxConfig};
use crate::workspace::Workspace;
use crate::{commands, files, picture};
use belay_exec::{CgroupUse, Processes, ProcessesConfig};

/// The environment of a worker process, with the paths that it sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerEnvironment {
    /// The workspace.
    pub workspace: PathBuf,
    /// Directory for long outputs of commands. It exists until the worker ends.
    pub scratch: PathBuf,
    /// The program that applies the limits of a command and then executes it: the worker's own program.
    pub program: PathBuf,
}

/// Builds the tools of a worker. Commands have limits but no sandbox of their own, because the whole worker runs in
/// one.
///
/// # Errors
/// A text in plain words: the part of the environment that cannot be used.
pub fn own_tools(environment: &WorkerEnvironment) -> Result<Vec<Arc<dyn Tool>>, String> {
    let sandbox_config = SandboxConfig { policy: Policy::Off, ..SandboxConfig::default() };
    let config = ToolsConfig {
        workspace: Some(environment.workspace.clone()),
        commands: CommandsConfig { enabled: true, ..CommandsConfig::default() },
        shell: ShellConfig { enabled: false },
        sandbox: sandbox_config.clone(),
        ..ToolsConfig::default()
    };
    let workspace = Arc::new(Workspace::open(&environment.workspace).map_err(|error| error.to_string())?);
    let processes = ProcessesConfig { cgroup: CgroupUse::Off, ..ProcessesConfig::default() };
    let processes = Arc::new(Processes::new(processes).map_err(|error| error.to_string())?);
    let sandbox = Sandbox::probe(&sandbox_config, &environment.workspace, &environment.program);
    let outputs = KeptOutputs::open(&environment.scratch, &config.outputs).map_err(|error| error.to_string())?;
    let mut tools = commands::tools(&config, workspace.clone(), processes, sandbox.into(), outputs)
        .map_err(|error| error.to_string())?;
    tools.push(Arc::new(files::ReadFile::new(workspace.clone(), picture::Pictures::new(), &config)));
    tools.push(Arc::new(files::ListFiles::new(workspace.clone(), &config)));
    tools.push(Arc::new(files::SearchFiles::new(workspace.clone(), &config)));
    tools.push(Arc::new(files::WriteFile::new(workspace.clone(), &config)));
    tools.push(Arc::new(files::EditFile::new(workspace, &config)));
    Ok(tools)
}

/// Prevents other processes of this user, such as the worker's own commands, from reading the memory of this process,
/// which contains the token of the job. Child processes are not protected.
///
/// Source: PR_SET_DUMPABLE(2const): `/proc/PID` belongs to root, and ptrace is refused.
///
/// # Errors
/// The kernel refuses.
pub fn seal() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| format!("this process cannot be sealed: {errno}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use belay_protocol::WORKER_TOOLS;

    use super::*;

    #[test]
    fn a_worker_has_the_tools_that_the_link_promises() {
        let dir = tempfile::tempdir().unwrap();
        let environment = WorkerEnvironment {
            workspace: dir.path().join("workspace"),
            scratch: dir.path().join("scratch"),
            program: std::env::current_exe().unwrap(),
        };
        std::fs::create_dir(&environment.workspace).unwrap();
        let tools = own_tools(&environment).unwrap();
        let mut names: Vec<_> = tools.iter().map(|tool| tool.spec().name.clone()).collect();
        names.sort();
        assert_eq!(names, WORKER_TOOLS);
    }
}
