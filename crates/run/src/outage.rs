//! Autonomous work waits while the model is unavailable: nobody looks at a clock meanwhile, and what was done so far is worth more
//! than a quick failure.

use std::time::Duration;

use belay_protocol::{ModelError, ModelErrorKind};
use tokio::time::{Instant, sleep_until};

use crate::core::RunCore;

/// How often in a row a model may be unavailable before the work has failed. Ten, each after retries of its own.
const MAX_OUTAGES: u32 = 10;
/// First and longest pause before the model is asked again. A pause that the provider asks for wins, up to a quarter of an hour.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
const MAX_RETRY_AFTER: Duration = Duration::from_secs(900);

/// Waiting out an outage of the model, for one logical call.
#[derive(Debug, Default)]
pub struct OutageWait {
    /// How often in a row the model was unavailable.
    outages: u32,
}

impl OutageWait {
    /// Waits before the model is asked again, for as long as the run has. Returns whether it is to be asked again: never for work
    /// that a person waits for.
    ///
    /// # Cancel safety
    /// Dropped midway, nothing is changed.
    pub async fn wait(&mut self, core: &RunCore, error: &ModelError, until: Option<Instant>) -> bool {
        if core.work.is_none() {
            return false;
        }
        let asked = match error.kind {
            _ if core.stopped().is_some() => return true, // and then nothing is asked
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
            biased; // a stop waits for no model
            () = core.cancel.cancelled() => {}
            () = sleep_until(until.map_or(then, |until| until.min(then))) => {}
        }
        true
    }
}
