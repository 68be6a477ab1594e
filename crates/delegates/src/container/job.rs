//! One worker job, from the start of the worker to its removal. One timeout covers all of it but the waits for people,
//! and nothing of the worker remains.

use std::time::Duration;

use belay_protocol::{StopReason, WorkerEnd, WorkerHost, WorkerStart};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::job_host::JobHost;
use belay_run::deadlines::Deadline;

/// Time within which the job host must end after it was cancelled. 5 s: the gate returns within a fraction of a
/// second; the rest is for a slow disk.
const CLERK_GRACE: Duration = Duration::from_secs(5);

/// Interval at which a run reports that it is alive while its worker starts. The first start of a container downloads
/// its image.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// The end of a job, for its event and its report.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) end: WorkerEnd,
    /// The stop reason.
    pub(super) reason: StopReason,
    /// Model calls.
    pub(super) turns: u32,
    pub(super) duration: Duration,
}

/// Why the wait for the job host ended.
enum Cut {
    /// The job host has ended: the worker or the host has ended the job.
    Served(WorkerEnd),
    Stopped,
    TimedOut,
    /// The worker's process has ended; with a description.
    Died(String),
}

/// Starts a worker, serves its requests, and ends it. `stop` is the token of the call; the job host's token is its
/// child.
///
/// # Cancel safety
/// Do not drop it: cancel the token. When it is dropped nevertheless, the worker is ended in the background.
pub(super) async fn run(
    host: &dyn WorkerHost,
    start: WorkerStart,
    job_host: &mut JobHost,
    stop: &CancellationToken,
    deadline: &Deadline,
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
    deadline: &Deadline,
) -> WorkerEnd {
    let starting = host.start(start);
    tokio::pin!(starting);
    let started = loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return WorkerEnd::Stopped,
            () = deadline.passed() => return WorkerEnd::TimedOut,
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
            biased; // an end that the worker has reported comes before the end of its process, and before a stop or the timeout
            end = &mut serving => Cut::Served(end),
            () = stop.cancelled() => Cut::Stopped,
            () = deadline.passed() => Cut::TimedOut,
            how = process.ended() => Cut::Died(how),
        };
        match cut {
            Cut::Served(end) => end,
            cut => {
                // The job host is not dropped within a batch: running calls are cancelled and recorded.
                served.cancel();
                let last = timeout(CLERK_GRACE, serving).await;
                match (cut, last) {
                    (Cut::TimedOut, _) => WorkerEnd::TimedOut,
                    // The worker reported its end just before its process ended.
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
        // A stop returns at once. Dropping the handle ends the worker in the background; a stop of the run waits for
        // all its processes.
        WorkerEnd::Stopped => drop(process),
        _ => process.end().await,
    }
    end
}
