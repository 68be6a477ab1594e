//! Traces of ended runs for a collector of OpenTelemetry, by OTLP over HTTP.
//!
//! One task follows the log of events behind the runs. So a collector that is slow or down never slows a run, and the
//! log is the queue: an unreachable collector costs no memory.

mod names;
mod spans;

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Event, EventKind, EventLog, EventQuery, Message, MessageBody, ModelInfo, RunId, RunReader, Seq, StoreError,
};
use belay_run::restart::{Restarts, caught};
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::spans::{Facts, Naming};
use crate::otlp::{Collector, Delivery, FIRST_PAUSE, FLUSH, LONGEST_PAUSE, Sent, count_unreadable};

/// Pause after a change of the log, so that runs that end together share a request.
const GATHER: Duration = Duration::from_secs(1);
/// Most spans of one request.
const BATCH: usize = 512;
/// Events of one read of the log.
const PAGE: u32 = 256;
/// Events of one run that become spans. More are counted in the span of the run.
const RUN_EVENTS: usize = 4096;

/// Follows the log of events and exports a trace of each run that ends.
pub struct TraceExporter {
    exporter: SpanExporter,
    delivery: Delivery,
    events: Arc<dyn EventLog>,
    runs: Arc<dyn RunReader>,
    naming: Naming,
    content: bool,
    tip: watch::Receiver<Seq>,
    /// The last event whose run is exported.
    cursor: Seq,
    /// Events of the next read: fewer after a failed one, up to [`PAGE`].
    page: u32,
    /// The event at which the last read failed.
    failed: Option<Seq>,
}

impl TraceExporter {
    /// An exporter of traces to this collector. `content`: whether texts are exported. Runs that have ended before are
    /// not exported.
    ///
    /// # Errors
    /// The client cannot be made. The text begins with the setting.
    pub fn open(
        collector: &Collector,
        content: bool,
        model: &ModelInfo,
        events: Arc<dyn EventLog>,
        runs: Arc<dyn RunReader>,
    ) -> Result<Self, String> {
        let (exporter, delivery) = collector.spans()?;
        let naming = Naming {
            agent: collector.service_name().to_owned(),
            provider: model.provider.clone(),
            model: model.model.clone(),
        };
        let tip = events.tip();
        let cursor = *tip.borrow();
        let (page, failed) = (PAGE, None);
        Ok(Self { exporter, delivery, events, runs, naming, content, tip, cursor, page, failed })
    }

    /// Exports until `stop`, and then the remaining traces for at most [`FLUSH`]. After a panic, the traces of the runs
    /// that have ended until then are given up, and the export goes on.
    ///
    /// # Cancel safety
    /// If the future is dropped, the traces of the newest runs are not exported.
    pub async fn work(mut self, stop: CancellationToken) {
        let mut restarts = Restarts::default();
        loop {
            let exporter = &mut self;
            if caught(|| exporter.follow(&stop)).await.is_some() {
                return;
            }
            self.cursor = self.cursor.max(*self.tip.borrow());
            if !restarts.back_off("traces", &stop).await {
                return;
            }
        }
    }

    async fn follow(&mut self, stop: &CancellationToken) {
        while let Some(Ok(())) = stop.run_until_cancelled(self.tip.changed()).await {
            // At a stop, the rest is exported below.
            stop.run_until_cancelled(tokio::time::sleep(GATHER)).await;
            if stop.run_until_cancelled(self.catch_up()).await.is_none() {
                break;
            }
        }
        if timeout(FLUSH, self.catch_up()).await.is_err() {
            tracing::warn!(limit_s = FLUSH.as_secs(), "the last traces could not be exported in time");
        }
    }

    /// Exports the runs that have ended since the last call. A failed read is repeated after a pause, and skipped when
    /// it fails again.
    async fn catch_up(&mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.advance().await {
                Ok(true) => pause = FIRST_PAUSE,
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!(%error, pause_s = pause.as_secs(), "a read for the traces failed");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Exports the runs of one page of the log. Returns `false` at its end.
    ///
    /// # Errors
    /// A read has failed. What was read before it is exported.
    async fn advance(&mut self) -> Result<bool, StoreError> {
        let query = EventQuery { after: self.cursor, limit: self.page, ..EventQuery::default() };
        let page = match self.events.read(query).await {
            Ok(page) => page,
            Err(error) if self.page > 1 => {
                self.page = (self.page / 4).max(1);
                return Err(error);
            }
            Err(error) => {
                let next = Seq(self.cursor.0 + 1);
                if next <= *self.tip.borrow() && self.fails_again(next, None, &error) {
                    self.cursor = next;
                }
                return Err(error);
            }
        };
        self.page = (self.page * 2).min(PAGE);
        let Some(last) = page.last().map(|event| event.seq) else { return Ok(false) };
        let mut batch = Vec::new();
        let (mut reached, mut failure) = (self.cursor, None);
        for event in &page {
            if let (EventKind::RunEnded { .. }, Some(run)) = (&event.kind, event.run_id) {
                match caught(|| self.trace(run)).await {
                    Some(Ok(spans)) => batch.extend(spans),
                    None => {
                        count_unreadable();
                        tracing::error!(%run, "the trace of a run panicked; it is not exported");
                    }
                    Some(Err(error)) if self.fails_again(event.seq, Some(run), &error) => {}
                    Some(Err(error)) => {
                        failure = Some(error);
                        break;
                    }
                }
            }
            reached = event.seq;
            if batch.len() >= BATCH {
                break;
            }
        }
        let is_sent = self.send_all(&batch).await;
        self.cursor = if is_sent { reached } else { last.max(*self.tip.borrow()) };
        failure.map_or(Ok(true), Err)
    }

    /// Notes that this event, or its run, cannot be read. Returns `true` the second time: it is to be skipped.
    fn fails_again(&mut self, seq: Seq, run: Option<RunId>, error: &StoreError) -> bool {
        if self.failed.replace(seq) != Some(seq) {
            return false;
        }
        count_unreadable();
        let run = run.map(tracing::field::display);
        tracing::warn!(%error, seq = seq.0, run, "an event or its run cannot be read; its trace is not exported");
        true
    }

    /// The spans of an ended run. None if it is deleted.
    async fn trace(&self, run: RunId) -> Result<Vec<SpanData>, StoreError> {
        let Some(record) = self.runs.run(run).await? else { return Ok(Vec::new()) };
        let (mut events, mut unread): (Vec<Event>, u64) = (Vec::new(), 0);
        let mut after = Seq::default();
        loop {
            let query = EventQuery { after, run: Some(run), limit: PAGE, ..EventQuery::default() };
            let page = self.events.read(query).await?;
            let Some(last) = page.last() else { break };
            after = last.seq;
            let room = RUN_EVENTS.saturating_sub(events.len());
            unread += page.len().saturating_sub(room) as u64;
            events.extend(page.into_iter().take(room));
        }
        let input = if self.content { Some(input(&self.runs.run_messages(run).await?)) } else { None };
        let facts = Facts { record: &record, events: &events, unread, input: input.as_deref() };
        Ok(spans::of_run(&self.naming, &facts))
    }

    /// Sends spans in requests of at most [`BATCH`]. Returns `false` if the collector is given up.
    async fn send_all(&mut self, spans: &[SpanData]) -> bool {
        for batch in spans.chunks(BATCH) {
            if !self.send(batch.to_vec()).await {
                return false;
            }
        }
        true
    }

    /// Sends a batch, and repeats it while the collector is unreachable. Returns `false` if it is given up: the traces
    /// until now are lost.
    async fn send(&mut self, batch: Vec<SpanData>) -> bool {
        let exporter = &self.exporter;
        // A refused batch alone is lost.
        self.delivery.repeat(|| exporter.export(batch.clone())).await != Sent::Failed
    }
}

/// The text of the first user message of a run.
fn input(messages: &[Arc<Message>]) -> String {
    let text = |message: &Arc<Message>| match &message.body {
        MessageBody::User { text } => Some(text.clone()),
        _ => None,
    };
    messages.iter().find_map(text).unwrap_or_default()
}

#[cfg(test)]
mod tests;
