//! The silence of an adapter, which counts only while Belay reads.

use std::time::Duration;

use tokio::time::Instant;

/// The silence after which the adapter counts as gone. 60 s: it has answered none of three pings.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The time since the adapter was heard.
#[derive(Debug)]
pub(super) struct Silence {
    since: Instant,
}

impl Silence {
    /// Begins now.
    pub(super) fn begin() -> Self {
        Self { since: Instant::now() }
    }

    /// Takes out a time in which nothing was read and which ends now: frames may have come meanwhile.
    pub(super) fn leave_out(&mut self, unread: Duration) {
        self.since += unread;
    }

    /// Whether the adapter counts as gone.
    pub(super) fn is_too_long(&self) -> bool {
        self.since.elapsed() > SILENCE_MAX
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_adapter_is_silent_only_while_it_could_be_heard() {
        let mut silence = Silence::begin();
        advance(SILENCE_MAX).await;
        assert!(!silence.is_too_long());
        let begun = Instant::now();
        advance(SILENCE_MAX).await; // such as a store that is slow
        silence.leave_out(begun.elapsed());
        assert!(!silence.is_too_long());
        advance(Duration::from_millis(1)).await;
        assert!(silence.is_too_long());
    }
}
