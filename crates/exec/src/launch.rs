//! What is to be started: plain data.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::sealed::SealedProgram;

/// A program to start, complete: nothing is inherited from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program: a path, or a name that is looked for along the `PATH` of [`env`](Self::env).
    pub program: OsString,
    /// Its arguments, the program's own name left out.
    pub args: Vec<OsString>,
    /// Its whole environment. One variable is added: [`MARK`](super::MARK), by which the processes of a tree are known.
    pub env: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub directory: PathBuf,
    /// What it reads.
    pub stdin: Stdin,
    /// Whether what it runs lives in a PID namespace of its own: the child of the first process is the namespace's init,
    /// and killing that one kills everything. So it is with bubblewrap and `unshare --pid --fork --kill-child`.
    pub isolated: bool,
    /// A sealed program that it inherits, under the same number: what a later stage becomes.
    pub sealed: Option<SealedProgram>,
}

/// What a program reads on its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing: `/dev/null`.
    Null,
    /// These bytes, then the end. They are kept in a file of the kernel's that has no name, so nobody needs to feed a
    /// pipe, and a program that does not read them blocks nothing.
    Bytes(Vec<u8>),
    /// A pipe; [`Running::take_stdin`](super::Running::take_stdin) is its other end.
    Piped,
}
