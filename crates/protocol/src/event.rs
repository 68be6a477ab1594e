//! Events: numbered, stored facts. Deltas are not among them (see [`crate::model::Delta`]).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{CallId, GateId, JobId, RoutineRunId, RunId, SessionKey};
use crate::job::JobState;
use crate::message::ToolStatus;
use crate::routine_run::RoutineRunStatus;
use crate::run::Termination;
use crate::run_status::RunStatus;
use crate::stop::StopReason;
use crate::time::UnixMillis;

/// The number of an event in its store: 1, 2, 3 … in the order of commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

/// A fact that is about to be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// When it happened.
    pub at: UnixMillis,
    /// In which session; `None` for the daemon's own.
    pub session: Option<SessionKey>,
    /// In which run.
    pub run_id: Option<RunId>,
    /// What happened.
    pub kind: EventKind,
}

/// A stored fact.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Event {
    /// Its number; what a reader gives to go on from here.
    pub seq: Seq,
    /// When it happened.
    pub at: UnixMillis,
    /// In which session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// In which run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened. `type` on the wire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    /// A message has been committed.
    RunAccepted,
    /// Work has begun, or begun again.
    RunStarted {
        /// From 1.
        attempt: u32,
    },
    /// The message waits behind others of its session.
    Queued {
        /// Its mode: `steer`, `followup`, `collect` or `interrupt`.
        mode: String,
        /// How many are before it, the running one included.
        before: u32,
    },
    /// Messages have joined a run: it answers them too.
    Joined {
        /// Their runs, in the order in which they came.
        runs: Vec<RunId>,
        /// `steer`: at a step of a running turn. `collect`: as its beginning. `summarize`: as a line of a digest.
        mode: String,
    },
    /// A model call has ended, or was dropped midway.
    ModelCalled {
        /// Step of the run, from 1.
        step: u32,
        /// Requests sent.
        attempts: u32,
        /// Tokens read: those of the request that answered, when the provider reported them.
        input: Option<u64>,
        /// Tokens generated, likewise.
        output: Option<u64>,
    },
    /// Another model answers than the one that was to.
    ModelFallback {
        /// The one that was to answer.
        from: String,
        /// The one that does.
        to: String,
        /// What keeps the first one from it: `rate_limited`, `overloaded`, `auth`, `network`.
        reason: String,
    },
    /// A tool call begins.
    ToolStarted {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
    },
    /// A tool call has ended.
    ToolFinished {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// How.
        status: ToolStatus,
        /// Milliseconds it took.
        took_ms: u64,
    },
    /// A brake of the loop has acted.
    GuardrailTriggered {
        /// `tool_intent_nudge`, `truncated_calls`, `duplicate_failures`, `unavailable_tool`, `iteration_notice`.
        guardrail: String,
        /// Which time in a row.
        count: u32,
        /// Whether no more tools are offered from here on.
        force_text: bool,
    },
    /// Older messages are about to be replaced by a shorter account. One [`EventKind::Compacted`] or
    /// [`EventKind::CompactionAbandoned`] follows, unless the daemon or the run's task is ended by force in between.
    CompactionStarted {
        /// Estimated tokens of the context.
        tokens: u64,
        /// Why: `threshold`, `overflow` or `command`.
        reason: String,
    },
    /// Older messages have been replaced by a shorter account.
    Compacted {
        /// Messages that left the context.
        messages: u32,
        /// Estimated tokens of the context before; 0 in facts of earlier versions, as after.
        #[serde(default)]
        before: u64,
        /// And after.
        #[serde(default)]
        after: u64,
        /// Who made the account: `model`, or `extract` for one by rule.
        #[serde(default)]
        source: String,
        /// Whether a model call is repeated with what is left.
        #[serde(default)]
        will_retry: bool,
    },
    /// Older messages were to be replaced by a shorter account, and are where they were.
    CompactionAbandoned {
        /// Why: `nothing_won` (what would be left is no shorter), `stopped` (the run was told to stop) or `failed` (it could
        /// not be stored).
        reason: String,
    },
    /// A run has started another one to do a part of its work.
    SubagentStarted {
        /// The call that started it.
        call_id: CallId,
        /// What it is to do: the first 120 characters.
        task: String,
        /// How far below the run of the conversation it stands, from 1.
        depth: u32,
    },
    /// A run that another one started has ended.
    SubagentEnded {
        /// The call that started it.
        call_id: CallId,
        /// How.
        termination: Termination,
        /// Why.
        reason: StopReason,
        /// Steps it took, without the closing turn.
        turns: u32,
    },
    /// A run has made its plan.
    PlanCreated {
        /// The plan.
        plan_id: String,
        /// What it is for.
        title: String,
        /// Its steps, in order.
        steps: Vec<String>,
    },
    /// A step of a run's plan is begun, once for each attempt, or has come to its end.
    PlanStep {
        /// Which one, counted from 0.
        index: u32,
        /// `in_progress`, `completed` or `blocked`.
        status: String,
        /// Who carries it out.
        executor: String,
        /// The first line of its result, or why it is blocked or tried again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A run rests on a question to a person.
    ApprovalRequested {
        /// The question.
        approval: GateId,
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// `approval` or `credential`.
        kind: String,
        /// What the call would do.
        summary: String,
        /// Why it is asked.
        detail: String,
    },
    /// A question was answered, or its time was up.
    ApprovalResolved {
        /// The question.
        approval: GateId,
        /// `approved`, `denied`, `expired` or `withdrawn`.
        state: String,
        /// Who answered.
        actor: String,
    },
    /// A hook has changed or refused something, or failed.
    Hook {
        /// Its point.
        point: String,
        /// Its name.
        name: String,
        /// `changed`, `refused` or `failed`.
        outcome: String,
    },
    /// A run has ended.
    RunEnded {
        /// The honest status.
        status: RunStatus,
        /// Why.
        reason: StopReason,
        /// What was seen.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        evidence: Map<String, Value>,
    },
    /// A notice joined the conversation: what work has come to that was asked for in it. Stands in that session, without a run.
    Notice {
        /// What it says.
        text: String,
    },
    /// A job has come into another state. Stands in the job's session.
    JobChanged {
        /// The job.
        job: JobId,
        /// What it was; `None`: it was just made.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<JobState>,
        /// What it is.
        to: JobState,
        /// How often it was begun.
        attempt: u32,
        /// Why, in words; empty where there is nothing to say.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
    },
    /// A routine run of a routine was claimed, or its time recorded as missed. Stands in the routine run's session.
    RoutineRunStarted {
        /// The routine run.
        routine_run: RoutineRunId,
        /// The routine.
        routine: String,
        /// What set it off: `schedule`, `event`, `webhook`, `system`, `manual`.
        trigger: String,
        /// The scheduled time, in milliseconds since 1970 (UTC).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scheduled_ms: Option<i64>,
    },
    /// The heartbeat had a reason not to beat, and no model was asked. Stands in the routine run's session, before its end.
    HeartbeatSkipped {
        /// The routine run.
        routine_run: RoutineRunId,
        /// The word of a [`SkipReason`](crate::heartbeat::SkipReason).
        reason: String,
    },
    /// A routine run of a routine has ended. Stands in the routine run's session.
    RoutineRunEnded {
        /// The routine run.
        routine_run: RoutineRunId,
        /// The routine.
        routine: String,
        /// How.
        status: RoutineRunStatus,
        /// Whether the routine was switched off by it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        disabled: bool,
    },
    /// A tool, or an MCP server with all its tools, fails again and again. Told once, until it succeeds or a day has passed.
    /// Names the run of the newest failure, and no session.
    ToolFailing {
        /// The tool; `mcp:NAME` for a server.
        name: String,
        /// Failures in a row.
        failures: u32,
        /// Of how many different runs they are.
        runs: u32,
        /// When the first of them was, in milliseconds since 1970 (UTC).
        since_ms: i64,
        /// In which way it failed last: `failed`, `timed_out` or `crashed`.
        kind: String,
        /// Twelve hex digits: the same for failures in the same words but for their numbers.
        fingerprint: String,
    },
    /// A tool, or an MCP server with all its tools, was switched off, or on again. Names no session.
    ToolStateChanged {
        /// The tool; `mcp:NAME` for a server.
        name: String,
        /// Whether it is on now.
        on: bool,
        /// `rule`, `trial` (a call that was let through) or the person who did it.
        actor: String,
        /// Why, in words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
        /// From when on one call is let through, in milliseconds since 1970 (UTC); absent: never by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ms: Option<i64>,
    },
    /// A conversation was changed by a command: `undo`, `redo`, `clear`, `new`.
    ThreadEdited {
        /// Which command.
        edit: String,
    },
    /// A part of an answer was committed to be delivered while its run goes on.
    MessageEmitted {
        /// blake3 of its text, in hex: by it an attempt after a crash knows what has been said.
        digest: String,
    },
    /// A reply has been delivered, or given up.
    Delivered {
        /// `sent`, `ambiguous` or `failed`.
        outcome: String,
    },
}
