//! Logs: for people on a terminal, for programs (one JSON object a line) everywhere else. Always on stderr.

use std::io::IsTerminal;

use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt};

use crate::environment::Environment;

/// Libraries that log what is normal, and how much of them is heard unless the filter names them. `genai` warns at each
/// first chunk of a stream; `rusqlite_migration` informs at each first start.
const NOISY: &[(&str, &str)] = &[("genai", "off"), ("rusqlite_migration", "warn")];

/// `[telemetry]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TelemetryConfig {
    /// What is logged: `error`, `warn`, `info`, `debug` or `trace`, also per part: `info,belay_agent=debug`.
    pub(crate) log: String,
    /// How it is written.
    pub(crate) format: LogFormat,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// For people when stderr is a terminal, else as JSON.
    Auto,
    /// For people.
    Human,
    /// One JSON object a line.
    Json,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self { log: "info".into(), format: LogFormat::Auto }
    }
}

impl TelemetryConfig {
    /// The same, with warnings and errors alone: for a conversation on a terminal, where information is noise.
    pub(crate) fn quiet(&self) -> Self {
        Self { log: "warn".into(), ..self.clone() }
    }

    /// Every bad value.
    pub(crate) fn validate(&self) -> Vec<String> {
        match filter(&self.log) {
            Ok(_) => Vec::new(),
            Err(error) => vec![format!("telemetry.log: is no log filter: {error}; write for example \"info\"")],
        }
    }
}

/// Begins to log. Later calls do nothing, so that tests may call it as well.
pub(crate) fn start(config: &TelemetryConfig, env: &Environment) {
    let Ok(filter) = filter(&config.log) else { return }; // `validate` has refused it before
    let terminal = std::io::stderr().is_terminal();
    let human = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let registry = Registry::default().with(filter);
    let started = if human {
        let colour = terminal && env.raw("NO_COLOR").is_none();
        registry.with(fmt::layer().compact().with_ansi(colour).with_writer(std::io::stderr)).try_init()
    } else {
        registry.with(fmt::layer().json().flatten_event(true).with_writer(std::io::stderr)).try_init()
    };
    drop(started); // an error says that logging has been started before
}

fn filter(directives: &str) -> Result<EnvFilter, String> {
    let mut all = directives.to_owned();
    for (target, level) in NOISY.iter().filter(|(target, _)| !directives.contains(target)) {
        all.push_str(&format!(",{target}={level}"));
    }
    EnvFilter::try_new(all).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_checked_and_silences_noisy_libraries() {
        for (log, ok) in [("info", true), ("debug,belay_agent=trace", true), ("inf=o=x", false)] {
            let config = TelemetryConfig { log: log.into(), ..TelemetryConfig::default() };
            assert_eq!(config.validate().is_empty(), ok, "{log}");
        }
        let shown = filter("info").map(|filter| filter.to_string()).unwrap_or_default();
        assert!(shown.contains("genai=off"), "{shown}");
        let own = filter("genai=debug").map(|filter| filter.to_string()).unwrap_or_default();
        assert!(!own.contains("off"), "{own}");
    }
}
