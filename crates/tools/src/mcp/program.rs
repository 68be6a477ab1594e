//! Programs of servers: what is started, and the seam to whoever starts it.

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
    /// Its whole environment: nothing is inherited. May hold secrets.
    pub env: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub directory: PathBuf,
    /// Whether it runs in the sandbox.
    pub sandbox: bool,
    /// Whether it has the network there.
    pub network: bool,
}

/// A program that was started.
pub struct Started {
    /// Its standard input.
    pub stdin: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Sync + Unpin>,
    /// Its standard error.
    pub stderr: Box<dyn AsyncRead + Send + Sync + Unpin>,
    /// The process and everything it has started.
    pub processes: Box<dyn ServerProcesses>,
}

/// The processes of a program. Dropped, they are ended too.
#[async_trait]
pub trait ServerProcesses: Send + Sync {
    /// Waits until the program has ended by itself, at most so long; then ends it and all it has started, and returns
    /// when none of them is left. Says in a few words how the program ended, for example `exit status 1`.
    async fn end(&mut self, patience: Duration) -> String;
}

/// Starts the programs of servers for runs, so that ending the run ends them: the seam to the process trees and the
/// sandbox.
#[async_trait]
pub trait StartPrograms: Send + Sync {
    /// Starts a program for a run. `what` names it in lists of what is running.
    ///
    /// # Errors
    /// Plain words, for the end of "cannot be started: …". Nothing is running then. A program that wants the sandbox is
    /// never started without it.
    ///
    /// # Cancel safety
    /// Dropped, nothing stays running.
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
        // Values of the environment may be secrets.
        f.debug_struct("Program").field("argv", &self.argv).field("sandbox", &self.sandbox).finish_non_exhaustive()
    }
}
