//! How a start waits for the database, and what ends it before the daemon is ready.

use std::convert::Infallible;
use std::time::Duration;

use belay_program::exit::Failure;
use belay_program::output::note;
use belay_program::systemd;
use belay_store::OpenError;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::opening::refuse_store;

/// Pause between two attempts to open the store: a second.
const PAUSE: Duration = Duration::from_secs(1);

/// The time between two lines about a database that is away: 10 s.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The time between two extensions of the start timeout of the service manager: 10 s.
const EXTEND_EVERY: Duration = Duration::from_secs(10);

/// The time that each extension grants from its moment on. 30 s, as the installed unit grants a start (`TimeoutStartSec=`):
/// the rest of a start has 20 s at least after the wait.
const EXTENSION: Duration = Duration::from_secs(30);

/// Why a daemon may not begin anything any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// This node of a cluster has lost its lease.
    Lease,
    /// The database has lost transactions that this daemon has seen committed.
    History,
}

impl Lost {
    /// What happened, and what happens next.
    pub fn words(self) -> &'static str {
        match self {
            Self::Lease => "this node has lost its lease: its processes are ended, and other nodes continue its work",
            Self::History => {
                "the database has lost transactions that this daemon has seen committed, as a standby that was behind \
                 does after its promotion: the daemon ends, and its next start continues with what the database has"
            }
        }
    }
}

/// Why a start has ended before the daemon was ready.
#[derive(Debug)]
pub enum NotStarted {
    /// A signal has ended it. Everything that it had begun is ended again.
    Stopped,
    /// The daemon may not begin anything any more.
    Lost(Lost),
    /// It has failed.
    Failed(Failure),
}

impl From<Failure> for NotStarted {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Why an attempt to open the store has failed.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The database is away, so that the same attempt may succeed later.
    Outage(Failure),
    /// The start ends.
    Over(NotStarted),
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Self {
        Self::Over(failure.into())
    }
}

impl From<NotStarted> for Attempt {
    fn from(over: NotStarted) -> Self {
        Self::Over(over)
    }
}

/// How a start waits for a database that is away.
pub struct DatabaseWait {
    /// Whether the log is in a file, so that a person at the terminal sees no line of it.
    at_prompt: bool,
}

impl DatabaseWait {
    /// `at_prompt`: the log is in a file, so that a person at the terminal sees no line of it.
    pub fn new(at_prompt: bool) -> Self {
        Self { at_prompt }
    }

    /// Repeats the attempt to open the store while the database is away, and keeps the service manager from ending the
    /// start. Ends after `stop`; an attempt must end by itself then.
    ///
    /// # Errors
    /// Those of an attempt that are no outage, and [`NotStarted::Stopped`].
    pub(super) async fn until_database<T, F>(
        &self,
        stop: &CancellationToken,
        attempt: impl Fn() -> F,
    ) -> Result<T, NotStarted>
    where
        F: Future<Output = Result<T, Attempt>>,
    {
        tokio::select! {
            biased; // the last extension is for the rest of the start
            never = extend_timeout() => match never {},
            opened = self.attempts(stop, attempt) => opened,
        }
    }

    async fn attempts<T, F>(&self, stop: &CancellationToken, attempt: impl Fn() -> F) -> Result<T, NotStarted>
    where
        F: Future<Output = Result<T, Attempt>>,
    {
        let begun = Instant::now();
        let mut last_line: Option<Instant> = None;
        loop {
            let failure = match attempt().await {
                Ok(opened) => {
                    if last_line.is_some() {
                        info!(waited_s = begun.elapsed().as_secs(), "the database answers; the start continues");
                    }
                    return Ok(opened);
                }
                Err(Attempt::Over(over)) => return Err(over),
                Err(Attempt::Outage(failure)) => failure,
            };
            if last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
                last_line = Some(Instant::now());
                self.report_outage(&failure, begun.elapsed());
            }
            if stop.run_until_cancelled(sleep(PAUSE)).await.is_none() {
                return Err(NotStarted::Stopped);
            }
        }
    }

    fn report_outage(&self, failure: &Failure, waited: Duration) {
        let words = format!("the start waits for the database: {}", failure.what);
        warn!(waited_s = waited.as_secs(), "{words}");
        systemd::waiting(&words);
        if self.at_prompt {
            note(&words);
        }
    }
}

/// Does a part of a start until `stop` is cancelled, or until this daemon is [`Lost`].
///
/// # Errors
/// Those of the part. [`NotStarted::Stopped`] and [`NotStarted::Lost`]: the part was dropped.
pub async fn until_ended<T, E: Into<NotStarted>>(
    stop: &CancellationToken,
    lost: impl Future<Output = Lost>,
    part: impl Future<Output = Result<T, E>>,
) -> Result<T, NotStarted> {
    tokio::select! {
        biased; // a daemon that is lost begins nothing
        lost = lost => Err(NotStarted::Lost(lost)),
        () = stop.cancelled() => Err(NotStarted::Stopped),
        done = part => done.map_err(Into::into),
    }
}

/// Extends the start timeout of the service manager again and again.
async fn extend_timeout() -> Infallible {
    let mut ticks = interval(EXTEND_EVERY);
    loop {
        ticks.tick().await;
        systemd::extend_timeout(EXTENSION);
    }
}

/// The failure of an attempt to open the store, or to register in it. Older nodes end some time, like an outage.
pub(super) fn attempted(error: &OpenError) -> Attempt {
    let failure = refuse_store(error);
    if error.is_outage() || matches!(error, OpenError::OlderNodes { .. }) {
        Attempt::Outage(failure)
    } else {
        failure.into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use belay_program::exit::Exit;

    use super::*;

    fn outage() -> Attempt {
        Attempt::Outage(Failure::new(Exit::OutOfReach, "no connection"))
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_the_database_and_ends_at_once_when_it_is_refused_or_stopped() {
        let (wait, stop, tries) = (DatabaseWait::new(false), CancellationToken::new(), AtomicU32::new(0));
        let begun = Instant::now();
        let opened = wait.until_database(&stop, async || match tries.fetch_add(1, Ordering::Relaxed) {
            0..3_600 => Err(outage()),
            _ => Ok("open"),
        });
        assert_eq!(opened.await.ok(), Some("open"));
        assert_eq!(begun.elapsed(), Duration::from_secs(3_600), "an hour, with an attempt each second");

        let refused = wait.until_database(&stop, async || {
            Err::<(), _>(Failure::new(Exit::OutOfReach, "the login is rejected").into())
        });
        assert!(matches!(refused.await, Err(NotStarted::Failed(failure)) if failure.what.contains("rejected")));

        let ended = wait.until_database(&stop, async || {
            stop.cancel();
            Err::<(), _>(outage())
        });
        assert!(matches!(ended.await, Err(NotStarted::Stopped)));
    }

    #[tokio::test]
    async fn a_loss_comes_before_a_stop_and_both_before_the_part() {
        let (stop, part) = (CancellationToken::new(), || async { Ok::<_, NotStarted>(()) });
        assert!(until_ended(&stop, std::future::pending(), part()).await.is_ok());
        stop.cancel();
        let stopped = until_ended(&stop, std::future::pending(), part()).await;
        assert!(matches!(stopped, Err(NotStarted::Stopped)), "{stopped:?}");
        let lost = until_ended(&stop, std::future::ready(Lost::Lease), part()).await;
        assert!(matches!(lost, Err(NotStarted::Lost(Lost::Lease))), "{lost:?}");
    }
}
