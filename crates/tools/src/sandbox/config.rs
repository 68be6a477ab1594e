//! Settings of the sandbox: the section `[tools.sandbox]`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Settings of the sandbox in which commands run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxConfig {
    /// What commands may access at most.
    pub policy: Policy,
    /// Whether commands may get network access. Otherwise a command has only its own loopback interface. This also
    /// applies to the policy `full`.
    pub network: bool,
    /// TCP ports to which a command with network access may connect; empty: every port. The list protects services on
    /// this machine, including the daemon. Host names are resolved over UDP, which is not restricted.
    pub ports: Vec<u16>,
    /// Path of bubblewrap. Absent: `bwrap` in `/usr/bin`, `/usr/local/bin` or `/bin`.
    pub bwrap: Option<PathBuf>,
    /// Whether commands are refused on a kernel without Landlock.
    pub landlock: Landlock,
    /// Most memory of one process in MiB: its heap and its private writable mappings; 32 to 1048576 (1 TiB).
    pub memory_mb: u64,
    /// Most processes and threads of one command; 8 to 65536. Has no effect if the daemon runs as root.
    pub processes: u64,
    /// Most open files of one process.
    #[serde(skip)]
    pub open_files: u64,
    /// Largest file that a command may write, in MiB; 1 to 1048576 (1 TiB).
    pub file_mb: u64,
    /// Most processor time of one process in seconds: a third of `tools.commands.max_timeout_s`.
    #[serde(skip)]
    pub cpu_s: u64,
    /// Size of each private temporary directory (`/tmp`, `/var/tmp`, `/dev/shm`, the home directory) in MiB; 1 to 65536.
    /// It uses memory of this machine.
    pub tmp_mb: u64,
    /// Directories and files that no command can see under any policy, in addition to the daemon's own. Absolute paths.
    /// Prefer directories: a hidden file becomes visible if it is replaced while a command runs.
    pub hide: Vec<PathBuf>,
    /// Directories and files that commands can read although they lie in a hidden directory, for example a toolchain in
    /// a home directory. Absolute paths.
    pub show: Vec<PathBuf>,
}

/// What commands may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// Commands may only write private temporary files.
    Readonly,
    /// Commands may also write to the workspace.
    WorkspaceWrite,
    /// Commands may access everything that the daemon's user may, except the daemon's secrets.
    Full,
    /// No sandbox: only resource limits and no new privileges.
    Off,
}

impl Policy {
    /// The value in the settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Readonly => "readonly",
            Self::WorkspaceWrite => "workspace_write",
            Self::Full => "full",
            Self::Off => "off",
        }
    }
}

/// Whether Landlock is required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landlock {
    /// Commands are refused if the kernel has no Landlock.
    Required,
    /// Without Landlock, only the namespaces restrict commands.
    Optional,
}

impl Default for SandboxConfig {
    /// Limits that allow a compiler or a test suite, and protect the machine. 1024 open files is the usual limit of a
    /// login.
    fn default() -> Self {
        Self {
            policy: Policy::WorkspaceWrite,
            network: false,
            ports: vec![53, 80, 443],
            bwrap: None,
            landlock: Landlock::Required,
            memory_mb: 2048,
            processes: 256,
            open_files: 1024,
            file_mb: 1024,
            cpu_s: 600,
            tmp_mb: 256,
            hide: Vec::new(),
            show: Vec::new(),
        }
    }
}

impl SandboxConfig {
    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (key, value, least, most) in [
            // With less memory, the dynamic loader of an ordinary program fails.
            ("memory_mb", self.memory_mb, 32, 1024 * 1024),
            // With fewer processes, a shell with a pipeline fails, because the sandbox itself uses two.
            ("processes", self.processes, 8, 65_536),
            ("file_mb", self.file_mb, 1, 1024 * 1024),
            ("tmp_mb", self.tmp_mb, 1, 65_536),
        ] {
            if !(least..=most).contains(&value) {
                problems.push(format!("tools.sandbox.{key}: must be from {least} to {most}, is {value}"));
            }
        }
        if self.ports.contains(&0) {
            problems.push("tools.sandbox.ports: there is no port 0; an empty list allows every port".to_owned());
        }
        for (key, path) in self.paths() {
            if !path.is_absolute() {
                problems.push(format!("tools.sandbox.{key}: must be an absolute path, is {path:?}"));
            } else if path == Path::new("/") && key == "hide" {
                problems.push("tools.sandbox.hide: with / hidden no program could be started".to_owned());
            }
        }
        problems
    }

    fn paths(&self) -> impl Iterator<Item = (&'static str, &PathBuf)> {
        let hide = self.hide.iter().map(|path| ("hide", path));
        let show = self.show.iter().map(|path| ("show", path));
        self.bwrap.iter().map(|path| ("bwrap", path)).chain(hide).chain(show)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(SandboxConfig::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_reported_with_their_keys() {
        let config = SandboxConfig {
            ports: vec![443, 0],
            bwrap: Some("bwrap".into()),
            memory_mb: 31,
            processes: 7,
            file_mb: 0,
            tmp_mb: 65_537,
            hide: vec!["/".into()],
            show: vec!["here".into()],
            ..SandboxConfig::default()
        };
        assert_eq!(
            config.validate(),
            [
                "tools.sandbox.memory_mb: must be from 32 to 1048576, is 31",
                "tools.sandbox.processes: must be from 8 to 65536, is 7",
                "tools.sandbox.file_mb: must be from 1 to 1048576, is 0",
                "tools.sandbox.tmp_mb: must be from 1 to 65536, is 65537",
                "tools.sandbox.ports: there is no port 0; an empty list allows every port",
                "tools.sandbox.bwrap: must be an absolute path, is \"bwrap\"",
                "tools.sandbox.hide: with / hidden no program could be started",
                "tools.sandbox.show: must be an absolute path, is \"here\"",
            ]
        );
    }
}
