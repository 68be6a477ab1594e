//! What a system call counts for.

use std::collections::BTreeMap;

use belay_tests::measure::daemon::WORKSPACE;
use nix::libc::{self, c_long};

/// Frames of the write-ahead log are a header of 24 bytes and a page of at least 512. SQLite: file format, 4.1.
const PAGE_BYTES_MIN: u64 = 512;

/// The system calls of a process so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Calls {
    /// Pages written to a write-ahead log.
    pub(crate) wal_pages: u64,
    /// Bytes written to files besides databases, which change at checkpoints only.
    pub(crate) file_bytes: u64,
    /// Bytes that checkpoints wrote to databases.
    pub(crate) database_bytes: u64,
    /// `fsync` and `fdatasync`, besides those of databases.
    pub(crate) syncs: u64,
    /// Files that were opened, or not found, besides those of `/proc`, whose number is that of the processes here, and
    /// those of the workspace, where the files of prompts are looked for once a second.
    pub(crate) opens: u64,
    /// Files of the workspace that were opened, or not found.
    pub(crate) workspace_opens: u64,
    /// Files of `/proc` that were opened.
    pub(crate) process_opens: u64,
    /// Calls that may sleep: the thread wakes up after each.
    pub(crate) waits: u64,
    /// All calls, by class.
    pub(crate) classes: BTreeMap<&'static str, u64>,
}

/// What a file descriptor leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    Log,
    Database,
    Other,
    /// A part of `/proc`.
    Process,
    /// The workspace, or a file in it.
    Workspace,
    /// A socket, a pipe, a device or memory.
    None,
}

impl File {
    /// What `/proc/PID/fd/N` links to.
    pub(crate) fn of(link: &str) -> Self {
        match link.trim_end_matches(" (deleted)") {
            link if !link.starts_with('/') || link.starts_with("/dev/") || link.starts_with("/memfd:") => Self::None,
            link if link == "/proc" || link.starts_with("/proc/") => Self::Process,
            link if link.split('/').any(|part| part == WORKSPACE) => Self::Workspace,
            link if link.ends_with("-wal") => Self::Log,
            link if link.ends_with(".db") || link.ends_with("-shm") => Self::Database,
            _ => Self::Other,
        }
    }
}

/// A call, as far as it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Writes to the descriptor in its first argument.
    Write,
    /// Syncs the descriptor in its first argument.
    Sync,
    Open,
    /// May sleep.
    Wait,
    /// May give the thread a name.
    Name,
    Other,
}

impl Call {
    /// The call of this number, with its second argument.
    pub(crate) fn of(number: c_long, second: u64) -> Self {
        match number {
            libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev | libc::SYS_pwritev2 => {
                Self::Write
            }
            libc::SYS_fsync | libc::SYS_fdatasync => Self::Sync,
            libc::SYS_prctl => Self::Name,
            libc::SYS_openat | libc::SYS_openat2 => Self::Open,
            // The command FUTEX_WAIT or FUTEX_WAIT_BITSET; the upper bits are options. Linux: futex(2).
            libc::SYS_futex if matches!(second & 0x7f, 0 | 9) => Self::Wait,
            libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_ppoll | libc::SYS_pselect6 => Self::Wait,
            libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Self::Wait,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait | libc::SYS_poll | libc::SYS_select => Self::Wait,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open | libc::SYS_creat => Self::Open,
            _ => Self::Other,
        }
    }
}

impl Calls {
    /// A thread has made this call. `file`: where it leads, for calls with a descriptor.
    pub(crate) fn begun(&mut self, number: c_long, call: Call, file: File) {
        *self.classes.entry(class(number)).or_default() += 1;
        match call {
            Call::Sync if file != File::Database => self.syncs += 1,
            Call::Wait => self.waits += 1,
            Call::Write | Call::Sync | Call::Open | Call::Name | Call::Other => {}
        }
    }

    /// A file was opened, or not found, below this directory. A path that begins at the root has no directory.
    pub(crate) fn opened(&mut self, directory: File, file: File) {
        match (directory, file) {
            (File::Process, _) | (_, File::Process) => self.process_opens += 1,
            (File::Workspace, _) | (_, File::Workspace) => self.workspace_opens += 1,
            _ => self.opens += 1,
        }
    }

    /// A write has returned.
    pub(crate) fn wrote(&mut self, file: File, bytes: u64) {
        match file {
            File::Log => {
                self.wal_pages += u64::from(bytes >= PAGE_BYTES_MIN);
                self.file_bytes += bytes;
            }
            File::Database => self.database_bytes += bytes,
            File::Other | File::Workspace => self.file_bytes += bytes,
            File::Process | File::None => {}
        }
    }
}

/// The class of a call, for people.
fn class(number: c_long) -> &'static str {
    match number {
        libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv => "read",
        libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev => "write",
        libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_sync_file_range => "sync",
        libc::SYS_openat | libc::SYS_openat2 | libc::SYS_close => "open and close",
        libc::SYS_fcntl | libc::SYS_flock => "lock",
        libc::SYS_fstat | libc::SYS_statx | libc::SYS_newfstatat | libc::SYS_getdents64 | libc::SYS_readlinkat => {
            "metadata"
        }
        libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_recvfrom | libc::SYS_recvmsg => "network",
        libc::SYS_accept4 | libc::SYS_connect | libc::SYS_socket | libc::SYS_shutdown | libc::SYS_bind => "network",
        libc::SYS_futex | libc::SYS_sched_yield => "futex",
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_epoll_ctl | libc::SYS_ppoll => "poll",
        libc::SYS_mmap | libc::SYS_munmap | libc::SYS_brk | libc::SYS_madvise | libc::SYS_mprotect => "memory",
        libc::SYS_clone3 | libc::SYS_clone | libc::SYS_execve | libc::SYS_wait4 | libc::SYS_waitid => "process",
        libc::SYS_getrandom => "random",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait | libc::SYS_poll => "poll",
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat | libc::SYS_lstat | libc::SYS_readlink | libc::SYS_access => "metadata",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_told_by_its_link() {
        for (link, file) in [
            ("/tmp/x/belay.db-wal", File::Log),
            ("/tmp/x/belay.db", File::Database),
            ("/tmp/x/notes.md", File::Other),
            ("/tmp/x/gone (deleted)", File::Other),
            ("socket:[1]", File::None),
            ("/proc", File::Process),
            ("/proc/7/stat", File::Process),
            ("/process/notes.md", File::Other),
            ("/tmp/x/workspace", File::Workspace),
            ("/tmp/x/workspace/AGENTS.md", File::Workspace),
            ("/tmp/x/workspaces/AGENTS.md", File::Other),
            ("/dev/null", File::None),
            ("anon_inode:[eventfd]", File::None),
        ] {
            assert_eq!(File::of(link), file, "{link}");
        }
    }

    #[test]
    fn a_frame_of_the_log_is_one_page_and_all_its_bytes() {
        let mut calls = Calls::default();
        for (file, bytes) in [(File::Log, 24), (File::Log, 4096), (File::Database, 4096), (File::Other, 7)] {
            calls.wrote(file, bytes);
        }
        assert_eq!((calls.wal_pages, calls.file_bytes, calls.database_bytes), (1, 4127, 4096));
    }

    #[test]
    fn files_that_are_looked_for_in_the_workspace_are_counted_apart() {
        let mut calls = Calls::default();
        for (directory, file) in [
            (File::Workspace, File::None),
            (File::Workspace, File::Workspace),
            (File::None, File::Workspace),
            (File::None, File::None),
            (File::None, File::Other),
            (File::Process, File::Process),
            (File::Process, File::Other), // a file below the directory of a process
        ] {
            calls.opened(directory, file);
        }
        assert_eq!((calls.workspace_opens, calls.opens, calls.process_opens), (3, 2, 2));
    }
}
