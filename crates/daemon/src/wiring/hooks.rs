//! The operator's hooks.

use std::time::Duration;

use belay_hooks::{HookSet, HooksError};
use belay_protocol::Secret;

use super::words;
use crate::environment::Environment;
use crate::exit::{Exit, Failure};
use crate::settings::Settings;

/// How long hooks that are under way may take to end when the daemon does.
pub(crate) const HOOKS_GRACE: Duration = Duration::from_secs(2);

/// The configured hooks.
///
/// # Errors
/// A token is missing, or a setting is wrong (78).
pub(crate) fn hooks(settings: &Settings, env: &Environment) -> Result<HookSet, Failure> {
    let variable = |name: &str| env.text(name).map(|text| Secret::new(text.to_owned()));
    HookSet::build(&settings.hooks, variable).map_err(|error| {
        let exit = match error {
            HooksError::Config(_) | HooksError::NoToken { .. } => Exit::Refused,
            HooksError::Client { .. } => Exit::Internal,
        };
        Failure::new(exit, words(&error))
    })
}
