//! The delivery of requests to the collector: counted, repeated where a repetition helps, and reported once.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use metrics::counter;
use opentelemetry_sdk::error::OTelSdkResult;
use tokio::time::Instant;

use super::client::LastStatus;
use super::{EXPORTS, Signal};

/// First pause between attempts of a request; each further one is twice as long, up to [`LONGEST_PAUSE`].
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts of a request.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Time after which an unreachable collector loses a request.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(600);

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The collector accepts it, perhaps without some of its parts.
    Accepted,
    /// The collector refuses this request. Others may succeed.
    Refused,
    /// There was no usable answer.
    Failed,
}

/// The deliveries of one signal.
pub(crate) struct Delivery {
    signal: Signal,
    last_status: Arc<LastStatus>,
    /// Whether the last request failed, which was logged.
    is_down: bool,
}

impl Delivery {
    pub(super) fn new(signal: Signal, last_status: Arc<LastStatus>) -> Self {
        Self { signal, last_status, is_down: false }
    }

    /// Sends a request once. `export` is the sending.
    ///
    /// # Cancel safety
    /// If the future is dropped, the collector may have the request; nothing is counted.
    pub(crate) async fn once(&mut self, export: impl Future<Output = OTelSdkResult>) -> Sent {
        self.attempt(export, "failed").await
    }

    /// Sends a request, and repeats it while the collector is unreachable, for [`GIVE_UP`]. `export` sends it once.
    ///
    /// # Cancel safety
    /// Same as [`Self::once`].
    pub(crate) async fn repeat<F>(&mut self, mut export: impl FnMut() -> F) -> Sent
    where
        F: Future<Output = OTelSdkResult>,
    {
        let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let is_last = begun.elapsed() >= GIVE_UP;
            let sent = self.attempt(export(), if is_last { "given_up" } else { "failed" }).await;
            if sent != Sent::Failed || is_last {
                return sent;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&mut self, export: impl Future<Output = OTelSdkResult>, failure: &'static str) -> Sent {
        self.last_status.forget();
        let signal = self.signal.word();
        let Err(error) = export.await else {
            let rejected = self.last_status.rejected();
            if rejected > 0 {
                tracing::warn!(signal, rejected, "the collector has rejected some parts of a request");
            }
            count(self.signal, if rejected > 0 { "partial" } else { "ok" });
            if std::mem::take(&mut self.is_down) {
                tracing::info!("the collector accepts {signal} again");
            }
            return Sent::Accepted;
        };
        let refused = self.last_status.is_refusal();
        if !std::mem::replace(&mut self.is_down, true) {
            tracing::warn!(%error, refused, "{signal} are not exported; telemetry.otlp_endpoint names the collector");
        }
        count(self.signal, if refused { "refused" } else { failure });
        if refused { Sent::Refused } else { Sent::Failed }
    }

    #[cfg(test)]
    pub(crate) fn last_status(&self) -> &LastStatus {
        &self.last_status
    }
}

/// Counts a request.
pub(super) fn count(signal: Signal, outcome: &'static str) {
    counter!(EXPORTS, "signal" => signal.word(), "outcome" => outcome).increment(1);
}
