//! How often a server is asked how a task stands.

use std::time::Duration;

use super::requests::Trouble;
use crate::mcp::server_error::ServerError;

/// The pause before the first question for the state. It doubles up to the pause that the server wants, so that a short
/// task need not wait for that.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The pause if the server wants none, and the bounds of what it may want.
const PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// How often in a row a server may be unable to say how a task stands. 6: with pauses that double from 1 s on, at least
/// half a minute, in which a server restarts.
const MAX_MISSES: u32 = 6;

/// The pauses so far.
#[derive(Default)]
pub(super) struct Pace {
    /// The pause that the server wants.
    pub(super) every: Option<Duration>,
    /// The last pause.
    paused: Option<Duration>,
    misses: u32,
}

impl Pace {
    /// A look has shown something.
    pub(super) fn seen(&mut self) {
        self.misses = 0;
    }

    /// A look has shown nothing.
    ///
    /// # Errors
    /// It was the last one.
    pub(super) fn missed(&mut self, trouble: &Trouble) -> Result<(), ServerError> {
        self.misses += 1;
        if self.misses < MAX_MISSES { Ok(()) } else { Err(ServerError::LostTask(trouble.words())) }
    }

    /// The pause before the next look.
    pub(super) fn next_pause(&mut self) -> Duration {
        let every = self.every.unwrap_or(PAUSE).clamp(FIRST_PAUSE, MAX_PAUSE);
        if self.misses > 0 {
            return (PAUSE * 2_u32.pow(self.misses - 1)).max(every);
        }
        let pause = self.paused.map_or(FIRST_PAUSE, |last| last * 2).min(every);
        self.paused = Some(pause);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_one_that_the_server_wants_and_misses_have_longer_ones() {
        let mut pace = Pace { every: Some(Duration::from_millis(500)), ..Pace::default() };
        let pauses: Vec<_> = (0..5).map(|_| pace.next_pause().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 500, 500]);
        let trouble = Trouble::Server(ServerError::NotMcp("x".into()));
        let missed: Vec<_> = (0..5).map(|_| (pace.missed(&trouble).is_ok(), pace.next_pause().as_secs())).collect();
        assert_eq!(missed, [(true, 1), (true, 2), (true, 4), (true, 8), (true, 16)]);
        assert!(matches!(pace.missed(&trouble), Err(ServerError::LostTask(_))));
        let wants = |ms| {
            Pace { every: Some(Duration::from_millis(ms)), paused: Some(MAX_PAUSE), ..Pace::default() }.next_pause()
        };
        assert_eq!((wants(0), wants(u64::MAX)), (FIRST_PAUSE, MAX_PAUSE));
    }
}
