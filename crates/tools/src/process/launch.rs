//! What is started: a program with its arguments, and nothing that it would inherit by accident.

use std::ffi::OsString;
use std::path::PathBuf;

/// A process to be started.
///
/// The thread that starts one has to live as long as it may: the kernel ends a wrapped process (see
/// [`sandbox`](crate::sandbox)) when the thread that started it ends. Worker threads of a runtime live that long; those of
/// `spawn_blocking` do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub program: OsString,
    /// Its arguments, without the program itself.
    pub args: Vec<OsString>,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The directory in which it starts.
    pub directory: PathBuf,
    /// What it reads.
    pub stdin: Stdin,
    /// Whether it is the monitor of processes in a namespace of their own. KILL to this one process then ends them all,
    /// and so does TERM, at once: who wants to leave the program inside some time to end sends TERM to the processes
    /// below the monitor instead.
    pub isolated: bool,
}

/// What a process reads from its standard input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// Nothing.
    Null,
    /// These bytes, then the end.
    Bytes(Vec<u8>),
    /// Whatever is written later.
    Piped,
}
