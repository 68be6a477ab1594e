//! How a background process has ended.

use std::fmt;

use belay_exec::Exit;

/// Why Belay has ended a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// The tool `process`.
    Kill,
    /// The end of its run, or of the daemon.
    Run,
    /// A stop, a freeze, or the end of its conversation.
    Stop,
    /// Its time limit.
    Age,
    /// It has printed more than it may.
    Output,
    /// Its output could not be written to disk.
    Disk,
    /// The task that attends to it has crashed.
    Crash,
}

/// How a process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, or by a signal of another program.
    Itself(Exit),
    /// Belay has ended it.
    Ended(EndedBy),
}

impl End {
    /// The exit code of a process that has exited by itself.
    pub(super) fn code(self) -> Option<i32> {
        match self {
            Self::Itself(Exit::Code(code)) => Some(code),
            Self::Itself(_) | Self::Ended(_) => None,
        }
    }

    /// The word for metrics and events, from a closed list.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Itself(_) => "exited",
            Self::Ended(EndedBy::Kill) => "killed",
            Self::Ended(EndedBy::Run) => "run_ended",
            Self::Ended(EndedBy::Stop) => "stopped",
            Self::Ended(EndedBy::Age) => "age",
            Self::Ended(EndedBy::Output) => "output",
            Self::Ended(EndedBy::Disk) => "disk",
            Self::Ended(EndedBy::Crash) => "crashed",
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Itself(Exit::Code(code)) => write!(f, "ended with exit code {code}"),
            Self::Itself(Exit::Signal(signal)) => write!(f, "was ended by signal {signal}"),
            Self::Itself(Exit::Ended) | Self::Ended(EndedBy::Run) => f.write_str("was ended with its run"),
            Self::Ended(EndedBy::Kill) => f.write_str("was killed on request"),
            Self::Ended(EndedBy::Stop) => f.write_str("was ended by a stop"),
            Self::Ended(EndedBy::Age) => f.write_str("was ended at its time limit"),
            Self::Ended(EndedBy::Output) => f.write_str("was ended because it had printed too much"),
            Self::Ended(EndedBy::Disk) => f.write_str("was ended because its output could not be stored"),
            Self::Ended(EndedBy::Crash) => f.write_str("was ended because of an internal error"),
        }
    }
}
