//! The exporters to a collector of OpenTelemetry.

use std::sync::Arc;
use std::time::Duration;

use belay_gateway::GaugeRefresh;
use belay_program::exit::{Exit, Failure};
use belay_protocol::{EventLog, ModelInfo, RunReader};
use belay_telemetry::{
    Collector, LogQueue, LogSender, MetricsPusher, Refresh, Signal, TelemetryConfig, TraceExporter, describe,
};
use secrecy::SecretString;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Ended;
use super::metrics::{Figures, Recorder, bounds};

/// The exporters of the signals that the settings name.
pub(super) struct Exporters {
    traces: Option<TraceExporter>,
    metrics: Option<MetricsPusher>,
    logs: Option<LogSender>,
}

impl Exporters {
    /// Installs the recorder of this process and opens the exporters. Without a collector there are none, and the
    /// recorder is that of Prometheus alone, if any.
    ///
    /// # Errors
    /// The process has a recorder already, the headers are malformed, or a client cannot be made.
    pub(super) fn open(
        config: &TelemetryConfig,
        headers: Option<&SecretString>,
        queue: Option<LogQueue>,
        model: &ModelInfo,
        (events, runs): (Arc<dyn EventLog>, Arc<dyn RunReader>),
    ) -> Result<(Recorder, Self), Failure> {
        let refused = |problem| Failure::new(Exit::Refused, problem);
        if !config.has_collector() {
            return Ok((Recorder::install(None)?, Self { traces: None, metrics: None, logs: None }));
        }
        let collector = Collector::new(&config.otlp_endpoint, &config.service_name, headers).map_err(refused)?;
        let traces = config
            .sends(Signal::Traces)
            .then(|| TraceExporter::open(&collector, config.content, model, events, runs))
            .transpose()
            .map_err(refused)?;
        let interval = Duration::from_secs(config.metrics_interval_s);
        let metrics = config
            .sends(Signal::Metrics)
            .then(|| MetricsPusher::open(&collector, interval, bounds().collect()))
            .transpose()
            .map_err(refused)?;
        let logs = queue.map(|queue| LogSender::open(&collector, queue)).transpose().map_err(refused)?;
        let (metrics, instruments) = metrics.unzip();
        let recorder = Recorder::install(instruments)?;
        describe();
        Ok((recorder, Self { traces, metrics, logs }))
    }

    /// Starts a task for each exporter. They work until `stop`, and then send the rest for a few seconds.
    pub(super) fn start(
        self,
        tasks: &mut JoinSet<Ended>,
        gauges: GaugeRefresh,
        figures: Figures,
        stop: &CancellationToken,
    ) {
        if let Some(traces) = self.traces {
            let stop = stop.clone();
            tasks.spawn(async move {
                traces.work(stop).await;
                Ended::Exporter
            });
        }
        if let Some(metrics) = self.metrics {
            let stop = stop.clone();
            let agent = Box::new(move || -> futures_util::future::BoxFuture<'static, ()> {
                let gauges = gauges.clone();
                Box::pin(async move { gauges.refresh().await })
            });
            tasks.spawn(async move {
                metrics.work(Refresh { agent, figures }, stop).await;
                Ended::Exporter
            });
        }
        if let Some(logs) = self.logs {
            let stop = stop.clone();
            tasks.spawn(async move {
                logs.work(stop).await;
                Ended::Exporter
            });
        }
    }
}
