//! Who belongs to a tree.
//!
//! A process can leave its group, its session and its parent, and lose its environment. Each of these ties is enough to
//! be found by, and one found is remembered, so that it has to leave them all before the first look.

use std::collections::HashSet;

use rustix::process::Pid;

use super::registry::Root;
use super::table::{Identity, Process, Table};

/// The processes of a tree in a table, the first one included, zombies too: those in its control group, those that carry
/// its mark, those that were known to belong to it, and whoever is a child, or in a group or session, of one of these.
///
/// A group or session counts only while its leader, whose number it has, is of the tree itself: anybody may join a group
/// of their own session, the daemon's included.
pub(super) fn of<'t>(root: &Root, known: &HashSet<Identity>, table: &'t Table) -> Vec<&'t Process> {
    let mut numbers: HashSet<Pid> = root.cgroup.iter().flat_map(|leaf| leaf.members()).collect();
    let me = rustix::process::getpid();
    let surely = |process: &Process| {
        process.pid == root.pid
            || known.contains(&process.identity())
            || (process.start >= root.start && process.mark() == Some(root.mark.as_bytes()))
    };
    numbers.extend(table.iter().filter(|process| surely(process)).map(|process| process.pid));
    numbers.remove(&me);
    loop {
        let of_us = |relative: Option<Pid>| relative.is_some_and(|pid| numbers.contains(&pid));
        let joined = |process: &&Process| {
            process.pid != me
                && !numbers.contains(&process.pid)
                && (of_us(process.parent) || of_us(process.group) || of_us(process.session))
        };
        let found: Vec<Pid> = table.iter().filter(joined).map(|process| process.pid).collect();
        if found.is_empty() {
            break;
        }
        numbers.extend(found);
    }
    numbers.iter().filter_map(|pid| table.get(*pid)).collect()
}
