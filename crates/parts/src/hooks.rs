//! The operator's hooks.

use std::sync::Arc;
use std::time::Duration;

use belay_exec::Processes;
use belay_gateway::AgentTexts;
use belay_hooks::{HookSet, HooksConfig, HooksError};
use belay_program::causes::words;
use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_protocol::HookPoint;
use belay_run::approvals::question_text;
use belay_settings::secrets::hook_tokens;
use belay_settings::{Settings, expand, refused};

/// How long running hooks may take to end when the daemon ends. 3 s: programs have 2 s between SIGTERM and SIGKILL.
pub const HOOKS_GRACE: Duration = Duration::from_secs(3);

/// Builds the configured hooks. Their processes are managed together with those of runs.
///
/// # Errors
/// A token is missing, or a setting is invalid (78).
pub fn hooks(settings: &Settings, env: &Environment, processes: Arc<Processes>) -> Result<HookSet, Failure> {
    let HooksConfig(mut hooks) = settings.hooks.clone();
    for audit in hooks.iter_mut().filter_map(|hook| hook.audit.as_mut()) {
        audit.file = expand(&audit.file, env);
    }
    let tokens = hook_tokens(settings, env).map_err(|problems| refused(&problems))?;
    let token = |name: &str| tokens.get(name).cloned();
    HookSet::build(&HooksConfig(hooks), processes, token).map_err(|error| {
        let exit = match error {
            HooksError::Config(_) | HooksError::NoToken { .. } => Exit::Refused,
            HooksError::Client { .. } => Exit::Internal,
        };
        Failure::new(exit, words(&error))
    })
}

/// The texts of an agent with these hooks.
pub fn agent_texts(hooks: &HookSet) -> AgentTexts {
    let are_checked = hooks.bound().iter().any(|hook| hook.point == HookPoint::MessageSending);
    AgentTexts { question: Arc::new(question_text), are_checked }
}
