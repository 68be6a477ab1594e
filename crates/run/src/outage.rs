//! Lets autonomous work wait while the model is unavailable. Nobody waits for the result at that moment, and the work
//! done so far is worth more than a quick failure.

use std::time::Duration;

use belay_protocol::{ModelError, ModelErrorKind};
use tokio::time::{Instant, sleep_until};

use crate::core::RunCore;

/// Maximum number of consecutive outages before the work fails. Each one comes after the retries of its own call.
const MAX_OUTAGES: u32 = 10;
/// First and longest pause before the model is called again. A pause that the provider asks for takes precedence, up to
/// 15 minutes.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
const MAX_RETRY_AFTER: Duration = Duration::from_secs(900);

/// Waits for the end of an outage, for one logical call.
#[derive(Debug, Default)]
pub struct OutageWait {
    /// Number of consecutive outages.
    outages: u32,
}

impl OutageWait {
    /// Waits before the model is called again, but not beyond `until`. Returns whether to call again; always `false`
    /// for work that a person waits for.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing has changed, except that the outage may be counted.
    pub async fn wait(&mut self, core: &RunCore, error: &ModelError, until: Option<Instant>) -> bool {
        if core.work.is_none() {
            return false;
        }
        let asked = match error.kind {
            _ if core.stopped().is_some() => return true, // the caller then ends the run without a call
            ModelErrorKind::RateLimited { retry_after } | ModelErrorKind::Overloaded { retry_after } => retry_after,
            ModelErrorKind::Network => None,
            ModelErrorKind::Auth | ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest => return false,
        };
        self.outages += 1;
        if self.outages >= MAX_OUTAGES {
            return false;
        }
        let own = PAUSE.0.saturating_mul(1 << (self.outages - 1).min(8)).min(PAUSE.1);
        let pause = asked.unwrap_or_default().clamp(own, MAX_RETRY_AFTER);
        tracing::info!(
            run = %core.live.id, outages = self.outages, pause_s = pause.as_secs(), "the model is unavailable; the job waits for it"
        );
        core.live.activity.quiet_for(pause);
        let then = Instant::now() + pause;
        tokio::select! {
            biased; // a stop ends the pause at once
            () = core.cancel.cancelled() => {}
            () = sleep_until(until.map_or(then, |until| until.min(then))) => {}
        }
        true
    }
}
