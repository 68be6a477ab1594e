//! One job from the start of its worker to the last trace of it: one timeout around the whole, one end, nothing left.

use std::time::Duration;

use belay_protocol::{StopReason, WorkerEnd, WorkerHost, WorkerStart};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::job_host::JobHost;

/// How long a clerk that was told to stop may take. 5 s: the gate returns within a fraction of a second, the rest is for
/// a slow disk.
const CLERK_GRACE: Duration = Duration::from_secs(5);

/// How often a run whose worker is being started shows that it is alive: the first start of a container fetches its image.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// How a job ended, for its event and its report.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: WorkerEnd,
    /// Why, in the words that all runs have.
    pub(super) reason: StopReason,
    /// Model calls.
    pub(super) turns: u32,
    pub(super) duration: Duration,
}

/// What brings a job to its end.
enum Cut {
    /// Its clerk is done: the worker has told its end, or the host has.
    Served(WorkerEnd),
    Stopped,
    TimedOut,
    /// The worker's process is gone, in these words.
    Died(String),
}

/// Starts a worker, answers it, and ends it. `stop`: the token of the call; the clerk's own hangs on it.
///
/// # Cancel safety
/// Not to be dropped: cancel the token. Dropped all the same, the worker is ended in the background.
pub(super) async fn run(
    host: &dyn WorkerHost,
    start: WorkerStart,
    job_host: &mut JobHost,
    stop: &CancellationToken,
    deadline: Instant,
) -> Ended {
    let began = Instant::now();
    let end = carry_out(host, start, job_host, stop, deadline).await;
    let reason = job_host.reason.unwrap_or(match &end {
        WorkerEnd::Completed { .. } => StopReason::FinalText,
        WorkerEnd::MaxTurns => StopReason::MaxIterations,
        WorkerEnd::TimedOut => StopReason::ActiveTime,
        WorkerEnd::Stopped => StopReason::ParentStopped,
        WorkerEnd::Failed { .. } => StopReason::Internal,
    });
    Ended { end, reason, turns: job_host.turns, duration: began.elapsed() }
}

async fn carry_out(
    host: &dyn WorkerHost,
    start: WorkerStart,
    job_host: &mut JobHost,
    stop: &CancellationToken,
    deadline: Instant,
) -> WorkerEnd {
    let starting = host.start(start);
    tokio::pin!(starting);
    let started = loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return WorkerEnd::Stopped,
            () = sleep_until(deadline) => return WorkerEnd::TimedOut,
            started = &mut starting => break started,
            () = sleep(SIGN_OF_LIFE) => job_host.core.live.activity.touch(),
        }
    };
    let mut process = match started {
        Ok(process) => process,
        Err(why) => return WorkerEnd::failed(format!("no worker could be started: {why}")),
    };
    let served = job_host.core.cancel.clone();
    let end = {
        let serving = job_host.serve();
        tokio::pin!(serving);
        let cut = tokio::select! {
            biased; // an end that the worker has told comes before the end of its process, and before ours
            end = &mut serving => Cut::Served(end),
            () = stop.cancelled() => Cut::Stopped,
            () = sleep_until(deadline) => Cut::TimedOut,
            how = process.ended() => Cut::Died(how),
        };
        match cut {
            Cut::Served(end) => end,
            cut => {
                // The clerk is not dropped in the middle of a batch: what runs is told, and recorded.
                served.cancel();
                let last = timeout(CLERK_GRACE, serving).await;
                match (cut, last) {
                    (Cut::TimedOut, _) => WorkerEnd::TimedOut,
                    // Its last word came just before it went.
                    (Cut::Died(_), Ok(end @ (WorkerEnd::Completed { .. } | WorkerEnd::Failed { .. }))) => end,
                    (Cut::Died(how), _) => {
                        WorkerEnd::failed(format!("the worker's process ended before it reported its result: {how}"))
                    }
                    _ => WorkerEnd::Stopped,
                }
            }
        }
    };
    served.cancel();
    match end {
        // A stop is answered at once. Dropped, the worker ends in the background, where whoever stops a run waits for
        // all of its processes.
        WorkerEnd::Stopped => drop(process),
        _ => process.end().await,
    }
    end
}
