//! The exporter of metrics: collects all series at a fixed interval and pushes them.
//!
//! Values are cumulative. So a push that fails loses nothing: the next one has the sums.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use belay_run::restart::{Restarts, caught};
use futures_util::future::BoxFuture;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_otlp::MetricExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::metrics::data::ResourceMetrics;
use opentelemetry_sdk::metrics::exporter::PushMetricExporter;
use opentelemetry_sdk::metrics::reader::MetricReader;
use opentelemetry_sdk::metrics::{InstrumentKind, ManualReader, Pipeline, SdkMeterProvider, Temporality};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Collector, Delivery, FLUSH, Instruments};

/// Updates the values that are read from the system and from the agent, before each push.
pub struct Refresh {
    /// Asks the agent to update its gauges. Bounded in time; not called at the end, when the agent has ended.
    pub agent: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    /// Reads the figures of the store and of the process. Quick.
    pub figures: Arc<dyn Fn() + Send + Sync>,
}

/// Pushes metrics to the collector.
pub struct MetricsPusher {
    exporter: MetricExporter,
    delivery: Delivery,
    reader: SharedReader,
    /// Owns the instruments, of which the reader has a weak reference.
    _provider: SdkMeterProvider,
    interval: Duration,
}

impl MetricsPusher {
    /// The pusher, and the recorder whose values it pushes. `bounds`: the upper bounds of the buckets of each histogram.
    ///
    /// # Errors
    /// The client cannot be made. The text begins with the setting.
    pub fn open(
        collector: &Collector,
        interval: Duration,
        bounds: HashMap<&'static str, &'static [f64]>,
    ) -> Result<(Self, Instruments), String> {
        let (exporter, delivery) = collector.metrics()?;
        let reader = SharedReader::default();
        let provider =
            SdkMeterProvider::builder().with_resource(collector.resource.clone()).with_reader(reader.clone()).build();
        let instruments = Instruments::new(provider.meter("belay"), bounds);
        Ok((Self { exporter, delivery, reader, _provider: provider, interval }, instruments))
    }

    /// Pushes at each interval until `stop`, and once more then, for at most [`FLUSH`]. After a panic, the pushes go on.
    ///
    /// # Cancel safety
    /// If the future is dropped, the last values are not pushed.
    pub async fn work(mut self, refresh: Refresh, stop: CancellationToken) {
        let mut restarts = Restarts::default();
        loop {
            let pusher = &mut self;
            let done = caught(|| pusher.push_all(&refresh, &stop)).await;
            if done.is_some() || !restarts.back_off("metrics_export", &stop).await {
                return;
            }
        }
    }

    async fn push_all(&mut self, refresh: &Refresh, stop: &CancellationToken) {
        let interval = self.interval;
        while stop.run_until_cancelled(tokio::time::sleep(interval)).await.is_some() {
            let pushed = async {
                (refresh.agent)().await;
                self.push(refresh).await;
            };
            if stop.run_until_cancelled(pushed).await.is_none() {
                break;
            }
        }
        if timeout(FLUSH, self.push(refresh)).await.is_err() {
            tracing::warn!(limit_s = FLUSH.as_secs(), "the last metrics could not be exported in time");
        }
    }

    /// Collects all series and pushes them once.
    async fn push(&mut self, refresh: &Refresh) {
        (refresh.figures)();
        let mut metrics = ResourceMetrics::default();
        match self.reader.collect(&mut metrics) {
            // A failure is counted, and the next push has the sums.
            Ok(()) => _ = self.delivery.once(self.exporter.export(&metrics)).await,
            Err(error) => tracing::error!(%error, "the metrics cannot be collected; they are not exported"),
        }
    }
}

/// A reader that the provider and the pusher share.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedReader(Arc<ManualReader>);

impl MetricReader for SharedReader {
    fn register_pipeline(&self, pipeline: Weak<Pipeline>) {
        self.0.register_pipeline(pipeline);
    }

    fn collect(&self, metrics: &mut ResourceMetrics) -> OTelSdkResult {
        self.0.collect(metrics)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn shutdown_with_timeout(&self, limit: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(limit)
    }

    fn temporality(&self, kind: InstrumentKind) -> Temporality {
        self.0.temporality(kind)
    }
}

#[cfg(test)]
mod tests;
