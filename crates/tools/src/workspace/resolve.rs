//! Resolves a path beneath a directory: by the kernel where it can, else component by component.
//!
//! `openat2` with `RESOLVE_BENEATH` is the first choice (Linux 5.6). A system call filter may refuse it although the
//! kernel has it: systemd does for `RestrictSUIDSGID=`, and so do container engines with old filter lists. Then each
//! component is opened by itself, never following a symbolic link; links are read and resolved here, and `..` returns to
//! the directory that the walk came through. Both give the same answers and the same error numbers; a property test
//! compares them.
//!
//! The walk is written here rather than taken from `cap-primitives`: the callers need `O_PATH` descriptors, these
//! error numbers, and a walk that tests can run beside the kernel's.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;

/// Times a path is resolved again when something moved meanwhile.
///
/// Source: openat2(2), `EAGAIN` under `RESOLVE_BENEATH`: the kernel could not ensure that a `..` stayed inside, because
/// of a rename somewhere on the machine; callers should try again.
const RESOLVE_ATTEMPTS: usize = 32;

/// Most symbolic links in one path. Source: path_resolution(7), 40 since Linux 4.2.
const MAX_LINKS: usize = 40;

/// Directories of the walk that are held open for `..`; those above are opened again when they are needed. 64: deeper
/// than people nest directories, and far below the limit of open files.
const MAX_HELD: usize = 64;

/// The names of the error numbers that filters answer with.
const NAMES: [(Errno, &str); 7] = [
    (Errno::NOSYS, "ENOSYS"),
    (Errno::PERM, "EPERM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::INVAL, "EINVAL"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::NOENT, "ENOENT"),
    (Errno::MFILE, "EMFILE"),
];

/// The first kernel with `openat2`.
const FIRST_KERNEL: (u32, u32) = (5, 6);

/// How paths of the workspace are kept inside it. Both ways are equally strict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathResolution {
    /// The kernel does it, with `openat2`.
    Kernel,
    /// Component by component, since `openat2` is refused.
    Stepwise(Refusal),
}

/// Why `openat2` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel is older than Linux 5.6; with its release.
    OldKernel(String),
    /// The kernel has it, and something refuses it, such as a system call filter of the service or container; with the
    /// error number.
    Filter(i32),
}

impl PathResolution {
    /// Tries `openat2` on `/`, and tells why it is refused. Takes some microseconds.
    pub fn find() -> Self {
        match openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Ok(_) => Self::Kernel,
            // The root directory is always there, so that no error is one of the path. A filter may choose any number.
            Err(errno) => {
                Self::Stepwise(Refusal::of(errno, rustix::system::uname().release().to_str().unwrap_or_default()))
            }
        }
    }

    /// Opens what `path` names beneath `root`. The path is relative, and has no zero byte.
    ///
    /// # Errors
    /// Those of openat2(2) under `RESOLVE_BENEATH`: `EXDEV` for what leads outside, `ELOOP` for more than 40 links,
    /// `EAGAIN` when names keep changing meanwhile.
    pub(super) fn open(&self, root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let mut last = Errno::AGAIN;
        for _ in 0..RESOLVE_ATTEMPTS {
            let opened = match self {
                Self::Kernel => by_kernel(root, path, flags),
                Self::Stepwise(_) => Walk::new(root.as_fd()).open(path.as_bytes(), flags),
            };
            match opened {
                Err(errno @ (Errno::AGAIN | Errno::INTR)) => last = errno,
                done => return done,
            }
        }
        Err(last)
    }
}

impl Refusal {
    /// A filter may answer any number; only a kernel that is too old says ENOSYS without one.
    fn of(errno: Errno, release: &str) -> Self {
        match kernel_version(release) {
            Some(version) if errno == Errno::NOSYS && version < FIRST_KERNEL => Self::OldKernel(release.to_owned()),
            _ => Self::Filter(errno.raw_os_error()),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldKernel(release) => {
                write!(f, "the kernel ({release}) is older than 5.6, the first with openat2")
            }
            Self::Filter(number) => {
                let name = NAMES.iter().find(|(errno, _)| errno.raw_os_error() == *number).map(|(_, name)| *name);
                let name = name.map_or_else(|| format!("error {number}"), str::to_owned);
                write!(
                    f,
                    "a system call filter refuses openat2 with {name}, such as RestrictSUIDSGID= of a systemd unit or \
                     the filter of a container"
                )
            }
        }
    }
}

/// `5.15.0-generic` is (5, 15).
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn by_kernel(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A walk from the root, one component at a time. Every directory on the way was opened by its name in the one before
/// it and was no link, so none lies outside, whatever is renamed meanwhile.
struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// The names that lead from the root to where the walk is; none of them is a link.
    names: Vec<Vec<u8>>,
    /// The last directories of `names`, opened. Empty only where `names` is.
    held: VecDeque<OwnedFd>,
    links: usize,
}

/// What a name was.
enum Found {
    Opened(OwnedFd),
    /// A symbolic link, with its target.
    Link(Vec<u8>),
}

impl<'a> Walk<'a> {
    fn new(root: BorrowedFd<'a>) -> Self {
        Self { root, names: Vec::new(), held: VecDeque::new(), links: 0 }
    }

    fn open(mut self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        // What is still to be walked, the next component last.
        let mut rest = components(path)?;
        while let Some(name) = rest.pop() {
            let last = rest.is_empty();
            match name.as_slice() {
                b"." if !last => {}
                b".." => {
                    self.up()?;
                    if last {
                        rest.push(b".".to_vec());
                    }
                }
                _ => match self.look(&name, if last { flags } else { OFlags::PATH | OFlags::DIRECTORY })? {
                    Found::Opened(fd) if last => return Ok(fd),
                    Found::Opened(fd) => self.down(name, fd),
                    Found::Link(target) => {
                        self.links += 1;
                        if self.links > MAX_LINKS {
                            return Err(Errno::LOOP);
                        }
                        rest.append(&mut components(&target)?);
                    }
                },
            }
        }
        // `components` gives at least one, and the last one returns.
        Err(Errno::NOENT)
    }

    /// Opens a name where the walk is, or reads the link that it is.
    fn look(&self, name: &[u8], flags: OFlags) -> Result<Found, Errno> {
        let (here, name) = (self.here(), OsStr::from_bytes(name));
        match openat(here, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            // O_PATH opens a link itself.
            Ok(fd) if flags.contains(OFlags::PATH) && is_link(&fd)? => {
                Ok(Found::Link(readlinkat(&fd, "", Vec::new())?.into_bytes()))
            }
            Ok(fd) => Ok(Found::Opened(fd)),
            // A link says ENOTDIR where a directory was wanted, else ELOOP.
            Err(errno @ (Errno::LOOP | Errno::NOTDIR)) => match readlinkat(here, name, Vec::new()) {
                Ok(target) => Ok(Found::Link(target.into_bytes())),
                Err(Errno::INVAL) if errno == Errno::LOOP => Err(Errno::AGAIN), // it was a link a moment ago
                Err(Errno::INVAL) => Err(errno),
                Err(other) => Err(other),
            },
            Err(errno) => Err(errno),
        }
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.held.back().map_or(self.root, AsFd::as_fd)
    }

    fn down(&mut self, name: Vec<u8>, directory: OwnedFd) {
        self.names.push(name);
        self.held.push_back(directory);
        if self.held.len() > MAX_HELD {
            self.held.pop_front();
        }
    }

    /// Returns to the directory that the walk came through: never to what the file system calls `..`, which may be
    /// elsewhere by now.
    fn up(&mut self) -> Result<(), Errno> {
        self.names.pop().ok_or(Errno::XDEV)?;
        self.held.pop_back();
        if self.held.is_empty() && !self.names.is_empty() {
            self.held.push_back(self.again()?);
        }
        Ok(())
    }

    /// Opens the directory where the walk is once more, from the root.
    fn again(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |above: BorrowedFd<'_>, name: &[u8]| openat(above, OsStr::from_bytes(name), flags, Mode::empty());
        let mut reached: Option<OwnedFd> = None;
        for name in &self.names {
            let above = reached.as_ref().map_or(self.root, AsFd::as_fd);
            // What was there has been moved.
            reached = Some(open(above, name).map_err(|_| Errno::AGAIN)?);
        }
        reached.ok_or(Errno::AGAIN)
    }
}

fn is_link(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::Symlink)
}

/// The components of a path, the first one last. A path that has to be a directory (`a/`, `a/.`) ends with `.`.
fn components(path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    if path.is_empty() {
        return Err(Errno::NOENT);
    }
    if path.starts_with(b"/") {
        return Err(Errno::XDEV);
    }
    let mut parts: Vec<Vec<u8>> = path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
    if let Some(last) = parts.last_mut().filter(|last| last.is_empty()) {
        last.push(b'.');
    }
    parts.retain(|part| !part.is_empty());
    parts.reverse();
    Ok(parts)
}
