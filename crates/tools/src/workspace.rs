//! The workspace: the one directory that the file tools can reach.
//!
//! The root is opened once, and each path is resolved relative to that handle: by the kernel with `openat2` and
//! `RESOLVE_BENEATH`, or component by component where `openat2` is refused (see [`resolve`]). So `..`, absolute paths
//! and symbolic links cannot lead outside, even while another process replaces directories by links: there is no gap
//! between check and use.

mod leftovers;
mod resolve;
mod write;

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{DirBuilder, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use belay_protocol::{ToolFailure, Unusable, UnusableKind};
use belay_text::escaped_line;
use belay_text::near::{did_you_mean, nearest_names};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, statat};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;

use crate::digest;
use crate::error::ToolsError;

pub use self::leftovers::sweep;
pub use self::resolve::{PathResolution, Refusal};
pub(crate) use self::write::WriteTarget;

/// Longest path, in bytes: the limit of the kernel (`PATH_MAX`, including the terminating zero).
const MAX_PATH_BYTES: usize = 4095;

/// Most entries that are read from one directory. The listing of a larger directory is incomplete.
const MAX_SCANNED: usize = 100_000;

/// The root directory of the file tools.
#[derive(Debug)]
pub(crate) struct Workspace {
    root: OwnedFd,
    /// The path of the root, without symbolic links.
    path: PathBuf,
    /// Determined when the root is opened. A filter that refuses `openat2` was set before the daemon started.
    resolution: PathResolution,
}

/// One entry of a directory.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name in bytes; it may be invalid UTF-8.
    pub(crate) name: Vec<u8>,
    /// The type of the entry.
    pub(crate) kind: EntryKind,
}

/// The type of a directory entry. Symbolic links are not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    Directory,
    /// A regular file, with its size in bytes.
    File(u64),
    Link,
    /// A pipe, a socket or a device.
    Special,
    /// It was removed before its type could be read.
    Gone,
}

/// Identifies the state of a file by its metadata, without reading the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    device: u64,
    inode: u64,
    /// Size in bytes.
    pub(crate) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        let nanoseconds = |field: u64| i64::try_from(field).unwrap_or(0);
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            modified: (stat.st_mtime, nanoseconds(stat.st_mtime_nsec)),
            changed: (stat.st_ctime, nanoseconds(stat.st_ctime_nsec)),
        }
    }
}

/// The entries of a directory, sorted by name.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// Whether the directory has more than [`MAX_SCANNED`] entries.
    pub(crate) more: bool,
}

impl Workspace {
    /// Opens the root, and creates it if it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self, ToolsError> {
        let failed = |source| ToolsError::Workspace { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        Ok(Self { root, path: std::fs::canonicalize(path).map_err(failed)?, resolution: PathResolution::find() })
    }

    /// Opens an existing root that is only read.
    ///
    /// # Errors
    /// A text in plain words: the root does not exist or cannot be opened.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, Unusable> {
        let failed = |errno: Errno| Unusable { why: errno.to_string(), kind: kind_of_error(errno) };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        let path = std::fs::canonicalize(path).map_err(|error| error.to_string())?;
        Ok(Self { root, path, resolution: PathResolution::find() })
    }

    /// The same root, with paths resolved component by component.
    #[cfg(test)]
    pub(crate) fn stepwise(self) -> Self {
        Self { resolution: PathResolution::Stepwise(Refusal::Filter(Errno::NOSYS.raw_os_error())), ..self }
    }

    /// The way in which paths are confined to the workspace.
    pub(crate) fn resolution(&self) -> &PathResolution {
        &self.resolution
    }

    /// The path of the root, without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The absolute path of a directory, without symbolic links. Used as the working directory of processes.
    pub(crate) fn directory(&self, path: &str) -> Result<PathBuf, ToolFailure> {
        let fd = self.resolve(path, OFlags::PATH | OFlags::DIRECTORY)?;
        real_path(&fd).map_err(|errno| explain(path, errno))
    }

    /// Identifies the content of a regular file; see [`digest::of_file`].
    pub(crate) fn digest(&self, path: &str) -> Result<String, ToolFailure> {
        let (mut file, _) = self.file(path)?;
        digest::of_file(&mut file).map_err(|error| ToolFailure::failed(format!("{path:?} could not be read: {error}.")))
    }

    /// Identifies the content of the file that a path names; `None` if the path names no regular file in the workspace.
    ///
    /// # Errors
    /// The path may name a file, but its content cannot be identified.
    pub(crate) fn fingerprint(&self, path: &str) -> Result<Option<String>, ToolFailure> {
        if check(path).is_err() {
            return Ok(None);
        }
        let unreadable =
            |error: &dyn std::fmt::Display| ToolFailure::failed(format!("{path:?} could not be read: {error}."));
        let fd = match self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => fd,
            // Nothing exists there, or it is outside of the workspace, or it cannot be read as a file.
            Err(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::XDEV
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::NXIO
                | Errno::NODEV,
            ) => return Ok(None),
            // Commands cannot read what the daemon cannot read. If they can later, the digest differs from this text.
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Some("may not be read".to_owned())),
            Err(errno) => return Err(explain(path, errno)),
        };
        let stat = fstat(&fd).map_err(|errno| unreadable(&errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Ok(None);
        }
        digest::of_file(&mut File::from(fd)).map(Some).map_err(|error| unreadable(&error))
    }

    /// Whether a path names a file or directory in the workspace. Also true if an error prevents the check.
    pub(crate) fn contains(&self, path: &str) -> bool {
        use Errno as E;
        if check(path).is_err() {
            return false;
        }
        match self.open_beneath(path, OFlags::PATH) {
            Ok(_) => true,
            Err(errno) => !matches!(errno, E::NOENT | E::NOTDIR | E::XDEV | E::LOOP | E::NAMETOOLONG),
        }
    }

    /// Whether a path lies in the `.git` directory of a repository, by its name or through links. Files in there can
    /// name programs that git starts by itself.
    pub(crate) fn is_in_git(&self, path: &str) -> bool {
        let is_git = |name: &OsStr| name.eq_ignore_ascii_case(".git");
        if path.split('/').any(|name| is_git(OsStr::new(name))) {
            return true;
        }
        let ancestors = std::iter::successors(Some(path), |path| path.rsplit_once('/').map(|(parent, _)| parent));
        let nearest =
            ancestors.skip(1).find_map(|above| self.open_beneath(above, OFlags::PATH | OFlags::DIRECTORY).ok());
        let real = nearest.and_then(|fd| real_path(&fd).ok());
        let inside = real.as_deref().and_then(|real| real.strip_prefix(&self.path).ok());
        inside.is_some_and(|path| path.iter().any(is_git))
    }

    /// Opens a regular file; returns it with its size in bytes.
    pub(crate) fn file(&self, path: &str) -> Result<(File, u64), ToolFailure> {
        // Without O_NONBLOCK, opening a pipe would block until a writer opens it.
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        let stat = fstat(&fd).map_err(|errno| explain(path, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok((File::from(fd), u64::try_from(stat.st_size).unwrap_or(0))),
            FileType::Directory => {
                Err(ToolFailure::failed(format!("{path:?} is a directory. list_files shows what is in it.")))
            }
            _ => Err(not_a_file(path)),
        }
    }

    /// Opens a regular file; returns it with its stamp. `None` if nothing exists at the path.
    pub(crate) fn stamped(&self, path: &str) -> Result<Option<(File, Stamp)>, Unusable> {
        check(path).map_err(reason)?;
        let fd = match self.open_beneath(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(unusable(path, errno)),
        };
        let stat = fstat(&fd).map_err(|errno| unusable(path, errno))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some((File::from(fd), Stamp::of(&stat)))),
            FileType::Directory => Err(format!("{path:?} is a directory, not a file.").into()),
            _ => Err(reason(not_a_file(path)).into()),
        }
    }

    /// Lists a directory for a search; `None` if nothing exists at the path. Never cancelled.
    pub(crate) fn searched(&self, path: &str) -> Result<Option<Listing>, Unusable> {
        check(path).map_err(reason)?;
        let fd = match self.open_beneath(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(unusable(path, errno)),
        };
        listing(&fd, &CancellationToken::new()).map(Some).map_err(|stop| match stop {
            Interrupted::Failed(errno) => unusable(path, errno),
            Interrupted::Cancelled => "it was not looked at".to_owned().into(),
        })
    }

    /// Lists a directory. Ends early when `cancel` is cancelled.
    pub(crate) fn list(&self, path: &str, cancel: &CancellationToken) -> Result<Listing, ToolFailure> {
        let fd = self.resolve(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK)?;
        listing(&fd, cancel).map_err(|stop| stop.explain(path))
    }

    /// Opens the file or directory that the path names, if it lies beneath the root.
    fn resolve(&self, path: &str, flags: OFlags) -> Result<OwnedFd, ToolFailure> {
        check(path)?;
        match self.open_beneath(path, flags) {
            Ok(fd) => Ok(fd),
            Err(Errno::NOENT) => Err(self.missing(path)),
            Err(errno) => Err(explain(path, errno)),
        }
    }

    fn open_beneath(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        self.resolution.open(&self.root, path, flags)
    }

    /// The failure for a path that does not exist, with the most similar names in its directory.
    fn missing(&self, path: &str) -> ToolFailure {
        let path = path.trim_end_matches('/');
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let near = self.names_beside(parent).unwrap_or_default();
        let near = nearest_names(name, &near, 3);
        let hint = match did_you_mean(&near) {
            hint if hint.is_empty() => " list_files shows what there is.".to_owned(),
            hint => hint,
        };
        ToolFailure::failed(format!("There is no {path:?} in the workspace, {}.{hint}", self.path.display()))
    }

    fn names_beside(&self, parent: &str) -> Result<Vec<String>, Errno> {
        let fd = self.open_beneath(parent, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let (names, _) = names_in(&fd, &CancellationToken::new()).map_err(|stop| match stop {
            Interrupted::Failed(errno) => errno,
            Interrupted::Cancelled => Errno::CANCELED,
        })?;
        Ok(names.iter().map(|name| shown(name)).collect())
    }
}

/// The current path of an open file. Source: proc(5), `/proc/pid/fd/`.
fn real_path(fd: &OwnedFd) -> Result<PathBuf, Errno> {
    let link = rustix::fs::readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(OsString::from_vec(link.into_bytes())))
}

/// Refuses texts that cannot be a path, before the kernel gets them.
fn check(path: &str) -> Result<(), ToolFailure> {
    let problem = if path.is_empty() {
        "The path is empty. The root of the workspace is \".\"."
    } else if path.contains('\0') {
        "A path cannot contain a zero byte."
    } else if path.len() > MAX_PATH_BYTES {
        "The path is longer than 4095 bytes."
    } else if path.starts_with('/') {
        "The path is absolute. Paths are relative to the workspace, whose root is \".\"."
    } else {
        return Ok(());
    };
    Err(ToolFailure::failed(problem))
}

/// The reason why a path that exists cannot be used as a file of the context.
fn unusable(path: &str, errno: Errno) -> Unusable {
    Unusable { why: reason(explain(path, errno)), kind: kind_of_error(errno) }
}

/// What an error says about a file that exists. Errors that the list does not have may pass, such as those of a disk.
fn kind_of_error(errno: Errno) -> UnusableKind {
    use Errno as E;
    match errno {
        E::ACCESS | E::PERM => UnusableKind::Denied,
        E::NOENT | E::XDEV | E::LOOP | E::NOTDIR | E::NAMETOOLONG | E::NXIO | E::NODEV | E::ISDIR | E::OVERFLOW => {
            UnusableKind::Content
        }
        _ => UnusableKind::NotNow,
    }
}

/// The text of a failure.
pub(crate) fn reason(failure: ToolFailure) -> String {
    match failure {
        ToolFailure::Failed(text)
        | ToolFailure::Ended(text)
        | ToolFailure::Denied(text)
        | ToolFailure::Unknown(text)
        | ToolFailure::CredentialRefused(text) => text,
        ToolFailure::Cancelled => "it was not looked at".to_owned(),
    }
}

fn explain(path: &str, errno: Errno) -> ToolFailure {
    let text = match errno {
        Errno::XDEV => {
            format!(
                "{path:?} leads out of the workspace, by \"..\" or by a symbolic link. Only what lies inside can be reached."
            )
        }
        Errno::LOOP => format!("{path:?} goes through too many symbolic links."),
        Errno::NOTDIR => format!("A part of {path:?} is not a directory."),
        Errno::ACCESS | Errno::PERM => format!("{path:?} may not be read: permission denied."),
        Errno::NAMETOOLONG => "A part of the path is longer than a file name can be.".to_owned(),
        Errno::NXIO | Errno::NODEV => return not_a_file(path),
        Errno::AGAIN | Errno::INTR => format!("{path:?} could not be opened: the directory is changing. Try again."),
        other => format!("{path:?} could not be opened: {other}."),
    };
    ToolFailure::failed(text)
}

fn not_a_file(path: &str) -> ToolFailure {
    ToolFailure::failed(format!("{path:?} is a pipe, a socket or a device. Only regular files are read."))
}

enum Interrupted {
    Cancelled,
    Failed(Errno),
}

impl Interrupted {
    fn explain(self, path: &str) -> ToolFailure {
        match self {
            Self::Cancelled => ToolFailure::Cancelled,
            Self::Failed(errno) => explain(path, errno),
        }
    }
}

fn listing(fd: &OwnedFd, cancel: &CancellationToken) -> Result<Listing, Interrupted> {
    let (names, more) = names_in(fd, cancel)?;
    let mut entries = Vec::with_capacity(names.len());
    for name in names {
        if cancel.is_cancelled() {
            return Err(Interrupted::Cancelled);
        }
        entries.push(Entry { kind: kind_of(fd, &name), name });
    }
    Ok(Listing { entries, more })
}

/// The names in a directory, sorted, and whether there are more than [`MAX_SCANNED`].
fn names_in(fd: &OwnedFd, cancel: &CancellationToken) -> Result<(Vec<Vec<u8>>, bool), Interrupted> {
    let mut names = Vec::new();
    let mut more = false;
    for entry in Dir::read_from(fd).map_err(Interrupted::Failed)? {
        if cancel.is_cancelled() {
            return Err(Interrupted::Cancelled);
        }
        let entry = entry.map_err(Interrupted::Failed)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if names.len() == MAX_SCANNED {
            more = true;
            break;
        }
        names.push(name.to_vec());
    }
    names.sort_unstable();
    Ok((names, more))
}

/// The type of a directory entry. Symbolic links are not followed, so nothing outside of the workspace is read.
fn kind_of(directory: &OwnedFd, name: &[u8]) -> EntryKind {
    let mut terminated = name.to_vec();
    terminated.push(0);
    let Ok(name) = CStr::from_bytes_with_nul(&terminated) else { return EntryKind::Gone };
    let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { return EntryKind::Gone };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => EntryKind::Directory,
        FileType::RegularFile => EntryKind::File(u64::try_from(stat.st_size).unwrap_or(0)),
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    }
}

/// A file name as text on one line. Control characters, characters that change the direction of writing, and invalid
/// UTF-8 are escaped.
pub(crate) fn shown(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.utf8_chunks() {
        text.push_str(&escaped_line(chunk.valid()));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_are_shown_on_one_line() {
        for (name, expected) in [
            (&b"plain.txt"[..], "plain.txt"),
            ("ключ 🗝".as_bytes(), "ключ 🗝"),
            (b"a\nb\x1b[31m", "a\\nb\\u{1b}[31m"),
            (b"\xff\xfe", "\\xff\\xfe"),
            ("txt.\u{202e}exe".as_bytes(), "txt.\\u{202e}exe"),
            (b"a\\b", "a\\\\b"),
        ] {
            assert_eq!(shown(name), expected);
        }
    }

    #[test]
    fn the_workspace_is_made_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("deep/workspace");
        Workspace::open(&root).unwrap();
        assert_eq!(std::fs::metadata(&root).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_cancelled_listing_ends() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), "").unwrap();
        let cancel = CancellationToken::new();
        cancel.cancel();
        let listed = Workspace::open(dir.path()).unwrap().list(".", &cancel);
        assert!(matches!(listed, Err(ToolFailure::Cancelled)));
    }

    #[test]
    fn an_error_of_the_machine_is_none_of_the_content() {
        for (errno, expected) in [
            (Errno::MFILE, UnusableKind::NotNow),
            (Errno::NFILE, UnusableKind::NotNow),
            (Errno::IO, UnusableKind::NotNow),
            (Errno::STALE, UnusableKind::NotNow),
            (Errno::AGAIN, UnusableKind::NotNow),
            (Errno::ACCESS, UnusableKind::Denied),
            (Errno::PERM, UnusableKind::Denied),
            (Errno::XDEV, UnusableKind::Content),
            (Errno::LOOP, UnusableKind::Content),
            (Errno::NOTDIR, UnusableKind::Content),
        ] {
            assert_eq!(unusable("AGENTS.md", errno).kind, expected, "{errno:?}");
        }
    }
}
