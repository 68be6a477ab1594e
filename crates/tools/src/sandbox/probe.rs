//! Tests the sandbox once, so that a missing requirement is known before the first command runs.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Grant, Missing, Sandbox, bubblewrap};
use belay_exec::{self, Launch};

/// Longest time for running `true`. Usual machines need some tens of milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// Pause between two checks whether the process has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// Longest error output that is kept, in bytes.
const MAX_STDERR_BYTES: u64 = 4096;

/// Runs `true` with the maximum permissions. If these include network access, runs it a second time without.
pub(super) fn try_all(sandbox: &Sandbox) -> Result<(), Missing> {
    let most = sandbox.most();
    try_one(sandbox, most)?;
    if most.network { try_one(sandbox, Grant { network: false, ..most }) } else { Ok(()) }
}

fn try_one(sandbox: &Sandbox, grant: Grant) -> Result<(), Missing> {
    let inner = Launch {
        program: "true".into(),
        args: Vec::new(),
        env: Vec::new(),
        directory: sandbox.workspace().to_owned(),
        stdin: belay_exec::Stdin::Null,
        isolated: false,
        sealed: None,
    };
    let launch = sandbox.wrap(inner, grant)?;
    let mut child = Command::new(&launch.program)
        .args(&launch.args)
        .env_clear()
        .envs(launch.env)
        .current_dir(&launch.directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| Missing(format!("bubblewrap cannot be started: {error}")))?;
    match exit_success(&mut child) {
        Some(true) => Ok(()),
        Some(false) => Err(Missing(format!("the sandbox does not work here: {}", error_text(&mut child)))),
        None => Err(Missing(format!("the sandbox does not work here: nothing happened for {} s", LIMIT.as_secs()))),
    }
}

/// Waits for the end; returns whether it succeeded. `None`: it did not end in time and was killed.
fn exit_success(child: &mut Child) -> Option<bool> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if begin.elapsed() < LIMIT => std::thread::sleep(PAUSE),
            Ok(None) | Err(_) => {
                // The process may have ended just now. Either way it is reaped.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// The error output of the failed process. All processes that could still write have ended with the monitor.
fn error_text(child: &mut Child) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // Unreadable output is omitted.
        let _ = stderr.take(MAX_STDERR_BYTES).read_to_end(&mut words);
    }
    bubblewrap::explain(&String::from_utf8_lossy(&words))
}
