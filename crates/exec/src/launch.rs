//! The description of a program to start: plain data.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::sealed::SealedProgram;

/// A program to start, completely described: it inherits nothing from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program: a path, or a name that is searched for along the `PATH` of [`env`](Self::env).
    pub program: OsString,
    /// Its arguments, without the program's own name.
    pub args: Vec<OsString>,
    /// Its complete environment. One variable is added: [`MARK`](super::MARK), which identifies the processes of a
    /// tree.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub directory: PathBuf,
    /// Its standard input.
    pub stdin: Stdin,
    /// Whether its processes are in a PID namespace of their own. Then the child of the first process is the init of
    /// the namespace, and killing it kills all processes. Examples are bubblewrap and
    /// `unshare --pid --fork --kill-child`.
    pub isolated: bool,
    /// A sealed program that it inherits with the same file descriptor number. A later stage executes it.
    pub sealed: Option<SealedProgram>,
}

/// The standard input of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing: `/dev/null`.
    Null,
    /// These bytes, then the end of the file. They are in an anonymous file in memory, so no task has to write to a
    /// pipe, and a program that does not read them blocks nothing.
    Bytes(Vec<u8>),
    /// A pipe. [`Running::take_stdin`](super::Running::take_stdin) returns its other end.
    Piped,
}
