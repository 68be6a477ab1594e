//! The rules for stopping.

use std::sync::Arc;

use belay_agent_loop::StopRules;

use crate::settings::Settings;

/// The rules for stopping of these settings.
pub(crate) fn stop_rules(settings: &Settings) -> Arc<StopRules> {
    Arc::new(StopRules::compile(&settings.stops, &settings.limits.run))
}
