//! Second names of files, also on file systems without hard links.

use std::io;
use std::path::Path;

use belay_protocol::BlobDigest;
use rustix::fs::{CWD, RenameFlags};
use rustix::io::Errno;
use tracing::warn;

use super::create::{digests, is_unreadable};
use super::{BackupError, Stop};

/// Makes a hard link. Tests replace it by one that the file system does not support.
pub(super) type Link<'a> = &'a dyn Fn(&Path, &Path) -> io::Result<()>;

/// Whether hard links of this file are not possible: by the file system, or by the owner of the file.
fn has_no_links(error: &io::Error) -> bool {
    [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::MLINK, Errno::XDEV]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Links the files of messages into another directory, or copies them. A file that is deleted meanwhile is left out.
/// Returns the files that cannot be read.
pub(super) fn link_files(from: &Path, to: &Path, stop: &Stop, link: Link<'_>) -> Result<Vec<BlobDigest>, BackupError> {
    let mut unreadable = Vec::new();
    for digest in digests(from)? {
        stop.check()?;
        let (source, target) = (from.join(digest.as_str()), to.join(digest.as_str()));
        let done = match link(&source, &target) {
            Err(error) if has_no_links(&error) => copy(&source, &target),
            done => done,
        };
        match done {
            Err(error) if is_unreadable(&error) => {
                warn!(file = %source.display(), %error, "a file of a message cannot be read");
                unreadable.push(digest);
            }
            Err(error) if !matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
                return Err(BackupError::io(&source)(error));
            }
            _ => {}
        }
    }
    Ok(unreadable)
}

/// Copies a file durably. [`io::ErrorKind::AlreadyExists`]: there is a target.
fn copy(source: &Path, target: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut from = std::fs::File::open(source)?;
    let mut to = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(target)?;
    io::copy(&mut from, &mut to)?;
    to.sync_all()
}

/// Gives a file its final name, and never replaces a file. The former name may stay.
pub(super) fn publish(from: &Path, to: &Path, link: Link<'_>) -> io::Result<()> {
    match link(from, to) {
        Err(error) if has_no_links(&error) => {
            rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE).map_err(io::Error::from)
        }
        done => done,
    }
}

/// The hard link of the system.
pub(super) fn hard_link(from: &Path, to: &Path) -> io::Result<()> {
    std::fs::hard_link(from, to)
}
