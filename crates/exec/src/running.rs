//! A tree that was started, in the hands of whoever asked for it.

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

/// A program that was started, and all its descendants. Dropped, the tree is ended in the background: the keeper of all
/// trees does it, and a shutdown waits for it.
#[derive(Debug)]
pub struct Running {
    handle: Handle,
    pid: Pid,
    /// Says that some child of the daemon has ended.
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
        // The handle is dropped with a failure, and the tree ended.
        let (children, stdin, stdout, stderr) =
            held.map_err(|source| StartError::System { program: "its pipes".into(), source })?;
        Ok(Self { handle, pid, children, progress, stdin, stdout, stderr })
    }

    /// The number of the first process, which is the number of its process group too. It belongs to the tree until the
    /// tree has ended.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_pid().unsigned_abs()
    }

    /// Where to write what the program reads, for [`Stdin::Piped`](super::Stdin::Piped); `None` else, and the second time.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// What the program writes, standard output and standard error; `None` the second time. Whoever takes them reads
    /// them, to the end: a full pipe blocks the program. They end when the last process that holds them has ended, at
    /// the latest when the tree has. What is not taken, [`wait`](Self::wait) reads and throws away.
    pub fn take_output(&mut self) -> Option<(ChildStdout, ChildStderr)> {
        Some((self.stdout.take()?, self.stderr.take()?))
    }

    /// Waits until the first process has ended. What it started may live on, until this is dropped or
    /// [`end`](Self::end)ed. Asked again, the answer is the same.
    ///
    /// # Cancel safety
    /// Nothing is lost but output that nobody has taken.
    pub async fn wait(&mut self) -> Exit {
        let Self { pid, children, progress, stdout, stderr, .. } = self;
        tokio::select! {
            exit = ended(*pid, children, progress) => exit,
            never = discard(stdout) => match never {},
            never = discard(stderr) => match never {},
        }
    }

    /// Begins to end the tree, at once; [`end`](Self::end) waits for it.
    pub fn begin_end(&self) {
        self.handle.registry.end_tree(self.handle.id);
    }

    /// Ends the tree: TERM, the grace, KILL; returns when nothing of it is left. A process that even KILL does not end
    /// (it waits for a device) is waited for 10 s and then reported in the log; it is tried further.
    ///
    /// # Cancel safety
    /// Dropped, the ending goes on.
    pub async fn end(&mut self) {
        self.begin_end();
        // An error means that the tree is not in the registry any more: it has ended.
        let _ = self.progress.wait_for(Progress::is_over).await;
    }
}

/// Waits for the end of the first process.
async fn ended(pid: Pid, children: &mut Signal, progress: &mut watch::Receiver<Progress>) -> Exit {
    loop {
        // The first process stays a zombie until the keeper has found its tree empty, so it can be looked at again and
        // again. While nobody wanted its end, it has ended by itself; else the keeper, who looked before it sent
        // anything, knows how.
        let how = signal::look(pid);
        match how {
            Some(how) if *progress.borrow() == Progress::Alive => return how,
            Some(_) => return exit_of(progress.wait_for(Progress::is_over).await.ok().as_deref()),
            None => {}
        }
        tokio::select! {
            over = progress.wait_for(Progress::is_over) => return exit_of(over.ok().as_deref()),
            // Any child may be meant, and two ends may be one signal.
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

/// Reads an output that nobody has taken, and throws it away. Never ends.
async fn discard(output: &mut Option<impl AsyncRead + Unpin>) -> Infallible {
    if let Some(output) = output {
        // A pipe that cannot be read has nobody at its other end; nothing is blocked by that.
        let _ = tokio::io::copy(output, &mut tokio::io::sink()).await;
    }
    std::future::pending().await
}
