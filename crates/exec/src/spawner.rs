//! The thread that starts programs.
//!
//! The thread lives as long as the daemon. A parent-death signal is sent when the *thread* that started a process ends,
//! so the threads of an async runtime's pool, which come and go, would kill the processes that they start. A start may
//! also take long, for example on a remote file system. Here it delays other starts, but no end of a tree.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use belay_crash_point::crash_point;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::{mpsc, oneshot};

use super::cgroup::{Groups, LazyGroups, Leaf};
use super::error::StartError;
use super::launch::{Launch, Stdin};
use super::left_behind::Origin;
use super::registry::{Handle, Root};
use super::sealed::SealedProgram;
use super::{MARK, signal, table};

/// Most starts that wait for the thread. The caller of a further start waits until there is room.
pub(super) const JOBS: usize = 16;

/// A requested start.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) launch: Launch,
    pub(super) handle: Handle,
    /// The sender for the answer. If the caller has gone, the answer is dropped, which ends the tree.
    pub(super) answer: oneshot::Sender<Result<Spawned, StartError>>,
}

/// A started process.
#[derive(Debug)]
pub(super) struct Spawned {
    pub(super) handle: Handle,
    pub(super) pid: Pid,
    /// Its pipes.
    pub(super) child: Child,
}

/// Starts programs.
#[derive(Debug)]
pub(super) struct Spawner {
    pub(super) launcher: Option<PathBuf>,
    pub(super) groups: Arc<LazyGroups>,
    /// This daemon, which each mark names.
    pub(super) origin: Origin,
}

impl Spawner {
    /// Starts the requested programs until all senders are dropped.
    pub(super) fn run(&self, mut jobs: mpsc::Receiver<Job>) {
        while let Some(job) = jobs.blocking_recv() {
            let _ = job.answer.send(self.start(&job.launch, job.handle));
        }
    }

    fn start(&self, launch: &Launch, handle: Handle) -> Result<Spawned, StartError> {
        if !handle.registry.may_start(handle.id) {
            return Err(StartError::Stopped);
        }
        let mark = self.origin.mark();
        let leaf = self.groups.get().and_then(Groups::leaf);
        let child = self.command(launch, &mark, leaf.as_ref()).and_then(|mut command| {
            let _inherited = launch.sealed.as_ref().map(SealedProgram::inherited).transpose()?;
            command.spawn()
        });
        let child = child.map_err(|error| explain(launch, error))?;
        let pid = Pid::from_child(&child);
        let process = table::read(pid).map_err(|source| {
            // An invisible process could not be ended later. It is our child and not reaped, so the number is certainly
            // its own.
            let _ = kill_process(pid, Signal::KILL);
            signal::reap_at_once(pid);
            StartError::System { program: launch.program.clone().into(), source }
        })?;
        let cgroup = leaf.and_then(|leaf| leaf.with(pid, self.launcher.is_some()));
        let root = Root { pid, start: process.start, mark, isolated: launch.isolated, cgroup };
        if !handle.registry.started(handle.id, root) {
            return Err(StartError::Stopped);
        }
        crash_point!("tool.spawned");
        Ok(Spawned { handle, pid, child })
    }

    /// The launcher that ties this launch to the daemon, unless the launch does that itself.
    fn stage_of(&self, launch: &Launch) -> Option<&PathBuf> {
        self.launcher.as_ref().filter(|launcher| !launch.isolated && launch.program != launcher.as_os_str())
    }

    /// The command with the stages before the program, each of which executes the next. The first stage enters the
    /// control group, because processes that the program starts at once would be missing in a group that it enters
    /// later. The second stage ties the program to the daemon.
    fn command(&self, launch: &Launch, mark: &str, leaf: Option<&Leaf>) -> io::Result<Command> {
        let mut words: Vec<OsString> = Vec::new();
        if let (Some(launcher), Some(leaf)) = (&self.launcher, leaf) {
            let group = leaf.directory().as_os_str();
            words.extend(
                [launcher.as_os_str(), "launch".as_ref(), "--group".as_ref(), group, "--".as_ref()].map(Into::into),
            );
        }
        if let Some(launcher) = self.stage_of(launch) {
            words.extend(
                [launcher.as_os_str(), "launch".as_ref(), "--bare".as_ref(), "--parent".as_ref()].map(Into::into),
            );
            words.extend([std::process::id().to_string().into(), "--".into()]);
        }
        if !words.is_empty() && !is_there(launch) {
            return Err(io::ErrorKind::NotFound.into());
        }
        words.push(launch.program.clone());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        let stdin = match &launch.stdin {
            Stdin::Null => Stdio::null(),
            Stdin::Bytes(bytes) => file_of(bytes)?.into(),
            Stdin::Piped => Stdio::piped(),
        };
        command
            .args(&launch.args)
            .env_clear()
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .env(MARK, mark)
            .current_dir(&launch.directory)
            .process_group(0)
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// Whether the program exists. The launcher could only report that by an exit code, which might be the program's own.
fn is_there(launch: &Launch) -> bool {
    let program = Path::new(&launch.program);
    if program.components().count() > 1 || program.is_absolute() {
        return launch.directory.join(program).exists();
    }
    let path = launch.env.iter().find(|(name, _)| name == "PATH").map(|(_, path)| path.clone());
    // Without `PATH`, the default of the system is used, and the launcher checks it.
    path.is_none_or(|path| std::env::split_paths(&path).any(|one| launch.directory.join(one).join(program).exists()))
}

/// An anonymous file with these bytes, which cannot be changed.
fn file_of(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create("stdin", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
    file.write_all(bytes)?;
    file.rewind()?;
    fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Finds the missing requirement of a start. The system reports "not found" for the program and for the directory
/// alike.
fn explain(launch: &Launch, source: io::Error) -> StartError {
    let program = PathBuf::from(&launch.program);
    match source.kind() {
        _ if !launch.directory.is_dir() => StartError::NoDirectory { directory: launch.directory.clone() },
        io::ErrorKind::NotFound => StartError::NotFound { program },
        io::ErrorKind::PermissionDenied => StartError::NotExecutable { program },
        _ => StartError::System { program, source },
    }
}
