//! A build without the feature `otlp` has no exporters.

use std::sync::Arc;

use belay_gateway::GaugeRefresh;
use belay_program::exit::Failure;
use belay_protocol::{EventLog, ModelInfo, RunReader};
use belay_telemetry::{LogQueue, TelemetryConfig};
use secrecy::SecretString;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Ended;
use super::metrics::{Figures, Recorder};

/// No exporters.
pub(super) struct Exporters;

impl Exporters {
    /// Installs the recorder of this process, which is that of Prometheus, if any.
    ///
    /// # Errors
    /// The process has a recorder already.
    pub(super) fn open(
        _config: &TelemetryConfig,
        _headers: Option<&SecretString>,
        _queue: Option<LogQueue>,
        _model: &ModelInfo,
        _sources: (Arc<dyn EventLog>, Arc<dyn RunReader>),
    ) -> Result<(Recorder, Self), Failure> {
        Ok((Recorder::install(None)?, Self))
    }

    /// Starts nothing.
    pub(super) fn start(
        self,
        _tasks: &mut JoinSet<Ended>,
        _gauges: GaugeRefresh,
        _figures: Figures,
        _stop: &CancellationToken,
    ) {
    }
}
