//! Resolves a path beneath a directory: by the kernel if possible, otherwise component by component.
//!
//! `openat2` with `RESOLVE_BENEATH` is the first choice (Linux 5.6). A system call filter may refuse it even if the
//! kernel supports it: systemd does for `RestrictSUIDSGID=`, and so do container engines with old filter lists. Then
//! each component is opened separately, without following symbolic links. Links are read and resolved here, and `..`
//! returns to the directory through which the walk came. Both ways give the same results and the same error numbers; a
//! property test compares them.
//!
//! The walk is our own code instead of `cap-primitives`: the callers need `O_PATH` descriptors and these error numbers,
//! and the tests compare the walk with the kernel.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;

/// Number of attempts to resolve a path while directories are being renamed.
///
/// Source: openat2(2), `EAGAIN` under `RESOLVE_BENEATH`: because of a rename somewhere on the machine, the kernel could
/// not ensure that a `..` stayed inside. Callers should try again.
const RESOLVE_ATTEMPTS: usize = 32;

/// Most symbolic links in one path. Source: path_resolution(7), 40 since Linux 4.2.
const MAX_LINKS: usize = 40;

/// Most directories of the walk that stay open for `..`. Directories above them are opened again if needed. 64: deeper
/// than usual nesting, and far below the limit of open files.
const MAX_HELD: usize = 64;

/// Names of the error numbers that system call filters return.
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

/// How paths are confined to the workspace. Both ways are equally strict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathResolution {
    /// By the kernel, with `openat2`.
    Kernel,
    /// Component by component, because `openat2` is refused.
    Stepwise(Refusal),
}

/// Why `openat2` cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel is older than Linux 5.6. Contains its release.
    OldKernel(String),
    /// The kernel supports it, but a system call filter of the service or container, for example, refuses it. Contains
    /// the error number.
    Filter(i32),
}

impl PathResolution {
    /// Tries `openat2` on `/` and determines why it is refused. Takes a few microseconds.
    pub fn find() -> Self {
        match openat2(CWD, "/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::NO_MAGICLINKS) {
            Ok(_) => Self::Kernel,
            // The root directory always exists, so every error means that the call was refused. A filter may return any
            // number.
            Err(errno) => {
                Self::Stepwise(Refusal::of(errno, rustix::system::uname().release().to_str().unwrap_or_default()))
            }
        }
    }

    /// Opens the file or directory that `path` names beneath `root`. The path is relative and contains no zero byte.
    ///
    /// # Errors
    /// The errors of openat2(2) under `RESOLVE_BENEATH`: `EXDEV` for a path that leads outside, `ELOOP` for more than
    /// 40 links, `EAGAIN` if names keep changing during all attempts.
    pub(super) fn open(&self, root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let kernel = || by_kernel(root, path, flags);
        let walk = || Walk::new(root.as_fd()).open(path.as_bytes(), flags);
        match self {
            // The walk sees only renames of the directories of this path, so it has an answer on a machine where
            // something else renames without a pause.
            Self::Kernel => {
                try_again(kernel).or_else(|errno| if is_passing(errno) { try_again(walk) } else { Err(errno) })
            }
            Self::Stepwise(_) => try_again(walk),
        }
    }
}

impl Refusal {
    /// Distinguishes an old kernel from a filter. A filter may return any number, so ENOSYS of a recent kernel is a
    /// filter too.
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

/// Parses the release: `5.15.0-generic` is (5, 15).
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Whether the same call may succeed at once.
fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::AGAIN | Errno::INTR)
}

/// Calls until there is an answer, or [`RESOLVE_ATTEMPTS`] times.
fn try_again<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut opened = call();
    for _ in 1..RESOLVE_ATTEMPTS {
        match opened {
            Err(errno) if is_passing(errno) => opened = call(),
            _ => break,
        }
    }
    opened
}

fn by_kernel(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

/// A walk from the root, one component at a time. Each directory was opened by its name relative to its parent and is
/// no link. So the walk stays inside, whatever is renamed meanwhile.
struct Walk<'a> {
    root: BorrowedFd<'a>,
    /// The names from the root to the current directory; none of them is a link.
    names: Vec<Vec<u8>>,
    /// The last directories of `names`, opened. Empty only if `names` is empty.
    held: VecDeque<OwnedFd>,
    links: usize,
}

/// The kind of entry that a name refers to.
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
        // The remaining components, the next one last.
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
        // `components` returns at least one component, and the last component returns from the loop.
        Err(Errno::NOENT)
    }

    /// Opens a name in the current directory, or reads its target if it is a link.
    fn look(&self, name: &[u8], flags: OFlags) -> Result<Found, Errno> {
        let (here, name) = (self.here(), OsStr::from_bytes(name));
        match openat(here, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
            // O_PATH opens a link itself.
            Ok(fd) if flags.contains(OFlags::PATH) && is_link(&fd)? => {
                Ok(Found::Link(readlinkat(&fd, "", Vec::new())?.into_bytes()))
            }
            Ok(fd) => Ok(Found::Opened(fd)),
            // For a link, the error is ENOTDIR if a directory was requested, otherwise ELOOP.
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

    /// Returns to the directory through which the walk came. It does not open `..`, because the directory may have been
    /// moved.
    fn up(&mut self) -> Result<(), Errno> {
        self.names.pop().ok_or(Errno::XDEV)?;
        self.held.pop_back();
        if self.held.is_empty() && !self.names.is_empty() {
            self.held.push_back(self.again()?);
        }
        Ok(())
    }

    /// Opens the current directory again, from the root.
    fn again(&self) -> Result<OwnedFd, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |above: BorrowedFd<'_>, name: &[u8]| openat(above, OsStr::from_bytes(name), flags, Mode::empty());
        let mut reached: Option<OwnedFd> = None;
        for name in &self.names {
            let above = reached.as_ref().map_or(self.root, AsFd::as_fd);
            // The directory has been moved.
            reached = Some(open(above, name).map_err(|_| Errno::AGAIN)?);
        }
        reached.ok_or(Errno::AGAIN)
    }
}

fn is_link(fd: &OwnedFd) -> Result<bool, Errno> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode) == FileType::Symlink)
}

/// The components of a path in reverse order. A path that must be a directory (`a/`, `a/.`) ends with `.`.
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
