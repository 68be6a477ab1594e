//! Who belongs to a tree.
//!
//! A process can leave its group, its session and its parent, and lose its environment. Each of these ties is enough to
//! be found by, and one found is remembered, so that it has to leave them all before the first look.

use std::collections::HashSet;

use super::cgroup::Leaf;
use super::registry::Root;
use super::table::{Identity, Process, Table};

/// The processes of a tree in a table, the first one included, zombies too: those in its control group, those that carry
/// its mark, those that were known to belong to it, and whoever is a child, or in a group or session, of one of these.
///
/// A group or session counts only while its leader, whose number it has, is of the tree itself: anybody may join a group
/// of their own session, the daemon's included.
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
