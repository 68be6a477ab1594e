//! Builds hooks from the settings, binds them to their points, and owns the processes and tasks that they start.

use std::sync::Arc;
use std::time::Duration;

use belay_exec::Processes;
use belay_protocol::{BoundHook, Hook, Secret};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::audit::Audit;
use crate::command::CommandHook;
use crate::config::{HookConfig, HooksConfig, is_of_tools};
use crate::error::HooksError;
use crate::http::HttpHook;
use crate::redact::Redact;

/// The configured hooks. Owns every process and task that they start.
#[derive(Debug)]
pub struct HookSet {
    bound: Vec<BoundHook>,
    processes: Arc<Processes>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl HookSet {
    /// Makes the hooks. `processes` starts and ends their programs. `token` reads an environment variable; `None` if it
    /// is not set or empty. Nothing is started, and no file or address is accessed.
    ///
    /// # Errors
    /// The settings are wrong, a token is missing, or an HTTP client could not be made.
    pub fn build(
        config: &HooksConfig,
        processes: Arc<Processes>,
        token: impl Fn(&str) -> Option<Secret>,
    ) -> Result<Self, HooksError> {
        let problems = config.validate();
        if !problems.is_empty() {
            return Err(HooksError::Config(problems));
        }
        let mut set = Self { bound: Vec::new(), processes, stop: CancellationToken::new(), tasks: TaskTracker::new() };
        for config in &config.0 {
            let hook = set.hook(config, &token)?;
            set.bound.extend(config.points().into_iter().map(|point| BoundHook {
                point,
                priority: config.priority,
                timeout: config.timeout_ms.map_or(point.default_timeout(), Duration::from_millis),
                on_failure: config.on_failure.unwrap_or(point.default_failure()),
                tools: if is_of_tools(point) { config.tools.clone() } else { Vec::new() },
                hook: hook.clone(),
            }));
        }
        Ok(set)
    }

    /// The hooks at their points, in the order of the configuration.
    pub fn bound(&self) -> Vec<BoundHook> {
        self.bound.clone()
    }

    /// Ends the work in progress: commands get TERM, and KILL after two seconds. Returns whether everything had ended
    /// within the limit; the rest ends with [`Processes::shutdown`]. Called after the hook chain has been drained.
    pub async fn close(&self, limit: Duration) -> bool {
        self.stop.cancel();
        self.tasks.close();
        timeout(limit, self.tasks.wait()).await.is_ok()
    }

    fn hook(&self, config: &HookConfig, token: impl Fn(&str) -> Option<Secret>) -> Result<Arc<dyn Hook>, HooksError> {
        let name = config.name.clone();
        // `validate()` has ruled these errors out, but the types do not show that.
        let broken = |what: String| HooksError::Config(vec![format!("hooks: {name}: {what}")]);
        if let Some(redact) = &config.redact {
            return Ok(Arc::new(Redact::new(name.clone(), redact).map_err(|error| broken(error.to_string()))?));
        }
        if let Some(audit) = &config.audit {
            return Ok(Arc::new(Audit::new(name, audit, self.tasks.clone())));
        }
        if let Some(url) = &config.url {
            let url = Url::parse(url).map_err(|error| broken(error.to_string()))?;
            let token = match &config.token_env {
                None => None,
                Some(variable) => Some(
                    token(variable)
                        .ok_or_else(|| HooksError::NoToken { hook: name.clone(), variable: variable.clone() })?,
                ),
            };
            let hook = HttpHook::new(name.clone(), url, token);
            return Ok(Arc::new(hook.map_err(|source| HooksError::Client { hook: name, source })?));
        }
        let (processes, stop, tasks) = (self.processes.clone(), self.stop.clone(), self.tasks.clone());
        Ok(Arc::new(CommandHook::new(name, config.command.clone(), &config.env, processes, stop, tasks)))
    }
}
