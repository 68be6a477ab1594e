//! What is done for a job while the model is away: it is waited for. Nobody looks at a clock meanwhile, and what was done so far
//! is worth more than a quick failure.

use std::time::Duration;

use belay_protocol::{ModelError, ModelErrorKind};
use tokio::time::{Instant, sleep_until};

use crate::core::RunCore;

/// How often in a row a model may be away before the job has failed. Ten, each after retries of its own.
const MOST_AWAY: u32 = 10;
/// First and longest pause before a model that was away is asked again. What it says itself wins, within a quarter of an hour.
const AWAY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
const MOST_RETRY_AFTER: Duration = Duration::from_secs(900);

/// The patience with one logical call.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// How often in a row the model was away.
    away: u32,
}

impl Patience {
    /// Waits for a model that is away, for as long as the run has. Returns whether it is to be asked again: never for work that
    /// is no job's, since somebody waits there.
    ///
    /// # Cancel safety
    /// Dropped midway, it was not waited for.
    pub(crate) async fn bear(&mut self, core: &RunCore, error: &ModelError, until: Option<Instant>) -> bool {
        if core.errand.is_none() {
            return false;
        }
        let asked = match error.kind {
            _ if core.stopped().is_some() => return true, // and then nothing is asked
            ModelErrorKind::RateLimited { retry_after } | ModelErrorKind::Overloaded { retry_after } => retry_after,
            ModelErrorKind::Network => None,
            ModelErrorKind::Auth | ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest => return false,
        };
        self.away += 1;
        if self.away >= MOST_AWAY {
            return false;
        }
        let own = AWAY.0.saturating_mul(1 << (self.away - 1).min(8)).min(AWAY.1);
        let pause = asked.unwrap_or_default().clamp(own, MOST_RETRY_AFTER);
        tracing::info!(
            run = %core.live.id, away = self.away, pause_s = pause.as_secs(), "the model is away; a job waits for it"
        );
        core.live.quiet_for(pause);
        let then = Instant::now() + pause;
        tokio::select! {
            biased; // a stop waits for no model
            () = core.cancel.cancelled() => {}
            () = sleep_until(until.map_or(then, |until| until.min(then))) => {}
        }
        true
    }
}
