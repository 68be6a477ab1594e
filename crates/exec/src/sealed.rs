//! Programs as sealed copies: the copy that was checked is the copy that runs, even if the file changes in the
//! meantime.
//!
//! Source: memfd_create(2), fcntl(2) "File Sealing".

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, Mode, SealFlags, fchmod, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

/// An anonymous copy of a program in memory that nobody can change. It is freed with its last user.
#[derive(Clone, Debug)]
pub struct SealedProgram(Arc<File>);

impl PartialEq for SealedProgram {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for SealedProgram {}

impl SealedProgram {
    /// Copies the readable content, at most `max_bytes`, and seals it. `executable`: whether the kernel may execute it,
    /// according to the mode of the file. Blocks.
    ///
    /// # Errors
    /// The content is longer (`FileTooLarge`), it cannot be read, or the kernel provides no sealed memory or no
    /// executable memory (`vm.memfd_noexec`).
    pub fn copy(from: impl Read, max_bytes: u64, executable: bool) -> io::Result<Self> {
        let mut file = File::from(memory()?);
        if io::copy(&mut from.take(max_bytes.saturating_add(1)), &mut file)? > max_bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        fchmod(&file, Mode::from_raw_mode(if executable { 0o555 } else { 0o444 }))?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        file.rewind()?;
        Ok(Self(Arc::new(file)))
    }

    /// A reader of the sealed bytes, from the beginning. Only one reader at a time.
    ///
    /// # Errors
    /// The kernel cannot seek to the beginning.
    pub fn bytes(&self) -> io::Result<impl Read + '_> {
        let mut file = &*self.0;
        file.rewind()?;
        Ok(file)
    }

    /// The number of its file descriptor, which is the same in the process that is started with it.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Lets programs inherit it until the returned value is dropped. Only the thread that starts programs calls this,
    /// and it starts one program at a time. A process that other code starts at that moment would inherit bytes that it
    /// can read but not change.
    pub(crate) fn inherited(&self) -> io::Result<Inherited<'_>> {
        fcntl_setfd(&*self.0, FdFlags::empty())?;
        Ok(Inherited(&self.0))
    }
}

/// A file descriptor that programs inherit.
pub(crate) struct Inherited<'a>(&'a File);

impl Drop for Inherited<'_> {
    fn drop(&mut self) {
        if let Err(error) = fcntl_setfd(self.0, FdFlags::CLOEXEC) {
            tracing::error!(%error, "a descriptor stays open for programs that are started next");
        }
    }
}

/// Makes executable memory. Kernels before 6.3 do not know the flag for that and do not need it.
fn memory() -> Result<std::os::fd::OwnedFd, Errno> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match memfd_create("program", flags | MemfdFlags::EXEC) {
        Err(Errno::INVAL) => memfd_create("program", flags),
        made => made,
    }
}
