//! Workers: processes that carry out a run inside walls of their own, and the link by which they reach their host.
//!
//! A worker runs the loop and its own tools; it has no model, no secrets and no journal. For each of these it asks its
//! host over the link, bound to one job by a token. What a worker says is the word of a process that runs a model's
//! commands: the host checks it, and believes nothing that costs money or reaches outside.

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
use crate::tool::{ToolFailure, ToolOutput, ToolReply};

/// The tools that a worker carries out itself, in its own room. Every other tool that it is lent runs with its host.
pub const WORKER_TOOLS: [&str; 6] =
    ["edit_file", "list_files", "read_file", "run_command", "search_files", "write_file"];

/// What proves that a request belongs to a job: 32 random bytes, written as 64 hexadecimal digits.
#[derive(Clone, PartialEq, Eq)]
pub struct JobToken(Secret);

impl JobToken {
    /// Random bytes of a token. 32: nobody guesses 256 bits.
    pub const BYTES: usize = 32;

    /// The token of these bytes; the caller has drawn them at random.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(Secret::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Reads a token.
    ///
    /// # Errors
    /// It is not 64 hexadecimal digits; the text of it is not repeated.
    pub fn parse(text: &str) -> Result<Self, String> {
        let well_formed = text.len() == 2 * Self::BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if well_formed {
            Ok(Self(Secret::new(text.to_owned())))
        } else {
            Err(format!("a job's token is {} hexadecimal digits", 2 * Self::BYTES))
        }
    }

    /// The digits, for the one header and the one pipe that carry them.
    pub fn expose(&self) -> &str {
        self.0.expose()
    }
}

impl fmt::Debug for JobToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobToken(…)")
    }
}

/// How a job ended: the one word that both sides have for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum WorkerEnd {
    /// With an answer.
    Completed {
        /// The final text.
        reply: String,
    },
    /// Its steps were used up.
    MaxTurns,
    /// Its time was up.
    TimedOut,
    /// It was told to stop.
    Stopped,
    /// It could not go on, or nobody can tell how it ended.
    Failed {
        /// Why, as a sentence without its full stop.
        detail: String,
    },
}

impl WorkerEnd {
    /// A failure with this explanation.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self::Failed { detail: detail.into() }
    }

    /// Reads an end from the wire. Whatever cannot be read is a failure: an end that nobody understands is no success.
    pub fn read(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes)
            .unwrap_or_else(|error| Self::failed(format!("the worker's account of its end cannot be read: {error}")))
    }
}

/// What a worker is given to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerTask {
    /// The task, as the first message of the conversation.
    pub message: String,
    /// The tools, in the order in which the model sees them.
    pub tools: Vec<LentTool>,
    /// Most steps; at least 1.
    pub max_turns: u32,
    /// Milliseconds that are left of its time.
    pub time_ms: u64,
}

/// A tool as a worker knows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LentTool {
    /// The name that the model calls.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub schema: Value,
}

/// A worker asks for the model. Prompt, tools and limits are the host's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelAsk {
    /// Which step, from 1.
    pub step: u32,
    /// Whether the request shall offer no tools.
    pub force_text: bool,
    /// The conversation so far.
    pub messages: Vec<Message>,
}

/// What comes of asking for the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum ModelAnswer {
    /// A whole answer.
    Reply(ModelReply),
    /// There is none, and the job is over.
    Over {
        /// Why, for the log.
        why: String,
    },
}

/// A batch of calls, to be led through the host's gate.
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
    /// Its result, when it cannot run.
    pub refused: Option<ToolResult>,
}

/// What has become of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchAnswer {
    /// One result for each call, in their order.
    pub messages: Vec<Message>,
    /// Why the job is over with it, if it is.
    pub over: Option<String>,
}

/// Something that the worker is to do for the host while a batch runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolOrder {
    /// Its number, from 1: later ones are higher. Who asks for what follows a number has received everything up to it.
    pub number: u64,
    /// What.
    pub order: WorkerCommand,
}

/// What an order asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum WorkerCommand {
    /// Carry out this call now; the host's gate has let it through.
    Run {
        /// The call.
        call: CallId,
        /// The tool, one of [`WORKER_TOOLS`].
        tool: String,
        /// Its arguments, checked.
        arguments: Map<String, Value>,
    },
    /// Give this call up; nobody waits for it any more.
    Cancel {
        /// The call.
        call: CallId,
    },
}

/// The answer of a tool that the worker has carried out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolDone {
    /// The call.
    pub call: CallId,
    /// The answer.
    pub output: DoneOutput,
}

/// A tool's answer on the wire. What the tool has kept stays with the worker, and is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "output", rename_all = "snake_case")]
pub enum DoneOutput {
    /// It did what was asked.
    Reply {
        /// The text.
        text: String,
        /// Pictures.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pictures: Vec<Picture>,
        /// Whether it is of the outside.
        #[serde(default)]
        outside: bool,
    },
    /// It could not.
    Failed {
        /// Why.
        text: String,
    },
    /// A rule says no.
    Denied {
        /// Which.
        text: String,
    },
    /// It was told to stop.
    Cancelled,
}

impl From<ToolOutput> for DoneOutput {
    fn from(output: ToolOutput) -> Self {
        match output {
            Ok(ToolReply { text, pictures, outside, .. }) => Self::Reply { text, pictures, outside },
            Err(ToolFailure::Failed(text) | ToolFailure::CredentialRefused(text)) => Self::Failed { text },
            Err(ToolFailure::Denied(text)) => Self::Denied { text },
            Err(ToolFailure::Cancelled) => Self::Cancelled,
        }
    }
}

impl From<DoneOutput> for ToolOutput {
    fn from(output: DoneOutput) -> Self {
        match output {
            DoneOutput::Reply { text, pictures, outside } => {
                Ok(ToolReply { text, pictures, outside, ..ToolReply::default() })
            }
            DoneOutput::Failed { text } => Err(ToolFailure::Failed(text)),
            DoneOutput::Denied { text } => Err(ToolFailure::Denied(text)),
            DoneOutput::Cancelled => Err(ToolFailure::Cancelled),
        }
    }
}

/// Why a request over the link has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// The job is over, or the token is not its own; a stranger cannot tell which.
    #[error("the host does not know this job, or not any more")]
    Over,
    /// The host cannot be reached, or its answer cannot be read.
    #[error("the link to the host is broken: {0}")]
    Broken(String),
}

/// What a worker can ask of its host. Implemented on both sides: by the host's desk for the job, and by the worker's end
/// of the link.
#[async_trait]
pub trait WorkerLink: Send + Sync {
    /// What there is to do.
    async fn task(&self) -> Result<WorkerTask, LinkError>;

    /// Asks the model; metered and limited by the host.
    async fn model(&self, ask: ModelAsk) -> Result<ModelAnswer, LinkError>;

    /// Has a batch led through the host's gate. While this waits, [`order`](Self::order) says which calls the worker is
    /// to carry out itself.
    async fn batch(&self, batch: ToolBatch) -> Result<BatchAnswer, LinkError>;

    /// The first order behind the one of this number (0: the first of all), once there is one. `None`: there was none
    /// for a while; ask again.
    ///
    /// # Cancel safety
    /// Asked again with the same number, the answer is the same.
    async fn order(&self, after: u64) -> Result<Option<ToolOrder>, LinkError>;

    /// Answers an order. An answer that nobody waits for is thrown away.
    async fn done(&self, done: ToolDone) -> Result<(), LinkError>;

    /// Ends the job. Only the first end counts.
    async fn finish(&self, end: WorkerEnd) -> Result<(), LinkError>;
}

/// Opens links for jobs.
pub trait WorkerLinks: Send + Sync {
    /// Opens a link for a new job, whose requests this desk answers, with a token of its own.
    ///
    /// # Errors
    /// Plain words: the system gives no randomness, or too many links are open.
    fn open(&self, desk: std::sync::Arc<dyn WorkerLink>) -> Result<OpenLink, String>;
}

/// An open link. Dropped, the token is revoked: requests of the job are answered like a stranger's from then on.
pub struct OpenLink {
    /// The job.
    pub job: LinkId,
    /// The Unix socket on which the host answers.
    pub socket: PathBuf,
    /// What proves that a request is of this job.
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

/// A worker that is to be started.
#[derive(Debug)]
pub struct WorkerStart {
    /// The run it works for: a stop of the run ends it.
    pub run: RunId,
    /// Which life of the run.
    pub generation: Generation,
    /// The job.
    pub job: LinkId,
    /// The socket of the link.
    pub socket: PathBuf,
    /// The token. It is handed over on no command line and in no environment.
    pub token: JobToken,
    /// How long the worker will work at most; a host may have the room itself end a little later.
    pub time: Duration,
}

/// Starts workers: in the sandbox, or in containers.
#[async_trait]
pub trait WorkerHost: Send + Sync {
    /// Whether workers can be started here.
    ///
    /// # Errors
    /// What is missing, for the operator.
    fn ready(&self) -> Result<(), String>;

    /// Starts one.
    ///
    /// # Errors
    /// Plain words: why there is none. Nothing is left behind.
    ///
    /// # Cancel safety
    /// Dropped, nothing is started, or what was started is ended.
    async fn start(&self, start: WorkerStart) -> Result<Box<dyn WorkerProcess>, String>;

    /// Waits until every worker that was dropped has ended. Called at the end of the daemon, when no run is left.
    async fn close(&self) {}
}

/// A worker that was started. Dropped, it is ended in the background.
#[async_trait]
pub trait WorkerProcess: Send {
    /// Waits until it has ended by itself, and says how, with the last words that it left.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    async fn ended(&mut self) -> String;

    /// Ends it and all that it started; returns when nothing of it is left.
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
