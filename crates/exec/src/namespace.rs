//! Trees in a PID namespace: selects the processes that get TERM.
//!
//! The first process of such a tree made the namespace and waits outside of it. Its child is the init of the namespace.
//! TERM to those two would end the namespace under the program, which should get the grace period to end by itself.
//! Besides, the kernel drops TERM to an init that has no handler for it.

use rustix::process::{Pid, Signal};

use super::registry::Root;
use super::table::Process;

/// The processes of an isolated tree that do not get TERM. They end when the program ends.
pub(super) fn wrappers(root: &Root, living: &[&Process]) -> Vec<Pid> {
    if !root.isolated {
        return Vec::new();
    }
    let is_wrapper = |process: &&&Process| process.pid == root.pid || Kind::of(process.pid) == Kind::InitWithoutHandler;
    living.iter().filter(is_wrapper).map(|process| process.pid).collect()
}

/// Whether at least one of these processes gets TERM.
pub(super) fn any_gets_term(root: &Root, living: &[&Process]) -> bool {
    wrappers(root, living).len() < living.len()
}

/// The role of a process in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An ordinary process.
    Member,
    /// The init of the namespace, without a handler for TERM.
    InitWithoutHandler,
}

impl Kind {
    fn of(pid: Pid) -> Self {
        // If the file cannot be read, the process has ended and gets no signal in either case.
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
    }

    /// Source: proc_pid_status(5). `NSpid` contains a number for each namespace, the innermost last. `SigCgt` is a
    /// hexadecimal mask; the lowest bit is the first signal.
    fn parse(status: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let numbers: Vec<&str> = field("NSpid:").unwrap_or_default().split_ascii_whitespace().collect();
        let caught = field("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        let handles_term = caught & (1 << (Signal::TERM.as_raw() - 1)) != 0;
        if numbers.len() > 1 && numbers.last() == Some(&"1") && !handles_term {
            Self::InitWithoutHandler
        } else {
            Self::Member
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_init_without_a_handler_does_not_hear() {
        for (status, kind) in [
            ("NSpid:\t4242\t1\nSigCgt:\t0000000000000000\n", Kind::InitWithoutHandler),
            ("NSpid:\t4242\t7\t1\nSigCgt:\t0000000000000000\n", Kind::InitWithoutHandler),
            ("NSpid:\t4242\t1\nSigCgt:\t0000000000004000\n", Kind::Member),
            ("NSpid:\t4242\t2\nSigCgt:\t0000000000000000\n", Kind::Member),
            ("NSpid:\t1\nSigCgt:\t0000000000000000\n", Kind::Member),
            ("", Kind::Member),
        ] {
            assert_eq!(Kind::parse(status), kind, "{status}");
        }
    }
}
