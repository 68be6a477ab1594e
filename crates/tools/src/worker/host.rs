//! Starts workers in the same sandbox as commands.

use std::convert::Infallible;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{LinkId, WorkerHost, WorkerProcess, WorkerStart};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{ChildStderr, ChildStdout};

use crate::sandbox::{LINK, LazySandbox, Missing, Policy, Sandbox};
use belay_exec::{Exit, Processes, Running, Stdin};

/// Most bytes of a worker's standard error that are kept.
const STDERR_BYTES: usize = 2048;
/// How long to wait for the standard error of a worker that has exited. Its text is already in the pipe.
const STDERR_LIMIT: Duration = Duration::from_secs(1);

/// Starts workers in the sandbox.
#[derive(Debug)]
pub struct SandboxHost {
    processes: Arc<Processes>,
    sandbox: LazySandbox,
}

impl SandboxHost {
    /// Creates a host that starts its workers in this sandbox. The first probe of the sandbox finds missing
    /// requirements.
    pub fn new(processes: Arc<Processes>, sandbox: LazySandbox) -> Self {
        Self { processes, sandbox }
    }
}

/// The sandbox of a worker, or why there is none.
fn required_sandbox<'a>(tried: Result<&'a Sandbox, &Missing>) -> Result<&'a Sandbox, String> {
    let sandbox = tried.map_err(ToString::to_string)?;
    match sandbox.policy() {
        Policy::Off => Err("a worker needs the sandbox, and tools.sandbox.policy is off".to_owned()),
        _ => Ok(sandbox),
    }
}

/// The arguments of a worker process, without the program name.
pub(super) fn arguments(job: LinkId, socket: &str) -> Vec<OsString> {
    ["worker", "--job", &job.to_string(), "--socket", socket].map(OsString::from).into()
}

#[async_trait]
impl WorkerHost for SandboxHost {
    fn ready(&self) -> Result<(), String> {
        self.sandbox.tried().map_or(Ok(()), |tried| required_sandbox(tried).map(drop))
    }

    async fn start(&self, start: WorkerStart) -> Result<Box<dyn WorkerProcess>, String> {
        let token = format!("{}\n", start.token.expose()).into_bytes();
        let launch = required_sandbox(self.sandbox.get().await)?
            .wrap_worker(arguments(start.job, LINK), Stdin::Bytes(token), &start.socket)
            .map_err(|missing| missing.to_string())?;
        let running = self.processes.start(launch, start.run, &start.generation, "worker");
        let mut running = running.await.map_err(|error| error.to_string())?;
        let (out, err) = running.take_output().unzip();
        Ok(Box::new(SandboxWorker { running, output: WorkerOutput { out, err, last: Vec::new() } }))
    }
}

struct SandboxWorker {
    running: Running,
    output: WorkerOutput,
}

#[async_trait]
impl WorkerProcess for SandboxWorker {
    async fn ended(&mut self) -> String {
        let exit = tokio::select! {
            exit = self.running.wait() => exit,
            never = self.output.drain() => match never {},
        };
        let how = match exit {
            Exit::Code(code) => format!("exit code {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
            Exit::Ended => "it was ended".to_owned(),
        };
        match self.output.last().await {
            output if output.is_empty() => how,
            output => format!("{how}; its last words: {output}"),
        }
    }

    async fn end(&mut self) {
        self.running.end().await;
    }
}

/// The output of a worker. A worker only prints the reason of a failure.
struct WorkerOutput {
    out: Option<ChildStdout>,
    err: Option<ChildStderr>,
    last: Vec<u8>,
}

impl WorkerOutput {
    /// Reads both outputs, so that a full pipe never blocks the worker. Never returns.
    async fn drain(&mut self) -> Infallible {
        let Self { out, err, last } = self;
        let mut ignored = Vec::new();
        tokio::join!(read(out, &mut ignored), read(err, last));
        std::future::pending().await
    }

    /// The end of its standard error, joined to one line.
    async fn last(&mut self) -> String {
        // A child process may keep the pipe open. After the time limit, the text that was read so far is used.
        let _ = tokio::time::timeout(STDERR_LIMIT, read(&mut self.err, &mut self.last)).await;
        String::from_utf8_lossy(&self.last).split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Reads to the end and keeps the last bytes.
async fn read(from: &mut Option<impl AsyncRead + Unpin>, last: &mut Vec<u8>) {
    let mut buffer = [0; 4096];
    while let Some(pipe) = from {
        match pipe.read(&mut buffer).await {
            Ok(0) | Err(_) => *from = None,
            Ok(read) => {
                last.extend_from_slice(&buffer[..read]);
                last.drain(..last.len().saturating_sub(STDERR_BYTES));
            }
        }
    }
}
