//! The sandbox features of this machine, for `belay check`.

use std::path::{Path, PathBuf};

use landlock::{ABI, Access, AccessFs, LandlockStatus, Ruleset, RulesetAttr};
use rustix::fs::{self as fs, Access as Mode};

use super::bubblewrap;
use super::config::SandboxConfig;

/// The features that were found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offers {
    /// The version of bubblewrap, or why it cannot be used.
    pub bubblewrap: Result<String, String>,
    /// Whether users may create namespaces, or the setting that forbids it.
    pub user_namespaces: Result<(), String>,
    /// The Landlock ABI version: 1 for files, 4 with TCP ports, 6 with abstract Unix sockets and signals, 9 with all
    /// Unix sockets. `None`: the kernel has no Landlock, or it is not enabled.
    pub landlock: Option<u32>,
    /// Whether the kernel supports system call filters and the list covers this processor.
    pub seccomp: bool,
    /// The control group in which limits for a whole process tree could be set. `None`: Belay may not create child
    /// groups.
    pub cgroup: Option<PathBuf>,
    /// Whether Belay runs as root. The limit of processes does not apply to root, and files of root are its own.
    pub root: bool,
}

/// Kernel settings that forbid namespaces: the file, the forbidding value, and the name.
///
/// Source: Linux, Documentation/admin-guide/sysctl/user.rst; the settings of Debian and Ubuntu in sysctl/kernel.
pub(super) const SWITCHES: [(&str, &str, &str); 3] = [
    ("/proc/sys/user/max_user_namespaces", "0", "user.max_user_namespaces"),
    ("/proc/sys/kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone"),
    ("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns"),
];

impl Offers {
    /// Examines this machine. Blocks briefly: it starts `bwrap --version`.
    pub fn look(config: &SandboxConfig) -> Self {
        Self {
            bubblewrap: bubblewrap::find(config.bwrap.as_deref()).map(|(_, version)| version).map_err(|why| why.0),
            user_namespaces: namespaces(&SWITCHES),
            landlock: landlock_version(),
            seccomp: cfg!(any(target_arch = "x86_64", target_arch = "aarch64"))
                && Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
            cgroup: delegated(&std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default()),
            root: rustix::process::geteuid().is_root(),
        }
    }

    /// One line per feature: whether it is available, and a description.
    pub fn lines(&self) -> Vec<(bool, String)> {
        let bubblewrap = match &self.bubblewrap {
            Ok(version) => (true, format!("bubblewrap {version}")),
            Err(why) => (false, why.clone()),
        };
        let namespaces = match &self.user_namespaces {
            Ok(()) => (true, "user namespaces are allowed".to_owned()),
            Err(why) => (false, format!("user namespaces are not allowed: {why}")),
        };
        let landlock = match self.landlock {
            Some(version @ ..4) => (
                true,
                format!("Landlock version {version}; for commands with the network, version 4 (Linux 6.7) is needed"),
            ),
            Some(version) => (true, format!("Landlock version {version}")),
            None => (false, "no Landlock: Linux 5.13 or later is needed, with landlock in the list lsm=".to_owned()),
        };
        let seccomp = if self.seccomp {
            (true, "filters of system calls".to_owned())
        } else {
            (false, "no filters of system calls on this kernel or processor".to_owned())
        };
        let cgroup = match &self.cgroup {
            Some(path) => (true, format!("the control group {} is ours to divide", path.display())),
            None => (
                true,
                "no control group of our own: memory is limited for each process, not for all together".to_owned(),
            ),
        };
        let mut lines = vec![bubblewrap, namespaces, landlock, seccomp, cgroup];
        if self.root {
            lines.push((
                true,
                "this is root: a command may start any number of processes; use a user of its own".to_owned(),
            ));
        }
        lines
    }
}

fn namespaces(switches: &[(&str, &str, &str)]) -> Result<(), String> {
    for (file, forbids, name) in switches {
        // A missing setting forbids nothing.
        let value = std::fs::read_to_string(file).unwrap_or_default();
        if value.trim() == *forbids {
            return Err(format!("sysctl {name} is {forbids}"));
        }
    }
    Ok(())
}

/// Queries the kernel by restricting a thread, which then ends. The crate offers no other way.
fn landlock_version() -> Option<u32> {
    let ask = || {
        let created = Ruleset::default().handle_access(AccessFs::from_all(ABI::V1)).ok()?.create().ok()?;
        match created.restrict_self().ok()?.landlock {
            LandlockStatus::Available { effective_abi, kernel_abi } => {
                kernel_abi.and_then(|version| u32::try_from(version).ok()).or(Some(effective_abi as u32))
            }
            LandlockStatus::NotEnabled | LandlockStatus::NotImplemented => None,
        }
    };
    // If the thread panics, Landlock counts as missing.
    std::thread::scope(|scope| scope.spawn(ask).join()).unwrap_or_default()
}

/// The control group of this process, if it is of version 2, controls memory and processes, and may be subdivided.
fn delegated(cgroups: &str) -> Option<PathBuf> {
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let path = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"]
        .map(|root| Path::new(root).join(own))
        .into_iter()
        .find(|path| path.join("cgroup.controllers").exists())?;
    let controllers = std::fs::read_to_string(path.join("cgroup.controllers")).ok()?;
    let offered = ["memory", "pids"].iter().all(|needed| controllers.split_whitespace().any(|found| found == *needed));
    let ours =
        fs::access(&path, Mode::WRITE_OK).is_ok() && fs::access(path.join("cgroup.procs"), Mode::WRITE_OK).is_ok();
    (offered && ours).then_some(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_switch_that_forbids_namespaces_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("switch");
        std::fs::write(&file, "0\n").unwrap();
        let file = file.to_str().unwrap();
        assert_eq!(namespaces(&[(file, "0", "user.x")]), Err("sysctl user.x is 0".to_owned()));
        assert_eq!(namespaces(&[(file, "1", "user.x"), ("/nowhere", "0", "y")]), Ok(()));
    }

    #[test]
    fn missing_features_are_marked_and_explained() {
        let nothing = Offers {
            bubblewrap: Err("bubblewrap is not installed".to_owned()),
            user_namespaces: Err("sysctl user.max_user_namespaces is 0".to_owned()),
            landlock: None,
            seccomp: false,
            cgroup: None,
            root: true,
        };
        let marks: Vec<_> = nothing.lines().iter().map(|(there, _)| *there).collect();
        assert_eq!(marks, [false, false, false, false, true, true]);
        let everything = Offers {
            bubblewrap: Ok("0.8.0".to_owned()),
            user_namespaces: Ok(()),
            landlock: Some(7),
            seccomp: true,
            cgroup: Some("/sys/fs/cgroup/belay".into()),
            root: false,
        };
        assert!(everything.lines().iter().all(|(there, _)| *there));
    }

    #[test]
    fn asking_for_landlock_does_not_restrict_the_asker() {
        let first = landlock_version();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("still"), "writable").unwrap();
        assert_eq!(landlock_version(), first);
    }

    #[test]
    fn a_control_group_of_the_first_version_is_not_ours() {
        for cgroups in ["", "4:memory:/x\n", "0::/there/is/none/such\n"] {
            assert_eq!(delegated(cgroups), None, "{cgroups}");
        }
    }
}
