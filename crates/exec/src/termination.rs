//! Ends one tree: TERM, a grace period, KILL, and two looks that find nothing.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::exit::Exit;
use super::namespace;
use super::registry::Root;
use super::table::{Identity, Process, State, Table};
use super::{members, signal, table};

/// Times a tree is frozen and looked at again before it is killed. 8: each pass stops the processes that the one before
/// has found, so only those that were started in between are left. If a tree starts processes faster than that, it is
/// killed look by look instead.
const FREEZES: usize = 8;

/// How long KILL may take. 10 s: it takes effect at once, except for a process that waits for a device or a remote file
/// system.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// How long the wrapper processes of a namespace are left alone after the program has ended by TERM. They then end by
/// themselves after a moment, which a KILL would cut short. 50 ms: twenty times what a shell needs.
const WRAPPERS_GRACE: Duration = Duration::from_millis(50);

/// Number of looks in a row that must find a tree empty. Two: a walk is not a snapshot, and a process may have moved
/// from a part that was not walked yet to a part that was.
const CLEAN_LOOKS: u8 = 2;

/// The state of a tree between two looks.
#[derive(Debug, Default)]
pub(super) struct Termination {
    /// Everything that belongs to the tree, or did at the last look.
    known: HashSet<Identity>,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Ending {
    /// The exit status of the first process, if it had ended before its end was requested.
    by_itself: Option<Exit>,
    grace_ends: Instant,
    signalled: Signalled,
    /// The time since which only the wrapper processes of its namespace are left.
    wrappers_alone: Option<Instant>,
    frozen: HashSet<Identity>,
    freezes: usize,
    killed_at: Option<Instant>,
    clean_looks: u8,
}

/// The processes that have got TERM. Each gets it only once: to many programs, the second one means "at once".
#[derive(Debug)]
struct Signalled {
    /// The time of TERM to the group, by the kernel's clock. A process of the group that started before has got it.
    group: u64,
    each: HashSet<Identity>,
}

impl Ending {
    /// Whether the remaining processes may still end by themselves, because the program has just done so.
    fn waits_for_wrappers(&mut self) -> bool {
        let alone = self.wrappers_alone.get_or_insert_with(Instant::now);
        self.killed_at.is_none() && !self.signalled.each.is_empty() && alone.elapsed() < WRAPPERS_GRACE
    }

    /// Stops every process that is not stopped yet, so that none starts others while the tree is killed. Returns
    /// whether there was one. Then another look is needed, to find what was started in the meantime.
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

/// The result of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScanResult {
    /// A process of the tree lives, or may live.
    Alive,
    /// The tree is empty and reaped. Contains the exit status of its first process.
    Empty(Exit),
    /// KILL has had no effect for [`KILL_LIMIT`].
    Stuck,
}

impl Termination {
    /// Finds the processes of the tree.
    pub(super) fn find_members<'t>(&self, root: &Root, table: &'t Table) -> Vec<&'t Process> {
        let members = members::of(root, &self.known, table);
        let me = Some(rustix::process::getpid());
        for zombie in
            members.iter().filter(|process| !process.lives() && process.parent == me && process.pid != root.pid)
        {
            signal::reap(zombie.pid);
        }
        members
    }

    /// Records the processes of the tree, and reaps those that have ended and are children of the daemon.
    pub(super) fn remember(&mut self, root: &Root, members: &[&Process]) {
        let me = Some(rustix::process::getpid());
        for process in members.iter().filter(|process| !process.lives() && process.parent == me) {
            if process.pid != root.pid {
                signal::reap(process.pid);
            }
        }
        self.known = members.iter().map(|process| process.identity()).collect();
    }

    /// Whether the end has begun.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// Whether it needed KILL.
    pub(super) fn was_killed(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.killed_at.is_some())
    }

    /// Begins the end: the group of the first process gets TERM at once. Every process that ends from now on ends
    /// because of us.
    pub(super) fn begin(&mut self, root: &Root, grace: Duration) {
        let by_itself = signal::peek_exit(root.pid);
        let signalled = Signalled { group: table::now(), each: HashSet::new() };
        if !root.isolated {
            // The group has the number of the first process, which is our child and not reaped. The call fails if the
            // group is empty.
            let _ = kill_process_group(root.pid, Signal::TERM);
        }
        self.ending = Some(Ending {
            by_itself,
            grace_ends: Instant::now() + grace,
            signalled,
            wrappers_alone: None,
            frozen: HashSet::new(),
            freezes: 0,
            killed_at: None,
            clean_looks: 0,
        });
    }

    /// Takes the next step of the end, based on the processes that this look has found.
    pub(super) fn step(&mut self, root: &Root, members: &[&Process]) -> ScanResult {
        let Some(ending) = &mut self.ending else { return ScanResult::Alive };
        let living: Vec<&Process> = members.iter().copied().filter(|process| process.lives()).collect();
        if living.is_empty() {
            ending.clean_looks += 1;
            if ending.clean_looks < CLEAN_LOOKS {
                return ScanResult::Alive;
            }
            signal::reap(root.pid);
            return ScanResult::Empty(ending.by_itself.unwrap_or(Exit::Ended));
        }
        ending.clean_looks = 0;
        let stuck = ending.killed_at.is_some_and(|at| at.elapsed() > KILL_LIMIT);
        let any_gets_term = namespace::any_gets_term(root, &living);
        if ending.killed_at.is_none() && Instant::now() < ending.grace_ends && any_gets_term {
            send_term(root, &living, &mut ending.signalled);
        } else if !any_gets_term && ending.waits_for_wrappers() {
            // The next look will find that they have ended.
        } else if ending.killed_at.is_some() || root.isolated || !ending.freeze(&living) {
            ending.killed_at.get_or_insert_with(Instant::now);
            kill(root, &living);
        }
        if stuck { ScanResult::Stuck } else { ScanResult::Alive }
    }
}

/// Sends TERM to every process that has not got it yet.
fn send_term(root: &Root, living: &[&Process], signalled: &mut Signalled) {
    let wrappers = namespace::wrappers(root, living);
    for process in living {
        let with_group = !root.isolated && process.group == Some(root.pid) && process.start < signalled.group;
        if !with_group && !wrappers.contains(&process.pid) && signalled.each.insert(process.identity()) {
            signal::send(process.identity(), Signal::TERM);
        }
        // A stopped process reacts only to KILL and CONT. TERM is already pending, so after CONT the process acts on it
        // first.
        if process.state == State::Stopped {
            signal::send(process.identity(), Signal::CONT);
        }
    }
}

/// Kills all processes of the tree.
fn kill(root: &Root, living: &[&Process]) {
    if let Some(leaf) = &root.cgroup {
        leaf.kill();
    }
    // The call fails if the group is empty.
    let _ = kill_process_group(root.pid, Signal::KILL);
    for process in living {
        signal::send(process.identity(), Signal::KILL);
    }
}

/// The numbers of those processes that are alive.
pub(super) fn numbers(processes: &[&Process]) -> Vec<Pid> {
    processes.iter().filter(|process| process.lives()).map(|process| process.pid).collect()
}
