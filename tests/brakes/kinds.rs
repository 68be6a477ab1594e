//! The kinds of processes that are hard to stop.

use std::ffi::OsString;
use std::time::Duration;

use belay_exec::{Launch, Stdin};

/// A kind of process tree that is hard to stop.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// A shell script. It writes `ready` when all its processes run. `WORD` in it stands for a number that only this
    /// run has.
    script: &'static str,
    /// Runs that are stopped together, each with a tree of its own.
    pub(crate) runs: usize,
    /// Trees of each run.
    pub(crate) trees: usize,
    /// The environment of the shell.
    around: Around,
    /// Whether the stop waits until the first process is suspended (state `T`).
    pub(crate) stands_still: bool,
    /// Whether a start is requested at the moment of the stop.
    pub(crate) races: bool,
    /// Longest 99th percentile of the time from the stop to an empty tree.
    pub(crate) empty_within: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Around {
    Nothing,
    /// A pipe to its standard input that stays open, as for an MCP server.
    Pipe,
    /// A PID namespace.
    Namespace,
}

const PLAIN: Kind = Kind {
    name: "",
    script: "",
    runs: 1,
    trees: 1,
    around: Around::Nothing,
    stands_still: false,
    races: false,
    empty_within: Duration::from_secs(1),
};

/// A tree that ignores SIGTERM gets SIGKILL after two seconds.
const AFTER_THE_GRACE: Duration = Duration::from_millis(2500);

/// All kinds. `WORD` is the duration of each `sleep`, so that the process can be found by it.
pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "sleepers", script: "sleep WORD & sleep WORD & echo ready; wait", ..PLAIN },
    Kind { name: "double forks", script: "(sleep WORD &); (sleep WORD &); echo ready; sleep WORD", ..PLAIN },
    Kind {
        name: "sessions of their own",
        script: "setsid -f sleep WORD; setsid -f sh -c 'sleep WORD & wait'; echo ready; sleep WORD",
        ..PLAIN
    },
    Kind {
        name: "TERM ignored",
        script: "trap '' TERM; sleep WORD & echo ready; while :; do wait; done",
        empty_within: AFTER_THE_GRACE,
        ..PLAIN
    },
    Kind {
        name: "stopped",
        script: "sleep WORD & kill -STOP $!; echo ready; kill -STOP $$; sleep WORD",
        stands_still: true,
        ..PLAIN
    },
    Kind {
        name: "fork storm (40)",
        script: "echo ready; for i in 1 2 3 4; do for j in 1 2 3 4 5 6 7 8 9 0; do (setsid sleep WORD &); done; done; wait; sleep WORD",
        ..PLAIN
    },
    Kind { name: "grandchild with the pipes", script: "setsid -f sleep WORD; echo ready; exit 0 # WORD", ..PLAIN },
    Kind { name: "mcp: server on a pipe", script: "echo ready; cat; : WORD", around: Around::Pipe, ..PLAIN },
    Kind { name: "subagents: 4 runs", script: "sleep WORD & echo ready; sleep WORD", runs: 4, ..PLAIN },
    Kind { name: "4 trees of a run", script: "sleep WORD & echo ready; sleep WORD", trees: 4, ..PLAIN },
    Kind {
        name: "namespace",
        script: "(setsid sleep WORD &); echo ready; sleep WORD",
        around: Around::Namespace,
        ..PLAIN
    },
    Kind { name: "start during the stop", script: "sleep WORD & echo ready; sleep WORD", races: true, ..PLAIN },
];

impl Kind {
    /// Returns whether a stop takes the whole grace period.
    pub(crate) fn waits_for_grace(&self) -> bool {
        self.empty_within >= AFTER_THE_GRACE
    }

    /// The launch of a tree of this kind.
    pub(crate) fn launch(&self, word: &str) -> Launch {
        let script = self.script.replace("WORD", word);
        let shell = ["sh", "-c", &script];
        let wrapped: Vec<&str> = match self.around {
            Around::Namespace => ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"]
                .into_iter()
                .chain(shell)
                .collect(),
            _ => shell.to_vec(),
        };
        Launch {
            program: wrapped[0].into(),
            args: wrapped[1..].iter().map(OsString::from).collect(),
            env: std::env::var_os("PATH").map(|path| ("PATH".into(), path)).into_iter().collect(),
            directory: "/".into(),
            stdin: if self.around == Around::Pipe { Stdin::Piped } else { Stdin::Null },
            isolated: self.around == Around::Namespace,
            sealed: None,
        }
    }
}
