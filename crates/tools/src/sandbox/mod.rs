//! The sandbox in which commands run.
//!
//! **For**: turning a process that is to be started into the same process behind walls: bubblewrap builds namespaces and
//! a file system of its own around the daemon's own binary (`belay launch`), which adds Landlock, a filter of system
//! calls and limits to itself and becomes the command. Where a piece is missing the answer is a refusal that names it;
//! nothing ever runs with less than was asked for.
//!
//! **Does not know**: who asks, whether a person agreed, how a process is started, watched and ended.
//!
//! What a command sees: this machine read-only, without what is private; its own `/tmp`, `/proc` and `/dev`; and the
//! workspace at [`WORKSPACE`]. `docs/guide/sandbox.md` says what is guaranteed and what is not.
//!
//! Reading order: [`config`] → here → `view` (what is hidden) → `bubblewrap` → [`launch`] (the last stage) → `probe` →
//! `lazy` (tried when it is wanted) → [`offers`] (what this machine has).

mod bubblewrap;
pub mod config;
pub mod launch;
mod lazy;
pub mod offers;
mod probe;
mod view;

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use self::bubblewrap::Room;
pub use self::config::{Landlock, Policy, SandboxConfig};
use self::launch::stage::{Files, Limits, Stage, Walls};
pub use self::lazy::LazySandbox;
pub use self::offers::Offers;
use belay_exec::{Launch, SealedProgram, Stdin};

/// Where a command finds the workspace.
pub const WORKSPACE: &str = "/workspace";

/// Where the last stage lies inside. In a directory of its own: nothing of this machine is called so.
const LAUNCHER: &str = "/.belay/launch";

/// Where a worker finds the socket of its host, beside the last stage.
pub(crate) const LINK: &str = "/.belay/link";

/// Where programs are looked for, unless the caller says otherwise.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Walls around commands, tried when they were made.
#[derive(Clone, Debug)]
pub struct Sandbox {
    config: SandboxConfig,
    /// As it was given, and without links: callers may say either.
    workspace: [PathBuf; 2],
    launcher: PathBuf,
    /// `None`: the policy is `off`.
    bubblewrap: Option<PathBuf>,
}

/// What one command is granted. More than the policy allows is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The network of this machine, within [`SandboxConfig::ports`].
    pub network: bool,
    /// Writing to the workspace; with the policy `full`, to everything.
    pub write: bool,
}

/// Why there is no sandbox: what is missing, and what to do. Plain words for the operator, and fit for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(pub String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

impl Sandbox {
    /// Finds what a sandbox needs and tries it: `true` has to run inside, with everything that may be granted. Blocks
    /// for some tens of milliseconds, 10 s at the very most; [`LazySandbox`] has it done when it is needed. `launcher` is the binary that
    /// understands `launch` (the daemon's own); `workspace_root` has to exist.
    ///
    /// With [`Policy::Off`] nothing is needed, nothing is tried, and [`Sandbox::wrap`] gives a process with limits only.
    ///
    /// # Errors
    /// What is missing on this machine.
    pub fn probe(config: &SandboxConfig, workspace_root: &Path, launcher: &Path) -> Result<Self, Missing> {
        let real = |what: &str, path: &Path| {
            std::fs::canonicalize(path)
                .map_err(|error| Missing(format!("{what} {} cannot be used: {error}", path.display())))
        };
        let bubblewrap = match config.policy {
            Policy::Off => None,
            _ => Some(bubblewrap::find(config.bwrap.as_deref())?.0),
        };
        let sandbox = Self {
            config: config.clone(),
            workspace: [workspace_root.to_owned(), real("the workspace", workspace_root)?],
            launcher: real("the program", launcher)?,
            bubblewrap,
        };
        if sandbox.bubblewrap.is_some() {
            probe::try_all(&sandbox)?;
        }
        Ok(sandbox)
    }

    /// What the settings allow.
    pub fn policy(&self) -> Policy {
        self.config.policy
    }

    /// The workspace as a command sees it: [`WORKSPACE`], or where it really is when the policy is `off`.
    pub fn workspace(&self) -> &Path {
        if self.bubblewrap.is_some() { Path::new(WORKSPACE) } else { &self.workspace[1] }
    }

    /// The most that may be granted.
    pub fn most(&self) -> Grant {
        Grant { network: self.config.network, write: self.config.policy != Policy::Readonly }
    }

    /// The same process behind walls. Its directory may be given as it is on this machine or as it is inside; its
    /// environment keeps what it has, except for what steers the dynamic loader (`LD_…`, `GLIBC_TUNABLES`), and gets
    /// `HOME`, `TMPDIR`, `TERM` and where missing `PATH` and `LANG`.
    ///
    /// Not kept in a process list of the outside are its environment and its input; its arguments can be read there.
    ///
    /// # Errors
    /// More is granted than the settings allow, or the directory lies outside the workspace.
    pub fn wrap(&self, inner: Launch, grant: Grant) -> Result<Launch, Missing> {
        let Some(bubblewrap) = &self.bubblewrap else {
            return Ok(bare(inner, &self.launcher, &self.config));
        };
        self.behind(bubblewrap, inner, grant, None)
    }

    /// A worker behind walls: this program itself, with these arguments, in the workspace, without the network, and with
    /// the socket of its host at [`LINK`].
    ///
    /// # Errors
    /// The policy is `off`: a worker has walls, or there is none.
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
        self.behind(bubblewrap, inner, Grant { network: false, ..self.most() }, Some(link))
    }

    fn behind(&self, bubblewrap: &Path, inner: Launch, grant: Grant, link: Option<&Path>) -> Result<Launch, Missing> {
        self.refuse_more(grant)?;
        let all = self.config.policy == Policy::Full;
        let directory = self.directory_inside(&inner.directory)?;
        let room = Room {
            config: &self.config,
            workspace: &self.workspace[1],
            launcher: &self.launcher,
            all,
            write: grant.write,
            network: grant.network,
            directory: &directory,
            link,
        };
        let mut args = room.arguments()?;
        let files = match (grant.write, all) {
            (false, _) => Files::Readonly,
            (true, false) => Files::Workspace,
            (true, true) => Files::All,
        };
        let ports = (grant.network && !self.config.ports.is_empty()).then(|| self.config.ports.clone());
        let walls = Walls::Inside { landlock: self.config.landlock, files, ports };
        args.push(LAUNCHER.into());
        args.extend(
            Stage {
                walls,
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

    /// Where a directory of this machine is to be found inside.
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

/// The same process without walls, on the operator's explicit word: limits, no new privileges, and an end when the
/// thread that starts it ends. `config` gives the limits.
pub fn bare(inner: Launch, launcher: &Path, config: &SandboxConfig) -> Launch {
    let walls = Walls::Bare { parent: Some(std::process::id()) };
    let stage = Stage {
        walls,
        limits: Some(Limits::from(config)),
        sealed: inner.sealed.as_ref().map(SealedProgram::number),
        argv: argv(inner.program, inner.args),
    };
    Launch { program: launcher.into(), args: stage.to_args(), isolated: false, ..inner }
}

fn argv(program: OsString, args: Vec<OsString>) -> Vec<OsString> {
    std::iter::once(program).chain(args).collect()
}

/// The environment inside. Bubblewrap runs with it outside, so nothing in it may steer the dynamic loader.
fn environment(mut env: Vec<(OsString, OsString)>) -> Vec<(OsString, OsString)> {
    const OWN: [(&str, &str); 3] = [("HOME", WORKSPACE), ("TMPDIR", "/tmp"), ("TERM", "dumb")];
    const USUAL: [(&str, &str); 2] = [("PATH", PATH), ("LANG", "C.UTF-8")];
    env.retain(|(name, _)| {
        let steers = name.as_encoded_bytes().starts_with(b"LD_") || name == "GLIBC_TUNABLES";
        !steers && OWN.iter().all(|(own, _)| name != own)
    });
    let missing: Vec<_> = USUAL.iter().filter(|(usual, _)| env.iter().all(|(name, _)| name != usual)).collect();
    env.extend(OWN.iter().chain(missing).map(|(name, value)| (name.into(), value.into())));
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
    fn directories_are_told_as_they_are_inside() {
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
    fn without_walls_the_process_keeps_its_environment_and_directory() {
        let bare = sandbox(Policy::Off, false).wrap(launch("/etc"), Grant { network: true, write: true }).unwrap();
        assert_eq!(bare.program, "/usr/bin/belay");
        assert_eq!((&bare.env, &bare.directory, bare.isolated), (&launch("/etc").env, &"/etc".into(), false));
        let behind: Vec<_> = bare.args.rsplit(|arg| arg == "--").next().unwrap().to_vec();
        assert_eq!(behind, ["sh", "-c", "true"]);
    }

    #[test]
    fn the_environment_is_what_was_given_and_what_is_needed() {
        let given = [("A", "b"), ("LD_PRELOAD", "x"), ("GLIBC_TUNABLES", "y"), ("HOME", "/root"), ("PATH", "/opt/bin")];
        let env = environment(given.map(|(name, value)| (name.into(), value.into())).into());
        let expected = [
            ("A", "b"),
            ("PATH", "/opt/bin"),
            ("HOME", "/workspace"),
            ("TMPDIR", "/tmp"),
            ("TERM", "dumb"),
            ("LANG", "C.UTF-8"),
        ];
        assert_eq!(env, expected.map(|(name, value)| (name.into(), value.into())));
    }
}
