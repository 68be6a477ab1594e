//! A started tree, as its caller sees it.

use std::convert::Infallible;

use rustix::process::Pid;
use tokio::io::AsyncRead;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::signal::unix::{Signal, SignalKind};
use tokio::sync::watch;

use super::error::StartError;
use super::exit::Exit;
use super::registry::{Handle, Progress};
use super::{signal, spawner::Spawned};

/// A started program with all its descendants. Dropping it ends the tree in the background: the reaper thread does
/// that, and a shutdown waits for it.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    pid: Pid,
    /// Signals that some child of the daemon has ended.
    children: Signal,
    progress: watch::Receiver<Progress>,
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
}

impl Running {
    pub(super) fn new(spawned: Spawned, progress: watch::Receiver<Progress>) -> Result<Self, StartError> {
        let Spawned { handle, pid, mut child } = spawned;
        let held = (|| {
            Ok((
                tokio::signal::unix::signal(SignalKind::child())?,
                child.stdin.take().map(ChildStdin::from_std).transpose()?,
                child.stdout.take().map(ChildStdout::from_std).transpose()?,
                child.stderr.take().map(ChildStderr::from_std).transpose()?,
            ))
        })();
        // On a failure, the handle is dropped and the tree is ended.
        let (children, stdin, stdout, stderr) =
            held.map_err(|source| StartError::System { program: "its pipes".into(), source })?;
        Ok(Self { handle, pid, children, progress, stdin, stdout, stderr })
    }

    /// The number of the first process, which is also the number of its process group. It belongs to the tree until the
    /// tree has ended.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// The writer of the program's standard input, for [`Stdin::Piped`](super::Stdin::Piped). `None` otherwise, and for
    /// the second call.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// The standard output and standard error of the program. `None` for the second call. The caller must read both to
    /// the end, because a full pipe blocks the program. They end when the last process that holds them has ended, at
    /// the latest with the tree. If they are not taken, [`wait`](Self::wait) reads and discards them.
    pub fn take_output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        Some((self.stdout.take()?, self.stderr.take()?))
    }

    /// Waits until the first process has ended. Its descendants may continue until this is dropped or
    /// [`end`](Self::end)ed. A second call returns the same result.
    ///
    /// # Cancel safety
    /// Only output that was not taken may be lost.
    pub async fn wait(&mut self) -> Exit {
        let Self { pid, children, progress, stdout, stderr, .. } = self;
        tokio::select! {
            exit = ended(*pid, children, progress) => exit,
            never = discard(stdout) => match never {},
            never = discard(stderr) => match never {},
        }
    }

    /// Begins to end the tree, at once. [`end`](Self::end) waits for it.
    pub fn begin_end(&self) {
        self.handle.registry.end_tree(self.handle.id);
    }

    /// Ends the tree: TERM, the grace period, KILL. Returns when no process of it is left. If a process does not end
    /// even after KILL (it waits for a device), the function waits for 10 s and then logs it; further attempts are
    /// made.
    ///
    /// # Cancel safety
    /// If the future is dropped, the tree is still ended.
    pub async fn end(&mut self) {
        self.begin_end();
        // An error means that the tree is not in the registry any more: it has ended.
        let _ = self.progress.wait_for(Progress::is_over).await;
    }
}

/// Waits for the end of the first process.
async fn ended(pid: Pid, children: &mut Signal, progress: &mut watch::Receiver<Progress>) -> Exit {
    loop {
        // The first process stays a zombie until the reaper has found its tree empty, so its exit status can be read
        // repeatedly. If its end was not requested, it has ended by itself. Otherwise the reaper knows how it ended,
        // because it looked before it sent any signal.
        let how = signal::peek_exit(pid);
        match how {
            Some(how) if *progress.borrow() == Progress::Alive => return how,
            Some(_) => return exit_of(progress.wait_for(Progress::is_over).await.ok().as_deref()),
            None => {}
        }
        tokio::select! {
            over = progress.wait_for(Progress::is_over) => return exit_of(over.ok().as_deref()),
            // The signal may concern any child, and two ends may be one signal.
            _ = children.recv() => {}
        }
    }
}

fn exit_of(progress: Option<&Progress>) -> Exit {
    match progress {
        Some(Progress::Empty(exit)) => *exit,
        _ => Exit::Ended,
    }
}

/// Reads and discards an output that was not taken. Never returns.
async fn discard(output: &mut Option<impl AsyncRead + Unpin>) -> Infallible {
    if let Some(output) = output {
        // If a pipe cannot be read, no process writes to it, so nothing is blocked.
        let _ = tokio::io::copy(output, &mut tokio::io::sink()).await;
    }
    std::future::pending().await
}
