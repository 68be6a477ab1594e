//! Runs a command to its end: behind walls, within its time, with everything it prints read, and nothing of it left over.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{ToolContext, ToolFailure, ToolOutput, ToolReply};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::capture::{Capture, Printed};
use crate::outputs::KeptOutputs;
use crate::sandbox::{LazySandbox, Policy, Sandbox};
use belay_exec::{Exit, Launch, Processes, Running, StartError};

/// Longest wait for the pipes of a tree that has been ended. It is verified empty by then, so they are closed, unless
/// something that even KILL does not end holds them.
const LAST_OUTPUT: Duration = Duration::from_secs(5);

/// What commands are run with.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) processes: Arc<Processes>,
    pub(super) sandbox: LazySandbox,
    pub(super) outputs: KeptOutputs,
}

/// How a command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Exited(Exit),
    TimedOut,
    Cancelled,
}

impl Runner {
    /// The workspace as commands see it.
    pub(super) fn view(&self) -> Option<&Path> {
        self.sandbox.view()
    }

    /// The sandbox; tried first, if nobody has wanted it yet.
    ///
    /// # Errors
    /// There is none, so nothing is run.
    pub(super) async fn sandbox(&self) -> Result<&Sandbox, ToolFailure> {
        self.sandbox.get().await.map_err(|missing| {
            ToolFailure::Denied(format!("Commands are disabled here, because the sandbox does not work: {missing}."))
        })
    }

    /// What commands may do, in one line that an answer is bound to.
    pub(super) async fn policy(&self) -> Result<String, ToolFailure> {
        let sandbox = self.sandbox().await?;
        let network = match (sandbox.policy(), sandbox.most().network) {
            (Policy::Off, _) => "no sandbox: everything that Belay's user may do",
            (_, true) => "network",
            (_, false) => "no network",
        };
        Ok(format!("{}, {network}", sandbox.policy().word()))
    }

    /// Runs it. When this returns, nothing that it started is alive.
    ///
    /// # Cancel safety
    /// Dropped, its processes are ended in the background.
    pub(super) async fn run(&self, launch: Launch, what: &str, limit: Duration, context: &ToolContext) -> ToolOutput {
        let sandbox = self.sandbox().await?;
        let launch = sandbox
            .wrap(launch, sandbox.most())
            .map_err(|missing| ToolFailure::Denied(format!("Not run: {missing}.")))?;
        let start = self.processes.start(launch, context.run_id, &context.generation, what);
        let mut running = match start.await {
            Ok(running) => running,
            Err(StartError::Stopped | StartError::ShuttingDown) => return Err(ToolFailure::Cancelled),
            Err(error) => return Err(ToolFailure::Failed(error.to_string())),
        };
        let capture = Capture::new(self.outputs.clone(), context.run_id, context.call_id.clone());
        let (end, printed) = watch(&mut running, capture, limit, context).await;
        told(end, printed, limit)
    }
}

/// Waits for the first of: its end, the end of its time, a stop. Then ends what is left of it and takes the rest of what
/// it printed.
async fn watch(running: &mut Running, mut capture: Capture, limit: Duration, context: &ToolContext) -> (End, Printed) {
    // A task of its own, so that the pipes are read also while the tree is being ended: a program that says goodbye must
    // not be blocked by that. Dropped with this function.
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
        // Boxed: it holds buffers for output that nobody takes.
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

/// What the model reads.
fn told(end: End, printed: Printed, limit: Duration) -> ToolOutput {
    let Printed { text, kept } = printed;
    let seconds = limit.as_secs();
    match end {
        End::Exited(Exit::Code(0)) => {
            Ok(ToolReply { text: format!("[exit code 0]\n{text}"), kept, ..ToolReply::default() })
        }
        End::Exited(Exit::Code(code)) => {
            // As a shell and the sandbox tell it of the program inside.
            let signal =
                if (129..=192).contains(&code) { format!(", as after signal {}", code - 128) } else { String::new() };
            Err(ToolFailure::Failed(format!("[exit code {code}{signal}]\n{text}")))
        }
        End::Exited(Exit::Signal(signal)) => Err(ToolFailure::Failed(format!("[ended by signal {signal}]\n{text}"))),
        End::Exited(Exit::Ended) | End::Cancelled => Err(ToolFailure::Cancelled),
        End::TimedOut => Err(ToolFailure::Failed(format!(
            "[ended after {seconds} s, its time limit; its output until then follows. Set timeout_s to give it more \
             time.]\n{text}"
        ))),
    }
}
