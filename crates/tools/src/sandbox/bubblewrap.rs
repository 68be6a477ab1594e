//! Finds bubblewrap, checks its version, and builds its arguments for a sandbox.
//!
//! Source: bwrap(1), version 0.8; NEWS of bubblewrap for the version of each option.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::config::SandboxConfig;
use super::view::{Change, changes, hidden, hides};
use super::{HOME, LAUNCHER, LINK, Missing, WORKSPACE};

/// Paths of bubblewrap. `PATH` is not used, because the process that starts the daemon could change it.
const PATHS: [&str; 3] = ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap"];

/// The oldest supported version: the first that limits the size of a temporary directory.
const OLDEST: (u32, u32) = (0, 7);

/// Directories that bubblewrap creates in every sandbox. They are not bound from this machine.
const MADE: [&str; 2] = ["dev", "proc"];

/// Directories that are empty and writable in the sandbox, unless the machine's own files are writable.
const TEMPORARY: [&str; 2] = ["/tmp", "/var/tmp"];

/// Finds the path of bubblewrap. Starts nothing.
///
/// # Errors
/// It is not installed.
pub(super) fn locate(configured: Option<&Path>) -> Result<PathBuf, Missing> {
    match configured {
        Some(path) if path.is_file() => Ok(path.to_owned()),
        Some(path) => Err(Missing(format!("tools.sandbox.bwrap: there is no program {}", path.display()))),
        None => PATHS.iter().map(PathBuf::from).find(|path| path.is_file()).ok_or_else(|| {
            Missing(
                "bubblewrap is not installed; the package is called bubblewrap everywhere (apt install bubblewrap)"
                    .to_owned(),
            )
        }),
    }
}

/// Finds bubblewrap and its version.
///
/// # Errors
/// It is not installed, does not run, or is too old.
pub(super) fn find(configured: Option<&Path>) -> Result<(PathBuf, String), Missing> {
    let path = locate(configured)?;
    let shown = path.display();
    let output = Command::new(&path)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Missing(format!("{shown} cannot be started: {error}")))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().trim_start_matches("bubblewrap ").to_owned();
    match parse(&version) {
        Some(found) if found >= OLDEST => Ok((path, version)),
        Some(_) => {
            let (major, minor) = OLDEST;
            Err(Missing(format!("{shown} is bubblewrap {version}; {major}.{minor} or later is needed")))
        }
        None => Err(Missing(format!("{shown} --version does not say which bubblewrap it is"))),
    }
}

fn parse(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The parameters of one sandbox.
pub(super) struct SandboxSpec<'a> {
    pub(super) config: &'a SandboxConfig,
    /// Path of the workspace on this machine, without symbolic links.
    pub(super) workspace: &'a Path,
    /// Path of the launcher binary, without symbolic links.
    pub(super) launcher: &'a Path,
    /// Whether the file system is visible as it is. Otherwise it is read-only and private paths are hidden.
    pub(super) all: bool,
    /// Whether the command may write to the workspace, or with `all` to everything.
    pub(super) write: bool,
    pub(super) network: bool,
    /// Working directory of the command, as a path inside the sandbox.
    pub(super) directory: &'a Path,
    /// For a worker: the socket of the worker host.
    pub(super) link: Option<&'a Path>,
}

impl SandboxSpec<'_> {
    /// The arguments of bubblewrap, up to and including the `--` before the launcher's arguments.
    ///
    /// # Errors
    /// The root directory cannot be listed.
    pub(super) fn arguments(&self) -> Result<Vec<OsString>, Missing> {
        let mut args = Arguments::default();
        self.namespaces(&mut args);
        self.machine(&mut args)?;
        let emptied = self.hide(&mut args);
        self.own(&mut args);
        // Remounted last, because mount points are created inside these directories before.
        for directory in emptied.iter().map(PathBuf::as_path).chain([Path::new("/dev"), Path::new("/")]) {
            args.option("--remount-ro", [directory]);
        }
        args.option("--chdir", [self.directory]);
        args.word("--");
        Ok(args.0)
    }

    fn namespaces(&self, args: &mut Arguments) {
        for word in ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"] {
            args.word(word);
        }
        if !self.network {
            args.word("--unshare-net");
        }
        // If the monitor process is killed or ends, everything inside ends. No terminal is shared, and all capabilities
        // are dropped.
        for word in ["--die-with-parent", "--new-session", "--cap-drop", "ALL"] {
            args.word(word);
        }
    }

    /// Binds the directories of this machine one by one into a new root, so that other directories can be added beside
    /// them.
    fn machine(&self, args: &mut Arguments) -> Result<(), Missing> {
        let failed = |error| Missing(format!("the root directory cannot be listed: {error}"));
        let mut entries: Vec<_> = std::fs::read_dir("/").map_err(failed)?.collect::<Result<_, _>>().map_err(failed)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let ours = Path::new(WORKSPACE) == path || Path::new(LAUNCHER).starts_with(&path);
            if ours || MADE.iter().any(|made| entry.file_name() == *made) {
                continue;
            }
            match std::fs::read_link(&path) {
                Ok(target) => args.option("--symlink", [target.as_path(), &path]),
                Err(_) => args.option(self.bind("--bind-try", "--ro-bind-try"), [path.as_path(), &path]),
            }
        }
        args.option("--proc", ["/proc"]);
        args.option("--dev", ["/dev"]);
        self.temporary(args, Path::new("/dev/shm"), "1777");
        Ok(())
    }

    /// Whether a path of this machine cannot be seen at the same path inside.
    pub(super) fn hides(&self, path: &Path) -> bool {
        hides(self.hidden_paths(), self.shown_paths(), path)
    }

    fn temporary_paths(&self) -> &'static [&'static str] {
        if self.is_unrestricted() { &[] } else { &TEMPORARY }
    }

    fn hidden_paths(&self) -> Vec<&Path> {
        let private = hidden(self.all).chain(self.config.hide.iter().map(PathBuf::as_path));
        private.chain(self.temporary_paths().iter().map(Path::new)).collect()
    }

    fn shown_paths(&self) -> Vec<&Path> {
        // Needed to resolve host names. systemd-resolved keeps the target of this link among the sockets of services,
        // which are hidden.
        let resolver = self.network.then_some(Path::new("/etc/resolv.conf"));
        // If the file system is visible as it is, the workspace is also visible at its original path.
        let workspace = self.all.then_some(self.workspace);
        self.config.show.iter().map(PathBuf::as_path).chain(resolver).chain(workspace).collect()
    }

    /// Hides and shows paths. Returns the emptied directories, which are still writable at this point.
    fn hide(&self, args: &mut Arguments) -> Vec<PathBuf> {
        let temporary = self.temporary_paths();
        let mut emptied = Vec::new();
        for change in changes(self.hidden_paths(), self.shown_paths()) {
            match change {
                Change::Empty(path) if temporary.iter().any(|temporary| Path::new(temporary) == path) => {
                    self.temporary(args, &path, "1777");
                }
                Change::Empty(path) => {
                    args.option("--tmpfs", [&path]);
                    emptied.push(path);
                }
                Change::Mask(path) => args.option("--ro-bind", [Path::new("/dev/null"), &path]),
                Change::Show(path) => args.option(self.bind("--bind", "--ro-bind"), [&path, &path]),
            }
        }
        emptied
    }

    /// Mounts the workspace, the home directory, the launcher, and the socket of a worker.
    fn own(&self, args: &mut Arguments) {
        args.option(if self.write { "--bind" } else { "--ro-bind" }, [self.workspace, Path::new(WORKSPACE)]);
        self.temporary(args, Path::new(HOME), "0700");
        args.option("--ro-bind", [self.launcher, Path::new(LAUNCHER)]);
        if let Some(link) = self.link {
            args.option("--ro-bind", [link, Path::new(LINK)]);
        }
    }

    fn temporary(&self, args: &mut Arguments, path: &Path, mode: &str) {
        args.option("--perms", [mode]);
        args.option("--size", [(self.config.tmp_mb * 1024 * 1024).to_string()]);
        args.option("--tmpfs", [path]);
    }

    /// The mount option for the machine's directories.
    fn bind(&self, writable: &'static str, readonly: &'static str) -> &'static str {
        if self.is_unrestricted() { writable } else { readonly }
    }

    /// Whether the command may also write to the machine's files.
    fn is_unrestricted(&self) -> bool {
        self.all && self.write
    }
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn word(&mut self, word: &str) {
        self.0.push(word.into());
    }

    fn option<T: Into<OsString>>(&mut self, name: &str, values: impl IntoIterator<Item = T>) {
        self.word(name);
        self.0.extend(values.into_iter().map(Into::into));
    }
}

/// Adds advice for the operator to an error message of bubblewrap.
pub(super) fn explain(stderr: &str) -> String {
    let error_text = stderr.trim();
    let advice = [
        ("loopback", "a service needs AF_NETLINK in RestrictAddressFamilies="),
        ("overflowuid", "a service must leave out ProcSubset="),
        (
            "mount proc",
            "a new /proc is refused where parts of the outer one are covered: a service must leave out ProtectKernelTunables=, \
             ProtectKernelLogs= and ProcSubset=; a container needs an unmasked /proc",
        ),
        (
            "namespace",
            "namespaces are refused to this user: look at sysctl kernel.unprivileged_userns_clone (1), \
             user.max_user_namespaces (above 0), kernel.apparmor_restrict_unprivileged_userns (0, or an AppArmor profile \
             for bwrap), and RestrictNamespaces= of the service",
        ),
        ("uid map", "the profile of AppArmor or the container does not let bubblewrap map its user"),
        (
            "Operation not permitted",
            "the filter of the service or container refuses what bubblewrap does: see deploy/belay.service",
        ),
    ];
    let lower = error_text.to_lowercase();
    match advice.iter().find(|(sign, _)| lower.contains(&sign.to_lowercase())) {
        Some((_, advice)) => format!("{error_text}; {advice}"),
        None => error_text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (text, expected) in [
            ("0.8.0", Some((0, 8))),
            ("0.11.0", Some((0, 11))),
            ("1.0", Some((1, 0))),
            ("", None),
            ("bubblewrap", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
        assert!(parse("0.11.0").unwrap() > OLDEST && parse("0.6.2").unwrap() < OLDEST);
    }

    #[test]
    fn a_configured_program_that_is_not_there_is_named() {
        let missing = find(Some(Path::new("/nowhere/bwrap"))).unwrap_err();
        assert_eq!(missing.0, "tools.sandbox.bwrap: there is no program /nowhere/bwrap");
    }

    #[test]
    fn an_error_of_bubblewrap_is_kept_and_explained() {
        for (error_text, advice) in [
            ("bwrap: No permissions to create new namespace, likely because the kernel does not allow it", "sysctl"),
            ("bwrap: Creating new namespace failed: Operation not permitted", "sysctl"),
            ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "ProtectKernelTunables"),
            ("bwrap: loopback: Failed to create NETLINK_ROUTE socket: Address family not supported", "AF_NETLINK"),
            ("bwrap: setting up uid map: Permission denied", "AppArmor"),
            ("bwrap: pivot_root: Operation not permitted", "deploy/belay.service"),
        ] {
            let explained = explain(error_text);
            assert!(explained.starts_with(error_text) && explained.contains(advice), "{explained}");
        }
        assert_eq!(explain("something else\n"), "something else");
    }
}
