//! The process table: one walk over `/proc`.
//!
//! A walk is not a snapshot: processes start and end during the walk. Callers that rely on it walk twice.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::io::{self, Read};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::MARK;

/// Longest part of an environment that is examined, in bytes. 1 MiB: half of what the kernel accepts for arguments and
/// environment together under its usual stack limit. The mark may be anywhere in the environment.
const MAX_ENVIRONMENT: u64 = 1024 * 1024;

/// Room for a line of `/proc/PID/stat`, in bytes. Most have 200 to 350.
const STAT: usize = 512;
/// Room for an environment, in bytes. Most of those of services and shells have less than 2 KiB.
const ENVIRONMENT: usize = 2048;

/// A process as the walk found it. Number and start time together are its identity: a number may be reused, the pair is
/// not.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    pub(super) parent: Option<Pid>,
    pub(super) group: Option<Pid>,
    pub(super) session: Option<Pid>,
    pub(super) state: State,
    /// Its start time, in clock ticks since the machine started (a hundredth of a second on all common machines).
    pub(super) start: u64,
    /// Whether it is a thread of the kernel, which has no environment. Its session does not tell: it is 0 also for a
    /// process whose session was opened outside of this PID namespace, as in a container.
    of_kernel: bool,
    /// The value of its mark, once it was read.
    mark: OnceCell<Option<Vec<u8>>>,
}

/// The flag of a thread of the kernel among the flags of a process.
///
/// Source: `PF_KTHREAD` in include/linux/sched.h; unchanged since Linux 2.6.27.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It runs or waits.
    Alive,
    /// It is stopped until it gets CONT.
    Stopped,
    /// It has ended and was not reaped yet.
    Zombie,
}

impl Process {
    /// Whether it has not ended.
    pub(super) fn lives(&self) -> bool {
        self.state != State::Zombie
    }

    /// Its identity.
    pub(super) fn identity(&self) -> Identity {
        Identity { pid: self.pid, start: self.start }
    }

    /// The value of [`MARK`] in the environment that it was started with. `None`: it has no mark, has ended, or belongs
    /// to another user, so that its environment is not readable.
    pub(super) fn mark(&self) -> Option<&[u8]> {
        if self.of_kernel {
            return None;
        }
        self.mark.get_or_init(|| read_mark(self.pid)).as_deref()
    }
}

/// The identity of a process: its number and its start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    pub(super) pid: Pid,
    pub(super) start: u64,
}

/// All visible processes.
#[derive(Debug, Default)]
pub(super) struct Table {
    processes: HashMap<Pid, Process>,
    /// For each number: the processes with this number as their parent, group or session.
    relatives: HashMap<Pid, Vec<Pid>>,
    /// For each mark: the processes with this mark.
    marked: HashMap<Vec<u8>, Vec<Pid>>,
}

impl Table {
    /// Walks over `/proc`, and reads the marks of processes that started at `since` or later.
    ///
    /// # Errors
    /// `/proc` cannot be listed, or there is no free file descriptor: such a failure must not make a tree look empty. A
    /// process that ends during the walk is left out.
    pub(super) fn read(since: u64) -> io::Result<Self> {
        let mut table = Self::default();
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| number(name).ok().flatten()) else { continue };
            match read(pid) {
                Ok(process) => table.insert(process, since),
                Err(error) if is_gone_or_hidden(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(table)
    }

    fn insert(&mut self, process: Process, since: u64) {
        let pid = process.pid;
        for relative in [process.parent, process.group, process.session].into_iter().flatten() {
            self.relatives.entry(relative).or_default().push(pid);
        }
        if process.start >= since
            && let Some(mark) = process.mark()
        {
            self.marked.entry(mark.to_vec()).or_default().push(pid);
        }
        self.processes.insert(pid, process);
    }

    /// The process with this number.
    pub(super) fn get(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(&pid)
    }

    /// All processes, in no particular order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// The children of this process, found by the walk.
    pub(super) fn into_children_of(self, parent: Pid) -> Vec<Process> {
        self.processes.into_values().filter(|process| process.parent == Some(parent)).collect()
    }

    /// The processes with this number as their parent, group or session.
    pub(super) fn relatives(&self, of: Pid) -> impl Iterator<Item = Pid> {
        self.relatives.get(&of).into_iter().flatten().copied()
    }

    /// The processes with this mark.
    pub(super) fn marked(&self, mark: &str) -> impl Iterator<Item = Pid> {
        self.marked.get(mark.as_bytes()).into_iter().flatten().copied()
    }
}

/// Whether this process has a child, alive or not reaped yet. One system call instead of a walk.
///
/// Source: waitid(2): `ECHILD` if there is no child to wait for; `WNOWAIT` leaves every child as it is.
pub(super) fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    // Any other error means that nothing is known.
    waitid(WaitId::All, look).err() != Some(Errno::CHILD)
}

/// Reads the current state of the process with this number.
///
/// # Errors
/// There is no such process.
pub(super) fn read(pid: Pid) -> io::Result<Process> {
    let text = contents(format!("/proc/{pid}/stat"), STAT, u64::MAX)?;
    parse(pid, &text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an unreadable line of /proc"))
}

/// The first `most` bytes of a file of `/proc`, which does not tell its size. `usual`: room for most of these files.
fn contents(path: String, usual: usize, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usual);
    std::fs::File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether reading a process failed because it has ended, or because it belongs to another user and is hidden.
fn is_gone_or_hidden(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidData, NotFound, PermissionDenied};
    matches!(error.kind(), NotFound | PermissionDenied | InvalidData)
        || error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// The kernel's clock in the unit of [`Process::start`], rounded down; 0 if it cannot be read.
///
/// Source: proc_uptime(5): seconds with two decimals, by the clock that also measures start times.
pub(super) fn now() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = text.split_ascii_whitespace().next().unwrap_or_default();
    seconds.replace('.', "").parse().unwrap_or_default()
}

/// Parses a line of `/proc/PID/stat`.
///
/// Source: proc_pid_stat(5). The name of the program, in parentheses, may contain any character, including parentheses,
/// so the fields are counted from the last parenthesis.
fn parse(pid: Pid, line: &[u8]) -> Option<Process> {
    let after_name = line.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&line[after_name..]).ok()?.split_ascii_whitespace();
    let state = match fields.next()? {
        "Z" | "X" | "x" => State::Zombie,
        "T" | "t" => State::Stopped,
        _ => State::Alive,
    };
    let mut next = || number(fields.next()?).ok();
    let (parent, group, session) = (next()?, next()?, next()?);
    // The 9th field of the line. The first three and the three above have been read.
    let flags: u32 = fields.nth(2)?.parse().ok()?;
    // The 22nd field.
    let start = fields.nth(12)?.parse().ok()?;
    let of_kernel = flags & KERNEL_THREAD != 0;
    Some(Process { pid, parent, group, session, state, start, of_kernel, mark: OnceCell::new() })
}

/// Parses the number of a process. `None` for 0 (the kernel, or outside of this namespace) and −1 (the process is being
/// released).
fn number(text: &str) -> Result<Option<Pid>, std::num::ParseIntError> {
    Ok(Some(text.parse()?).filter(|number| *number > 0).and_then(Pid::from_raw))
}

/// Reads the value of the mark in a process's environment.
fn read_mark(pid: Pid) -> Option<Vec<u8>> {
    contents(format!("/proc/{pid}/environ"), ENVIRONMENT, MAX_ENVIRONMENT)
        .ok()?
        .split(|byte| *byte == 0)
        .find_map(|entry| entry.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
        .map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_whatever_the_program_is_called() {
        let pid = Pid::from_raw(42).unwrap();
        let tail = "7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 9 9 9";
        for (name, letter, state) in [
            ("sh", "S", State::Alive),
            ("a b", "R", State::Alive),
            ("x) Z 1 1 1 (", "D", State::Alive),
            ("sleep", "T", State::Stopped),
            ("sleep", "Z", State::Zombie),
        ] {
            let process = parse(pid, format!("42 ({name}) {letter} {tail}\n").as_bytes()).unwrap();
            let numbers = [process.parent, process.group, process.session].map(Pid::as_raw);
            assert_eq!((numbers, process.state, process.start), ([7, 8, 9], state, 123_456), "{name}");
        }
        let released = parse(pid, b"42 (sh) X 0 -1 -1 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 9 9").unwrap();
        assert_eq!((released.parent, released.group, released.session, released.lives()), (None, None, None, false));
        // A thread of the kernel, and a process of a container whose session was opened outside.
        for (flags, of_kernel) in [("2129984", true), ("4194304", false)] {
            let line = format!("42 (x) S 2 0 0 0 -1 {flags} 1 2 3 4 5 6 7 8 20 0 1 0 9 9");
            assert_eq!(parse(pid, line.as_bytes()).unwrap().of_kernel, of_kernel, "{flags}");
        }
        for broken in ["", "42 (sh", "42 (sh) S", "42 (sh) S 1 2 3", "42 (sh) S a b c"] {
            assert!(parse(pid, broken.as_bytes()).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_child_is_noticed_whichever_thread_has_started_it_and_until_it_is_reaped() {
        // Other tests of this process may have children, so only their presence can be tested.
        let (started, child) = std::sync::mpsc::channel();
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let mut child = std::process::Command::new("true").spawn().unwrap();
            started.send(()).unwrap();
            let _ = stopped.recv();
            child.wait().unwrap().success()
        });
        child.recv().unwrap();
        assert!(has_children());
        drop(stop);
        assert!(thread.join().unwrap(), "looking has not reaped it");
    }

    #[test]
    fn a_walk_finds_this_process_and_its_parent() {
        let table = Table::read(u64::MAX).unwrap();
        let me = table.get(rustix::process::getpid()).unwrap();
        assert!(table.relatives(rustix::process::getppid().unwrap()).any(|pid| pid == me.pid));
        assert_eq!(me.parent, rustix::process::getppid());
        assert!(me.lives());
        assert_eq!(me.identity(), read(me.pid).unwrap().identity());
        assert!(me.start <= now(), "starts are measured by the same clock");
    }
}
