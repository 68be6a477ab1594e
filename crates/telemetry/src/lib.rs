//! What the daemon reports of itself: log lines, and traces, metrics and logs for a collector of OpenTelemetry.
//!
//! **For**: [`start`] and [`start_in`] begin logging by the settings in [`TelemetryConfig`]. With the feature `otlp`, `TraceExporter`,
//! `MetricsPusher` and `LogSender` send what the settings name to a `Collector`. Without it, `no_otlp` stands in their place, and
//! settings that name a collector are refused.
//!
//! **Does not know**: how a run is made, which metrics exist, or who starts the exporters. No run waits for a collector.
//!
//! Reading order: `logging` → `collector` → `otlp` → `traces`.

mod collector;
mod logging;
#[cfg_attr(not(feature = "otlp"), path = "no_otlp.rs")]
mod otlp;
#[cfg(feature = "otlp")]
mod traces;

pub use collector::{Signal, parse_headers};
pub use logging::{LineForm, LogFilter, LogFormat, TelemetryConfig, json_line, log_file, start, start_in};
#[cfg(feature = "otlp")]
pub use otlp::{Collector, LogSender, MetricsPusher, Refresh, describe};
pub use otlp::{Instruments, LogLayer, LogQueue, both, log_layer};
#[cfg(feature = "otlp")]
pub use traces::TraceExporter;
