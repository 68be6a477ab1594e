//! Finds the processes of a tree.
//!
//! A process can leave its group, its session and its parent, and clear its environment. One remaining tie is enough to
//! find it, and a process that was found is remembered. So it would have to leave all ties before the first look.

use std::collections::HashSet;

use super::cgroup::Leaf;
use super::registry::Root;
use super::table::{Identity, Process, Table};

/// The processes of a tree in a table, including the first one and zombies: those in its control group, those with its
/// mark, those known to belong to it, and every process that is a child of one of these, or in its group or session.
///
/// A group or session counts only while its leader, whose number it has, belongs to the tree. Any process may join
/// another group of its own session, including that of the daemon.
pub(super) fn of<'t>(root: &Root, known: &HashSet<Identity>, table: &'t Table) -> Vec<&'t Process> {
    let me = rustix::process::getpid();
    let same = |identity: &&Identity| table.get(identity.pid).is_some_and(|now| now.start == identity.start);
    let mut waiting = vec![root.pid];
    waiting.extend(root.cgroup.iter().flat_map(Leaf::members));
    waiting.extend(table.marked(&root.mark));
    waiting.extend(known.iter().filter(same).map(|identity| identity.pid));
    let mut found = HashSet::new();
    while let Some(pid) = waiting.pop() {
        if pid != me && found.insert(pid) {
            waiting.extend(table.relatives(pid));
        }
    }
    found.iter().filter_map(|pid| table.get(*pid)).collect()
}
