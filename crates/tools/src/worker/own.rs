//! The tools that run inside a worker.

use std::path::PathBuf;
use std::sync::Arc;

use belay_protocol::Tool;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::config::{ShellConfig, ToolsConfig};
use crate::outputs::KeptOutputs;
use crate::processes::{BackgroundParts, BackgroundProcesses, Limits};
use crate::sandbox::launch::calls;
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
        shell: ShellConfig { enabled: false },
        sandbox: sandbox_config.clone(),
        ..ToolsConfig::default()
    };
    let workspace = Arc::new(Workspace::open(&environment.workspace).map_err(|error| error.to_string())?);
    let processes = ProcessesConfig { cgroup: CgroupUse::Off, ..ProcessesConfig::default() };
    let processes = Arc::new(Processes::new(processes).map_err(|error| error.to_string())?);
    let sandbox = Sandbox::probe(&sandbox_config, &environment.workspace, &environment.program);
    let outputs = KeptOutputs::open(&environment.scratch, &config.outputs).map_err(|error| error.to_string())?;
    // The daemon could neither show nor stop what a worker left in the background.
    let nowhere = BackgroundParts { directory: environment.scratch.clone(), events: None, count_end: |_| {} };
    let background = Arc::new(BackgroundProcesses::new(nowhere, Limits::of(0)));
    let mut tools = commands::tools(&config, workspace.clone(), processes, sandbox.into(), outputs, background)
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
/// Also refuses set-user-ID files to this process and its commands. In a container no sandbox does that, and the workspace
/// is a directory of the machine.
///
/// Source: PR_SET_DUMPABLE(2const): `/proc/PID` belongs to root, and ptrace is refused.
///
/// # Errors
/// The kernel refuses.
pub fn seal() -> Result<(), String> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| format!("this process cannot be sealed: {errno}"))?;
    calls::refuse_set_id()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

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

    /// Sealing applies to the whole process, so the test starts a process of its own: this program, with this test alone.
    #[test]
    fn a_sealed_worker_and_its_commands_make_no_set_user_id_file() {
        const FILE: &str = "BELAY_TEST_SEALED_FILE";
        let Some(file) = std::env::var_os(FILE).map(PathBuf::from) else {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("file");
            std::fs::write(&file, "").unwrap();
            let name = "worker::own::tests::a_sealed_worker_and_its_commands_make_no_set_user_id_file";
            let ran = Command::new(std::env::current_exe().unwrap()).args(["--exact", name]).env(FILE, &file).output();
            let ran = ran.unwrap();
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stdout));
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "sealed");
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o755);
            return;
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        let earlier = {
            let file = file.clone();
            std::thread::spawn(move || {
                receiver.recv().unwrap();
                std::fs::set_permissions(file, Permissions::from_mode(0o4755))
            })
        };
        seal().unwrap();
        sender.send(()).unwrap();
        assert_eq!(earlier.join().unwrap().unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        let chmod = |mode: &str| Command::new("chmod").arg(mode).arg(&file).output().unwrap().status.success();
        assert!(!chmod("u+s") && !chmod("2755") && chmod("755"));
        std::fs::write(&file, "sealed").unwrap();
    }
}
