//! `belay routines fire`: starts a run of a routine by hand, and with `--wait` waits for its end.

use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, note};
use serde_json::{Value as Json, json};
use tokio::time::sleep;

use crate::args::RoutineArgs;
use crate::client::send::{verdict, wait};
use crate::client::watch::{Progress, watch};
use crate::client::{Client, text};

/// Pause before the routine run is read again. It gets its run or its job within some milliseconds, unless it waits for a
/// place or a thaw.
const AGAIN: Duration = Duration::from_millis(250);

/// Looks at a routine run that has not begun, before the person is told that it waits: 2 s.
const LOOKS_BEFORE_NOTE: u32 = 8;

/// Starts the routine run. With `waits` the exit code is the verdict of its run or job.
pub(super) async fn fire(
    args: &RoutineArgs,
    payload: Option<&str>,
    waits: bool,
    env: &Environment,
    out: Output<'_>,
) -> Result<Exit, Failure> {
    let payload = payload.map(belay_program::input::message).transpose()?;
    let client = Client::find(&args.client, env)?;
    let path = ["api", "v1", "routines", &args.name, "fire"];
    let routine_run = client.post(&path, Some(&json!({ "payload": payload })), Duration::ZERO).await?;
    let id = text(&routine_run, "/routine_run_id");
    match (waits, args.client.json) {
        (true, json) => {
            let exit = ended(&client, id, json, out).await?;
            if exit != Exit::Busy {
                settled(&client, id).await;
            }
            return Ok(exit);
        }
        (false, true) => out.json(&routine_run),
        (false, false) => out.line(id),
    }
    Ok(Exit::Fine)
}

/// How a routine run does its work.
#[derive(Debug, PartialEq, Eq)]
enum Work<'a> {
    /// By this run.
    Run(&'a str),
    /// By this job.
    Job(&'a str),
    /// It has ended without either.
    Ended(Exit),
    /// It has not begun.
    Waiting,
}

impl<'a> Work<'a> {
    fn of(routine_run: &'a Json) -> Self {
        match (text(routine_run, "/run_id"), text(routine_run, "/job_id"), text(routine_run, "/status")) {
            ("", "", "running") => Self::Waiting,
            ("", "", "ok" | "attention" | "skipped") => Self::Ended(Exit::Fine),
            ("", "", _) => Self::Ended(Exit::Failed),
            ("", job, _) => Self::Job(job),
            (run, ..) => Self::Run(run),
        }
    }
}

/// Waits for the end of the routine run, and prints its answer. If the daemon goes away, the wait ends, not the work.
async fn ended(client: &Client, id: &str, as_json: bool, out: Output<'_>) -> Result<Exit, Failure> {
    let mut looks = 0;
    loop {
        let routine_run = client.get(&["api", "v1", "routine-runs", id], &[]).await?;
        looks += 1;
        match Work::of(&routine_run) {
            Work::Run(run) => return Ok(verdict(&wait(client, run).await?, as_json, out)),
            Work::Job(job) => return watch(client, job, Progress::Hidden, as_json, out).await,
            Work::Ended(exit) => {
                match (as_json, exit) {
                    (true, _) => out.json(&routine_run),
                    (false, Exit::Fine) => out.line(text(&routine_run, "/summary")),
                    (false, _) => note(&format!("the routine run failed: {}", text(&routine_run, "/summary"))),
                }
                return Ok(exit);
            }
            Work::Waiting => {
                if looks == LOOKS_BEFORE_NOTE {
                    note("the routine run has not begun: it waits for a place or a thaw");
                }
                sleep(AGAIN).await;
            }
        }
    }
}

/// Waits until the routine run itself has ended, some moments after its work: the next one may begin only then. The answer
/// is known, so a daemon that goes away is no failure.
async fn settled(client: &Client, id: &str) {
    while let Ok(routine_run) = client.get(&["api", "v1", "routine-runs", id], &[]).await
        && text(&routine_run, "/status") == "running"
    {
        sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_a_routine_run_is_its_run_or_its_job() {
        for (routine_run, expected) in [
            (json!({"status": "running", "run_id": null, "job_id": null}), Work::Waiting),
            (json!({"status": "running", "run_id": "r", "job_id": null}), Work::Run("r")),
            (json!({"status": "attention", "run_id": "r", "job_id": null}), Work::Run("r")),
            (json!({"status": "running", "run_id": null, "job_id": "j"}), Work::Job("j")),
            (json!({"status": "failed", "summary": "why"}), Work::Ended(Exit::Failed)),
            (json!({"status": "ok"}), Work::Ended(Exit::Fine)),
        ] {
            assert_eq!(Work::of(&routine_run), expected, "{routine_run}");
        }
    }
}
