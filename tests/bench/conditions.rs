//! The conditions of a measurement: the machine, the build, and the time.

use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use belay_protocol::UnixMillis;
use serde::{Deserialize, Serialize};

/// The conditions of all figures of a report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Conditions {
    /// The name of the processor; empty if the system does not say it.
    pub(crate) processor: String,
    /// The number of processors.
    pub(crate) processors: usize,
    /// The load average of the last minute at the start, as the system says it.
    pub(crate) load: String,
    /// The commit of the working copy, with `+changes` if files have changed since.
    pub(crate) commit: String,
    /// The build profile of the daemon.
    pub(crate) profile: String,
    /// The date and time of the start, in UTC (RFC 3339).
    pub(crate) measured_at: String,
}

impl Conditions {
    /// Reads them for a measurement of this program that begins now.
    pub(crate) fn now(belay: &Path) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        Self {
            processor: processor(&cpuinfo).to_owned(),
            processors,
            load: load.split(' ').next().unwrap_or("?").to_owned(),
            commit: commit(),
            profile: profile(belay),
            measured_at: now.to_rfc3339(),
        }
    }

    /// The line above the table.
    pub(crate) fn line(&self) -> String {
        let Self { processor, processors, load, commit, profile, .. } = self;
        format!(
            "{processors} processors {processor}, shared with load generator and model server; load average {load} at the start; commit {commit}, profile {profile}"
        )
    }
}

fn processor(cpuinfo: &str) -> &str {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"));
    line.and_then(|line| line.split_once(": ")).map_or("", |(_, name)| name.trim())
}

/// The profile whose directory has the program: cargo builds into `target/PROFILE`, and `dev` into `target/debug`.
fn profile(belay: &Path) -> String {
    let directory = belay.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    if directory == "debug" { "dev".to_owned() } else { directory.into_owned() }
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(text)
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else { return "unknown".to_owned() };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if changes.is_empty() => commit,
        _ => format!("{commit}+changes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_where_the_system_names_it() {
        for (text, expected) in [
            ("processor\t: 0\nmodel name\t: Intel(R) Xeon(R)\nflags: x\n", "Intel(R) Xeon(R)"),
            ("processor\t: 0\nBogoMIPS\t: 50.00\n", ""),
            ("", ""),
        ] {
            assert_eq!(processor(text), expected, "{text}");
        }
    }

    #[test]
    fn the_directory_of_the_program_tells_its_profile() {
        for (path, expected) in [
            ("target/release/belay", "release"),
            ("target/debug/belay", "dev"),
            ("/x/target/dist/belay", "dist"),
            ("belay", ""),
        ] {
            assert_eq!(profile(Path::new(path)), expected, "{path}");
        }
    }
}
