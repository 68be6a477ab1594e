//! `belay shutdown`: ends the daemon, and waits for its end.

use std::path::Path;
use std::time::Duration;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::output::{Output, note};
use belay_program::signals::{OnHangup, SignalWatch};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::Value as Json;
use tokio::net::UnixStream;
use tokio::net::unix::pipe::Receiver;
use tokio::time::{Instant, interval_at, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{Client, duration_text, number, text};
use crate::args::ShutdownArgs;

/// How often the command says what still runs. 5 s: often enough to see that something happens.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// Longest wait for the status meanwhile: an interrupt has to wait for it.
const STATUS_LIMIT: Duration = Duration::from_secs(1);

/// Pause between two looks at a daemon whose process cannot be watched.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Asks the daemon to drain and end, and waits for that. Ctrl-C ends the wait, not the drain.
pub async fn shutdown(args: &ShutdownArgs, env: &Environment, out: Output<'_>) -> Result<Exit, Failure> {
    let client = Client::find(&args.client, env)?;
    if args.no_wait {
        said(&ask(&client).await?, args.client.json, out);
        return Ok(Exit::Fine);
    }
    let signals = SignalWatch::install(OnHangup::End).map_err(|error| Failure::new(Exit::Internal, error))?;
    let (handle, interrupted) = (signals.handle(), CancellationToken::new());
    let work = async {
        let done = work(&client, args.client.json, out, &interrupted).await;
        handle.close();
        done
    };
    let (done, ()) = tokio::join!(work, signals.watch(interrupted.clone()));
    done
}

async fn ask(client: &Client) -> Result<Json, Failure> {
    client.post(&["api", "v1", "shutdown"], None, Duration::ZERO).await
}

async fn work(
    client: &Client,
    as_json: bool,
    out: Output<'_>,
    interrupted: &CancellationToken,
) -> Result<Exit, Failure> {
    // Before the request: afterwards another daemon may be there.
    let daemon = Daemon::find(client).await?;
    let answer = ask(client).await?;
    if !as_json {
        said(&answer, false, out);
    }
    let begun = Instant::now();
    let mut progress = interval_at(begun + SAY_EVERY, SAY_EVERY);
    let ended = daemon.ended(client);
    tokio::pin!(ended);
    loop {
        tokio::select! {
            biased; // an end counts, also if a signal has come too
            () = &mut ended => break,
            () = interrupted.cancelled() => {
                note("interrupted; the daemon finishes what it does and ends all the same");
                return Ok(Exit::Interrupted);
            }
            _ = progress.tick() => note(&still(client, begun.elapsed()).await),
        }
    }
    if as_json {
        out.json(&answer);
    } else {
        out.line(&format!("The daemon has ended after {}.", duration_text(begun.elapsed())));
    }
    Ok(Exit::Fine)
}

fn said(answer: &Json, as_json: bool, out: Output<'_>) {
    match (as_json, text(answer, "/reply")) {
        (true, _) => out.json(answer),
        (false, "") => out.line("The daemon finishes what it does and ends."),
        (false, reply) => out.line(reply),
    }
}

/// The line about what the daemon still does.
async fn still(client: &Client, waited: Duration) -> String {
    let report = timeout(STATUS_LIMIT, client.get(&["api", "v1", "status"], &[])).await;
    still_words(&report.ok().and_then(Result::ok).unwrap_or_default(), waited)
}

fn still_words(report: &Json, waited: Duration) -> String {
    let runs = report.pointer("/running").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
    let run = |run: &Json| {
        let for_how_long = duration_text(Duration::from_millis(number(run, "/for_ms")));
        format!("run {} of {} for {for_how_long}", text(run, "/run_id"), text(run, "/session"))
    };
    let what = match runs {
        [] => "no run works any more; the daemon writes and closes what is left".to_owned(),
        runs => runs.iter().map(run).collect::<Vec<_>>().join("; "),
    };
    format!("still ending after {}: {what}", duration_text(waited))
}

/// The daemon whose end is waited for.
enum Daemon {
    /// Its process, on this machine.
    Process(Receiver),
    /// The id of its start.
    Boot(String),
}

impl Daemon {
    async fn find(client: &Client) -> Result<Self, Failure> {
        if let Some(process) = match client.socket() {
            Some(socket) => process_at(socket).await,
            None => None,
        } {
            return Ok(Self::Process(process));
        }
        let report = client.get(&["api", "v1", "status"], &[]).await?;
        Ok(Self::Boot(text(&report, "/boot_id").to_owned()))
    }

    /// Waits until it has ended.
    async fn ended(&self, client: &Client) {
        let boot = match self {
            // It is readable when the process has ended. Source: pidfd_open(2).
            Self::Process(process) if process.readable().await.is_ok() => return,
            Self::Process(_) => None,
            Self::Boot(boot) => Some(boot.as_str()),
        };
        loop {
            match client.get(&["api", "v1", "status"], &[]).await {
                Ok(report) if boot.is_none_or(|boot| text(&report, "/boot_id") == boot) => {}
                Err(failure) if failure.exit != Exit::OutOfReach => {} // it drains and refuses requests
                // Another daemon is there, or none.
                Ok(_) | Err(_) => return,
            }
            sleep(LOOK_EVERY).await;
        }
    }
}

/// The process that listens on a socket; `None`: it cannot be watched from here, as in another container.
async fn process_at(socket: &Path) -> Option<Receiver> {
    let peer = UnixStream::connect(socket).await.ok()?.peer_cred().ok()?;
    let process = pidfd_open(Pid::from_raw(peer.pid()?)?, PidfdFlags::NONBLOCK).ok()?;
    // The system announces the end of a process as it does data of a pipe.
    Receiver::from_owned_fd_unchecked(process).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_long_end_says_what_still_runs() {
        let waited = Duration::from_secs(10);
        let runs = json!({"running": [{"run_id": "r", "session": "me", "for_ms": 61_000}]});
        assert_eq!(still_words(&runs, waited), "still ending after 10 s: run r of me for 1 min");
        let none = "still ending after 10 s: no run works any more; the daemon writes and closes what is left";
        assert_eq!(still_words(&json!({"running": []}), waited), none);
        assert_eq!(still_words(&Json::Null, waited), none);
    }
}
