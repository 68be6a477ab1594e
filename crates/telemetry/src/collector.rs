//! The settings of a collector of OpenTelemetry: the signals, and the headers of requests.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

/// A kind of data that is sent to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// A trace of each run that ends.
    Traces,
    /// The metrics of `GET /metrics`.
    Metrics,
    /// Log lines.
    Logs,
}

impl Signal {
    /// All signals.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];

    /// Its word in settings, labels and the path of its address.
    #[cfg(feature = "otlp")]
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// Parses `name=value,name=value`.
///
/// # Errors
/// The number of the first malformed header, never its value.
pub fn parse_headers(text: &SecretString) -> Result<HeaderMap, String> {
    let entries = text.expose_secret().split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |entry: &str| {
        let (name, value) = entry.split_once('=')?;
        let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(value.trim()).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    };
    entries
        .enumerate()
        .map(|(at, entry)| pair(entry).ok_or_else(|| format!("header {} is not of the form name=value", at + 1)))
        .collect()
}
