//! Compiles the stop rules.

use std::sync::Arc;

use belay_agent_loop::StopRules;

use crate::settings::Settings;

/// Compiles the stop rules of these settings.
pub fn stop_rules(settings: &Settings) -> Arc<StopRules> {
    Arc::new(StopRules::compile(&settings.stops.config(), &settings.limits.run))
}
