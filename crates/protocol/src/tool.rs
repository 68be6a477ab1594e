//! Tools: what they declare, how they are called, and the port.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::context::Variable;
use crate::ids::{CallId, RunId, SessionKey};
use crate::message::{Picture, WireCache};
use crate::process::Generation;
use crate::secret::Secret;

/// What a tool is and how it behaves. Constant for the life of the daemon, serialised once.
///
/// [`ToolSpec::new`] makes one of a tool that touches nothing; whatever differs is written out:
///
/// ```
/// # use std::time::Duration;
/// # use belay_protocol::{Ask, Effect, ToolSpec};
/// # use serde_json::json;
/// let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
/// let spec = ToolSpec {
///     effect: Effect::External,
///     idempotent: false,
///     approval: Ask::UnlessApproved,
///     timeout: Duration::from_secs(30),
///     ..ToolSpec::new("ring_bell", "Rings the bell of the house.", schema)
/// };
/// assert!(spec.effect.waits_for_disk());
/// ```
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
    /// Longest result in bytes that the model is shown; the gate keeps what is longer on disk, cuts it and says so.
    pub max_output_bytes: usize,
    /// Whether a person is asked first, where no rule of the configuration says otherwise.
    pub approval: Ask,
    /// Most calls of one session in a span of time; `None`: as many as the run may make.
    pub rate: Option<Rate>,
    /// What its calls are to loop detection. Absent: its name and its arguments tell.
    pub kind: Option<ToolKind>,
    /// Names of arguments that change from call to call without meaning, such as a nonce: loop detection leaves them out.
    pub volatile_args: Vec<String>,
    /// Names of arguments that say what a call is about, to loop detection.
    pub target_args: Vec<String>,
    /// Whether its results are words of the outside (a page, another program) rather than of this machine's owner.
    pub outside: bool,
    /// Whether somebody else wrote its name, description and schema, which the model reads in every request. In a run that
    /// is offered such a tool, tools that reach outside ask, unless the operator says that they need not.
    pub foreign: bool,
    /// The MCP server that it is of, where it is of one: what keeps that one from working keeps all its tools from it.
    pub server: Option<String>,
    /// Names of arguments that are never shown, stored with a question, or logged.
    pub sensitive: Vec<String>,
    /// A secret that it needs; without one the turn ends by asking for it.
    pub credential: Option<CredentialNeed>,
    /// Whether it starts programs for the run, which get the variables of the run's skills.
    pub takes_variables: bool,
}

/// Longest result that the model is shown, where a tool does not say. 64 KiB: about 16 000 tokens, a share of a context
/// that leaves room to think.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

impl ToolSpec {
    /// A tool that touches nothing: idempotent, 5 s, 64 KiB, nobody is asked.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema,
            effect: Effect::None,
            idempotent: true,
            timeout: Duration::from_secs(5),
            max_output_bytes: MAX_OUTPUT_BYTES,
            approval: Ask::Never,
            rate: None,
            kind: None,
            volatile_args: Vec::new(),
            target_args: Vec::new(),
            outside: false,
            foreign: false,
            server: None,
            sensitive: Vec::new(),
            credential: None,
            takes_variables: false,
        }
    }
}

/// What the calls of a tool are to loop detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// It looks at something and changes nothing. A name that says more, such as `get_status`, is believed.
    Read,
    /// It asks how far something is: called again and again until the answer changes.
    Poll,
    /// It lets time pass.
    Wait,
    /// It takes a note for the run itself.
    Note,
    /// It tells the time, or something else that says nothing about the work.
    Clock,
}

/// Whether a person is asked before a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Nobody is asked.
    Never,
    /// Asked, unless the session has said "always" to the like.
    UnlessApproved,
    /// Asked each time; "always" is not offered.
    Always,
}

/// Most calls in a span of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// Calls; at least 1.
    pub calls: u32,
    /// The span; at least a millisecond.
    pub per: Duration,
}

/// A secret that a tool needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialNeed {
    /// Its name in the vault: `[a-z][a-z0-9_]*`.
    pub name: String,
    /// What the person is told: what it is and where to get it. Markdown.
    pub instructions: String,
}

/// What a tool touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: a pure function, or the clock.
    None,
    /// It reads.
    Read,
    /// It writes within what is the agent's own: its notes, its workspace.
    Write,
    /// It reaches outside: it changes something there, or what it sends can be read there.
    External,
}

impl Effect {
    /// Whether the journal of a call must be on disk before the call begins. A reading tool is simply run again.
    pub fn waits_for_disk(self) -> bool {
        matches!(self, Self::Write | Self::External)
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
    /// Which generation of the run the call belongs to. Whatever starts a process looks once more right before: a run
    /// that was stopped starts nothing.
    pub generation: Generation,
    /// The secret that [`ToolSpec::credential`] names.
    pub credential: Option<Secret>,
    /// Takes what the tool has to say while it is at work.
    pub progress: Progress,
    /// Variables for the programs that it starts; empty unless [`ToolSpec::takes_variables`].
    pub variables: Arc<[Variable]>,
    /// What a person has approved of this very call; `None`: nobody was asked. The tool keeps to it: what it finds changed
    /// it does not do, and answers with [`ToolFailure::Denied`].
    pub approved: Option<Approved>,
}

/// What an approval of one call is bound to: [`CallPreview::bound`] as the person was shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Approved(pub Vec<(String, String)>);

impl Approved {
    /// What it says of this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// Where a call says how it gets on. What is said shows that the run is alive, and is shown to whoever watches; it may be
/// lost, and the model never reads it.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn ProgressSink>>);

/// Takes what calls have to say while they are at work. Never waits.
pub trait ProgressSink: Send + Sync {
    /// A piece of output, or of news.
    fn progress(&self, call: &CallId, text: &str);
}

impl Progress {
    /// Says it to this sink.
    pub fn to(sink: Arc<dyn ProgressSink>) -> Self {
        Self(Some(sink))
    }

    /// Says how a call gets on.
    pub fn say(&self, call: &CallId, text: &str) {
        if let Some(sink) = &self.0 {
            sink.progress(call, text);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Progress({})", if self.0.is_some() { "heard" } else { "unheard" })
    }
}

/// A tool's answer: what the model reads.
pub type ToolOutput = Result<ToolReply, ToolFailure>;

/// What a tool answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolReply {
    /// The text. May be longer than [`ToolSpec::max_output_bytes`]; the gate keeps the whole and shows the beginning and the end.
    pub text: String,
    /// Pictures, for a model that can see.
    pub pictures: Vec<Picture>,
    /// Where the whole is kept, when the text is a part of something larger that the tool has kept itself.
    pub kept: Option<Kept>,
    /// Whether this answer is of the outside although the tool as a whole is not.
    pub outside: bool,
}

impl From<String> for ToolReply {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for ToolReply {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// An output that is kept whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name, for the tool that reads kept outputs.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// A tool's failure: also something the model reads, not an error of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolFailure {
    /// It could not do what was asked; the text says why and what to try.
    Failed(String),
    /// A rule says no, whatever the arguments; the text says which.
    Denied(String),
    /// It was told to stop.
    Cancelled,
    /// The other side did not take the secret; it is forgotten, and asked for again with the next call.
    CredentialRefused(String),
}

/// What a call would do as the world stands, found out before anybody is asked and again right before it is done. An
/// approval is bound to it: when it has changed, the approval is of no use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPreview {
    /// What the person is shown, in one line: the command, the address, the path. Empty: the arguments are shown.
    pub summary: String,
    /// What the answer is bound to besides tool and arguments, by name: `argv`, `directory`, `environment`, the digest of
    /// a script.
    pub bound: Vec<(String, String)>,
    /// Raises the need to ask above the tool's own; never lowers it.
    pub ask: Option<Ask>,
    /// What "always" covers from here on, for example a command without its arguments. `None`: these very arguments.
    pub covers: Option<String>,
    /// Why an answer cannot be bound to all that the call depends on, as the end of a sentence. Then nobody is asked: a call
    /// that needs a yes is not made.
    pub unbound: Option<String>,
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

    /// Looks at what a call would do, without doing anything. Quick: it may read small local files.
    ///
    /// # Errors
    /// What is wrong with the call as it stands; the model reads it, and nobody is asked.
    async fn weigh(&self, _arguments: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        Ok(CallPreview::default())
    }

    /// Does it. The arguments have been checked against the schema.
    ///
    /// # Cancel safety
    /// The caller cancels through [`ToolContext::cancel`] and awaits; it drops the future only when that had no effect.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput;
}

/// Keeps outputs that are longer than the model is shown.
#[async_trait]
pub trait OutputKeeper: Send + Sync {
    /// Keeps an output of a call, whole up to a bound of its own.
    ///
    /// # Errors
    /// Plain words: it could not be kept; the model is told that the rest is lost.
    async fn keep(&self, run: RunId, call: &CallId, output: &str) -> Result<Kept, String>;

    /// Removes what is kept of these runs. Best effort: what cannot be removed is logged.
    async fn forget(&self, runs: &[RunId]);
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
