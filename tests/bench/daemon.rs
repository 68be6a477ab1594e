//! The daemon as a child process, and its figures from the operating system.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::Options;

/// Longest wait for the daemon to become ready.
const READY_LIMIT: Duration = Duration::from_secs(20);
/// The daemon is killed when it has not ended within this time.
const END_LIMIT: Duration = Duration::from_secs(15);
/// The log text of a daemon that accepts messages; the address follows it.
const READY_WORDS: &str = "ready on http://";

/// A running daemon with an empty data directory of its own. Dropping it ends the process and removes the directory.
#[derive(Debug)]
pub(crate) struct Daemon {
    /// The address of its HTTP listener.
    pub(crate) address: SocketAddr,
    /// Time from the start of the process to the ready line.
    pub(crate) ready_after: Duration,
    /// When the process was started.
    pub(crate) started: Instant,
    child: Child,
    /// `None` once it was handed on.
    data: Option<TempDir>,
}

impl Daemon {
    /// Starts a daemon that uses the model server at `model`, and waits until it is ready.
    pub(crate) fn start(options: &Options, model: SocketAddr) -> Result<Self> {
        Self::start_in(options, model, tempfile::tempdir_in(&options.data)?)
    }

    /// Like [`Self::start`], with a data directory that an earlier daemon has left.
    pub(crate) fn start_in(options: &Options, model: SocketAddr, data: TempDir) -> Result<Self> {
        let mut command = command(options, data.path(), model)?;
        let started = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}: build it first", options.belay.display()))?;
        let stderr = child.stderr.take().context("no stderr")?;
        // The thread reads until the process ends, so that the daemon never waits for a full pipe.
        let (ready, is_ready) = mpsc::sync_channel(1);
        std::thread::Builder::new().name("stderr".into()).spawn(move || read_log(BufReader::new(stderr), &ready))?;
        match is_ready.recv_timeout(READY_LIMIT) {
            Ok(Ready { at, address }) => {
                Ok(Self { address, ready_after: at.duration_since(started), started, child, data: Some(data) })
            }
            Err(mpsc::RecvTimeoutError::Timeout) => {
                end(&mut child);
                bail!("the daemon did not say \"{READY_WORDS}…\" within {} s", READY_LIMIT.as_secs())
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                end(&mut child);
                bail!("the daemon ended before it was ready; what it said stands above")
            }
        }
    }

    /// Processor time so far, in the kernel and in user mode. The resolution is a tick of 10 ms.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(self.proc("stat"))?;
        // The process name may contain spaces. User and system time are the 12th and 13th words after its closing
        // bracket.
        let after_name = stat.rsplit_once(')').context("no name in stat")?.1;
        let words: Vec<&str> = after_name.split_whitespace().collect();
        let ticks: u64 =
            words.get(11..13).context("short stat")?.iter().filter_map(|word| word.parse::<u64>().ok()).sum();
        // Linux: USER_HZ is 100 on every architecture of Belay's builds (proc(5), times in clock ticks).
        Ok(Duration::from_millis(ticks * 10))
    }

    /// Resident memory now, in MiB.
    pub(crate) fn rss_mib(&self) -> Result<f64> {
        self.status_mib("VmRSS:")
    }

    /// The number of threads.
    pub(crate) fn threads(&self) -> Result<f64> {
        Ok(self.status("Threads:")?.parse()?)
    }

    /// Largest resident memory since the last [`Self::reset_peak`], in MiB.
    pub(crate) fn peak_mib(&self) -> Result<f64> {
        self.status_mib("VmHWM:")
    }

    /// Resets the peak of memory. Linux: proc(5), `clear_refs`, value 5.
    pub(crate) fn reset_peak(&self) -> Result<()> {
        Ok(std::fs::write(self.proc("clear_refs"), "5")?)
    }

    /// Resident memory in MiB: that of no file (heap, stacks), and that of files (program code, mapped files). Linux:
    /// proc(5), `smaps_rollup`.
    pub(crate) fn memory(&self) -> Result<Memory> {
        let rollup = std::fs::read_to_string(self.proc("smaps_rollup"))?;
        let kib = |key: &str| -> Result<f64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(key)).with_context(|| format!("no {key}"))?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        let (resident, anonymous) = (kib("Rss:")?, kib("Anonymous:")?);
        Ok(Memory { anonymous: anonymous / 1024.0, file_backed: (resident - anonymous) / 1024.0 })
    }

    /// Ends the daemon, and returns its data directory.
    pub(crate) fn end(mut self) -> Result<TempDir> {
        end(&mut self.child);
        self.data.take().context("the data directory is gone")
    }

    /// Ends the daemon as a crash does, and returns its data directory.
    pub(crate) fn kill(mut self) -> Result<TempDir> {
        self.child.kill()?;
        self.child.wait()?;
        self.data.take().context("the data directory is gone")
    }

    fn status_mib(&self, key: &str) -> Result<f64> {
        let kib: f64 = self.status(key)?.trim_end_matches(" kB").parse()?;
        Ok(kib / 1024.0)
    }

    fn status(&self, key: &str) -> Result<String> {
        let status = std::fs::read_to_string(self.proc("status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(key)).with_context(|| format!("no {key}"))?;
        Ok(line.trim().to_owned())
    }

    fn proc(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.child.id()).into()
    }
}

/// Resident memory in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Heap and stacks, and the changed pages of private mappings.
    pub(crate) anonymous: f64,
    /// Unchanged pages of the program, of libraries and of mapped files.
    pub(crate) file_backed: f64,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn command(options: &Options, data: &Path, model: SocketAddr) -> Result<Command> {
    let data = data.canonicalize()?;
    let mut command = Command::new(&options.belay);
    command.arg("run");
    for setting in [
        "llm.provider=openai".into(),
        format!("llm.base_url=http://{model}/v1"),
        "llm.model=bench".into(),
        "channels.stdin.enabled=false".into(),
        "gateway.listen=127.0.0.1:0".into(),
        // The benchmark measures ten tool rounds; the default takes the tools away before the tenth.
        "agent.max_tool_iterations=20".into(),
        format!("store.url=sqlite://{}", data.join("belay.db").display()),
        format!("tools.workspace={}", data.join("workspace").display()),
    ]
    .iter()
    .chain(&options.settings)
    {
        command.arg("--set").arg(setting);
    }
    // The daemon must not find the keys, settings or conversations of the user.
    command.env_clear().env("HOME", &data).env("XDG_DATA_HOME", &data).env("XDG_CONFIG_HOME", &data);
    command.envs(options.environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

struct Ready {
    at: Instant,
    address: SocketAddr,
}

/// Reads the log to its end and reports the ready line. Repeats the log on stderr if there is no ready line.
fn read_log(mut log: impl BufRead, ready: &mpsc::SyncSender<Ready>) {
    let mut line = Vec::new();
    let mut waiting = true;
    let mut before = String::new();
    while log.read_until(b'\n', &mut line).is_ok_and(|bytes| bytes > 0) {
        if waiting {
            let text = String::from_utf8_lossy(&line);
            if let Some(address) = ready_address(&text) {
                waiting = false;
                // The receiver is gone after the time limit, and then ignores the line.
                let _ = ready.try_send(Ready { at: Instant::now(), address });
            } else {
                before.push_str(&text);
            }
        }
        line.clear();
    }
    if waiting {
        eprint!("{before}");
    }
}

fn ready_address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once(READY_WORDS)?;
    let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == ':')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Ends the process, and kills it after the time limit.
fn end(child: &mut Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return; // its number may belong to another process by now
    }
    if let Some(pid) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
        // The process may have ended already.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let limit = Instant::now() + END_LIMIT;
    while Instant::now() < limit {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_a_plain_line_and_in_a_json_one() {
        let expected = "127.0.0.1:8787".parse().ok();
        assert_eq!(ready_address("belay: ready on http://127.0.0.1:8787"), expected);
        assert_eq!(ready_address(r#"{"message":"ready on http://127.0.0.1:8787","pid":3}"#), expected);
        assert_eq!(ready_address("not yet"), None);
    }
}
