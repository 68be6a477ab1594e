//! What can go wrong before a program runs. How a program ends is not an error.

use std::path::PathBuf;

/// Processes cannot be kept on this machine.
#[derive(Debug, thiserror::Error)]
pub enum ProcessesError {
    /// The grace is longer than a minute.
    #[error("the time between TERM and KILL must be at most {} s", super::config::MAX_TERM_GRACE.as_secs())]
    Grace,
    /// Strays could not be found: the process table is not there, or hidden.
    #[error("the process table cannot be read: mount /proc, with this daemon's own processes visible in it")]
    NoProcessTable(#[source] std::io::Error),
    /// Orphans would go to init, where nobody finds them.
    #[error("orphaned processes cannot be adopted (PR_SET_CHILD_SUBREAPER)")]
    NoSubreaper(#[source] std::io::Error),
    /// A signal could reach a stranger that has taken over a number.
    #[error(
        "processes cannot be held by handle (pidfd_open): Linux 5.4 or newer is needed, and no filter that forbids it"
    )]
    NoPidfd(#[source] std::io::Error),
    /// No thread could be started.
    #[error("no thread could be started")]
    NoThread(#[source] std::io::Error),
}

/// A program was not started. The texts are for a model to read.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The run was stopped; nothing is started for it.
    #[error("Not started: the run has been stopped.")]
    Stopped,
    /// The daemon shuts down.
    #[error("Not started: the daemon is shutting down.")]
    ShuttingDown,
    /// Too many are alive already.
    #[error("Not started: {most} programs are running already. Wait for one to end, or stop one.")]
    TooMany {
        /// The bound.
        most: usize,
    },
    /// There is no such program.
    #[error("Not started: there is no program {}. Check its name, or give its whole path.", program.display())]
    NotFound {
        /// As it was asked for.
        program: PathBuf,
    },
    /// There is no such directory.
    #[error("Not started: the working directory {} does not exist or is not a directory.", directory.display())]
    NoDirectory {
        /// As it was asked for.
        directory: PathBuf,
    },
    /// The file may not be executed.
    #[error("Not started: {} may not be executed. It needs the permission (chmod +x) and a first line such as #!/bin/sh.",
        program.display())]
    NotExecutable {
        /// As it was asked for.
        program: PathBuf,
    },
    /// The system refused for another reason.
    #[error("Not started: the system refused to start {}: {source}.", program.display())]
    System {
        /// As it was asked for.
        program: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
}
