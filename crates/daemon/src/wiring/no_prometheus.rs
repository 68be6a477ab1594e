//! A build without the feature `metrics` has no exporter for Prometheus: `GET /metrics` says so. A collector of
//! OpenTelemetry gets the metrics all the same.

use std::sync::Arc;

use belay_gateway::Metrics;
use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_protocol::Clock;
use belay_telemetry::{Instruments, both};
use metrics::{NoopRecorder, set_global_recorder};
use tokio_util::sync::CancellationToken;

use super::metrics::Figures;

/// No exporter.
#[derive(Clone)]
pub(super) struct Prometheus;

impl Prometheus {
    /// Installs `instruments` as the recorder of this process, if another exporter pushes their values.
    ///
    /// # Errors
    /// The process has a recorder already.
    pub(super) fn install(
        _bounds: impl Iterator<Item = (&'static str, &'static [f64])>,
        instruments: Option<Instruments>,
    ) -> Result<Self, Failure> {
        if let Some(instruments) = instruments {
            set_global_recorder(both(NoopRecorder, instruments))
                .map_err(|error| Failure::new(Exit::Internal, words(&error)))?;
        }
        Ok(Self)
    }

    /// Nothing is rendered.
    pub(super) fn renderer(&self, _figures: Figures, _clock: Arc<dyn Clock>) -> Option<Metrics> {
        None
    }

    /// There is nothing to keep bounded. Ends with `stop`, as in other builds.
    pub(super) async fn upkeep(self, stop: CancellationToken) {
        stop.cancelled().await;
    }
}
