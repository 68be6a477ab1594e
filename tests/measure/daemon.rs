//! The daemon as a child process, and its figures from the operating system.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// Longest wait for the daemon to become ready.
const READY_LIMIT: Duration = Duration::from_secs(300);
/// The daemon is killed when it has not ended within this time.
const END_LIMIT: Duration = Duration::from_secs(300);
/// The log text of a daemon that accepts messages; the address follows it.
const READY_WORDS: &str = "ready on http://";

/// The database, in the data directory.
const DATABASE: &str = "belay.db";
/// The directory of the tools, in the data directory.
pub const WORKSPACE: &str = "workspace";

/// How a daemon is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The program.
    pub program: PathBuf,
    /// Its arguments before `run`.
    pub leading: Vec<OsString>,
    /// Where the data directories are made.
    pub data: PathBuf,
    /// Settings besides those of every measurement, as `key=value`.
    pub settings: Vec<String>,
    /// Variables of its environment.
    pub environment: Vec<(&'static str, &'static str)>,
}

/// A running daemon with an empty data directory of its own. Dropping it ends the process and removes the directory.
#[derive(Debug)]
pub struct Daemon {
    /// The address of its HTTP listener.
    pub address: SocketAddr,
    /// Time from the start of the process to the ready line.
    pub ready_after: Duration,
    /// When the process was started.
    pub started: Instant,
    child: Child,
    belay: PathBuf,
    /// `None` once it was handed on.
    data: Option<TempDir>,
}

impl Daemon {
    /// Starts a daemon that uses the model server at `model`, and waits until it is ready.
    pub fn start(setup: impl Into<Setup>, model: SocketAddr) -> Result<Self> {
        let setup = setup.into();
        let data = tempfile::tempdir_in(&setup.data)?;
        Self::start_in(setup, model, data)
    }

    /// Like [`Self::start`], with a data directory that an earlier daemon has left.
    pub fn start_in(setup: impl Into<Setup>, model: SocketAddr, data: TempDir) -> Result<Self> {
        let setup = setup.into();
        let mut command = command(&setup, data.path(), model)?;
        let started = Instant::now();
        let mut child =
            command.spawn().with_context(|| format!("cannot start {}: build it first", setup.program.display()))?;
        let stderr = child.stderr.take().context("no stderr")?;
        match ready(stderr, READY_LIMIT) {
            Ok(Ready { at, address }) => {
                let (ready_after, belay) = (at.duration_since(started), setup.program.clone());
                Ok(Self { address, ready_after, started, child, belay, data: Some(data) })
            }
            Err(error) => {
                end(&mut child);
                Err(error)
            }
        }
    }

    /// A command of the program that finds this daemon as its user would: by the control socket in the data directory.
    pub fn client(&self, arguments: &[&str]) -> Result<tokio::process::Command> {
        let mut command = tokio::process::Command::new(&self.belay);
        enclose(command.as_std_mut(), &self.data().canonicalize()?);
        command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }

    /// The data directory. It is taken only by [`Self::end`] and [`Self::kill`], which consume the daemon.
    fn data(&self) -> &Path {
        self.data.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// The workspace of its tools.
    pub fn workspace(&self) -> PathBuf {
        self.data().join(WORKSPACE)
    }

    /// The size of its database and of the write-ahead log, in bytes. A missing file has no bytes.
    pub fn store_bytes(&self) -> (u64, u64) {
        let size = |name: &str| std::fs::metadata(self.data().join(name)).map_or(0, |file| file.len());
        (size(DATABASE), size(&format!("{DATABASE}-wal")))
    }

    /// Processor time so far, in the kernel and in user mode. The resolution is a tick of 10 ms.
    pub fn cpu(&self) -> Result<Duration> {
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
    pub fn rss_mib(&self) -> Result<f64> {
        self.status_mib("VmRSS:")
    }

    /// The number of threads.
    pub fn threads(&self) -> Result<f64> {
        Ok(self.status("Threads:")?.parse()?)
    }

    /// Largest resident memory since the last [`Self::reset_peak`], in MiB.
    pub fn peak_mib(&self) -> Result<f64> {
        self.status_mib("VmHWM:")
    }

    /// Resets the peak of memory. Linux: proc(5), `clear_refs`, value 5.
    pub fn reset_peak(&self) -> Result<()> {
        Ok(std::fs::write(self.proc("clear_refs"), "5")?)
    }

    /// Resident memory in MiB: that of no file (heap, stacks), and that of files (program code, mapped files). Linux:
    /// proc(5), `smaps_rollup`.
    pub fn memory(&self) -> Result<Memory> {
        Memory::of(&std::fs::read_to_string(self.proc("smaps_rollup"))?)
    }

    /// Ends the daemon, and returns its data directory.
    pub fn end(mut self) -> Result<TempDir> {
        end(&mut self.child);
        self.data.take().context("the data directory is gone")
    }

    /// Ends the daemon as a crash does, and returns its data directory.
    pub fn kill(mut self) -> Result<TempDir> {
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

    /// The number of open file descriptors.
    pub fn descriptors(&self) -> Result<usize> {
        Ok(std::fs::read_dir(self.proc("fd"))?.count())
    }

    fn proc(&self, file: &str) -> PathBuf {
        format!("/proc/{}/{file}", self.child.id()).into()
    }
}

/// Resident memory in MiB.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Heap and stacks, and the changed pages of private mappings.
    pub anonymous: f64,
    /// Unchanged pages of the program, of libraries and of mapped files.
    pub file_backed: f64,
}

impl Memory {
    /// Reads it from `smaps_rollup`; `Rss` contains `Anonymous`.
    fn of(rollup: &str) -> Result<Self> {
        let kib = |key: &str| -> Result<f64> {
            let line = rollup.lines().find_map(|line| line.strip_prefix(key)).with_context(|| format!("no {key}"))?;
            Ok(line.trim().trim_end_matches(" kB").parse()?)
        };
        let (resident, anonymous) = (kib("Rss:")?, kib("Anonymous:")?);
        Ok(Memory { anonymous: anonymous / 1024.0, file_backed: (resident - anonymous) / 1024.0 })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The command that starts a daemon with this data directory, which also is its home. It finds nothing of the user's.
///
/// # Errors
/// The data directory does not exist.
pub fn command(setup: &Setup, data: &Path, model: SocketAddr) -> Result<Command> {
    let data = data.canonicalize()?;
    let mut command = Command::new(&setup.program);
    command.args(&setup.leading).arg("run");
    for setting in [
        "llm.provider=openai".into(),
        format!("llm.base_url=http://{model}/v1"),
        "llm.model=bench".into(),
        "channels.stdin.enabled=false".into(),
        "gateway.listen=127.0.0.1:0".into(),
        // The benchmark measures ten tool rounds; the default takes the tools away before the tenth.
        "agent.max_tool_iterations=20".into(),
        format!("store.url=sqlite://{}", data.join(DATABASE).display()),
        format!("tools.workspace={}", data.join(WORKSPACE).display()),
    ]
    .iter()
    .chain(&setup.settings)
    {
        command.arg("--set").arg(setting);
    }
    enclose(&mut command, &data);
    command.envs(setup.environment.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Ok(command)
}

/// Keeps the keys, settings and conversations of the user from the program.
fn enclose(command: &mut Command, data: &Path) {
    command.env_clear().env("HOME", data).env("XDG_DATA_HOME", data).env("XDG_CONFIG_HOME", data);
}

/// A daemon that accepts messages.
#[derive(Debug)]
pub struct Ready {
    /// When it said so.
    pub at: Instant,
    /// The address of its HTTP listener.
    pub address: SocketAddr,
}

/// Waits for the ready line in the log, at most this long. A thread reads the log until the process ends, so that the
/// daemon never waits for a full pipe.
///
/// # Errors
/// The daemon is not ready in time, or it has ended; then its log is repeated on stderr.
pub fn ready(log: ChildStderr, limit: Duration) -> Result<Ready> {
    let (ready, is_ready) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("stderr".into()).spawn(move || read_log(BufReader::new(log), &ready))?;
    match is_ready.recv_timeout(limit) {
        Ok(ready) => Ok(ready),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            bail!("the daemon did not say \"{READY_WORDS}…\" within {} s", limit.as_secs())
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            bail!("the daemon ended before it was ready; what it said stands above")
        }
    }
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

    #[test]
    fn memory_of_files_is_the_rest_of_what_is_resident() {
        let rollup = "55d0-7ffe ---p 00000000 00:00 0  [rollup]\nRss:               29696 kB\nPss:               21000 kB\nAnonymous:         12288 kB\nAnonHugePages:         0 kB\n";
        let memory = Memory::of(rollup).expect("two lines");
        assert!((memory.anonymous - 12.0).abs() < 1e-9 && (memory.file_backed - 17.0).abs() < 1e-9, "{memory:?}");
        for damaged in ["", "Rss: 1 kB", "Rss: x kB\nAnonymous: 1 kB"] {
            assert!(Memory::of(damaged).is_err(), "{damaged}");
        }
    }
}
