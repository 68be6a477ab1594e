//! Workers: processes that execute a run in a sandbox or a container, and the link to their host.
//!
//! A worker runs the loop and its own tools. It has no model, no secrets and no journal. It asks its host for each of
//! these over the link, which a token binds to one job. The requests of a worker come from a process that runs a
//! model's commands: the host checks them, and trusts nothing that costs money or has external effects.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{CallId, LinkId, RunId};
use crate::message::{Message, Picture, ToolCall, ToolResult};
use crate::model::ModelReply;
use crate::process::Generation;
use crate::secret::Secret;
use crate::tool::{Approved, ToolFailure, ToolOutput, ToolReply};

/// The tools that a worker executes itself. All other tools of the job run at its host.
pub const WORKER_TOOLS: [&str; 6] =
    ["edit_file", "list_files", "read_file", "run_command", "search_files", "write_file"];

/// The token that proves that a request belongs to a job: 32 random bytes, written as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct JobToken(Secret);

impl JobToken {
    /// The number of random bytes of a token. 32: nobody can guess 256 bits.
    pub const BYTES: usize = 32;

    /// The token of these bytes, which the caller has drawn at random.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(Secret::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Parses a token.
    ///
    /// # Errors
    /// The text is not 64 hexadecimal digits. The error does not contain it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let well_formed = text.len() == 2 * Self::BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if well_formed {
            Ok(Self(Secret::new(text.to_owned())))
        } else {
            Err(format!("a job's token is {} hexadecimal digits", 2 * Self::BYTES))
        }
    }

    /// The digits, for the header and the pipe that carry them.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl fmt::Debug for JobToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobToken(…)")
    }
}

/// The end of a job, in the form that both sides use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum WorkerEnd {
    /// The job has an answer.
    Completed {
        /// The final text.
        reply: String,
    },
    /// The job has reached its limit of steps.
    MaxTurns,
    /// The time of the job has run out.
    TimedOut,
    /// The job was stopped.
    Stopped,
    /// The job has failed, or its end is unknown.
    Failed {
        /// The reason, as a sentence without its full stop.
        detail: String,
    },
}

impl WorkerEnd {
    /// A failure with this reason.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self::Failed { detail: detail.into() }
    }

    /// Parses an end from the wire. An invalid text is a failure: an unknown end is no success.
    pub fn read(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes)
            .unwrap_or_else(|error| Self::failed(format!("the worker's account of its end cannot be read: {error}")))
    }
}

/// The task of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerTask {
    /// The task, as the first message of the conversation.
    pub message: String,
    /// The tools, in the order of the prompt.
    pub tools: Vec<LentTool>,
    /// The maximum number of steps; at least 1.
    pub max_turns: u32,
    /// The remaining time, in milliseconds.
    pub time_ms: u64,
}

/// A tool that a worker may offer to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LentTool {
    /// The name that the model calls.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub schema: Value,
}

/// The request of a worker for a model call. The host adds the prompt, the tools and the limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelAsk {
    /// The step, from 1.
    pub step: u32,
    /// Whether the model call offers no tools.
    pub force_text: bool,
    /// The conversation so far.
    pub messages: Vec<Message>,
}

/// The result of such a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ModelAnswer {
    /// A complete reply.
    Reply(ModelReply),
    /// There is no reply, and the job is over.
    Over {
        /// The reason, for the log.
        why: String,
    },
}

/// A batch of tool calls for the effect gate of the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolBatch {
    /// The calls, in the model's order.
    pub calls: Vec<BatchCall>,
}

/// One call of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchCall {
    /// The call.
    pub call: ToolCall,
    /// Its result, if it cannot run.
    pub refused: Option<ToolResult>,
}

/// The result of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchAnswer {
    /// One result for each call, in call order.
    pub messages: Vec<Message>,
    /// The reason for which the job is over after this batch, if it is.
    pub over: Option<String>,
}

/// An order of the host to the worker while a batch runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOrder {
    /// Its number, from 1, ascending. A request for the order after a number confirms all orders up to that number.
    pub number: u64,
    /// The order itself.
    pub order: WorkerCommand,
}

/// The content of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum WorkerCommand {
    /// Execute this call now; the effect gate of the host has admitted it.
    Run {
        /// The call.
        call: CallId,
        /// The tool, one of [`WORKER_TOOLS`].
        tool: String,
        /// Its valid arguments.
        arguments: Map<String, Value>,
        /// The facts that a person's approval is bound to, if a person was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approved: Option<Approved>,
    },
    /// Cancel this call; nobody waits for its result.
    Cancel {
        /// The call.
        call: CallId,
    },
}

/// The result of a call that the worker has executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDone {
    /// The call.
    pub call: CallId,
    /// The result.
    pub output: DoneOutput,
}

/// The result of a tool on the wire. Kept outputs stay with the worker and are omitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "output", rename_all = "snake_case")]
pub enum DoneOutput {
    /// The call has succeeded.
    Reply {
        /// The text.
        text: String,
        /// Pictures.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pictures: Vec<Picture>,
        /// Whether it is untrusted content.
        #[serde(default)]
        untrusted: bool,
    },
    /// The call has failed.
    Failed {
        /// The reason.
        text: String,
    },
    /// A rule forbids the call.
    Denied {
        /// The rule.
        text: String,
    },
    /// The call was cancelled.
    Cancelled,
}

impl From<ToolOutput> for DoneOutput {
    fn from(output: ToolOutput) -> Self {
        match output {
            Ok(ToolReply { text, pictures, untrusted, .. }) => Self::Reply { text, pictures, untrusted },
            Err(
                ToolFailure::Failed(text)
                | ToolFailure::Ended(text)
                | ToolFailure::Unknown(text)
                | ToolFailure::CredentialRefused(text),
            ) => Self::Failed { text },
            Err(ToolFailure::Denied(text)) => Self::Denied { text },
            Err(ToolFailure::Cancelled) => Self::Cancelled,
        }
    }
}

impl From<DoneOutput> for ToolOutput {
    fn from(output: DoneOutput) -> Self {
        match output {
            DoneOutput::Reply { text, pictures, untrusted } => {
                Ok(ToolReply { text, pictures, untrusted, ..ToolReply::default() })
            }
            DoneOutput::Failed { text } => Err(ToolFailure::Failed(text)),
            DoneOutput::Denied { text } => Err(ToolFailure::Denied(text)),
            DoneOutput::Cancelled => Err(ToolFailure::Cancelled),
        }
    }
}

/// The error of a request over the link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The job is over, or the token is wrong. The error does not distinguish them, so that a stranger learns nothing.
    #[error("the host does not know this job, or not any more")]
    Over,
    /// The host cannot be reached, or its answer is invalid.
    #[error("the link to the host is broken: {0}")]
    Broken(String),
}

/// The requests of a worker to its host. Both sides implement it: the host for the job, and the worker's end of the
/// link.
#[async_trait]
pub trait WorkerLink: Send + Sync {
    /// Returns the task.
    async fn task(&self) -> Result<WorkerTask, LinkError>;

    /// Calls the model. The host meters and limits the call.
    async fn model(&self, ask: ModelAsk) -> Result<ModelAnswer, LinkError>;

    /// Passes a batch through the effect gate of the host. While this waits, [`order`](Self::order) returns the calls
    /// that the worker executes itself.
    async fn batch(&self, batch: ToolBatch) -> Result<BatchAnswer, LinkError>;

    /// Waits for the first order after this number (0: for the first order). `None`: there was none for a while; the
    /// worker asks again.
    ///
    /// # Cancel safety
    /// A repeated request with the same number gets the same order.
    async fn order(&self, after: u64) -> Result<Option<ToolOrder>, LinkError>;

    /// Sends the result of an order. A result that nobody waits for is discarded.
    async fn done(&self, done: ToolDone) -> Result<(), LinkError>;

    /// Ends the job. Only the first end counts.
    async fn finish(&self, end: WorkerEnd) -> Result<(), LinkError>;
}

/// Opens links for jobs.
pub trait WorkerLinks: Send + Sync {
    /// Opens a link with its own token for a new job. `host` answers the requests of the job.
    ///
    /// # Errors
    /// The reason, for people: the system gives no randomness, or too many links are open.
    fn open(&self, host: std::sync::Arc<dyn WorkerLink>) -> Result<OpenLink, String>;
}

/// An open link. Dropping it revokes the token: later requests of the job get the answer for strangers.
pub struct OpenLink {
    /// The job.
    pub job: LinkId,
    /// The Unix socket of the host.
    pub socket: PathBuf,
    /// The token of the job.
    pub token: JobToken,
    revoke: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl OpenLink {
    /// A link that calls `revoke` when it is dropped.
    pub fn new(job: LinkId, socket: PathBuf, token: JobToken, revoke: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { job, socket, token, revoke: Some(Box::new(revoke)) }
    }
}

impl fmt::Debug for OpenLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenLink").field("job", &self.job).field("socket", &self.socket).finish_non_exhaustive()
    }
}

impl Drop for OpenLink {
    fn drop(&mut self) {
        if let Some(revoke) = self.revoke.take() {
            revoke();
        }
    }
}

/// The description of a worker to start.
#[derive(Debug)]
pub struct WorkerStart {
    /// The run that it works for. A stop of the run ends the worker.
    pub run: RunId,
    /// The generation of the run.
    pub generation: Generation,
    /// The job.
    pub job: LinkId,
    /// The socket of the link.
    pub socket: PathBuf,
    /// The token. It is never passed on a command line or in the environment.
    pub token: JobToken,
    /// The maximum working time of the worker. A host may end the sandbox or container a little later.
    pub time: Duration,
}

/// Starts workers, in the sandbox or in containers.
#[async_trait]
pub trait WorkerHost: Send + Sync {
    /// Whether workers can be started on this system.
    ///
    /// # Errors
    /// The missing requirement, for the operator.
    fn ready(&self) -> Result<(), String>;

    /// Starts a worker.
    ///
    /// # Errors
    /// The reason, for people. No process is left behind.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing is started, or the started worker is ended.
    async fn start(&self, start: WorkerStart) -> Result<Box<dyn WorkerProcess>, String>;

    /// Waits until every dropped worker has ended. Called at the end of the daemon, when no run is left. The default
    /// returns at once.
    async fn close(&self) {}
}

/// A started worker. Dropping it ends it in the background.
#[async_trait]
pub trait WorkerProcess: Send {
    /// Waits until the worker has ended by itself. Returns how it has ended, with the last lines of its output.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn ended(&mut self) -> String;

    /// Ends the worker and all its processes. Returns when none of them is left.
    async fn end(&mut self);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_read_as_what_it_is_and_anything_unknown_as_a_failure() {
        for end in [
            WorkerEnd::Completed { reply: "4".into() },
            WorkerEnd::MaxTurns,
            WorkerEnd::TimedOut,
            WorkerEnd::Stopped,
            WorkerEnd::failed("no"),
        ] {
            let wire = serde_json::to_vec(&end).expect("serialises");
            assert_eq!(WorkerEnd::read(&wire), end);
        }
        let garbage: [&[u8]; 6] =
            [b"", b"{}", br#"{"end":"glorious"}"#, br#"{"end":"completed"}"#, b"\xff\xfe", br#""completed""#];
        for wire in garbage {
            assert!(matches!(WorkerEnd::read(wire), WorkerEnd::Failed { .. }), "{wire:?}");
        }
    }

    #[test]
    fn a_token_is_64_digits_and_shows_itself_to_nobody() {
        let token = JobToken::from_bytes([0xa5; JobToken::BYTES]);
        assert_eq!(token.expose(), "a5".repeat(32));
        assert_eq!(JobToken::parse(token.expose()).as_ref(), Ok(&token));
        assert!(!format!("{token:?}").contains("a5"));
        for text in ["", "a5", &"g".repeat(64), &"a".repeat(63), &"a".repeat(65)] {
            assert!(JobToken::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_closed_link_is_revoked_once() {
        let revoked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counter = revoked.clone();
        let token = JobToken::from_bytes([0; JobToken::BYTES]);
        let link = OpenLink::new(LinkId::new(), "/x".into(), token, move || {
            counter.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        });
        drop(link);
        assert_eq!(revoked.load(std::sync::atomic::Ordering::SeqCst), 1);
    }
}
