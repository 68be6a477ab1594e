//! A control group for each tree, if the daemon may create groups below its own.
//!
//! A control group is the only tie that a process without privileges cannot leave, and the kernel can kill all
//! processes of a group at once. The daemon stays in its own group. Only leaf groups without controllers are created,
//! so that the unit needs no setting other than `Delegate=`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::Pid;
use uuid::Uuid;

use super::config::CgroupUse;

/// The file of a group that lists its processes. Writing a process number to it moves that process into the group; 0
/// means the writing process.
///
/// Source: Linux, "Control Group v2", core interface files.
const PROCESSES: &str = "cgroup.procs";

/// Moves this process into the control group of that directory, together with everything that it starts later. The
/// program of [`ProcessesConfig::launcher`](crate::ProcessesConfig::launcher) does this when it is started as
/// `launch --group DIRECTORY -- PROGRAM ARGUMENTS…`, before it executes the program.
///
/// # Errors
/// The group does not exist, or this process may not enter it.
pub fn enter_group(directory: &Path) -> std::io::Result<()> {
    fs::write(directory.join(PROCESSES), "0")
}

/// The control group of the daemon, in which leaf groups are created.
#[derive(Debug)]
pub(super) struct Groups {
    directory: PathBuf,
}

/// The control group of the daemon, found when it is first needed: a daemon that starts no program makes no group.
#[derive(Debug)]
pub(super) struct LazyGroups {
    wanted: CgroupUse,
    found: OnceLock<Option<Groups>>,
}

impl LazyGroups {
    /// Finds nothing yet.
    pub(super) fn new(wanted: CgroupUse) -> Self {
        Self { wanted, found: OnceLock::new() }
    }

    /// The group; `None`: groups cannot be used, or shall not be.
    pub(super) fn get(&self) -> Option<&Groups> {
        let find = || match self.wanted {
            CgroupUse::Off => None,
            CgroupUse::Auto => {
                Groups::find().inspect_err(|why| tracing::info!(why, "no control groups for processes")).ok()
            }
        };
        self.found.get_or_init(find).as_ref()
    }
}

/// The control group of one tree. Dropping it removes the group.
#[derive(Debug)]
pub(super) struct Leaf {
    directory: PathBuf,
    /// Whether the first process was in the group before it executed the program. Then no process of the tree is
    /// outside of it.
    from_start: bool,
}

impl Groups {
    /// Finds the daemon's own group and checks that groups can be created and entered there.
    ///
    /// # Errors
    /// The missing requirement, in plain words.
    pub(super) fn find() -> Result<Self, String> {
        let directory = own_group()?;
        let groups = Self { directory };
        groups.tidy();
        let leaf =
            groups.make().map_err(|why| format!("no group can be made in {}: {why}", groups.directory.display()))?;
        if !leaf.directory.join("cgroup.kill").exists() {
            return Err("the kernel cannot end a group at once (cgroup.kill, Linux 5.14)".to_owned());
        }
        Ok(groups)
    }

    /// Creates a group for one tree. `None`: that failed, and the tree is found by its other ties.
    pub(super) fn leaf(&self) -> Option<Leaf> {
        self.make().inspect_err(|error| tracing::debug!(%error, "no control group for a process tree")).ok()
    }

    fn make(&self) -> std::io::Result<Leaf> {
        let directory = self.directory.join(format!("belay-{}-{}", std::process::id(), Uuid::now_v7().simple()));
        fs::create_dir(&directory)?;
        Ok(Leaf { directory, from_start: false })
    }

    /// Removes the empty groups of daemons that no longer exist. A group with processes cannot be removed.
    fn tidy(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let owner = name.to_str().and_then(|name| name.strip_prefix("belay-")?.split('-').next());
            if owner.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
                // A group that is not ours or not empty remains, and does no harm.
                let _ = fs::remove_dir(entry.path());
            }
        }
    }
}

impl Leaf {
    /// Its directory, for a process that enters the group itself before it starts another.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Moves a process, with everything that it starts later, into the group unless it is already in it. `from_start`:
    /// a launcher moves it there before it executes the program. `None`: the process could not be moved.
    pub(super) fn with(mut self, pid: Pid, from_start: bool) -> Option<Self> {
        self.from_start = from_start;
        let entered = fs::write(self.directory.join(PROCESSES), pid.to_string());
        entered.inspect_err(|error| tracing::debug!(%pid, %error, "no control group for a process tree")).ok()?;
        Some(self)
    }

    /// The process ids in the group. Zombies are not listed.
    pub(super) fn members(&self) -> Vec<Pid> {
        let text = fs::read_to_string(self.directory.join(PROCESSES)).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw).collect()
    }

    /// Whether the group contains everything that the tree has ever started.
    pub(super) fn is_complete(&self) -> bool {
        self.from_start
    }

    /// Whether a [group](group_of) is this group or is below it.
    pub(super) fn holds(&self, group: &Path) -> bool {
        let name = self.directory.file_name();
        group.iter().any(|part| Some(part) == name)
    }

    /// Kills all processes of the group.
    pub(super) fn kill(&self) {
        if let Err(error) = fs::write(self.directory.join("cgroup.kill"), "1") {
            tracing::debug!(%error, "a control group could not be killed at once");
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        // A process that does not die keeps the group. The next start of the daemon removes it.
        let _ = fs::remove_dir(&self.directory);
    }
}

/// The group of a process. Works for zombies too, which [`Leaf::members`] leaves out. Empty: the process no longer
/// exists.
///
/// Source: Linux, "Control Group v2", "Processes": a zombie remains associated with its group, and `/proc/PID/cgroup`
/// shows it.
pub(super) fn group_of(pid: Pid) -> PathBuf {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().into()
}

/// The directory of this process's group, in version 2 of control groups.
///
/// Source: cgroups(7): the line of /proc/self/cgroup that begins with `0::`; proc_pid_mountinfo(5): root, mount point
/// and file system type of each mount.
fn own_group() -> Result<PathBuf, String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    let groups = read("/proc/self/cgroup")?;
    let own =
        groups.lines().find_map(|line| line.strip_prefix("0::")).ok_or("there are no control groups of version 2")?;
    let mounts = read("/proc/self/mountinfo")?;
    mounts.lines().find_map(|line| below_mount(line, own)).ok_or_else(|| "no cgroup2 file system is mounted".to_owned())
}

/// The directory of a group, if this line of the mount table contains it.
fn below_mount(line: &str, group: &str) -> Option<PathBuf> {
    let (mount, kind) = line.split_once(" - ")?;
    if kind.split(' ').next()? != "cgroup2" {
        return None;
    }
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let below = Path::new(group).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_below_the_mount_that_shows_it() {
        let unified = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
        let inner = "30 23 0:26 /system.slice /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        let tmpfs = "29 23 0:25 / /sys/fs/cgroup ro - tmpfs tmpfs ro";
        for (line, group, expected) in [
            (unified, "/", Some("/sys/fs/cgroup/")),
            (unified, "/system.slice/belay.service", Some("/sys/fs/cgroup/system.slice/belay.service")),
            (inner, "/system.slice/belay.service", Some("/sys/fs/cgroup/belay.service")),
            (inner, "/user.slice", None),
            (tmpfs, "/", None),
            ("", "/", None),
        ] {
            assert_eq!(below_mount(line, group).as_deref(), expected.map(Path::new), "{line} {group}");
        }
    }
}
