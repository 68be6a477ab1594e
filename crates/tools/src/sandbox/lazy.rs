//! A sandbox that is probed on first use.
//!
//! Probing takes some tens of milliseconds and starts programs. A daemon that runs no command never waits for it. A
//! command runs only in a sandbox that was probed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::{Missing, Policy, Sandbox, SandboxConfig, WORKSPACE};

/// A sandbox that is probed once. All clones share the result.
#[derive(Clone, Debug)]
pub struct LazySandbox(Arc<State>);

#[derive(Debug)]
enum State {
    /// It has been probed before.
    Tried(Result<Sandbox, Missing>),
    /// It is probed on first use.
    Planned { plan: Box<Plan>, tried: OnceCell<Result<Sandbox, Missing>> },
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
        Self(Arc::new(State::Planned { plan: Box::new(plan), tried: OnceCell::new() }))
    }

    /// The result of the probe; `None`: not probed yet.
    pub fn tried(&self) -> Option<Result<&Sandbox, &Missing>> {
        let tried = match &*self.0 {
            State::Tried(tried) => Some(tried),
            State::Planned { tried, .. } => tried.get(),
        };
        tried.map(Result::as_ref)
    }

    /// Returns the sandbox. The first caller probes it on the blocking pool; others wait for the same result.
    ///
    /// # Errors
    /// The missing requirement of this machine.
    ///
    /// # Cancel safety
    /// If the future is dropped, the running probe finishes without effect, and the next caller starts another one.
    pub async fn get(&self) -> Result<&Sandbox, &Missing> {
        match &*self.0 {
            State::Tried(tried) => tried.as_ref(),
            State::Planned { plan, tried } => tried.get_or_init(|| plan.clone().carry_out()).await.as_ref(),
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

impl Plan {
    async fn carry_out(self) -> Result<Sandbox, Missing> {
        let probe = move || Sandbox::probe(&self.config, &self.workspace, &self.launcher);
        let tried = tokio::task::spawn_blocking(probe).await;
        tried.unwrap_or_else(|error| Err(Missing(format!("the sandbox could not be tried: {error}"))))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

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
}
