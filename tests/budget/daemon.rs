//! A daemon that is measured: its process, and the readings of all counters.

use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use belay_tests::measure::daemon::{Setup, command, ready};
use belay_tests::measure::http::Connection;
use nix::unistd::Pid;
use rustix::process::{Signal, kill_process};

use crate::calls::Calls;
use crate::counted::{Allocations, THREAD};
use crate::trace::{Kept, keep};

/// Longest wait for the daemon to become ready, and to end. A traced process is slow.
const LIMIT: Duration = Duration::from_secs(300);
/// The daemon is quiet when it has allocated nothing for this long.
const QUIET: Duration = Duration::from_millis(250);
/// The time between two looks whether it is.
const LOOK: Duration = Duration::from_millis(25);

/// All counters of a daemon since its start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// When it was taken. `None`: before the process began.
    pub(crate) at: Option<Instant>,
    pub(crate) writer_statements: u64,
    pub(crate) reader_statements: u64,
    pub(crate) allocations: Allocations,
    /// Voluntary context switches of all threads that live.
    pub(crate) switches: u64,
    /// `None`: not counted.
    pub(crate) calls: Option<Calls>,
}

impl Reading {
    /// The reading before the process has begun, with the same counters as `other`.
    pub(crate) fn zero(other: &Self) -> Self {
        Self { calls: other.calls.as_ref().map(|_| Calls::default()), ..Self::default() }
    }
}

/// A running daemon. Dropping it ends the process.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) address: SocketAddr,
    // Dropped before the socket, whose end also ends the daemon: a second signal would end it at once.
    process: Process,
    control: UnixStream,
    calls: Option<Arc<Mutex<Calls>>>,
}

impl Daemon {
    /// Starts a daemon in this directory, and waits until it is ready.
    pub(crate) async fn start(data: &Path, settings: &[String], model: SocketAddr, traced: bool) -> Result<Self> {
        let socket = data.join("budget.sock");
        let _ = std::fs::remove_file(&socket); // of an earlier daemon in this directory
        let listener = UnixListener::bind(&socket)?;
        let setup = Setup {
            program: std::env::current_exe()?,
            leading: vec!["daemon".into(), socket.into()],
            data: data.into(),
            settings: settings.into(),
            environment: vec![("PATH", "/usr/local/bin:/usr/bin:/bin")],
        };
        let Kept { pid, log, calls, ended } = keep(command(&setup, data, model)?, traced)?;
        let process = Process { pid, ended };
        let mut control = process.connected(&listener)?;
        control.write_all(b"!")?;
        let address = ready(log, LIMIT)?.address;
        Ok(Self { address, control, calls, process })
    }

    /// Reads all counters once the daemon is quiet.
    pub(crate) async fn read(&self) -> Result<Reading> {
        self.quiet(QUIET).await?;
        // A search indexes what was written: its statements and pages belong to the messages before.
        Connection::open(self.address).await?.get("/api/v1/search?q=belay").await?;
        self.quiet(2 * LOOK).await?;
        // The daemon closes a connection that is idle for long.
        let answer = Connection::open(self.address).await?.get("/metrics").await?;
        let metrics = String::from_utf8(answer.body)?;
        let of = |executor| sample(&metrics, &format!("belay_store_statements_total{{executor=\"{executor}\"}}"));
        let (writer_statements, reader_statements) = (of("writer")? + of("indexer")?, of("reader")?);
        // The daemon may still clean up after the request.
        self.quiet(2 * LOOK).await?;
        Ok(Reading {
            at: Some(Instant::now()),
            writer_statements,
            reader_statements,
            allocations: Allocations::of(&self.control)?,
            switches: self.process.switches()?,
            calls: self.calls.as_ref().map(|calls| calls.lock().unwrap_or_else(PoisonError::into_inner).clone()),
        })
    }

    /// Waits until the daemon has allocated nothing for this long.
    pub(crate) async fn quiet(&self, long: Duration) -> Result<()> {
        let limit = Instant::now() + LIMIT;
        let (mut since, mut seen) = (Instant::now(), Allocations::of(&self.control)?);
        while since.elapsed() < long {
            ensure!(Instant::now() < limit, "the daemon does not become quiet within {} s", LIMIT.as_secs());
            tokio::time::sleep(LOOK).await;
            let now = Allocations::of(&self.control)?;
            if now != seen {
                (since, seen) = (Instant::now(), now);
            }
        }
        Ok(())
    }
}

/// A daemon's process. Dropping it ends the process, and kills it after the time limit.
#[derive(Debug)]
struct Process {
    pid: Pid,
    ended: Receiver<()>,
}

impl Process {
    /// The connection that the daemon opens first.
    fn connected(&self, listener: &UnixListener) -> Result<UnixStream> {
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error.into()),
                Err(_) if self.ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) => {}
                Err(_) => bail!("the daemon has ended before it connected"),
            }
        }
    }

    /// Voluntary context switches of all threads besides that of the measurement.
    fn switches(&self) -> Result<u64> {
        let mut sum = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid))? {
            let path = thread?.path().join("status");
            // The thread may have ended.
            let Ok(status) = std::fs::read_to_string(path) else { continue };
            let value = |key| status.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            if value("Name:") != Some(THREAD) {
                sum += value("voluntary_ctxt_switches:").and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
            }
        }
        Ok(sum)
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.as_raw()) {
            // The process may have ended already.
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::TERM);
        if self.ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
            self.signal(Signal::KILL);
            let _ = self.ended.recv_timeout(LIMIT); // the thread that waits for the process has ended, or never will
        }
    }
}

/// The value of a sample in the text format of Prometheus.
fn sample(metrics: &str, name: &str) -> Result<u64> {
    let value = metrics.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
    Ok(value.trim().parse()?)
}
