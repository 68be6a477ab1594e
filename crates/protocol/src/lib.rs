//! The words and the ports of Belay.
//!
//! **For**: the plain data that crates exchange, and the ports (traits) that plug-in crates implement. To add a
//! channel, a tool, a provider or a store, this is the only crate to read.
//!
//! **Does not know**: how anything is done. It does no IO, no SQL and no HTTP, and starts no task. Its only active
//! parts are the ends of in-process channels: [`AckSender`] and [`RunWatch`]. A function is here only if it is pure and
//! several crates need it, such as the precedence of stop reasons, the digest of a message, or the progress of a job
//! from its events.
//!
//! Reading order:
//!
//! 1. A model call and a tool call: [`ids`] → [`message`] → [`attachment`] → [`transcriber`] → [`provenance`] → [`model`] →
//!    [`refusal`] → [`tool`] → [`handle`] → [`output`] → [`pins`] → [`process`] → [`secret`] → [`server_login`] → [`embedder`].
//! 2. A run and its end: [`principal`] → [`approval`] → [`hook`] → [`run_status`] → [`stop`] → [`run`] → [`watch`].
//! 3. A message in and a message out: [`declared`] → [`options`] → [`context`] → [`SessionLifetime`] → [`route`] →
//!    [`idempotency`] → [`work`] → [`control`] → [`ack`] → [`inbound`] → [`sent`] → [`repeat`] → [`outbound`] →
//!    [`access`] → [`moves`] → [`people`] → [`sign_in`] → [`cursor`] → [`quality`] → [`channel`] → [`mod@line`].
//! 4. Events and background work: [`event`] → [`purpose`] → [`job`] → [`progress`] → [`routine`] → [`routine_run`] →
//!    [`heartbeat`] → [`routine_request`] → [`tool_health`] → [`trouble`] → [`plan_command`] → [`goal`].
//! 5. Persistence, reports, workers: [`time`] → [`store_error`] → [`lease`] → [`cluster`] → [`held_leases`] → [`thread`] → [`store`] → [`archive`] →
//!    [`status`] → [`worker`].

/// The examples of the developer documents, compiled as doc tests.
#[cfg(doctest)]
mod examples {
    #[doc = include_str!("../../../docs/develop/writing-a-channel.md")]
    mod channel {}
    #[doc = include_str!("../../../docs/develop/writing-a-provider.md")]
    mod provider {}
    #[doc = include_str!("../../../docs/develop/writing-a-tool.md")]
    mod tool {}
}

pub mod access;
pub mod ack;
pub mod approval;
pub mod archive;
pub mod attachment;
pub mod callback;
pub mod channel;
pub mod client_tools;
pub mod cluster;
mod compact_json;
pub mod context;
pub mod control;
pub mod cursor;
pub mod decision;
pub mod declared;
pub mod embedder;
pub mod event;
pub mod form;
pub mod freeze;
pub mod goal;
pub mod grant;
pub mod handle;
pub mod heartbeat;
pub mod held_leases;
pub mod hook;
mod id_end;
pub mod idempotency;
pub mod ids;
pub mod inbound;
pub mod job;
mod json_bytes;
pub mod lease;
pub mod line;
pub mod live_plan;
pub mod memory;
pub mod message;
pub mod model;
pub mod moves;
pub mod options;
pub mod outbound;
pub mod output;
pub mod people;
pub mod person;
pub mod pins;
pub mod plan_command;
pub mod principal;
pub mod process;
pub mod progress;
pub mod provenance;
pub mod purpose;
pub mod quality;
pub mod question;
pub mod refusal;
pub mod repeat;
pub mod route;
pub mod routine;
pub mod routine_request;
pub mod routine_run;
pub mod run;
pub mod run_status;
#[cfg(feature = "schema")]
mod schema;
pub mod secret;
pub mod sent;
pub mod sent_file;
pub mod server_login;
mod session;
mod shown_schema;
pub mod sign_in;
pub mod status;
pub mod stop;
pub mod store;
pub mod store_error;
pub mod thread;
pub mod time;
pub mod tool;
pub mod tool_health;
pub mod tool_schema;
mod tool_set;
pub mod transcriber;
pub mod trouble;
pub mod watch;
pub mod work;
pub mod worker;

pub use access::{AccessDecision, ChannelAccess, ConversationSettings, ToolNames};
pub use ack::{Ack, AckSender, CommandReply, Refusal, StopReport};
pub use approval::{
    AddedText, ApprovalFilter, ApprovalKind, ApprovalRequest, ApprovalState, ApprovalStore, AskedIn, Asker, Authority,
    ChildQuestion, ChildQuestionStore, Decided, Decision, FirstYes, SecondYes,
};
pub use archive::{
    Archive, Found, Janitor, Removed, Retention, SearchQuery, SessionChange, ThreadSummary, TranscriptLine,
};
pub use attachment::{
    Attachment, AttachmentContent, AttachmentError, AttachmentIntake, BlobDigest, BlobStore, BlobWriter, ByteStream,
    NO_TEXT, NoAttachments, UPLOADS_KEPT_MS, Upload, UploadStore, Uploader, with_spoken,
};
pub use channel::{
    Channel, ChannelDisplay, ChannelError, ChannelHealth, ChannelProfile, CommandInfo, ContextUse, EndedCall,
    InboundStream, LiveCall, LiveNews, LiveState, LiveView, Preview, SentMessages, Streaming, WorkIndicator,
};
pub use client_tools::{
    CallChoice, CallRules, ClientAnswer, ClientCall, ClientNote, ClientResult, ClientTool, ClientToolProblem,
    ClientTools, UsedTokens, client_call_id, parse_client_call_id,
};
pub use cluster::{
    ClusterTask, LeasedWork, NodeEnd, NodeMail, NodeRecord, NodeState, OpenMail, OrderTarget, StopOrder, Topic,
    WorkLease,
};
pub use context::{
    Bootstrap, BootstrapFile, ContextReport, ContextSource, Conversation, NoContext, RULES_FILE, Skill, SkillLocation,
    Skills, Skipped, Unusable, UnusableKind, Variable,
};
pub use control::{Control, StopTarget};
pub use cursor::{Cursor, InvalidCursor};
pub use declared::DeclaredOutput;
pub use embedder::{Embedder, EmbeddingError};
pub use event::{Event, EventKind, NewEvent, Seq};
pub use form::{FieldFormat, FieldKind, Form, FormField, FormOption, FormUrl};
pub use freeze::{Freeze, FreezeReceipt, FreezeRequest, FreezeScope, FreezeStore};
pub use goal::{GOAL_WORD, GoalBudget, GoalCheck, GoalCommand, GoalMessage, GoalRequest};
pub use grant::{CONFIRM_OPTION, GrantOptions, WorkGrant};
pub use handle::{HandlePort, KeepHandle, MAX_HANDLE};
pub use heartbeat::{HEARTBEAT, HEARTBEAT_OK, HeartbeatReport, SkipReason};
pub use held_leases::{HeldLeases, LeaseBook};
pub use hook::{BoundHook, Hook, HookAnswer, HookEvent, HookFailure, HookKind, HookPoint};
pub use id_end::IdEnd;
pub use idempotency::IdempotencyKey;
pub use ids::{
    ApprovalId, BootId, CallId, ChannelId, ConnectionId, FreezeId, IdPrefix, JobId, LinkId, MailId, OrderId, OutboxId,
    RoutineId, RoutineRunId, RunId, SentFileId, SessionKey, ThreadId, UploadId,
};
pub use inbound::{Body, Envelope, Inbound};
pub use job::{JobBudget, JobOrder, JobRecord, JobRequest, JobState, RunsIn};
pub use json_bytes::json_bytes;
pub use lease::Lease;
pub use line::plain_line;
pub use live_plan::{LivePlan, LivePlanStep, PlanStepState};
pub use memory::MemoryOwner;
pub use message::{
    Arguments, Message, MessageBody, MessageScope, NOT_SHOWN, PICTURE_TOKENS, Picture, SILENT_TOKEN, ToolCall,
    ToolResult, ToolStatus, WireCache, canonical_json,
};
pub use model::{
    Candidate, Cooling, Delta, DeltaSink, FellBack, FinishReason, Heard, ModelError, ModelErrorKind, ModelInfo,
    ModelProvider, ModelReply, ModelRequest, NoSink, Price, Prompt, Retry, TextFormat, Usage,
};
pub use moves::{MoveStore, MovedConversation};
pub use options::{QueueDrop, QueueMode, ReasoningShown, RunOptions, Sampling, SamplingSupport, Thinking};
pub use outbound::{DeliverError, Outbound, SessionNotice, TextChecker, TextKind, UncheckedTexts};
pub use output::{NoOutputName, OutputName, OutputPart, OutputStore, OutputWriter};
pub use people::{
    AdmittedBy, ChannelPeople, PairedPerson, PairingCode, PairingCodes, PendingPairing, PendingReport, PeopleReport,
    PeopleRequest, PeopleStore, PersonReport, Stranger,
};
pub use person::{AskPerson, FormAnswer, PersonPort};
pub use pins::PinStore;
pub use plan_command::{PlanCommand, PlanMessage, PlanRequest};
pub use principal::{
    KnownPrincipal, Principal, PrincipalCursor, PrincipalFilter, Role as PrincipalRole, SEEN_PRECISION_MS,
};
pub use process::{BackgroundProcess, Generation, NoProcesses, ProcessesOf, RunProcesses, StillRunning};
pub use progress::{Action, JobProgress};
pub use provenance::{Audience, Author, EarlierMessage, Link, Person, Provenance, Quote, Unread};
pub use purpose::{NO_SESSION, OpenReservations, Purpose, Spent};
pub use quality::{Confirmation, DeliveryQuality, Quality};
pub use question::Question;
pub use refusal::{ProviderFault, ProviderRefusal};
pub use repeat::{LookUp, OutboxKey, Repeat};
pub use route::ReplyRoute;
pub use routine::{
    Guardrails, Misfire, NewRoutine, Notify, PutBy, PutRule, RoutineAction, RoutineOrigin, RoutinePut, RoutineRecord,
    RoutineSpec, Trigger,
};
pub use routine_request::{RoutineAnswer, RoutineRequest};
pub use routine_run::{
    Claim, Echo, Held, NewRoutineRun, RoutineRunEnd, RoutineRunFilter, RoutineRunRecord, RoutineRunStatus, Settled,
};
pub use run::{AgentState, RunRecord, RunUsage, Termination, WaitingFor};
pub use run_status::RunStatus;
pub use secret::{Secret, SecretVault};
pub use sent::Sent;
pub use sent_file::{FileLinks, OutboundFile, OutgoingFiles, SEND_FILE, SentFile, size_text};
pub use server_login::{BegunLogin, EndedLogin, LoginRefusal, LoginReport, LoginState, ServerLogins};
pub use session::{RESERVED_KEYS, SessionCursor, SessionFilter, SessionLifetime, beginning_of};
pub use sign_in::{LINKS_MAX, SIGN_INS_MAX, SignIn, SignInStore};
pub use status::{
    BackgroundWork, CandidateStatus, ChannelState, ChannelStatus, JobsStatus, ModelTrouble, StatusReport,
};
pub use stop::{Finding, Resume, RunEnd, StopLayer, StopReason, unmark_value};
pub use store::{
    Acceptance, ActedOn, BudgetSlices, CallCharge, Checkpoint, ClaimMode, ClientCallStore, ClusterStore,
    CollectedStart, ConversationReader, ConversationSummary, CostKey, CostQuery, CostRow, Cursors, Deferral,
    DispatcherStore, Draw, Drawn, Durability, EditOutcome, EditedMessage, EndCount, EndQuery, EndReader, EventLog,
    EventQuery, FinishedRun, Forgotten, HeldJobs, Hints, HistoryEntry, InputReader, JobAttempt, JobAttempts, JobCaps,
    JobChange, JobChanged, JobCreated, JobFilter, JobNumbers, JobReader, JobStore, JoinedRun, JournalStore, KnownInput,
    LaneClaim, LaneStore, MailEnd, MailPlace, MailStore, NewInput, NewJob, NewNote, NewReservation, Note, NoteArchive,
    NoteFilter, NoteSelection, NoteStore, NoteVector, NoteVectors, OpenedLane, Opening, OrderStore, Outbox, OutboxRow,
    OutboxState, PausedRun, PendingRun, Period, Presence, PromptNotes, Remembered, RoutineNumbers, RoutineReader,
    RoutineRunStore, RoutineSchedule, RoutineStore, RunFilter, RunReader, RunStore, SaidQuery, SentMessage,
    SessionReader, SessionSummary, SkillSnapshot, SkillStore, SpendLedger, SpendReader, StoreHealth, ThreadEdit,
    ThreadSnapshot, TitleStore, TurnCompaction, Untitled, WorkLeases,
};
pub use store_error::StoreError;
pub use thread::ThreadState;
pub use time::{Clock, UnixMillis};
pub use tool::{
    Approved, Ask, CallPreview, CredentialNeed, Effect, Kept, OutputKeeper, Progress, ProgressSink, Rate, SchemaForm,
    Tool, ToolContext, ToolFailure, ToolKind, ToolOutput, ToolReply, ToolSpec,
};
pub use tool_health::{
    FaultKind, ToolFault, ToolHealth, ToolHealthAction, ToolHealthConfig, ToolHealthRule, ToolOff, ToolRequest,
    ToolState, ToolSwitch, ToolSwitches,
};
pub use tool_schema::ToolSchema;
pub use tool_set::{FIND_TOOLS, Moment, READ_OUTPUT, ToolSet};
pub use transcriber::{AudioFormat, Recording, RecordingLimits, Transcriber, TranscriptionError};
pub use trouble::{NoTroubles, Severity, Trouble, TroubleSource, TroubledPart};
pub use watch::{Accepted, Partial, RunWatch};
pub use work::{SessionOwner, Work, WorkSource, is_own_channel, job_session, routine_run_session};
pub use worker::{
    BatchAnswer, BatchCall, DoneOutput, JobToken, LentTool, LinkError, ModelAnswer, ModelAsk, OpenLink, ToolBatch,
    ToolDone, ToolOrder, WORKER_TOOLS, WorkerCommand, WorkerEnd, WorkerHost, WorkerLink, WorkerLinks, WorkerProcess,
    WorkerStart, WorkerTask,
};
