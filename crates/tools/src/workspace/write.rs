//! Replaces a file of the workspace atomically: a reader sees the old content or the new one, never a part.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::OwnedFd;

use belay_protocol::ToolFailure;
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, mkdirat, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Workspace, check, explain};

/// Number of bytes between two checks for cancellation.
const CHUNK_BYTES: usize = 256 * 1024;

/// A file name in a directory of the workspace, and the state of the file when it was examined. The directory stays
/// open, so it remains the same one even if another directory takes its name.
#[derive(Debug)]
pub(crate) struct WriteTarget {
    directory: OwnedFd,
    path: String,
    name: String,
    /// The existing file; `None` if there is none.
    seen: Option<Stat>,
}

impl Workspace {
    /// Prepares to write a file at this path. `create_dirs` creates missing parent directories.
    pub(crate) fn write_target(&self, path: &str, create_dirs: bool) -> Result<WriteTarget, ToolFailure> {
        check(path)?;
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        if matches!(name, "" | "." | "..") {
            return Err(ToolFailure::failed(format!("{path:?} names a directory. Give the name of a file.")));
        }
        let directory = match self.open_beneath(parent, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => fd,
            Err(Errno::NOENT) if create_dirs => self.make_directories(parent)?,
            Err(Errno::NOENT) => {
                return Err(ToolFailure::failed(format!(
                    "There is no directory {parent:?} in the workspace, {}. Set create_dirs to have it made.",
                    self.path.display()
                )));
            }
            Err(errno) => return Err(explain(path, errno)),
        };
        let seen = stat(&directory, name).map_err(|errno| explain(path, errno))?;
        let target = WriteTarget { directory, path: path.to_owned(), name: name.to_owned(), seen };
        target.check_replaceable()?;
        Ok(target)
    }

    /// Whether the parent directory of the path does not exist yet.
    pub(crate) fn lacks_directory_of(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map_or(".", |(parent, _)| parent);
        check(path).is_ok() && self.open_beneath(parent, OFlags::PATH | OFlags::DIRECTORY).err() == Some(Errno::NOENT)
    }

    /// Opens a directory and creates its missing parts, one by one from the root.
    fn make_directories(&self, path: &str) -> Result<OwnedFd, ToolFailure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut reached = String::with_capacity(path.len());
        let mut above = self.open_beneath(".", flags).map_err(|errno| explain(path, errno))?;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            if !reached.is_empty() {
                reached.push('/');
            }
            reached.push_str(part);
            above = match self.open_beneath(&reached, flags) {
                Err(Errno::NOENT) => {
                    check_new_name(&reached, part)?;
                    match mkdirat(&above, part, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => sync(&above, &reached),
                        Err(errno) => return Err(unwritable(&reached, errno)),
                    }
                    self.open_beneath(&reached, flags)
                }
                found => found,
            }
            .map_err(|errno| explain(&reached, errno))?;
        }
        Ok(above)
    }
}

impl WriteTarget {
    /// Whether the file exists.
    pub(crate) fn exists(&self) -> bool {
        self.seen.is_some()
    }

    /// Refuses a path that is no replaceable file.
    fn check_replaceable(&self) -> Result<(), ToolFailure> {
        let path = &self.path;
        let Some(seen) = &self.seen else { return check_new_name(path, &self.name) };
        let problem = match FileType::from_raw_mode(seen.st_mode) {
            FileType::RegularFile if seen.st_mode & 0o222 == 0 => {
                format!("{path:?} is read-only. Ask for it to be made writable.")
            }
            FileType::RegularFile => return Ok(()),
            FileType::Directory => format!("{path:?} is a directory. Give the name of a file."),
            FileType::Symlink => format!("{path:?} is a symbolic link. Name the file that it leads to."),
            _ => format!("{path:?} is a pipe, a socket or a device. Only regular files are written."),
        };
        Err(ToolFailure::failed(problem))
    }

    /// Writes the content into a new file in the same directory, and renames that file to the target name. Keeps mode
    /// and owner of the old file, without the setuid and setgid bits.
    ///
    /// Until the rename, a cancellation or an error leaves nothing behind (a crash may leave a file `.belay-….tmp`).
    /// The rename completes the write.
    pub(crate) fn write_content(&self, content: &[u8], cancel: &CancellationToken) -> Result<(), ToolFailure> {
        let temporary = format!(".belay-{}.tmp", Uuid::now_v7().simple());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.directory, temporary.as_str(), flags, Mode::from_raw_mode(0o644))
            .map_err(|errno| unwritable(&self.path, errno))?;
        let done = self.fill(File::from(fd), content, cancel).and_then(|()| self.rename_into_place(&temporary, cancel));
        if let Err(failure) = done {
            if let Err(errno) = unlinkat(&self.directory, temporary.as_str(), AtFlags::empty()) {
                tracing::warn!(%errno, "a temporary file of a write stays behind");
            }
            return Err(failure);
        }
        sync(&self.directory, &self.path);
        Ok(())
    }

    fn fill(&self, mut file: File, content: &[u8], cancel: &CancellationToken) -> Result<(), ToolFailure> {
        let failed = |error: std::io::Error| match Errno::from_io_error(&error) {
            Some(errno) => unwritable(&self.path, errno),
            None => ToolFailure::failed(format!("{:?} could not be written: {error}.", self.path)),
        };
        for chunk in content.chunks(CHUNK_BYTES) {
            if cancel.is_cancelled() {
                return Err(ToolFailure::Cancelled);
            }
            file.write_all(chunk).map_err(failed)?;
        }
        if let Some(seen) = &self.seen {
            self.keep_owner_and_mode(&file, seen)?;
        }
        file.sync_all().map_err(failed)
    }

    fn keep_owner_and_mode(&self, file: &File, seen: &Stat) -> Result<(), ToolFailure> {
        let now = rustix::fs::fstat(file).map_err(|errno| unwritable(&self.path, errno))?;
        if (now.st_uid, now.st_gid) != (seen.st_uid, seen.st_gid) {
            fchown(file, Some(Uid::from_raw(seen.st_uid)), Some(Gid::from_raw(seen.st_gid))).map_err(|_| {
                ToolFailure::failed(format!("{:?} belongs to another user, so it is not replaced.", self.path))
            })?;
        }
        fchmod(file, Mode::from_raw_mode(seen.st_mode & 0o777)).map_err(|errno| unwritable(&self.path, errno))
    }

    /// Renames the temporary file, which completes the write. Refuses if the target has changed since it was examined.
    fn rename_into_place(&self, temporary: &str, cancel: &CancellationToken) -> Result<(), ToolFailure> {
        let now = stat(&self.directory, &self.name).map_err(|errno| explain(&self.path, errno))?;
        if now.as_ref().map(stamp) != self.seen.as_ref().map(stamp) {
            return Err(ToolFailure::failed(format!(
                "{:?} was changed by somebody else just now; nothing was written. Read it again first.",
                self.path
            )));
        }
        if cancel.is_cancelled() {
            return Err(ToolFailure::Cancelled);
        }
        renameat(&self.directory, temporary, &self.directory, self.name.as_str())
            .map_err(|errno| unwritable(&self.path, errno))
    }
}

/// The metadata of a name. Links are not followed.
fn stat(directory: &OwnedFd, name: &str) -> Result<Option<Stat>, Errno> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Identifies the state of a file by its metadata.
fn stamp(stat: &Stat) -> (u64, u64, i64, i64, i64, u32) {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, nanoseconds, stat.st_mode)
}

fn check_new_name(path: &str, name: &str) -> Result<(), ToolFailure> {
    if belay_text::is_clear(name) {
        return Ok(());
    }
    Err(ToolFailure::failed(format!(
        "The name {path:?} has control characters or characters that cannot be seen. Use visible ones."
    )))
}

/// Makes a rename or a new directory survive a power failure. The write is already complete, so a failure is only
/// logged.
fn sync(directory: &OwnedFd, path: &str) {
    if let Err(errno) = rustix::fs::fsync(directory) {
        tracing::warn!(%errno, path, "a directory of the workspace could not be synced");
    }
}

fn unwritable(path: &str, errno: Errno) -> ToolFailure {
    let text = match errno {
        Errno::NOSPC | Errno::DQUOT => format!("{path:?} was not written: the disk is full. Nothing was changed."),
        Errno::FBIG => format!("{path:?} was not written: it is larger than a file may be here. Nothing was changed."),
        Errno::ROFS => format!("{path:?} was not written: the file system is read-only."),
        Errno::ACCESS | Errno::PERM => format!("{path:?} may not be written: permission denied."),
        Errno::NAMETOOLONG => "The name is longer than a file name can be.".to_owned(),
        Errno::NOENT => format!("{path:?} was not written: its directory was removed. Look with list_files."),
        other => format!("{path:?} could not be written: {other}. Nothing was changed."),
    };
    ToolFailure::failed(text)
}
