//! Trees that live in a PID namespace: whom TERM can reach there.
//!
//! The first process of such a tree made the namespace and waits outside; its child is the namespace's init. Asking
//! those two to end would take the ground from under the program, whose own chance to end well is what the grace is
//! for. And an init that has no handler for TERM never gets one: the kernel drops it.

use rustix::process::{Pid, Signal};

use super::registry::Root;
use super::table::Process;

/// Those of an isolated tree that are not asked to end: they end when the program does.
pub(super) fn wrappers(root: &Root, living: &[&Process]) -> Vec<Pid> {
    if !root.isolated {
        return Vec::new();
    }
    let unasked = |process: &&&Process| process.pid == root.pid || Kind::of(process.pid) == Kind::DeafInit;
    living.iter().filter(unasked).map(|process| process.pid).collect()
}

/// Whether anybody of these can hear TERM.
pub(super) fn hears(root: &Root, living: &[&Process]) -> bool {
    wrappers(root, living).len() < living.len()
}

/// What a process is in its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Somebody.
    Member,
    /// Its init, without a handler for TERM.
    DeafInit,
}

impl Kind {
    fn of(pid: Pid) -> Self {
        // One that cannot be read has ended, and is not asked either way.
        Self::parse(&std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
    }

    /// Source: proc_pid_status(5). `NSpid` has a number for each namespace, the innermost last; `SigCgt` is a mask in
    /// hexadecimal, the first signal its lowest bit.
    fn parse(status: &str) -> Self {
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let numbers: Vec<&str> = field("NSpid:").unwrap_or_default().split_ascii_whitespace().collect();
        let caught = field("SigCgt:").and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
        let hears = caught & (1 << (Signal::TERM.as_raw() - 1)) != 0;
        if numbers.len() > 1 && numbers.last() == Some(&"1") && !hears { Self::DeafInit } else { Self::Member }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_init_without_a_handler_does_not_hear() {
        for (status, kind) in [
            ("NSpid:\t4242\t1\nSigCgt:\t0000000000000000\n", Kind::DeafInit),
            ("NSpid:\t4242\t7\t1\nSigCgt:\t0000000000000000\n", Kind::DeafInit),
            ("NSpid:\t4242\t1\nSigCgt:\t0000000000004000\n", Kind::Member),
            ("NSpid:\t4242\t2\nSigCgt:\t0000000000000000\n", Kind::Member),
            ("NSpid:\t1\nSigCgt:\t0000000000000000\n", Kind::Member),
            ("", Kind::Member),
        ] {
            assert_eq!(Kind::parse(status), kind, "{status}");
        }
    }
}
