//! A build without the feature `otlp` sends nothing to a collector of OpenTelemetry: settings that name one are refused.
//! No value of the types in this module exists.

use metrics::Recorder;
use tracing::Subscriber;
use tracing_subscriber::Layer;

/// The layer that other builds add to the log.
pub enum LogLayer {}

impl<S: Subscriber> Layer<S> for LogLayer {}

/// The log lines that wait for a collector in other builds.
pub enum LogQueue {}

/// The values of metrics that other builds push to a collector.
pub enum Instruments {}

/// The layer and the queue of the log lines that the collector gets: none.
pub fn log_layer(_content: Option<bool>) -> (Option<LogLayer>, Option<LogQueue>) {
    (None, None)
}

/// The recorder of a build that pushes metrics, too.
pub fn both<A: Recorder>(_first: A, never: Instruments) -> A {
    match never {}
}
