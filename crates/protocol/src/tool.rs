//! Tools: what they declare, how they are called, and the port.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::ids::{CallId, RunId, SessionKey};
use crate::message::WireCache;

/// What a tool is and how it behaves. Constant for the life of the daemon, serialised once.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// The name the model calls: `[a-z][a-z0-9_]*`, at most 64 bytes.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments: an object schema with `additionalProperties: false`.
    pub schema: Value,
    /// What it touches.
    pub effect: Effect,
    /// Whether running it twice with the same arguments is the same as once. After a crash, only such a tool is run again.
    pub idempotent: bool,
    /// Longest time one call may take.
    pub timeout: Duration,
    /// Longest result in bytes; the gate cuts what is longer and says so.
    pub max_output_bytes: usize,
}

/// What a tool touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: a pure function, or the clock.
    None,
    /// It reads.
    Read,
    /// It writes the agent's own data, such as its notes.
    Own,
    /// It changes something outside.
    External,
}

impl Effect {
    /// Whether the journal of a call must be on disk before the call begins. A reading tool is simply run again.
    pub fn waits_for_disk(self) -> bool {
        matches!(self, Self::Own | Self::External)
    }
}

/// Who calls, and until when.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The session of the run.
    pub session: SessionKey,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// Says stop. A tool that waits for anything selects on this and returns [`ToolFailure::Cancelled`]; one that does
    /// not is abandoned a moment later.
    pub cancel: CancellationToken,
}

/// A tool's answer: what the model reads.
pub type ToolOutput = Result<String, ToolFailure>;

/// A tool's failure: also something the model reads, not an error of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolFailure {
    /// It could not do what was asked; the text says why and what to try.
    Failed(String),
    /// It was told to stop.
    Cancelled,
}

impl ToolFailure {
    /// A failure with this explanation.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

/// Something the model can have done.
#[async_trait]
pub trait Tool: Send + Sync {
    /// What it is.
    fn spec(&self) -> &ToolSpec;

    /// Does it. The arguments have been checked against the schema.
    ///
    /// # Cancel safety
    /// The caller cancels through [`ToolContext::cancel`] and awaits; it drops the future only when that had no effect.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput;
}

/// The tools of a run: its allow-list, in a fixed order, serialised once.
#[derive(Default)]
pub struct ToolSet {
    tools: Vec<Arc<dyn Tool>>,
    /// The serialised list of schemas.
    pub wire: WireCache,
    described_bytes: OnceLock<usize>,
}

impl ToolSet {
    /// A set of these tools, ordered by name so that requests are the same after every restart. Of two tools with one
    /// name the first stays.
    pub fn new(mut tools: Vec<Arc<dyn Tool>>) -> Self {
        tools.sort_by(|a, b| a.spec().name.cmp(&b.spec().name));
        tools.dedup_by(|later, first| later.spec().name == first.spec().name);
        Self { tools, wire: WireCache::default(), described_bytes: OnceLock::new() }
    }

    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.binary_search_by(|tool| tool.spec().name.as_str().cmp(name)).ok().map(|at| &self.tools[at])
    }

    /// All tools, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.tools.iter()
    }

    /// Bytes of all descriptions and schemas, for estimates of requests. Added up once.
    pub fn described_bytes(&self) -> usize {
        let of = |tool: &Arc<dyn Tool>| tool.spec().description.len() + tool.spec().schema.to_string().len();
        *self.described_bytes.get_or_init(|| self.tools.iter().map(of).sum())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tools.iter().map(|tool| &tool.spec().name)).finish()
    }
}
