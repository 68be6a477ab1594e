//! How one tree is brought to its end: TERM, a time of grace, KILL, and two looks that find nothing.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::exit::Exit;
use super::namespace;
use super::registry::Root;
use super::table::{Identity, Process, State, Table};
use super::{members, signal, table};

/// Times a tree is frozen and looked at again before it is killed. 8: each pass stops whatever the one before has found,
/// so only what was born between the two is left; a storm that outruns eight is killed look by look instead.
const FREEZES: usize = 8;

/// How long KILL may take. 10 s: it takes no time, but for a process that waits for a device or a far file system.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How long the makers of a namespace are let alone once the program has ended by TERM: they end by themselves then, after
/// a moment that an own KILL would cut short. 50 ms: twenty times what a shell needs.
const WRAPPERS_GRACE: Duration = Duration::from_millis(50);

/// Times a tree has to be found empty. Two: a walk is no moment, and a process may have moved from what was not yet
/// looked at to what was.
const CLEAN_LOOKS: u8 = 2;

/// What is known of a tree between two looks.
#[derive(Debug, Default)]
pub(super) struct Termination {
    /// Everything that belongs to it, or did at the last look.
    known: HashSet<Identity>,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    /// How the first process had ended before anybody wanted it.
    by_itself: Option<Exit>,
    grace_ends: Instant,
    told: Told,
    /// Since when only the makers of its namespace are left.
    wrappers_alone: Option<Instant>,
    frozen: HashSet<Identity>,
    freezes: usize,
    killed_at: Option<Instant>,
    clean_looks: u8,
}

/// Who has had TERM. Once is enough: the second means "at once" to many programs.
#[derive(Debug)]
struct Told {
    /// When the group was told, by the kernel's clock: whoever was born before and is in the group has heard it.
    group: u64,
    each: HashSet<Identity>,
}

impl Ending {
    /// Whether those who are left may end by themselves yet, since the program has just done so.
    fn waits_for_wrappers(&mut self) -> bool {
        let alone = self.wrappers_alone.get_or_insert_with(Instant::now);
        self.killed_at.is_none() && !self.told.each.is_empty() && alone.elapsed() < WRAPPERS_GRACE
    }

    /// Stops whoever was not stopped yet, so that nobody starts anything while others die. Whether there was somebody: then
    /// it is looked once more, for what was started meanwhile.
    fn freeze(&mut self, living: &[&Process]) -> bool {
        if self.freezes == FREEZES {
            return false;
        }
        self.freezes += 1;
        let mut fresh = false;
        for process in living {
            if self.frozen.insert(process.identity()) {
                signal::send(process.identity(), Signal::STOP);
                fresh = true;
            }
        }
        fresh
    }
}

/// What came of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// Something of it lives, or may live.
    Lives,
    /// It is empty, and reaped. Its first process ended like this.
    Empty(Exit),
    /// KILL has done nothing for [`KILL_LIMIT`].
    Stuck,
}

impl Termination {
    /// Looks who belongs to the tree.
    pub(super) fn look<'t>(&self, root: &Root, table: &'t Table) -> Vec<&'t Process> {
        let members = members::of(root, &self.known, table);
        let me = Some(rustix::process::getpid());
        for zombie in
            members.iter().filter(|process| !process.lives() && process.parent == me && process.pid != root.pid)
        {
            signal::reap(zombie.pid);
        }
        members
    }

    /// Remembers who belongs to the tree, and reaps those of them that have ended and come to us.
    pub(super) fn remember(&mut self, root: &Root, members: &[&Process]) {
        let me = Some(rustix::process::getpid());
        for process in members.iter().filter(|process| !process.lives() && process.parent == me) {
            if process.pid != root.pid {
                signal::reap(process.pid);
            }
        }
        self.known = members.iter().map(|process| process.identity()).collect();
    }

    /// Whether its ending has begun.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether it had to be killed.
    pub(super) fn was_killed(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.killed_at.is_some())
    }

    /// Begins the ending: the group of the first process is told at once. What ends from now on ends because of us.
    pub(super) fn begin(&mut self, root: &Root, grace: Duration) {
        let by_itself = signal::look(root.pid);
        let told = Told { group: table::now(), each: HashSet::new() };
        if !root.isolated {
            // Its number is that of the first process, which is ours and not reaped. It fails when the group is empty.
            let _ = kill_process_group(root.pid, Signal::TERM);
        }
        self.ending = Some(Ending {
            by_itself,
            grace_ends: Instant::now() + grace,
            told,
            wrappers_alone: None,
            frozen: HashSet::new(),
            freezes: 0,
            killed_at: None,
            clean_looks: 0,
        });
    }

    /// Takes the next step of the ending, by what this look has found.
    pub(super) fn step(&mut self, root: &Root, members: &[&Process]) -> Look {
        let Some(ending) = &mut self.ending else { return Look::Lives };
        let living: Vec<&Process> = members.iter().copied().filter(|process| process.lives()).collect();
        if living.is_empty() {
            ending.clean_looks += 1;
            if ending.clean_looks < CLEAN_LOOKS {
                return Look::Lives;
            }
            signal::reap(root.pid);
            return Look::Empty(ending.by_itself.unwrap_or(Exit::Ended));
        }
        ending.clean_looks = 0;
        let stuck = ending.killed_at.is_some_and(|at| at.elapsed() > KILL_LIMIT);
        let hears = namespace::hears(root, &living);
        if ending.killed_at.is_none() && Instant::now() < ending.grace_ends && hears {
            tell(root, &living, &mut ending.told);
        } else if !hears && ending.waits_for_wrappers() {
            // The next look finds them gone.
        } else if ending.killed_at.is_some() || root.isolated || !ending.freeze(&living) {
            ending.killed_at.get_or_insert_with(Instant::now);
            kill(root, &living);
        }
        if stuck { Look::Stuck } else { Look::Lives }
    }
}

/// Tells everybody who has not been told yet.
fn tell(root: &Root, living: &[&Process], told: &mut Told) {
    let wrappers = namespace::wrappers(root, living);
    for process in living {
        let with_group = !root.isolated && process.group == Some(root.pid) && process.start < told.group;
        if !with_group && !wrappers.contains(&process.pid) && told.each.insert(process.identity()) {
            signal::send(process.identity(), Signal::TERM);
        }
        // A stopped process takes no signal but these two. TERM waits already, so it does nothing else first.
        if process.state == State::Stopped {
            signal::send(process.identity(), Signal::CONT);
        }
    }
}

/// Kills everything.
fn kill(root: &Root, living: &[&Process]) {
    if let Some(leaf) = &root.cgroup {
        leaf.kill();
    }
    // It fails when the group is empty.
    let _ = kill_process_group(root.pid, Signal::KILL);
    for process in living {
        signal::send(process.identity(), Signal::KILL);
    }
}

/// The numbers of these processes.
pub(super) fn numbers(processes: &[&Process]) -> Vec<Pid> {
    processes.iter().filter(|process| process.lives()).map(|process| process.pid).collect()
}
