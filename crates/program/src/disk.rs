//! The free space on a disk.

use std::path::Path;

use belay_protocol::size_text;

/// Free bytes on the disk of the data directory. A gauge.
pub const DISK_FREE: &str = "belay_disk_free_bytes";

/// With less, the disk counts as full. 1 MiB: a message with its answer may take some 100 KiB.
const FULL: u64 = 1 << 20;

/// With less, the disk counts as nearly full. 64 MiB: four times the log that a checkpoint leaves, see `journal_size_limit`.
const LOW: u64 = 64 << 20;

/// The space that a user without privileges may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub free: u64,
}

impl Space {
    /// The space on the disk of this directory, or of its nearest existing ancestor; `None`: the system does not say.
    pub fn of(directory: &Path) -> Option<Self> {
        let found = directory.ancestors().find_map(|place| rustix::fs::statvfs(place).ok())?;
        Some(Self { free: found.f_bavail.saturating_mul(found.f_frsize) })
    }

    /// Whether messages may be refused at any moment.
    pub fn is_full(self) -> bool {
        self.free < FULL
    }

    /// Whether it will soon be full.
    pub fn is_low(self) -> bool {
        self.free < LOW
    }

    /// How much is free, and what to do if that is little.
    pub fn words(self, directory: &Path) -> String {
        let (free, shown) = (size_text(self.free), directory.display());
        match (self.is_full(), self.is_low()) {
            (true, _) => format!("the disk of {shown} is full ({free} free): messages are refused. Free space on it"),
            (_, true) => format!("the disk of {shown} is nearly full ({free} free). Free space on it"),
            _ => format!("{free} free"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_before_nothing_is_left() {
        for (free, words) in [
            (0, "the disk of /d is full (0 bytes free): messages are refused. Free space on it"),
            (FULL - 1, "the disk of /d is full (1.0 MB free): messages are refused. Free space on it"),
            (FULL, "the disk of /d is nearly full (1.0 MB free). Free space on it"),
            (LOW - 1, "the disk of /d is nearly full (67.1 MB free). Free space on it"),
            (LOW, "67.1 MB free"),
        ] {
            assert_eq!(Space { free }.words(Path::new("/d")), words);
        }
    }
}
