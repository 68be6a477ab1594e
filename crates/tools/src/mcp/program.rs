//! Programs of servers, and the port that starts them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Generation, RunId};
use tokio::io::{AsyncRead, AsyncWrite};

/// A program that speaks MCP over its standard input and output.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Its complete environment; it inherits no variable. May contain secrets.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Whether it runs in the sandbox.
    pub sandbox: bool,
    /// Whether it has network access in the sandbox.
    pub network: bool,
}

/// A started program.
pub struct Started {
    /// Its standard input.
    pub stdin: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Sync + Unpin>,
    /// Its standard error.
    pub stderr: Box<dyn AsyncRead + Send + Sync + Unpin>,
    /// The process and everything that it has started.
    pub processes: Box<dyn ServerProcesses>,
}

/// The processes of a program. If this is dropped, they are ended too.
#[async_trait]
pub trait ServerProcesses: Send + Sync {
    /// Waits at most `grace` until the program exits. Then ends its whole process tree, and returns when no process
    /// is left. Returns in a few words how the program ended, for example `exit status 1`.
    async fn end(&mut self, grace: Duration) -> String;
}

/// Starts the programs of servers for runs, so that they end with their run. The port to the process trees and the
/// sandbox.
#[async_trait]
pub trait StartPrograms: Send + Sync {
    /// Starts a program for a run. `what` names it in lists of running processes.
    ///
    /// # Errors
    /// A text that completes "cannot be started: …". Then no process is running. A program that requires the sandbox is
    /// never started without it.
    ///
    /// # Cancel safety
    /// If the future is dropped, no process stays running.
    async fn start(
        &self,
        program: &Program,
        run: RunId,
        generation: &Generation,
        what: &str,
    ) -> Result<Started, String>;
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Environment variables may contain secrets, so they are not printed.
        f.debug_struct("Program").field("argv", &self.argv).field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}
