//! Processes of a daemon that was killed.
//!
//! The kernel kills the programs that are tied to a daemon when it ends, but not a sandbox that is just being made.
//! bubblewrap is two processes. Each asks for the parent-death signal after its preparations, and does not check whether
//! its parent is gone by then. So the first may outlive the daemon, and the second the first; a second one that waits for
//! the first waits forever. Therefore each mark names the daemon that has made it, and the next start kills what bears
//! the mark of a daemon that is gone.
//!
//! Source: bubblewrap 0.8, bubblewrap.c: `handle_die_with_parent` is called after `raw_clone`, and in `do_init`.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid};
use uuid::Uuid;

use super::signal;
use super::table::{self, Identity, Process, Table};

/// Number of looks, and the pause between two: two seconds in total. KILL takes effect at once, but the end of a PID
/// namespace waits for all its processes.
const LOOKS: usize = 200;
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// The daemon that has made a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The inode of the PID namespace in which the number of the daemon is valid. A process of another container may be
    /// visible here, and its daemon is not.
    namespace: u64,
    daemon: Identity,
}

impl Origin {
    /// This process.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub(super) fn current() -> io::Result<Self> {
        let namespace = std::fs::metadata("/proc/self/ns/pid")?.ino();
        Ok(Self { namespace, daemon: table::read(getpid())?.identity() })
    }

    /// A new mark for one tree.
    pub(super) fn mark(&self) -> String {
        let Identity { pid, start } = self.daemon;
        format!("{}.{pid}.{start}.{}", self.namespace, Uuid::now_v7().simple())
    }

    /// `None`: it is no mark of this version.
    fn of_mark(mark: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(mark).ok()?.split('.');
        let mut number = || fields.next()?.parse::<u64>().ok();
        let (namespace, pid, start) = (number()?, number()?, number()?);
        Some(Self { namespace, daemon: Identity { pid: Pid::from_raw(pid.try_into().ok()?)?, start } })
    }

    /// Whether this process bears the mark of a daemon that is gone.
    fn is_left_behind(&self, process: &Process, table: &Table) -> bool {
        let Some(origin) = process.mark().and_then(Self::of_mark) else { return false };
        let is_alive = |daemon: &Process| daemon.identity() == origin.daemon && daemon.lives();
        process.lives() && origin.namespace == self.namespace && !table.get(origin.daemon.pid).is_some_and(is_alive)
    }

    /// Kills what daemons that are gone have left behind, until a look finds none, or for two seconds: a killed process
    /// that waits in a call of the kernel ends later, and runs nothing until then. Returns the number of killed processes.
    /// Blocks: a look walks over the process table.
    pub(super) fn end_left_behind(&self) -> usize {
        let mut killed = HashSet::new();
        for look in 1..=LOOKS {
            let table = match Table::read(0) {
                Ok(table) => table,
                Err(error) => {
                    tracing::warn!(%error, "the process table cannot be read; processes of a killed daemon may live on");
                    break;
                }
            };
            let found: Vec<_> = table.iter().filter(|process| self.is_left_behind(process, &table)).collect();
            if found.is_empty() {
                break;
            }
            for process in &found {
                signal::send(process.identity(), Signal::KILL);
                killed.insert(process.identity());
            }
            if look == LOOKS {
                let pids: Vec<_> = found.iter().map(|it| it.identity().pid.as_raw_nonzero()).collect();
                tracing::warn!(?pids, "killed processes of an earlier daemon still wait in calls of the kernel");
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        killed.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command};

    use super::super::MARK;
    use super::*;

    fn marked(mark: &str) -> Child {
        Command::new("sleep").arg("1000").env(MARK, mark).spawn().unwrap()
    }

    #[test]
    fn only_a_process_of_a_daemon_that_is_gone_is_killed() {
        let me = Origin::current().unwrap();
        let gone = Origin { daemon: Identity { start: me.daemon.start + 1, ..me.daemon }, ..me };
        let elsewhere = Origin { namespace: me.namespace + 1, ..gone };
        let mut left = [marked(&gone.mark()), marked(&gone.mark())];
        let mut others = [me.mark(), elsewhere.mark(), "an older version".into()].map(|mark| marked(&mark));
        // The count tells nothing here: a daemon that starts beside this test kills them too, and others may be left behind.
        me.end_left_behind();
        for child in &mut left {
            assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        }
        for child in &mut others {
            assert_eq!(child.try_wait().unwrap(), None);
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    #[test]
    fn a_mark_names_its_daemon_and_no_mark_comes_twice() {
        let me = Origin::current().unwrap();
        let (one, other) = (me.mark(), me.mark());
        assert_ne!(one, other);
        assert_eq!([&one, &other].map(|mark| Origin::of_mark(mark.as_bytes())), [Some(me), Some(me)]);
        for foreign in ["", "019f3c", "1.2", "1.-2.3.x", "1.0.3.x"] {
            assert_eq!(Origin::of_mark(foreign.as_bytes()), None, "{foreign}");
        }
    }
}
