//! The exporter for Prometheus: the recorder of this process, and the text of `GET /metrics`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_gateway::Metrics;
use belay_program::causes::words;
use belay_program::exit::{Exit, Failure};
use belay_protocol::Clock;
use belay_telemetry::{Instruments, both};
use metrics::set_global_recorder;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

use super::latency::Day;
use super::metrics::Figures;

/// How often the samples of histograms are folded into their buckets. 10 s: at 8,000 runs a second about 1 MB waits.
const UPKEEP: Duration = Duration::from_secs(10);

/// The exporter.
#[derive(Clone)]
pub(super) struct Prometheus {
    handle: PrometheusHandle,
    /// The lock is held while text is read.
    day: Arc<Mutex<Day>>,
}

impl Prometheus {
    /// Installs the recorder of this process. `bounds`: the upper bounds of the buckets of each histogram; `instruments`: a
    /// second recorder, of which another exporter pushes the values.
    ///
    /// # Errors
    /// The process has a recorder already.
    pub(super) fn install(
        mut bounds: impl Iterator<Item = (&'static str, &'static [f64])>,
        instruments: Option<Instruments>,
    ) -> Result<Self, Failure> {
        let recorder = bounds
            .try_fold(PrometheusBuilder::new(), |builder, (name, bounds)| {
                builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)
            })
            .map_err(|error| Failure::new(Exit::Internal, words(&error)))?
            .build_recorder();
        let handle = recorder.handle();
        match instruments {
            Some(instruments) => set_global_recorder(both(recorder, instruments)).map_err(|error| words(&error)),
            None => set_global_recorder(recorder).map_err(|error| words(&error)),
        }
        .map_err(|problem| Failure::new(Exit::Internal, problem))?;
        Ok(Self { handle, day: Arc::new(Mutex::new(Day::new())) })
    }

    /// The metrics for `GET /metrics` and `GET /api/v1/latency`. The figures are read at each request.
    pub(super) fn renderer(&self, figures: Figures, clock: Arc<dyn Clock>) -> Option<Metrics> {
        let (handle, own) = (self.handle.clone(), self.clone());
        Some(Metrics {
            render: Arc::new(move || {
                figures();
                handle.render()
            }),
            latencies: Arc::new(move || {
                let text = own.handle.render();
                own.day.lock().unwrap_or_else(PoisonError::into_inner).latencies(&text, clock.now())
            }),
        })
    }

    /// Keeps the memory of histograms bounded, and the latencies of the last day, until `stop`.
    pub(super) async fn upkeep(self, stop: CancellationToken) {
        while stop.run_until_cancelled(tokio::time::sleep(UPKEEP)).await.is_some() {
            self.handle.run_upkeep();
            let mut day = self.day.lock().unwrap_or_else(PoisonError::into_inner);
            if day.is_due() {
                day.keep(&self.handle.render());
            }
        }
    }
}
