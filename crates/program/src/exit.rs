//! The ends of a command: the exit codes that scripts rely on, and failures for people.

use std::fmt;
use std::process::ExitCode;

/// The exit codes.
///
/// Source: sysexits.h for 65 to 78; 130 is 128 + SIGINT, as shells count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It worked.
    Fine = 0,
    /// The work failed: the run ended without doing what was asked.
    Failed = 1,
    /// The command line is invalid. clap detects most cases.
    WrongUsage = 2,
    /// The input cannot be used: not UTF-8, too long, empty.
    UnusableInput = 65,
    /// A needed service is not available: no daemon, no model, an address that is in use.
    OutOfReach = 69,
    /// A bug, or a failure of the machine.
    Internal = 70,
    /// Busy; try again. Also a run that waits for approval: it continues when somebody has answered.
    Busy = 75,
    /// The configuration is refused.
    Refused = 78,
    /// A signal ended the command before it was done.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A failed command: what is wrong, and what to do next. Shown on stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong; may have several lines.
    pub what: String,
    /// What to do next.
    pub next: Option<String>,
}

impl Failure {
    /// A failure with that exit code.
    pub fn new(exit: Exit, what: impl fmt::Display) -> Self {
        Self { exit, what: what.to_string(), next: None }
    }

    /// Adds advice on what to do next.
    #[must_use]
    pub fn next(mut self, advice: impl Into<String>) -> Self {
        self.next = Some(advice.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "belay: {}", self.what)?;
        match &self.next {
            Some(next) => write!(f, "\n  {next}"),
            None => Ok(()),
        }
    }
}
