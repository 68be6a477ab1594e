//! Runs a command: in the sandbox, within its time limit, with all of its output read. Then ends its whole process
//! tree.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{ToolContext, ToolFailure, ToolOutput, ToolReply};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::capture::{Capture, Printed};
use crate::outputs::KeptOutputs;
use crate::processes::{BackgroundProcesses, TemporaryHome};
use crate::sandbox::{LazySandbox, Policy, Sandbox};
use belay_exec::{Exit, Launch, Processes, Running, StartError};

/// Longest wait for the pipes of an ended process tree. The tree is verified to be empty by then, so the pipes are
/// closed, unless a process that even SIGKILL does not end holds them.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// The services that run commands.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) processes: Arc<Processes>,
    pub(super) sandbox: LazySandbox,
    pub(super) outputs: KeptOutputs,
    pub(super) background: Arc<BackgroundProcesses>,
}

/// Why a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exited(Exit),
    TimedOut,
    Cancelled,
}

impl Runner {
    /// The path of the workspace as commands see it.
    pub(super) fn view(&self) -> Option<&Path> {
        self.sandbox.view()
    }

    /// The sandbox. The first call probes it.
    ///
    /// # Errors
    /// The sandbox does not work, so no command runs.
    pub(super) async fn sandbox(&self) -> Result<&Sandbox, ToolFailure> {
        self.sandbox.get().await.map_err(|missing| {
            ToolFailure::Denied(format!("Commands are disabled here, because the sandbox does not work: {missing}."))
        })
    }

    /// The permissions of commands in one line, which an approval is bound to.
    pub(super) async fn policy(&self) -> Result<String, ToolFailure> {
        let sandbox = self.sandbox().await?;
        let network = match (sandbox.policy(), sandbox.most().network) {
            (Policy::Off, _) => "no sandbox: everything that Belay's user may do",
            (_, true) => "network",
            (_, false) => "no network",
        };
        Ok(format!("{}, {network}", sandbox.policy().word()))
    }

    /// The launch in the sandbox, with a home directory of its own if the sandbox has none.
    pub(super) async fn wrapped(&self, mut launch: Launch) -> Result<(Launch, Option<TemporaryHome>), ToolFailure> {
        let sandbox = self.sandbox().await?;
        let home = match sandbox.policy() {
            Policy::Off => Some(TemporaryHome::create().await?),
            Policy::Readonly | Policy::WorkspaceWrite | Policy::Full => None, // the sandbox has its own
        };
        if let Some(home) = &home {
            home.add_to(&mut launch.env);
        }
        let launch = sandbox
            .wrap(launch, sandbox.most())
            .map_err(|missing| ToolFailure::Denied(format!("Not run: {missing}.")))?;
        Ok((launch, home))
    }

    /// Runs a command. When this returns, no process that it started is alive.
    ///
    /// # Cancel safety
    /// If the future is dropped, the processes are ended in the background.
    pub(super) async fn run(&self, launch: Launch, what: &str, limit: Duration, context: &ToolContext) -> ToolOutput {
        let (launch, home) = self.wrapped(launch).await?;
        let start = self.processes.start(launch, context.run_id, &context.generation, what);
        let mut running = start.await.map_err(not_started)?;
        let capture = Capture::new(self.outputs.clone(), context.run_id, context.call_id.clone());
        let (end, printed) = watch(&mut running, capture, limit, context).await;
        if let Some(home) = home {
            // The output is kept even if the removal fails, which the log says.
            let _ = home.remove().await;
        }
        tool_output(end, printed, limit)
    }
}

/// The result of a command that was not started.
pub(super) fn not_started(error: StartError) -> ToolFailure {
    match error {
        StartError::Stopped | StartError::ShuttingDown => ToolFailure::Cancelled,
        error => ToolFailure::Failed(error.to_string()),
    }
}

/// Waits until the command exits, its time limit ends, or it is cancelled. Then ends its remaining processes and reads
/// the rest of its output.
async fn watch(running: &mut Running, mut capture: Capture, limit: Duration, context: &ToolContext) -> (End, Printed) {
    // A separate task reads the pipes, also while the tree is being ended, so that a process can write its last output
    // without blocking. The task is dropped with this function.
    let mut reading = JoinSet::new();
    if let Some((out, err)) = running.take_output() {
        let read = async move {
            capture.drain(out, err).await;
            capture.finish().await
        };
        reading.spawn(read.in_current_span());
    }
    let end = tokio::select! {
        () = context.cancel.cancelled() => End::Cancelled,
        () = tokio::time::sleep(limit) => End::TimedOut,
        // Boxed because it is large: it contains buffers for output that nobody reads.
        exit = Box::pin(running.wait()) => End::Exited(exit),
    };
    running.end().await;
    let printed = tokio::time::timeout(LAST_OUTPUT, reading.join_next()).await;
    let printed = printed.ok().flatten().and_then(Result::ok).unwrap_or_else(|| {
        tracing::warn!("the output of an ended command could not be read to its end");
        Printed { text: "[the output could not be read to its end]".to_owned(), kept: None }
    });
    (end, printed)
}

/// The result for the model.
fn tool_output(end: End, printed: Printed, limit: Duration) -> ToolOutput {
    let Printed { text, kept } = printed;
    let seconds = limit.as_secs();
    match end {
        End::Exited(Exit::Code(0)) => {
            Ok(ToolReply { text: format!("[exit code 0]\n{text}"), kept, ..ToolReply::default() })
        }
        End::Exited(Exit::Code(code)) => {
            // A shell and the sandbox report the signal of the inner program in this way.
            let signal =
                if (129..=192).contains(&code) { format!(", as after signal {}", code - 128) } else { String::new() };
            Err(ToolFailure::Ended(format!("[exit code {code}{signal}]\n{text}")))
        }
        End::Exited(Exit::Signal(signal)) => Err(ToolFailure::Ended(format!("[ended by signal {signal}]\n{text}"))),
        End::Exited(Exit::Ended) | End::Cancelled => Err(ToolFailure::Cancelled),
        End::TimedOut => Err(ToolFailure::Ended(format!(
            "[ended after {seconds} s, its time limit; its output until then follows. Set timeout_s to give it more \
             time.]\n{text}"
        ))),
    }
}
