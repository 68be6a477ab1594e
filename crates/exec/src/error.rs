//! Errors before a program runs. The exit status of a program is not an error.

use std::path::PathBuf;

/// Why processes cannot be managed on this machine.
#[derive(Debug, thiserror::Error)]
pub enum ProcessesError {
    /// The time between TERM and KILL is longer than a minute.
    #[error("the time between TERM and KILL must be at most {} s", super::config::MAX_TERM_GRACE.as_secs())]
    Grace,
    /// Processes that have left their tree cannot be found: the process table is missing or hidden.
    #[error("the process table cannot be read: mount /proc, with this daemon's own processes visible in it")]
    NoProcessTable(#[source] std::io::Error),
    /// Orphans would be adopted by init, where they cannot be found.
    #[error("orphaned processes cannot be adopted (PR_SET_CHILD_SUBREAPER)")]
    NoSubreaper(#[source] std::io::Error),
    /// Without handles, a signal could reach another process that has got the same number.
    #[error(
        "processes cannot be held by handle (pidfd_open): Linux 5.4 or newer is needed, and no filter that forbids it"
    )]
    NoPidfd(#[source] std::io::Error),
    /// No thread could be started.
    #[error("no thread could be started")]
    NoThread(#[source] std::io::Error),
}

/// Why a program was not started. The texts are for a model.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The run was stopped. Nothing is started for it.
    #[error("Not started: the run has been stopped.")]
    Stopped,
    /// The daemon is shutting down.
    #[error("Not started: the daemon is shutting down.")]
    ShuttingDown,
    /// Too many programs are running.
    #[error("Not started: {most} programs are running already. Wait for one to end, or stop one.")]
    TooMany {
        /// The limit.
        most: usize,
    },
    /// The program does not exist.
    #[error("Not started: there is no program {}. Check its name, or give its whole path.", program.display())]
    NotFound {
        /// The program, as requested.
        program: PathBuf,
    },
    /// The working directory does not exist.
    #[error("Not started: the working directory {} does not exist or is not a directory.", directory.display())]
    NoDirectory {
        /// The directory, as requested.
        directory: PathBuf,
    },
    /// The file is not executable.
    #[error("Not started: {} may not be executed. It needs the permission (chmod +x) and a first line such as #!/bin/sh.",
        program.display())]
    NotExecutable {
        /// The program, as requested.
        program: PathBuf,
    },
    /// The operating system refused for another reason.
    #[error("Not started: the system refused to start {}: {source}.", program.display())]
    System {
        /// The program, as requested.
        program: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}
