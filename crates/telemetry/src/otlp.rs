//! OTLP over HTTP: what all signals for a collector of OpenTelemetry share, and the exporters of metrics and logs.
//! Traces have a module of their own.
//!
//! Each signal has one task. A collector that is slow or down delays that task alone. Runs never wait for it.
//!
//! Reading order: here → [`client`] → [`delivery`] → [`instruments`] → [`fanout`] → [`metrics`] → [`layer`] → [`logs`].

mod client;
mod delivery;
mod fanout;
mod instruments;
mod layer;
mod logs;
mod metrics;

use std::sync::Arc;
use std::time::Duration;

use ::metrics::describe_counter;
use belay_protocol::RunId;
use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanId, TraceId};
use opentelemetry_otlp::{
    ExporterBuildError, LogExporter, MetricExporter, Protocol, RetryPolicy, SpanExporter, WithExportConfig,
    WithHttpConfig,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::LogExporter as _;
use opentelemetry_sdk::metrics::Temporality;
use opentelemetry_sdk::resource::TelemetryResourceDetector;
use opentelemetry_sdk::trace::SpanExporter as _;
use reqwest::header::HeaderMap;
use secrecy::SecretString;

use self::client::{Client, LastStatus};
#[cfg(test)]
pub(crate) use self::delivery::GIVE_UP;
pub(crate) use self::delivery::{Delivery, FIRST_PAUSE, LONGEST_PAUSE, Sent};
pub use self::fanout::both;
pub use self::instruments::Instruments;
pub use self::layer::{LogLayer, LogQueue, log_layer};
pub use self::logs::LogSender;
pub use self::metrics::{MetricsPusher, Refresh};
use crate::collector::{Signal, parse_headers};

/// The version of the program, in each request.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Requests to the collector, by signal and outcome: `ok`, `partial` for one with rejected parts, `failed` for one
/// without a usable answer, `refused`, or `given_up`. And runs or events that cannot be read: `unreadable`.
const EXPORTS: &str = "belay_otlp_exports_total";
/// Longest request.
pub(crate) const REQUEST: Duration = Duration::from_secs(10);
/// Time for the remaining data of each signal when the daemon ends.
pub(crate) const FLUSH: Duration = Duration::from_secs(3);

/// Describes the metrics of the exporters.
pub fn describe() {
    describe_counter!(EXPORTS, "Requests to the collector of OpenTelemetry, by signal and outcome");
    describe_counter!(layer::DROPPED, "Log lines that were not sent to the collector of OpenTelemetry");
}

/// Counts a run or an event that cannot be read, so that it is not exported.
pub(crate) fn count_unreadable() {
    delivery::count(Signal::Traces, "unreadable");
}

/// The collector of these settings.
pub struct Collector {
    /// The base address, without a slash at its end.
    base: String,
    headers: HeaderMap,
    service_name: String,
    resource: Resource,
}

impl Collector {
    /// The collector at this base address, to which the daemon presents itself by `service_name`.
    ///
    /// # Errors
    /// The headers are malformed. The text begins with the setting.
    pub fn new(base: &str, service_name: &str, headers: Option<&SecretString>) -> Result<Self, String> {
        let headers = headers.map_or(Ok(HeaderMap::new()), parse_headers);
        // Without the detectors that read variables of the environment.
        let resource = Resource::builder_empty()
            .with_detector(Box::new(TelemetryResourceDetector))
            .with_service_name(service_name.to_owned())
            .with_attribute(KeyValue::new("service.version", VERSION))
            .build();
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            headers: headers.map_err(|problem| format!("telemetry.otlp_headers: {problem}"))?,
            service_name: service_name.to_owned(),
            resource,
        })
    }

    /// The name of the daemon at the collector.
    pub(crate) fn service_name(&self) -> &str {
        &self.service_name
    }

    /// The exporter of traces, and the record of its deliveries.
    ///
    /// # Errors
    /// The client cannot be made. The text begins with the setting; so for the other two.
    pub(crate) fn spans(&self) -> Result<(SpanExporter, Delivery), String> {
        let (builder, delivery) = self.configured(SpanExporter::builder().with_http(), Signal::Traces)?;
        let mut exporter = builder.build().map_err(unusable)?;
        exporter.set_resource(&self.resource);
        Ok((exporter, delivery))
    }

    /// The exporter of metrics, and the record of its deliveries.
    fn metrics(&self) -> Result<(MetricExporter, Delivery), String> {
        let builder = MetricExporter::builder().with_http().with_temporality(Temporality::Cumulative);
        let (builder, delivery) = self.configured(builder, Signal::Metrics)?;
        Ok((builder.build().map_err(unusable)?, delivery))
    }

    /// The exporter of log records, and the record of its deliveries.
    fn logs(&self) -> Result<(LogExporter, Delivery), String> {
        let (builder, delivery) = self.configured(LogExporter::builder().with_http(), Signal::Logs)?;
        let mut exporter = builder.build().map_err(unusable)?;
        exporter.set_resource(&self.resource);
        Ok((exporter, delivery))
    }

    fn configured<B>(&self, builder: B, signal: Signal) -> Result<(B, Delivery), String>
    where
        B: WithExportConfig + WithHttpConfig,
    {
        let endpoint = format!("{}/v1/{}", self.base, signal.word());
        let last_status = Arc::new(LastStatus::default());
        let client = Client::new(&endpoint, self.headers.clone(), REQUEST, last_status.clone()).map_err(wrong)?;
        let builder = builder
            .with_http_client(client)
            // Its pauses would block a thread of the runtime. `Delivery` has pauses of its own.
            .with_retry_policy(RetryPolicy::disabled())
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(endpoint)
            .with_timeout(REQUEST);
        Ok((builder, Delivery::new(signal, last_status)))
    }
}

fn wrong(problem: impl std::fmt::Display) -> String {
    format!("telemetry.otlp_endpoint: {problem}")
}

fn unusable(error: ExporterBuildError) -> String {
    wrong(error)
}

/// The trace of a run. Its id is that of the run.
pub(crate) fn trace_id(run: RunId) -> TraceId {
    TraceId::from_bytes(run.as_uuid().into_bytes())
}

/// The id of a span of a run: the same at each export, so that a repeated export adds nothing. 0 is the run's own span.
pub(crate) fn span_id(run: RunId, number: u64) -> SpanId {
    let mut hasher = blake3::Hasher::new();
    hasher.update(run.as_uuid().as_bytes()).update(&number.to_le_bytes());
    let mut bytes = [0; 8];
    hasher.finalize_xof().fill(&mut bytes);
    SpanId::from_bytes(bytes)
}

#[cfg(test)]
pub(crate) mod tests;
