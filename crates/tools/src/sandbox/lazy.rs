//! A sandbox that is probed on first use.
//!
//! Probing takes some tens of milliseconds and starts programs. A daemon that runs no command never waits for it. A
//! command runs only in a sandbox that was probed: by this process, or successfully by an earlier one on the same
//! machine. bubblewrap itself refuses to run a command if the sandbox has stopped working since then.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio::sync::OnceCell;

use super::{Missing, Policy, ProbeMemory, Sandbox, SandboxConfig, WORKSPACE};

/// A sandbox that is probed once. All clones share the result.
#[derive(Clone, Debug)]
pub struct LazySandbox(Arc<State>);

#[derive(Debug)]
enum State {
    /// It has been probed before.
    Tried(Result<Sandbox, Missing>),
    /// It is probed on first use.
    Planned {
        plan: Box<Plan>,
        recalled: OnceLock<Box<Recalled>>,
        /// The result of this process. It replaces a recalled one.
        tried: OnceCell<Result<Sandbox, Missing>>,
    },
}

/// The results of earlier processes.
#[derive(Debug)]
struct Recalled {
    memory: ProbeMemory,
    /// The sandbox, if an earlier probe of exactly this sandbox has succeeded.
    sandbox: Option<Sandbox>,
}

#[derive(Clone, Debug)]
struct Plan {
    config: SandboxConfig,
    workspace: PathBuf,
    launcher: PathBuf,
}

impl LazySandbox {
    /// Creates a sandbox with the arguments of [`Sandbox::probe`]. Starts nothing.
    pub fn new(config: &SandboxConfig, workspace_root: &Path, launcher: &Path) -> Self {
        let (workspace, launcher) = (workspace_root.to_owned(), launcher.to_owned());
        let plan = Plan { config: config.clone(), workspace, launcher };
        Self(Arc::new(State::Planned { plan: Box::new(plan), recalled: OnceLock::new(), tried: OnceCell::new() }))
    }

    /// Uses this file to remember successful probes. If it remembers one of this sandbox, [`Self::get`] returns the
    /// sandbox at once. Reads some small files and starts nothing. Has an effect once, before the first probe.
    #[must_use]
    pub fn remembered_in(self, file: PathBuf) -> Self {
        if let State::Planned { plan, recalled, .. } = &*self.0 {
            recalled.get_or_init(|| {
                let memory = ProbeMemory::new(file);
                let sandbox = Sandbox::recalled(&plan.config, &plan.workspace, &plan.launcher, &memory);
                Box::new(Recalled { memory, sandbox })
            });
        }
        self
    }

    /// Whether the sandbox is used because of an earlier probe, and was not probed by this process yet.
    pub fn is_recalled(&self) -> bool {
        match &*self.0 {
            State::Tried(_) => false,
            State::Planned { recalled, tried, .. } => !tried.initialized() && recalled_in(recalled).is_some(),
        }
    }

    /// The result of the probe, of this process or recalled; `None`: not probed yet.
    pub fn tried(&self) -> Option<Result<&Sandbox, &Missing>> {
        match &*self.0 {
            State::Tried(tried) => Some(tried.as_ref()),
            State::Planned { recalled, tried, .. } => match tried.get() {
                Some(tried) => Some(tried.as_ref()),
                None => recalled_in(recalled).map(Ok),
            },
        }
    }

    /// Returns the sandbox. If no result is known, the first caller probes it on the blocking pool; others wait for the
    /// same result.
    ///
    /// # Errors
    /// The missing requirement of this machine.
    ///
    /// # Cancel safety
    /// If the future is dropped, the running probe finishes without effect, and the next caller starts another one.
    pub async fn get(&self) -> Result<&Sandbox, &Missing> {
        match self.tried() {
            Some(known) => known,
            None => self.verify().await,
        }
    }

    /// Probes the sandbox unless this process has done so, and remembers the result. From then on it replaces a
    /// recalled one: if the probe fails, [`Self::get`] fails too.
    ///
    /// # Errors
    /// The missing requirement of this machine.
    ///
    /// # Cancel safety
    /// As for [`Self::get`].
    pub async fn verify(&self) -> Result<&Sandbox, &Missing> {
        match &*self.0 {
            State::Tried(tried) => tried.as_ref(),
            State::Planned { plan, recalled, tried } => {
                let memory = recalled.get().map(|recalled| recalled.memory.clone());
                tried.get_or_init(|| plan.clone().carry_out(memory)).await.as_ref()
            }
        }
    }

    /// The path of the workspace inside the sandbox, also before the probe. `None`: the path on this machine.
    pub(crate) fn view(&self) -> Option<&Path> {
        match (self.tried(), &*self.0) {
            (Some(tried), _) => tried.ok().map(Sandbox::workspace),
            (None, State::Planned { plan, .. }) if plan.config.policy != Policy::Off => Some(Path::new(WORKSPACE)),
            (None, _) => None,
        }
    }
}

impl From<Result<Sandbox, Missing>> for LazySandbox {
    /// A sandbox that has been probed before.
    fn from(tried: Result<Sandbox, Missing>) -> Self {
        Self(Arc::new(State::Tried(tried)))
    }
}

fn recalled_in(recalled: &OnceLock<Box<Recalled>>) -> Option<&Sandbox> {
    recalled.get().and_then(|recalled| recalled.sandbox.as_ref())
}

impl Plan {
    async fn carry_out(self, memory: Option<ProbeMemory>) -> Result<Sandbox, Missing> {
        let probe = move || {
            let tried = Sandbox::probe(&self.config, &self.workspace, &self.launcher);
            match (&tried, memory) {
                (Ok(sandbox), Some(memory)) if sandbox.bubblewrap.is_some() => memory.keep(sandbox),
                (Err(_), Some(memory)) => memory.forget(),
                _ => {}
            }
            tried
        };
        let tried = tokio::task::spawn_blocking(probe).await;
        tried.unwrap_or_else(|error| Err(Missing(format!("the sandbox could not be tried: {error}"))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn the_sandbox_is_probed_once_on_first_use() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("bwrap"); // does not exist yet
        let config = SandboxConfig { bwrap: Some(program.clone()), ..SandboxConfig::default() };
        let sandbox = LazySandbox::new(&config, dir.path(), Path::new("/bin/sh"));
        assert!(sandbox.tried().is_none());
        assert_eq!(sandbox.view(), Some(Path::new(WORKSPACE)));

        std::os::unix::fs::symlink("/bin/true", &program).unwrap();
        let other = sandbox.clone();
        let (first, second) = tokio::join!(sandbox.get(), other.get());
        let missing = first.unwrap_err();
        assert!(missing.0.contains("does not say which bubblewrap it is"), "{missing}");
        assert_eq!(second.unwrap_err(), missing);

        std::fs::remove_file(&program).unwrap();
        assert_eq!(sandbox.get().await.unwrap_err(), missing, "it is not tried again");
        assert_eq!((sandbox.tried().unwrap().unwrap_err(), sandbox.view()), (missing, None));
    }

    /// A stand-in for bubblewrap that always works, until the file `bad` is beside it. It counts its runs.
    fn stand_in(dir: &Path) -> SandboxConfig {
        let program = dir.join("bwrap");
        let here = dir.display();
        let script = format!(
            "#!/bin/sh\necho run >> {here}/runs\ntest ! -e {here}/bad || exit 1\ntest \"$1\" != --version || echo bubblewrap 0.11.0\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        SandboxConfig { bwrap: Some(program), ..SandboxConfig::default() }
    }

    fn runs(dir: &Path) -> usize {
        std::fs::read_to_string(dir.join("runs")).unwrap_or_default().lines().count()
    }

    #[tokio::test]
    async fn a_successful_probe_is_remembered_until_something_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (config, memory) = (stand_in(dir.path()), dir.path().join("memory"));
        let begin = |config: &SandboxConfig| {
            LazySandbox::new(config, dir.path(), Path::new("/bin/sh")).remembered_in(memory.clone())
        };
        let first = begin(&config);
        assert!(!first.is_recalled() && first.tried().is_none());
        first.get().await.unwrap();
        let each = runs(dir.path());
        assert!(each > 0);

        let second = begin(&config);
        assert!(second.is_recalled() && second.tried().unwrap().is_ok());
        second.get().await.unwrap();
        assert_eq!(runs(dir.path()), each, "nothing was started");
        second.verify().await.unwrap();
        assert_eq!(runs(dir.path()), 2 * each, "the verification probes");
        assert!(!second.is_recalled());

        let other = SandboxConfig { memory_mb: config.memory_mb + 1, ..config.clone() };
        assert!(!begin(&other).is_recalled(), "the settings are part of it");
        stand_in(dir.path());
        assert!(!begin(&config).is_recalled(), "the program was replaced");
    }

    #[tokio::test]
    async fn a_sandbox_that_has_gone_bad_is_refused_after_the_verification() {
        let dir = tempfile::tempdir().unwrap();
        let (config, memory) = (stand_in(dir.path()), dir.path().join("memory"));
        let begin = || LazySandbox::new(&config, dir.path(), Path::new("/bin/sh")).remembered_in(memory.clone());
        begin().get().await.unwrap();

        std::fs::write(dir.path().join("bad"), "").unwrap();
        let sandbox = begin();
        sandbox.get().await.unwrap();
        let missing = sandbox.verify().await.unwrap_err().clone();
        assert_eq!(sandbox.get().await.unwrap_err(), &missing);
        assert_eq!((sandbox.tried().unwrap().unwrap_err(), sandbox.view()), (&missing, None));
        assert!(!begin().is_recalled(), "it is forgotten, so the next start probes first");
    }
}
