//! The memory of a successful probe: a file with the fingerprint of the main things that a probe depends on.
//! Rules of security modules for single programs are not among them: bubblewrap refuses then, and the background probe says so.
//!
//! While the fingerprint is the same, a start uses the sandbox at once and probes it again in the background. Only
//! success is remembered: a missing requirement may be installed at any time.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::Sandbox;
use super::offers::SWITCHES;

/// Version of the fingerprint: changes when a probe tests something else.
const VERSION: u32 = 1;

/// The fields of `/proc/self/status` that restrict the daemon, for example by a changed unit of the service.
///
/// Source: proc_pid_status(5).
const RESTRICTIONS: [&str; 5] = ["CapInh:", "CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:"];

/// The file that remembers a successful probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ProbeMemory {
    file: PathBuf,
}

impl ProbeMemory {
    /// Uses this file. Its directory must exist, and only the daemon may write to it.
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// Whether this sandbox was probed successfully on the machine as it is now. Reads some small files.
    pub(super) fn holds(&self, sandbox: &Sandbox) -> bool {
        let Ok(remembered) = fs::read_to_string(&self.file) else { return false };
        fingerprint(sandbox).is_ok_and(|fingerprint| remembered.trim_end() == fingerprint)
    }

    /// Remembers that the probe of this sandbox succeeded. A failure to write is only logged: the next start probes
    /// first.
    pub(super) fn keep(&self, sandbox: &Sandbox) {
        let kept = fingerprint(sandbox).and_then(|fingerprint| self.write(&fingerprint));
        if let Err(error) = kept {
            tracing::warn!(%error, file = %self.file.display(), "the successful test of the sandbox is not remembered");
        }
    }

    /// Forgets: the next start probes first.
    pub(super) fn forget(&self) {
        match fs::remove_file(&self.file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, file = %self.file.display(), "the test of the sandbox cannot be forgotten");
            }
            _ => {}
        }
    }

    /// Replaces the file as a whole. It is not synchronised: if a crash loses it, the next start probes first.
    fn write(&self, fingerprint: &str) -> io::Result<()> {
        if fs::read_to_string(&self.file).is_ok_and(|before| before.trim_end() == fingerprint) {
            return Ok(());
        }
        let new = self.file.with_extension(format!("{}.new", std::process::id()));
        let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        writeln!(file, "{fingerprint}")?;
        fs::rename(new, &self.file)
    }
}

/// A digest of the main things that decide whether this sandbox works: the two programs by path, size and time of change;
/// the settings; the user; the kernel, its switches and modules of security; the restrictions of this process.
fn fingerprint(sandbox: &Sandbox) -> io::Result<String> {
    let mut parts = format!("{VERSION}\n");
    for program in sandbox.bubblewrap.iter().chain([&sandbox.launcher]) {
        describe(program, &mut parts)?;
    }
    let config = serde_json::to_string(&sandbox.config)?;
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let kernel = rustix::system::uname();
    let kernel = [kernel.sysname(), kernel.release(), kernel.version(), kernel.machine()];
    let namespace = fs::read_link("/proc/self/ns/user").unwrap_or_default();
    // Writing to a string cannot fail.
    let _ = writeln!(parts, "{config}\n{:?}\n{user} {group}\n{kernel:?}\n{namespace:?}", sandbox.workspace);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    for line in status.lines().filter(|line| RESTRICTIONS.iter().any(|name| line.starts_with(name))) {
        let _ = writeln!(parts, "{line}");
    }
    for file in SWITCHES.iter().map(|(file, ..)| *file).chain(["/sys/kernel/security/lsm"]) {
        let _ = writeln!(parts, "{}", fs::read_to_string(file).unwrap_or_default());
    }
    Ok(blake3::hash(parts.as_bytes()).to_hex().to_string())
}

fn describe(program: &Path, parts: &mut String) -> io::Result<()> {
    let about = fs::metadata(program)?;
    let _ = writeln!(
        parts,
        "{program:?} {} {}.{} {:o} {} {}",
        about.size(),
        about.mtime(),
        about.mtime_nsec(),
        about.mode(),
        about.uid(),
        about.ino()
    );
    Ok(())
}
