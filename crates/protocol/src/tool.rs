//! Tools: their specifications, their calls, and the port.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::context::{Unusable, Variable};
use crate::handle::HandlePort;
use crate::ids::{CallId, RunId, SessionKey};
use crate::memory::MemoryOwner;
use crate::message::Picture;
use crate::person::PersonPort;
use crate::process::Generation;
use crate::secret::Secret;
use crate::tool_schema::ToolSchema;

/// The specification of a tool. It is constant for the life of the daemon and serialised once.
///
/// [`ToolSpec::new`] makes the specification of a tool without effects; every difference is written out:
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
///     ..ToolSpec::new("ring_bell", "Rings the bell at the door.", schema)
/// };
/// assert!(spec.effect.waits_for_disk());
/// ```
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// The name the model calls: `[a-z][a-z0-9_]*`, at most 64 bytes.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The JSON Schema of its arguments: an object schema with `additionalProperties: false`.
    pub schema: ToolSchema,
    /// Its strongest effect.
    pub effect: Effect,
    /// Whether two calls with the same arguments have the effect of one. After a crash only such a tool is run again.
    pub idempotent: bool,
    /// The timeout of one call.
    pub timeout: Duration,
    /// The maximum length of the result that the model gets, in bytes. The effect gate keeps a longer result on disk,
    /// cuts it and adds a note.
    pub max_output_bytes: usize,
    /// Whether a call needs approval, if no rule of the configuration decides.
    pub approval: Ask,
    /// The rate limit of one session; `None`: no limit beyond those of the run.
    pub rate: Option<Rate>,
    /// The kind of its calls for loop detection. Absent: derived from its name and its arguments.
    pub kind: Option<ToolKind>,
    /// The names of arguments that change from call to call without meaning, such as a nonce. Loop detection ignores
    /// them.
    pub volatile_args: Vec<String>,
    /// The names of arguments that identify the target of a call, for loop detection.
    pub target_args: Vec<String>,
    /// Whether its results are untrusted content, such as a web page or the output of another program.
    pub untrusted: bool,
    /// Whether its name, description and schema, which the model reads, come from an untrusted party.
    /// In a run with such a tool, tools with external effects need approval, unless the operator has exempted it.
    pub foreign: bool,
    /// The MCP server of the tool, if any. A fault of the server affects all its tools.
    pub server: Option<String>,
    /// The names of arguments that are never shown, stored with an approval request, or logged.
    pub sensitive: Vec<String>,
    /// The secret that it needs. If there is none, the turn pauses and asks for it.
    pub credential: Option<CredentialNeed>,
    /// The form in which requests have its schema.
    pub schema_form: SchemaForm,
    /// Whether a request offers it only once the model has named it with [`FIND_TOOLS`](crate::FIND_TOOLS), because
    /// most conversations do not need it.
    pub deferred: bool,
    /// Whether it starts programs for the run. These get the environment variables of the run's skills, and end with
    /// the run: a stop of a call leaves none of them.
    pub takes_variables: bool,
}

/// The default for [`ToolSpec::max_output_bytes`]. 64 KiB: about 16 000 tokens, a part of a context that leaves room
/// for reasoning.
pub const MAX_OUTPUT_BYTES: usize = 64 * 1024;

impl ToolSpec {
    /// A tool without effects: idempotent, 5 s, 64 KiB, without approval.
    pub fn new(name: impl Into<String>, description: impl Into<String>, schema: impl Into<ToolSchema>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            schema: schema.into(),
            effect: Effect::None,
            idempotent: true,
            timeout: Duration::from_secs(5),
            max_output_bytes: MAX_OUTPUT_BYTES,
            approval: Ask::Never,
            rate: None,
            kind: None,
            volatile_args: Vec::new(),
            target_args: Vec::new(),
            untrusted: false,
            foreign: false,
            server: None,
            sensitive: Vec::new(),
            credential: None,
            schema_form: SchemaForm::default(),
            deferred: false,
            takes_variables: false,
        }
    }

    /// The schema in the form that requests have.
    pub fn shown_schema(&self) -> &RawValue {
        match self.schema_form {
            SchemaForm::Short => self.schema.shown(),
            SchemaForm::Whole | SchemaForm::Strict => self.schema.text(),
        }
    }
}

/// The form in which requests have the schema of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SchemaForm {
    /// Without what the gate checks anyway: see [`ToolSchema::shown`].
    #[default]
    Short,
    /// Word for word, as that of somebody else's tool.
    Whole,
    /// Word for word, and the provider is to hold the arguments to it.
    Strict,
}

/// The kind of a tool's calls, for loop detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    /// It reads and changes nothing. A more specific name, such as `get_status`, takes precedence.
    Read,
    /// It polls a state: it is called repeatedly until the result changes.
    Poll,
    /// It waits.
    Wait,
    /// It writes a note for the run itself.
    Note,
    /// It returns the time, or another value that has nothing to do with the work.
    Clock,
}

/// Whether a call needs approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// It needs no approval.
    Never,
    /// It needs approval, unless an earlier "always" of the session covers it.
    UnlessApproved,
    /// It needs approval each time; "always" is not offered.
    Always,
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    /// The maximum number of calls; at least 1.
    pub calls: u32,
    /// The period; at least a millisecond.
    pub per: Duration,
}

/// A secret that a tool needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialNeed {
    /// Its name in the vault: `[a-z][a-z0-9_]*`.
    pub name: String,
    /// The instructions for the person: what the secret is and where to get it. Markdown.
    pub instructions: String,
}

/// The strongest effect of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// No access: a pure function, or the clock.
    None,
    /// It reads.
    Read,
    /// It writes the agent's own data: its notes, its workspace.
    Write,
    /// It changes something outside the agent's own data, or others can read what it sends.
    External,
}

impl Effect {
    /// Whether the intent of a call must be on disk before the call starts. A reading tool is simply run again.
    pub fn waits_for_disk(self) -> bool {
        matches!(self, Self::Write | Self::External)
    }
}

/// The context of one call.
#[derive(Clone, Debug)]
pub struct ToolContext {
    /// The session of the run.
    pub session: SessionKey,
    /// The run.
    pub run_id: RunId,
    /// The call.
    pub call_id: CallId,
    /// Cancels the call. A tool that waits selects on this token and returns [`ToolFailure::Cancelled`]. Any other tool
    /// is abandoned shortly after.
    pub cancel: CancellationToken,
    /// The generation of the run that the call belongs to. Code that starts a process checks it immediately before: a
    /// stopped run starts nothing.
    pub generation: Generation,
    /// The secret that [`ToolSpec::credential`] names.
    pub credential: Option<Secret>,
    /// Receives progress messages of the running tool.
    pub progress: Progress,
    /// Environment variables for the programs that it starts; empty unless [`ToolSpec::takes_variables`].
    pub variables: Arc<[Variable]>,
    /// The facts that the approval of this call is bound to; `None`: nobody was asked. If a fact has changed, the tool
    /// does not act and returns [`ToolFailure::Denied`].
    pub approved: Option<Approved>,
    /// The owner of the notes that the run reads and writes.
    pub memory: MemoryOwner,
    /// Whether the run has read untrusted content.
    pub untrusted: bool,
    /// The person whom the call may ask.
    pub person: PersonPort,
    /// Keeps what the call needs to be found again after a restart.
    pub handle: HandlePort,
}

/// The facts that the approval of one call is bound to: [`CallPreview::bound`], as the person has seen it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approved(pub Vec<(String, String)>);

impl Approved {
    /// The value of this fact.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// The destination of a call's progress messages. A message shows that the run is alive, and readers of the run see it.
/// Messages may be lost, and the model never reads them.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn ProgressSink>>);

/// Receives the progress messages of calls. Never waits.
pub trait ProgressSink: Send + Sync {
    /// A part of the output, or a progress message.
    fn progress(&self, call: &CallId, text: &str);
}

impl Progress {
    /// Progress that goes to this sink.
    pub fn to(sink: Arc<dyn ProgressSink>) -> Self {
        Self(Some(sink))
    }

    /// Reports the progress of a call.
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

/// The result of a tool call, which the model reads.
pub type ToolOutput = Result<ToolReply, ToolFailure>;

/// The result of a successful call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolReply {
    /// The text. It may be longer than [`ToolSpec::max_output_bytes`]; the effect gate then keeps the whole text and
    /// shows its beginning and end.
    pub text: String,
    /// Pictures, for a model that can see.
    pub pictures: Vec<Picture>,
    /// The kept output, if the text is a part of a larger output that the tool has kept itself.
    pub kept: Option<Kept>,
    /// Whether this result is untrusted content, although the tool's results usually are not.
    pub untrusted: bool,
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

/// An output that is kept on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its name, for the tool that reads kept outputs.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The failure of a call. The model reads it; it is no error of the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolFailure {
    /// The call has failed; the text has the reason and a hint.
    Failed(String),
    /// The tool has done its part, and what it ran has failed: a program ended by a signal, at its time limit, or with
    /// an exit code other than 0. No fault of the tool.
    Ended(String),
    /// A rule forbids the call; the text names the rule.
    Denied(String),
    /// The call was cancelled.
    Cancelled,
    /// Nobody knows whether the call has had its effect; the text says why. The call is not repeated by itself.
    Unknown(String),
    /// The remote side has rejected the secret. The secret is deleted, and the next call asks for it again.
    CredentialRefused(String),
}

/// The expected effect of a call in the present state, determined before a person is asked and again immediately before
/// the call. An approval is bound to it and is void once it has changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPreview {
    /// The line for the person: the command, the address, the path. Empty: the arguments are shown.
    pub summary: String,
    /// The names of the arguments that the summary and the facts show whole. The question shows every other argument as
    /// a fact of its own, so that a person sees everything that runs.
    pub shows: &'static [&'static str],
    /// The facts that the answer is bound to besides the tool and the arguments, by name: `argv`, `directory`,
    /// `environment`, the digest of a script.
    pub bound: Vec<(String, String)>,
    /// Raises the need for approval above that of the tool; never lowers it.
    pub ask: Option<Ask>,
    /// The calls that "always" covers, for example a command without its arguments. `None`: only these arguments.
    pub covers: Option<String>,
    /// The effect of this call, if it is weaker than the strongest of the tool. The rules about untrusted content use
    /// it.
    pub effect: Option<Effect>,
    /// Whether a person must approve each such call, also if a rule or an earlier answer would let it run.
    pub must_ask: bool,
    /// The reason for which an answer cannot be bound to everything that the call depends on, as the end of a sentence.
    /// Then nobody is asked, and a call that needs approval is refused.
    pub unbound: Option<String>,
}

impl ToolFailure {
    /// A failure with this text.
    pub fn failed(text: impl Into<String>) -> Self {
        Self::Failed(text.into())
    }
}

impl From<Unusable> for ToolFailure {
    fn from(unusable: Unusable) -> Self {
        Self::Failed(unusable.why)
    }
}

/// A tool that a model can call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Its specification.
    fn spec(&self) -> &ToolSpec;

    /// Determines the effect of a call without performing it. Quick: it may read small local files.
    ///
    /// # Errors
    /// The problem with the call; the model reads it, and nobody is asked.
    async fn preview(
        &self,
        _arguments: &Map<String, Value>,
        _session: &SessionKey,
    ) -> Result<CallPreview, ToolFailure> {
        Ok(CallPreview::default())
    }

    /// Whether it is of use to a run of a session now; `None`: it always is. A request offers a tool that answers only
    /// while it is of use. Quick: it is asked before each request.
    fn on_demand(&self, _session: &SessionKey, _run: RunId) -> Option<bool> {
        None
    }

    /// The revision of its protocol that the server of the tool has spoken last; `None`: it has no server, or the
    /// server was not asked yet.
    fn revision(&self) -> Option<String> {
        None
    }

    /// The arguments that a model meant by a text that is no JSON object; `None`: they are refused.
    fn repaired(&self, _raw: &str) -> Option<Map<String, Value>> {
        None
    }

    /// Whether a call with this handle does nothing but wait for a person, so that it goes on after a shutdown as it
    /// does after a crash. Otherwise a shutdown ends it.
    fn waits_for_person(&self, _handle: &Value) -> bool {
        false
    }

    /// Ends the work that a call of this tool has kept a handle for, because the call never continues. Returns whether
    /// the handle is one of this tool. It takes some seconds at most. The work may go on nevertheless; the log says so.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work may go on.
    async fn abandon(&self, _handle: &Value) -> bool {
        false
    }

    /// Performs the call. The arguments are valid for the schema.
    ///
    /// # Cancel safety
    /// The caller cancels through [`ToolContext::cancel`] and awaits the future. It drops the future only if the call
    /// does not end.
    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput;
}

/// Keeps outputs that are too long for the model.
#[async_trait]
pub trait OutputKeeper: Send + Sync {
    /// Keeps the output of a call, up to a limit of its own.
    ///
    /// # Errors
    /// The reason, for people: the output could not be kept. The model reads that the rest is lost.
    async fn keep(&self, run: RunId, call: &CallId, output: &str) -> Result<Kept, String>;

    /// Deletes the outputs of these runs. Best effort: failures are logged.
    async fn forget(&self, runs: &[RunId]);
}
