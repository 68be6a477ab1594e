//! Lets a run wait while the store does not answer. This is the only place that decides whether a run repeats what it
//! asks of the store, and for how long.
//!
//! A run repeats after [`StoreError::Unavailable`] alone. It waits without a limit of its own: until its deadline, a stop,
//! a freeze or the shutdown of the daemon. The caller makes sure that its request may be repeated.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{CallId, StoreError};
use serde_json::Map;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::deadlines::Deadlines;
use crate::live::LiveRun;
use crate::retry::{Pauses, STORE};

/// The name of the wait on a display of the run.
const WAITING: &str = "waiting for the store";

/// The limits of a run's waits for the store.
#[derive(Clone, Debug)]
pub struct StoreWait {
    live: Arc<LiveRun>,
    stop: CancellationToken,
    draining: CancellationToken,
    /// Shared, because a run that waits for the model is to be small.
    deadlines: Arc<Deadlines>,
}

/// The failures of one request so far. The display of the run shows the wait until this is dropped.
#[derive(Debug, Default)]
pub struct Outage(Option<Begun>);

#[derive(Debug)]
struct Begun {
    live: Arc<LiveRun>,
    since: Instant,
    pauses: Pauses,
}

impl StoreWait {
    /// Waits that `stop`, which also a freeze cancels, and the shutdown of the daemon end. They have no deadline yet.
    pub fn new(live: Arc<LiveRun>, stop: CancellationToken, draining: CancellationToken) -> Self {
        Self { live, stop, draining, deadlines: Arc::default() }
    }

    /// The same waits for a run that this token stops.
    #[must_use]
    pub(crate) fn stopped_by(self, stop: CancellationToken) -> Self {
        Self { stop, ..self }
    }

    /// Sets the deadlines of later waits.
    pub fn set_deadlines(&mut self, deadlines: Deadlines) {
        self.deadlines = Arc::new(deadlines);
    }

    /// Repeats a request until the store answers.
    ///
    /// # Errors
    /// See [`Self::again`].
    ///
    /// # Cancel safety
    /// Same as the request, which may have run several times.
    pub async fn until_stored<T, F>(&self, mut ask: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut outage = Outage::default();
        loop {
            match ask().await {
                Ok(answer) => return Ok(answer),
                Err(error) => self.again(&mut outage, error).await?,
            }
        }
    }

    /// Waits before a failed request is repeated. `outage`: the failures of this request.
    ///
    /// # Errors
    /// The error of the request: it is not [`StoreError::Unavailable`], or the run must not wait any longer.
    ///
    /// # Cancel safety
    /// If the future is dropped midway, the pause counts as over.
    pub async fn again(&self, outage: &mut Outage, error: StoreError) -> Result<(), StoreError> {
        if !matches!(error, StoreError::Unavailable(_)) {
            return Err(error);
        }
        match &outage.0 {
            None => tracing::warn!(run = %self.live.id, %error, "the store does not answer; the run waits for it"),
            Some(_) => tracing::debug!(run = %self.live.id, %error, "the store still does not answer"),
        }
        let begun = outage.0.get_or_insert_with(|| Begun {
            live: self.live.clone(),
            since: Instant::now(),
            pauses: STORE.pauses(),
        });
        let pause = begun.pause();
        tokio::select! {
            biased; // whatever ends the wait ends it at once
            () = self.stop.cancelled() => Err(error),
            () = self.draining.cancelled() => Err(error),
            () = self.deadlines.passed() => Err(error),
            () = sleep(pause) => Ok(()),
        }
    }
}

impl Outage {
    /// Whether the request has failed before.
    pub fn has_begun(&self) -> bool {
        self.0.is_some()
    }
}

impl Begun {
    /// The next pause. Shows that the run waits, and that it is not stuck.
    fn pause(&mut self) -> Duration {
        let pause = self.pauses.next_pause();
        self.live.activity.quiet_for(pause);
        // Another part of the run tree that waits too may have removed the entry.
        self.live.display.call_ended(&shown(), None);
        self.live.display.call_begins(&shown(), WAITING, &Map::new(), &[]);
        pause
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.live.display.call_ended(&shown(), None);
        self.live.activity.touch();
        let waited_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(run = %self.live.id, waited_ms, "the run does not wait for the store any longer");
    }
}

/// The entry of the wait on a display.
fn shown() -> CallId {
    CallId::from("store")
}

#[cfg(test)]
mod tests {
    use belay_protocol::{RunId, Work};

    use super::*;
    use crate::deadlines::{Deadline, WaitClock};
    use crate::live::RunOrigin;

    struct Case {
        live: Arc<LiveRun>,
        stop: CancellationToken,
        draining: CancellationToken,
        wait: StoreWait,
    }

    fn case() -> Case {
        let origin = RunOrigin { work: Work::Chat, source: None, channel: "test".into(), principal: "ann".into() };
        let live = LiveRun::new(RunId::new(), "s".into(), origin, false);
        let (stop, draining) = (CancellationToken::new(), CancellationToken::new());
        let wait = StoreWait::new(live.clone(), stop.clone(), draining.clone());
        Case { live, stop, draining, wait }
    }

    fn away<T>() -> Result<T, StoreError> {
        Err(StoreError::Unavailable("away".into()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_repeated_with_growing_pauses_and_the_display_shows_it() {
        let (Case { live, wait, .. }, begun, mut asked) = (case(), Instant::now(), 0);
        let mut state = live.display.follow();
        live.activity.begin();
        let answer = wait.until_stored(|| {
            asked += 1;
            std::future::ready(if asked > 20 { Ok(asked) } else { away() })
        });
        let shown = async {
            sleep(Duration::from_secs(60)).await;
            let calls = state.borrow_and_update().calls.clone();
            (calls.iter().map(|call| call.tool.clone()).collect::<Vec<_>>(), live.silent_for())
        };
        let (answer, (calls, silent)) = tokio::join!(answer, shown);
        assert_eq!((answer.expect("answered"), begun.elapsed().as_secs()), (21, 76));
        assert_eq!((calls, silent), (vec![WAITING.to_owned()], Some(Duration::ZERO)), "it is not stuck");
        assert!(state.borrow_and_update().calls.is_empty(), "the wait is over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_a_shutdown_and_a_deadline_end_the_wait_at_once() {
        for ends in ["stop", "shutdown", "deadline"] {
            let (Case { stop, draining, mut wait, .. }, begun) = (case(), Instant::now());
            let after = Duration::from_secs(100);
            if ends == "deadline" {
                let own = Some(Deadline::at(Instant::now() + after, &WaitClock::alone()));
                wait.set_deadlines(Deadlines { own, ..Deadlines::default() });
            }
            let end = async {
                sleep(after).await;
                match ends {
                    "stop" => stop.cancel(),
                    "shutdown" => draining.cancel(),
                    _ => {}
                }
            };
            let (ended, ()) = tokio::join!(wait.until_stored(|| std::future::ready(away::<()>())), end);
            assert!(matches!(ended, Err(StoreError::Unavailable(_))), "{ends}: {ended:?}");
            assert_eq!(begun.elapsed(), after, "{ends}");
            let mut asked = 0;
            let again = wait.until_stored(|| {
                asked += 1;
                std::future::ready(away::<()>())
            });
            assert!(again.await.is_err() && begun.elapsed() == after && asked == 1, "{ends}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_store_that_does_not_answer_is_asked_again() {
        let begun = Instant::now();
        for error in [
            StoreError::LeaseLost("s".into()),
            StoreError::NotFound("a run".into()),
            StoreError::TooMuch("notes".into()),
            StoreError::InvalidCursor("a row".into()),
        ] {
            let wait = case().wait;
            let answer = wait.until_stored(|| std::future::ready(Err::<(), _>(error.clone()))).await;
            assert_eq!(answer.expect_err("refused").to_string(), error.to_string());
        }
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
