//! The exporter of log lines: sends the records of the queue in batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belay_run::restart::{Restarts, caught};
use metrics::counter;
use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::LogExporter;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter as _, SdkLogRecord};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::layer::DROPPED;
use super::{Collector, Delivery, FLUSH, LogQueue, Sent, VERSION};

/// Pause after the first line of a batch, so that lines that come together share a request.
const GATHER: Duration = Duration::from_secs(1);
/// Most records of one request.
const BATCH: usize = 512;

/// Sends log lines to the collector.
pub struct LogSender {
    exporter: LogExporter,
    delivery: Delivery,
    scope: InstrumentationScope,
    records: Receiver<SdkLogRecord>,
    /// The records of the request in progress.
    batch: Vec<SdkLogRecord>,
    /// The number of dropped lines, and how many of them were reported.
    dropped: Arc<AtomicU64>,
    reported: u64,
}

impl LogSender {
    /// The sender of the records in this queue.
    ///
    /// # Errors
    /// The client cannot be made. The text begins with the setting.
    pub fn open(collector: &Collector, queue: LogQueue) -> Result<Self, String> {
        let (exporter, delivery) = collector.logs()?;
        let scope = InstrumentationScope::builder("belay").with_version(VERSION).build();
        let LogQueue { records, dropped } = queue;
        Ok(Self { exporter, delivery, scope, records, batch: Vec::new(), dropped, reported: 0 })
    }

    /// Sends until `stop`, and then the remaining lines for at most [`FLUSH`]. A panic drops the lines of one request.
    ///
    /// # Cancel safety
    /// If the future is dropped, the remaining lines are not sent.
    pub async fn work(mut self, stop: CancellationToken) {
        let mut restarts = Restarts::default();
        loop {
            let sender = &mut self;
            if caught(|| sender.send_all(&stop)).await.is_some() {
                return;
            }
            self.drop_batch();
            if !restarts.back_off("log_export", &stop).await {
                return;
            }
        }
    }

    async fn send_all(&mut self, stop: &CancellationToken) {
        while let Some(1..) = stop.run_until_cancelled(self.records.recv_many(&mut self.batch, BATCH)).await {
            // At a stop, the rest is sent below.
            stop.run_until_cancelled(tokio::time::sleep(GATHER)).await;
            if stop.run_until_cancelled(self.send_rest()).await.is_none() {
                break;
            }
        }
        if timeout(FLUSH, self.send_rest()).await.is_err() {
            self.drop_batch();
            let waiting = self.records.len() as u64;
            counter!(DROPPED).increment(waiting);
            self.dropped.fetch_add(waiting, Ordering::Relaxed);
        }
        self.report();
    }

    /// Sends the batch and the records that wait in the queue, each batch until it is accepted or given up.
    async fn send_rest(&mut self) {
        loop {
            while self.batch.len() < BATCH
                && let Ok(record) = self.records.try_recv()
            {
                self.batch.push(record);
            }
            if self.batch.is_empty() {
                return;
            }
            let (exporter, batch, scope) = (&self.exporter, &self.batch, &self.scope);
            match self.delivery.repeat(|| export(exporter, batch, scope)).await {
                Sent::Accepted => self.batch.clear(),
                Sent::Refused | Sent::Failed => self.drop_batch(),
            }
            self.report();
        }
    }

    /// Drops the batch and counts its lines.
    fn drop_batch(&mut self) {
        let lines = self.batch.len() as u64;
        self.batch.clear();
        counter!(DROPPED).increment(lines);
        self.dropped.fetch_add(lines, Ordering::Relaxed);
    }

    /// Logs how many lines were dropped since the last report.
    fn report(&mut self) {
        let dropped = self.dropped.load(Ordering::Relaxed);
        let lines = dropped - self.reported;
        if lines > 0 {
            tracing::warn!(lines, "log lines were not sent to the collector; they are here alone");
            self.reported = dropped;
        }
    }
}

async fn export(exporter: &LogExporter, batch: &[SdkLogRecord], scope: &InstrumentationScope) -> OTelSdkResult {
    let records: Vec<_> = batch.iter().map(|record| (record, scope)).collect();
    exporter.export(LogBatch::new(&records)).await
}

#[cfg(test)]
mod tests;
