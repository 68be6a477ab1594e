//! The sandbox in which commands run.
//!
//! **For**: wraps a process to start, so that it runs in the sandbox. bubblewrap creates namespaces and a separate file
//! system, and starts the daemon's own binary in them (`belay launch`). This launcher applies Landlock, a system call
//! filter and resource limits to itself, and then executes the command. If a part is missing, the call is refused with
//! a text that names it. A command never runs with fewer restrictions than requested.
//!
//! **Does not know**: the caller, whether a person approved the command, and how processes are started, watched and
//! ended.
//!
//! A command sees this machine read-only, without private files; its own `/tmp`, `/proc` and `/dev`; an empty home
//! directory; and the workspace at [`WORKSPACE`]. `docs/guide/sandbox.md` lists what is guaranteed and what is not.
//!
//! Reading order: [`config`] → here → `view` (hidden paths) → `bubblewrap` → [`launch`] (the launcher) → `probe` →
//! `lazy` (probes on first use) → `remembered` (successful probes) → [`offers`] (the features of this machine).

mod bubblewrap;
pub mod config;
pub mod launch;
mod lazy;
pub mod offers;
mod probe;
mod remembered;
mod view;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use self::bubblewrap::SandboxSpec;
pub use self::config::{Landlock, Policy, SandboxConfig};
use self::launch::stage::{Confinement, Files, Limits, Stage};
pub use self::lazy::LazySandbox;
pub use self::offers::Offers;
use self::remembered::ProbeMemory;
use belay_exec::{Launch, SealedProgram, Stdin};

/// Path of the workspace inside the sandbox.
pub const WORKSPACE: &str = "/workspace";

/// Path of the launcher inside the sandbox, in a directory that exists on no machine.
const LAUNCHER: &str = "/.belay/launch";

/// Path of the home directory inside the sandbox, beside the launcher. It is private to each command and empty when the
/// command starts. The workspace is not the home directory, because programs load settings and code from there.
const HOME: &str = "/.belay/home";

/// Path of the worker host's socket inside the sandbox, beside the launcher.
pub(crate) const LINK: &str = "/.belay/link";

/// Default `PATH` of commands.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A sandbox for commands. It was probed when it was created, or an earlier probe of the same sandbox succeeded.
#[derive(Clone, Debug)]
pub struct Sandbox {
    config: SandboxConfig,
    /// The path as given, and without symbolic links. Callers may use either.
    workspace: [PathBuf; 2],
    launcher: PathBuf,
    /// Path of bubblewrap; `None`: the policy is `off`.
    bubblewrap: Option<PathBuf>,
}

/// Permissions for one command. More than the policy allows is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Network access, limited to [`SandboxConfig::ports`].
    pub network: bool,
    /// Writing to the workspace; with the policy `full`, to everything.
    pub write: bool,
}

/// The missing requirement of the sandbox and how to fix it, in plain words for the operator and the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

impl Sandbox {
    /// Finds the requirements of the sandbox and tests it: runs `true` inside with the maximum permissions. Blocks for
    /// some tens of milliseconds, at most 10 s per test run; [`LazySandbox`] calls it on first use. `launcher` is the
    /// binary with the subcommand `launch` (the daemon's own). `workspace_root` must exist.
    ///
    /// With [`Policy::Off`], nothing is required or tested, and [`Sandbox::wrap`] returns a process with resource
    /// limits only.
    ///
    /// # Errors
    /// The missing requirement of this machine.
    pub fn probe(config: &SandboxConfig, workspace_root: &Path, launcher: &Path) -> Result<Self, Missing> {
        let bubblewrap = match config.policy {
            Policy::Off => None,
            _ => Some(bubblewrap::find(config.bwrap.as_deref())?.0),
        };
        let sandbox = Self::unprobed(config, workspace_root, launcher, bubblewrap)?;
        if sandbox.bubblewrap.is_some() {
            probe::try_all(&sandbox)?;
        }
        Ok(sandbox)
    }

    /// The sandbox as [`Self::probe`] would probe it, if an earlier probe of exactly this sandbox has succeeded. Starts
    /// nothing. `None`: nothing is known about it.
    fn recalled(config: &SandboxConfig, workspace_root: &Path, launcher: &Path, memory: &ProbeMemory) -> Option<Self> {
        let bubblewrap = match config.policy {
            Policy::Off => return None, // its probe starts nothing and takes no time
            _ => bubblewrap::locate(config.bwrap.as_deref()).ok()?,
        };
        let sandbox = Self::unprobed(config, workspace_root, launcher, Some(bubblewrap)).ok()?;
        memory.holds(&sandbox).then_some(sandbox)
    }

    fn unprobed(
        config: &SandboxConfig,
        workspace_root: &Path,
        launcher: &Path,
        bubblewrap: Option<PathBuf>,
    ) -> Result<Self, Missing> {
        let real = |what: &str, path: &Path| {
            std::fs::canonicalize(path)
                .map_err(|error| Missing(format!("{what} {} cannot be used: {error}", path.display())))
        };
        Ok(Self {
            config: config.clone(),
            workspace: [workspace_root.to_owned(), real("the workspace", workspace_root)?],
            launcher: real("the program", launcher)?,
            bubblewrap,
        })
    }

    /// The policy of the settings.
    pub fn policy(&self) -> Policy {
        self.config.policy
    }

    /// Path of the workspace as commands see it: [`WORKSPACE`], or the real path if the policy is `off`.
    pub fn workspace(&self) -> &Path {
        if self.bubblewrap.is_some() { Path::new(WORKSPACE) } else { &self.workspace[1] }
    }

    /// The maximum permissions.
    pub fn most(&self) -> Grant {
        Grant { network: self.config.network, write: self.config.policy != Policy::Readonly }
    }

    /// Wraps a process, so that it runs in the sandbox. Its directory may be a path of this machine or a path inside.
    /// Its environment loses the variables of the dynamic loader (`LD_…`, `GLIBC_TUNABLES`) and gets `HOME`, `TMPDIR`
    /// and `TERM`, and `PATH`, `LANG` and the variables of [`in_home`] if they are missing.
    ///
    /// A process list outside of the sandbox shows the arguments of the process, but not its environment or input.
    ///
    /// # Errors
    /// The settings do not allow these permissions, or the directory lies outside of the workspace.
    pub fn wrap(&self, inner: Launch, grant: Grant) -> Result<Launch, Missing> {
        let Some(bubblewrap) = &self.bubblewrap else {
            return Ok(bare(inner, &self.launcher, &self.config));
        };
        self.confine(bubblewrap, inner, grant, None)
    }

    /// Creates a sandboxed worker process: this program with these arguments, in the workspace, without network access,
    /// with the socket of the worker host at [`LINK`].
    ///
    /// # Errors
    /// The policy is `off`: a worker requires the sandbox.
    pub(crate) fn wrap_worker(&self, args: Vec<OsString>, stdin: Stdin, link: &Path) -> Result<Launch, Missing> {
        let Some(bubblewrap) = &self.bubblewrap else {
            return Err(Missing("a worker needs the sandbox, and tools.sandbox.policy is off".to_owned()));
        };
        let inner = Launch {
            program: LAUNCHER.into(),
            args,
            env: Vec::new(),
            directory: WORKSPACE.into(),
            stdin,
            isolated: false,
            sealed: None,
        };
        self.confine(bubblewrap, inner, Grant { network: false, ..self.most() }, Some(link))
    }

    /// The hidden path of a program or file that exists and that commands cannot see: its own, or the one that its links
    /// lead to. `None`: they can see it.
    #[cfg_attr(not(feature = "mcp"), expect(dead_code, reason = "a build without programs that speak MCP"))]
    pub(crate) fn hidden_path(&self, path: &Path, grant: Grant) -> Option<PathBuf> {
        let real = std::fs::canonicalize(path).ok().filter(|_| self.bubblewrap.is_some())?;
        let spec = self.spec(grant, Path::new(WORKSPACE), None);
        if spec.hides(path) { Some(path.to_owned()) } else { Some(real).filter(|real| spec.hides(real)) }
    }

    fn spec<'a>(&'a self, grant: Grant, directory: &'a Path, link: Option<&'a Path>) -> SandboxSpec<'a> {
        SandboxSpec {
            config: &self.config,
            workspace: &self.workspace[1],
            launcher: &self.launcher,
            all: self.config.policy == Policy::Full,
            write: grant.write,
            network: grant.network,
            directory,
            link,
        }
    }

    fn confine(&self, bubblewrap: &Path, inner: Launch, grant: Grant, link: Option<&Path>) -> Result<Launch, Missing> {
        self.refuse_more(grant)?;
        let all = self.config.policy == Policy::Full;
        let directory = self.directory_inside(&inner.directory)?;
        let spec = self.spec(grant, &directory, link);
        let mut args = spec.arguments()?;
        let files = match (grant.write, all) {
            (false, _) => Files::Readonly,
            (true, false) => Files::Workspace,
            (true, true) => Files::All,
        };
        let ports = (grant.network && !self.config.ports.is_empty()).then(|| self.config.ports.clone());
        let confinement = Confinement::Inside { landlock: self.config.landlock, files, ports };
        args.push(LAUNCHER.into());
        args.extend(
            Stage {
                confinement,
                limits: Some(Limits::from(&self.config)),
                sealed: inner.sealed.as_ref().map(SealedProgram::number),
                argv: argv(inner.program, inner.args),
            }
            .to_args(),
        );
        Ok(Launch {
            program: bubblewrap.into(),
            args,
            env: environment(inner.env),
            directory: "/".into(),
            stdin: inner.stdin,
            isolated: true,
            sealed: inner.sealed,
        })
    }

    fn refuse_more(&self, grant: Grant) -> Result<(), Missing> {
        let most = self.most();
        if grant.network && !most.network {
            return Err(Missing("the sandbox gives no network: tools.sandbox.network is false".to_owned()));
        }
        if grant.write && !most.write {
            return Err(Missing("nothing may be written: tools.sandbox.policy is readonly".to_owned()));
        }
        Ok(())
    }

    /// The path of a directory of this machine inside the sandbox.
    fn directory_inside(&self, directory: &Path) -> Result<PathBuf, Missing> {
        let inside = Path::new(WORKSPACE);
        if let Some(below) = self.workspace.iter().find_map(|root| directory.strip_prefix(root).ok()) {
            return Ok(if below.as_os_str().is_empty() { inside.to_owned() } else { inside.join(below) });
        }
        if directory.is_relative() {
            return Ok(inside.join(directory));
        }
        if directory.starts_with(inside) || self.config.policy == Policy::Full {
            return Ok(directory.to_owned());
        }
        Err(Missing(format!("a command starts in the workspace; {} lies outside", directory.display())))
    }
}

/// The same process without a sandbox, for the policy `off`: with resource limits and no new privileges. It ends when
/// the thread that starts it ends. `config` contains the limits.
pub fn bare(inner: Launch, launcher: &Path, config: &SandboxConfig) -> Launch {
    let confinement = Confinement::Bare { parent: Some(std::process::id()) };
    let stage = Stage {
        confinement,
        limits: Some(Limits::from(config)),
        sealed: inner.sealed.as_ref().map(SealedProgram::number),
        argv: argv(inner.program, inner.args),
    };
    Launch { program: launcher.into(), args: stage.to_args(), isolated: false, ..inner }
}

fn argv(program: OsString, args: Vec<OsString>) -> Vec<OsString> {
    std::iter::once(program).chain(args).collect()
}

/// The variables that name the directories of a user's own files, all of them in this home directory. A value that is
/// set already takes precedence.
///
/// Source: XDG Base Directory Specification. `XDG_RUNTIME_DIR` must exist and belong to the user alone, as the home
/// directory does.
pub(crate) fn in_home(home: &Path) -> [(&'static str, PathBuf); 5] {
    [
        ("XDG_CONFIG_HOME", home.join(".config")),
        ("XDG_CACHE_HOME", home.join(".cache")),
        ("XDG_DATA_HOME", home.join(".local/share")),
        ("XDG_STATE_HOME", home.join(".local/state")),
        ("XDG_RUNTIME_DIR", home.to_owned()),
    ]
}

/// The environment inside the sandbox. bubblewrap runs with it outside of the sandbox, so it must not contain variables
/// of the dynamic loader.
fn environment(mut env: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    const OWN: [(&str, &str); 3] = [("HOME", HOME), ("TMPDIR", "/tmp"), ("TERM", "dumb")];
    const DEFAULTS: [(&str, &str); 2] = [("PATH", PATH), ("LANG", "C.UTF-8")];
    env.retain(|(name, _)| {
        let steers = name.as_encoded_bytes().starts_with(b"LD_") || name == "GLIBC_TUNABLES";
        !steers && OWN.iter().all(|(own, _)| name != own)
    });
    let own = OWN.map(|(name, value)| (name, PathBuf::from(value)));
    let defaults =
        DEFAULTS.map(|(name, value)| (name, PathBuf::from(value))).into_iter().chain(in_home(Path::new(HOME)));
    let missing: Vec<_> = defaults.filter(|(default, _)| env.iter().all(|(name, _)| name != default)).collect();
    env.extend(own.into_iter().chain(missing).map(|(name, value)| (name.into(), value.into())));
    env
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use belay_exec::Stdin;

    fn sandbox(policy: Policy, network: bool) -> Sandbox {
        Sandbox {
            config: SandboxConfig { policy, network, ..SandboxConfig::default() },
            workspace: ["/srv/link".into(), "/srv/work".into()],
            launcher: "/usr/bin/belay".into(),
            bubblewrap: (policy != Policy::Off).then(|| "/usr/bin/bwrap".into()),
        }
    }

    fn launch(directory: &str) -> Launch {
        Launch {
            program: "sh".into(),
            args: vec!["-c".into(), "true".into()],
            env: vec![("A".into(), "b".into())],
            directory: directory.into(),
            stdin: Stdin::Null,
            isolated: false,
            sealed: None,
        }
    }

    #[test]
    fn directories_are_translated_to_paths_inside_the_sandbox() {
        for (policy, directory, expected) in [
            (Policy::Readonly, "/srv/work", Some("/workspace")),
            (Policy::Readonly, "/srv/link/a/b", Some("/workspace/a/b")),
            (Policy::Readonly, "/workspace/a", Some("/workspace/a")),
            (Policy::Readonly, "a", Some("/workspace/a")),
            (Policy::Readonly, "/srv/workshop", None),
            (Policy::WorkspaceWrite, "/etc", None),
            (Policy::Full, "/etc", Some("/etc")),
            (Policy::Full, "/srv/work/a", Some("/workspace/a")),
        ] {
            let found = sandbox(policy, false).directory_inside(Path::new(directory)).ok();
            assert_eq!(found.as_deref(), expected.map(Path::new), "{directory}");
        }
    }

    #[test]
    fn more_than_the_settings_allow_is_refused() {
        for (policy, network, grant, key) in [
            (Policy::Readonly, true, Grant { network: false, write: true }, "tools.sandbox.policy"),
            (Policy::Full, false, Grant { network: true, write: true }, "tools.sandbox.network"),
        ] {
            let refused = sandbox(policy, network).wrap(launch("/srv/work"), grant).unwrap_err();
            assert!(refused.0.contains(key), "{refused}");
        }
    }

    #[test]
    fn without_a_sandbox_the_process_keeps_its_environment_and_directory() {
        let bare = sandbox(Policy::Off, false).wrap(launch("/etc"), Grant { network: true, write: true }).unwrap();
        assert_eq!(bare.program, "/usr/bin/belay");
        assert_eq!((&bare.env, &bare.directory, bare.isolated), (&launch("/etc").env, &"/etc".into(), false));
        let after_separator: Vec<_> = bare.args.rsplit(|arg| arg == "--").next().unwrap().to_vec();
        assert_eq!(after_separator, ["sh", "-c", "true"]);
    }

    #[test]
    fn the_environment_has_the_given_and_the_required_variables() {
        let given = [
            ("A", "b"),
            ("LD_PRELOAD", "x"),
            ("GLIBC_TUNABLES", "y"),
            ("HOME", "/root"),
            ("PATH", "/opt/bin"),
            ("XDG_CACHE_HOME", "/workspace/cache"),
        ];
        let env = environment(given.map(|(name, value)| (name.into(), value.into())).into());
        let expected = [
            ("A", "b"),
            ("PATH", "/opt/bin"),
            ("XDG_CACHE_HOME", "/workspace/cache"),
            ("HOME", "/.belay/home"),
            ("TMPDIR", "/tmp"),
            ("TERM", "dumb"),
            ("LANG", "C.UTF-8"),
            ("XDG_CONFIG_HOME", "/.belay/home/.config"),
            ("XDG_DATA_HOME", "/.belay/home/.local/share"),
            ("XDG_STATE_HOME", "/.belay/home/.local/state"),
            ("XDG_RUNTIME_DIR", "/.belay/home"),
        ];
        assert_eq!(env, expected.map(|(name, value)| (name.into(), value.into())));
    }
}
