//! Trying the sandbox once, so that what is missing is known at the start and not in the middle of a turn.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Grant, Missing, Sandbox, bubblewrap};
use belay_exec::{self, Launch};

/// Longest time that `true` may take. Ordinary machines need some tens of milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// How often the end is looked for.
const PAUSE: Duration = Duration::from_millis(5);

/// Longest explanation that is kept of what failed.
const WORDS_BYTES: u64 = 4096;

/// Runs `true` with the most that may be granted, and without the network if that is some of it.
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
    match ended_well(&mut child) {
        Some(true) => Ok(()),
        Some(false) => Err(Missing(format!("the sandbox does not work here: {}", said(&mut child)))),
        None => Err(Missing(format!("the sandbox does not work here: nothing happened for {} s", LIMIT.as_secs()))),
    }
}

/// Waits for the end; whether it was a good one. `None`: it did not come, and has been brought about.
fn ended_well(child: &mut Child) -> Option<bool> {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if begin.elapsed() < LIMIT => std::thread::sleep(PAUSE),
            Ok(None) | Err(_) => {
                // It may have ended this very moment; either way it is reaped.
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// What was said about the failure. Everything that could still write has ended with the monitor.
fn said(child: &mut Child) -> String {
    let mut words = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        // What cannot be read is left out of an explanation.
        let _ = stderr.take(WORDS_BYTES).read_to_end(&mut words);
    }
    bubblewrap::explain(&String::from_utf8_lossy(&words))
}
