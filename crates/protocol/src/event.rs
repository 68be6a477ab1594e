//! Events: numbered, stored facts. Deltas are not events (see [`crate::model::Delta`]).

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

#[cfg(feature = "schema")]
use crate::approval::ApprovalState;
#[cfg(feature = "schema")]
use crate::heartbeat::SkipReason;
use crate::ids::{ApprovalId, CallId, JobId, RoutineRunId, RunId, SessionKey};
use crate::job::JobState;
use crate::message::ToolStatus;
#[cfg(feature = "schema")]
use crate::options::QueueMode;
use crate::routine_run::RoutineRunStatus;
use crate::run::Termination;
use crate::run_status::RunStatus;
use crate::sent_file::SentFile;
use crate::stop::StopReason;
use crate::time::UnixMillis;

/// The number of an event in its store: 1, 2, 3 … in the order of commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Seq(pub u64);

/// An event before it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The time of the event.
    pub at: UnixMillis,
    /// Its session; `None`: an event of the daemon.
    pub session: Option<SessionKey>,
    /// Its run.
    pub run_id: Option<RunId>,
    /// Its kind and data.
    pub kind: EventKind,
}

/// A stored event.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its number; a reader continues from it.
    pub seq: Seq,
    /// The time of the event.
    pub at: UnixMillis,
    /// Its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// Its run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// Its kind and data.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// The kinds of events; the wire field is `type`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventKind {
    /// A message is committed.
    RunAccepted,
    /// A run has started or resumed.
    RunStarted {
        /// The attempt, from 1.
        attempt: u32,
    },
    /// The message is queued behind others of its session.
    Queued {
        /// Its queue mode: `steer`, `followup`, `collect` or `interrupt`.
        #[cfg_attr(feature = "schema", schemars(with = "QueueMode"))]
        mode: String,
        /// The number of messages before it, including the running one.
        before: u32,
    },
    /// Messages have joined a run, which answers them too.
    Joined {
        /// The runs of the messages, in order of arrival.
        runs: Vec<RunId>,
        /// `steer`: they joined at a step of a running turn. `collect`: they are the beginning of the turn.
        /// `summarize`: they are lines of a digest.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["steer", "collect", "summarize"])))]
        mode: String,
    },
    /// A model call has ended or was dropped.
    ModelCalled {
        /// The step of the run, from 1.
        step: u32,
        /// The requests that were sent.
        attempts: u32,
        /// The input tokens of the successful request, if the provider reported them.
        input: Option<u64>,
        /// The output tokens, likewise.
        output: Option<u64>,
        /// The model that answered, or else the requested one; empty in events of earlier versions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        model: String,
        /// The duration in milliseconds, retries and fallbacks included; 0 in events of earlier versions.
        #[serde(default)]
        took_ms: u64,
        /// The kind of error, or the reason why the call was dropped: `stopped`, `chanting` or `late`. Empty: the model
        /// has answered.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        error: String,
        /// The purpose of a call that is no step of the work: `closing`, or a side question about the run: `judge` of the
        /// stop rules, `goal`, `completion`, `summary`, `notes` or `title`. Empty: a step.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        purpose: String,
    },
    /// A fallback model answers instead of the requested one.
    ModelFallback {
        /// The requested model.
        from: String,
        /// The model that answers.
        to: String,
        /// The failure of the requested model: `rate_limited`, `overloaded`, `auth`, `network`.
        reason: String,
    },
    /// A tool call has started.
    ToolStarted {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// Its arguments in one line, `name: value, …`, at most 1,000 characters, without the values that the tool
        /// declares sensitive.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        arguments: String,
    },
    /// A tool call has ended.
    ToolFinished {
        /// The call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// The status of its result.
        status: ToolStatus,
        /// The duration in milliseconds.
        took_ms: u64,
        /// The beginning of the result as the model reads it, after hooks, at most 1,000 characters.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        result: String,
    },
    /// A guardrail of the loop has acted.
    GuardrailTriggered {
        /// `tool_intent_nudge`, `truncated_calls`, `duplicate_failures`, `unavailable_tool`, `iteration_notice`.
        guardrail: String,
        /// The number of times in a row.
        count: u32,
        /// Whether the model gets no tools from now on.
        force_text: bool,
    },
    /// A compaction has started. One [`EventKind::Compacted`] or [`EventKind::CompactionAbandoned`] follows, unless the
    /// daemon or the run's task is killed in between.
    CompactionStarted {
        /// The estimated tokens of the context.
        tokens: u64,
        /// The trigger: `threshold`, `overflow` or `command`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["threshold", "overflow", "command"])))]
        reason: String,
    },
    /// Older messages were replaced by a summary.
    Compacted {
        /// The messages that left the context.
        messages: u32,
        /// The estimated tokens of the context before; 0 in events of earlier versions, which lack the fields below
        /// too.
        #[serde(default)]
        before: u64,
        /// The estimated tokens after.
        #[serde(default)]
        after: u64,
        /// The author of the summary: `model`, or `extract` for a summary by rule.
        #[serde(default)]
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["", "model", "extract"])))]
        source: String,
        /// Whether a model call is repeated with the shorter context.
        #[serde(default)]
        will_retry: bool,
    },
    /// A compaction was abandoned, and the context is unchanged.
    CompactionAbandoned {
        /// The reason: `nothing_won` (the result would be no shorter), `stopped` (the run was stopped) or `failed` (the
        /// result could not be stored).
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["nothing_won", "stopped", "failed"])))]
        reason: String,
    },
    /// A run has started another run for a part of its work.
    SubagentStarted {
        /// The tool call that started it.
        call_id: CallId,
        /// The first 120 characters of its task.
        task: String,
        /// Its depth below the run of the conversation, from 1.
        depth: u32,
    },
    /// A run that another run started has ended.
    SubagentEnded {
        /// The tool call that started it.
        call_id: CallId,
        /// The kind of its end.
        termination: Termination,
        /// The stop reason.
        reason: StopReason,
        /// Its steps, without the closing turn.
        turns: u32,
    },
    /// A run has made its plan.
    PlanCreated {
        /// The id of the plan.
        plan_id: String,
        /// Its title.
        title: String,
        /// Its steps, in order.
        steps: Vec<String>,
    },
    /// A person has changed a plan, held it, or let it go on.
    PlanChanged {
        /// `changed`, `added`, `dropped`, `held` or `approved`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["changed", "added", "dropped", "held", "approved"])))]
        change: String,
        /// The index of the step, from 0. `None`: it is about the whole plan.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<u32>,
        /// The texts of all steps now, in order, with those that are dropped.
        steps: Vec<String>,
        /// The principal that did it.
        actor: String,
    },
    /// An attempt at a step of a plan has started, or the step has ended.
    PlanStep {
        /// The index of the step, from 0.
        index: u32,
        /// `in_progress`, `completed` or `blocked`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["in_progress", "completed", "blocked"])))]
        status: String,
        /// The executor of the step.
        executor: String,
        /// The first line of its result, or the reason why it is blocked or retried.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A run has checked whether its goal is reached.
    GoalChecked {
        /// Attempts that have begun; 0: the check at the start.
        attempt: u32,
        /// Most attempts.
        attempts: u32,
        /// Whether the checks hold.
        holds: bool,
        /// The end of what a check says that does not hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        missing: Option<String>,
    },
    /// A run is paused: it waits for an approval or a secret of a person.
    ApprovalRequested {
        /// The approval request.
        approval: ApprovalId,
        /// The tool call.
        call_id: CallId,
        /// The tool.
        name: String,
        /// `approval` or `credential`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["approval", "credential"])))]
        kind: String,
        /// The effect of the call.
        summary: String,
        /// The reason for the question.
        detail: String,
    },
    /// The first of two approvals of a request was given. A second person is asked.
    ApprovalFirstYes {
        /// The approval request.
        approval: ApprovalId,
        /// The principal that gave it.
        actor: String,
    },
    /// An approval request was answered, has expired or was withdrawn.
    ApprovalResolved {
        /// The approval request.
        approval: ApprovalId,
        /// `approved`, `denied`, `expired` or `withdrawn`.
        #[cfg_attr(feature = "schema", schemars(with = "ApprovalState"))]
        state: String,
        /// The principal that answered.
        actor: String,
    },
    /// A hook has changed or refused something, or has failed.
    Hook {
        /// The point at which it was called.
        point: String,
        /// Its name.
        name: String,
        /// `changed`, `refused` or `failed`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["changed", "refused", "failed"])))]
        outcome: String,
    },
    /// A run has ended.
    RunEnded {
        /// Its status.
        status: RunStatus,
        /// The stop reason.
        reason: StopReason,
        /// The evidence for the reason.
        #[serde(default, skip_serializing_if = "Map::is_empty")]
        evidence: Map<String, Value>,
    },
    /// A notice was added to the conversation, such as the result of a job that was asked for in it. It belongs to that
    /// session and to no run.
    Notice {
        /// The text.
        text: String,
    },
    /// A grant of a job or a routine was revoked.
    GrantRevoked {
        /// The work: `job` and its id, or `routine` and its name.
        work: String,
        /// The grant, as people write it.
        grant: String,
        /// The principal that has revoked it.
        actor: String,
    },
    /// The state of a job has changed. Recorded in the job's session.
    JobChanged {
        /// The job.
        job: JobId,
        /// The earlier state; `None`: the job is new.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<JobState>,
        /// The new state.
        to: JobState,
        /// The number of attempts.
        attempt: u32,
        /// The reason, for people; empty if there is none.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
    },
    /// A routine run was claimed, or its time was recorded as missed. Recorded in the routine run's session.
    RoutineRunStarted {
        /// The routine run.
        routine_run: RoutineRunId,
        /// The routine.
        routine: String,
        /// Its trigger: `schedule`, `event`, `webhook`, `system`, `manual`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["schedule", "event", "webhook", "system", "manual"])))]
        trigger: String,
        /// The scheduled time, in milliseconds since 1970 (UTC).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scheduled_ms: Option<i64>,
    },
    /// The heartbeat skipped a beat, without a model call. Recorded in the routine run's session, before the end of the
    /// routine run.
    HeartbeatSkipped {
        /// The routine run.
        routine_run: RoutineRunId,
        /// The name of a [`SkipReason`].
        #[cfg_attr(feature = "schema", schemars(with = "SkipReason"))]
        reason: String,
    },
    /// A routine run has ended. Recorded in the routine run's session.
    RoutineRunEnded {
        /// The routine run.
        routine_run: RoutineRunId,
        /// The routine.
        routine: String,
        /// Its status.
        status: RoutineRunStatus,
        /// Whether this end disabled the routine.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        disabled: bool,
    },
    /// A tool, or an MCP server with all its tools, fails repeatedly. Reported once, until it succeeds or a day has
    /// passed. Names the run of the newest failure and no session.
    ToolFailing {
        /// The tool; `mcp:NAME` for a server.
        name: String,
        /// The failures in a row.
        failures: u32,
        /// The number of different runs among them.
        runs: u32,
        /// The time of the first one, in milliseconds since 1970 (UTC).
        since_ms: i64,
        /// The kind of the last failure: `failed`, `timed_out` or `crashed`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["failed", "timed_out", "crashed"])))]
        kind: String,
        /// Twelve hex digits: the same for failures whose texts differ in numbers only.
        fingerprint: String,
    },
    /// A tool, or an MCP server with all its tools, was disabled or enabled. Names no session.
    ToolStateChanged {
        /// The tool; `mcp:NAME` for a server.
        name: String,
        /// Whether it is enabled now.
        on: bool,
        /// `rule`, `trial` (a call that was let through to test it), or the person who did it.
        actor: String,
        /// The reason, for people.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        detail: String,
        /// The time from which one call is let through, in milliseconds since 1970 (UTC); absent: never automatically.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until_ms: Option<i64>,
    },
    /// A person has to log in at an MCP server. Names no session.
    ServerNeedsLogin {
        /// The server.
        server: String,
        /// The reason, for people.
        detail: String,
    },
    /// A command has changed a conversation: `undo`, `redo`, `clear`, `new`, `resume`, `fork`.
    ThreadEdited {
        /// The command.
        edit: String,
    },
    /// A part of an answer was committed for delivery while its run continues.
    MessageEmitted {
        /// blake3 of its text, in hex. An attempt after a crash recognises by it what was sent.
        digest: String,
    },
    /// A run has sent a file. The same write stores it with the run.
    FileSent {
        /// The file.
        file: SentFile,
    },
    /// A run has started a process that goes on in the background.
    ProcessStarted {
        /// Its name.
        process: String,
        /// Its command line.
        command: String,
        /// Whether the conversation keeps it when the run ends.
        kept: bool,
    },
    /// A process in the background has ended, with everything that it had started.
    ProcessEnded {
        /// Its name.
        process: String,
        /// How: by itself, or why Belay has ended it.
        #[cfg_attr(feature = "schema", schemars(extend("enum" =
            ["exited", "killed", "run_ended", "stopped", "age", "output", "disk", "crashed"])))]
        how: String,
        /// Its exit code, if it has exited by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
    },
    /// The delivery of a reply has ended.
    Delivered {
        /// `sent`, `ambiguous` or `failed`.
        #[cfg_attr(feature = "schema", schemars(extend("enum" = ["sent", "ambiguous", "failed"])))]
        outcome: String,
    },
}

impl EventKind {
    /// The JSON that a store writes: without the marks of untrusted content in any text, of any writer. People
    /// read events.
    ///
    /// # Errors
    /// It has no JSON, which no event of this type can cause.
    pub fn to_stored(&self) -> serde_json::Result<String> {
        let json = serde_json::to_string(self)?;
        if !json.contains('<') {
            return Ok(json);
        }
        let mut value = serde_json::from_str(&json)?;
        crate::unmark_value(&mut value);
        serde_json::to_string(&serde_json::from_value::<Self>(value)?) // the fields in their order
    }

    /// A model call of this step that was answered with its first request, with its input and output tokens. The model
    /// and the duration are not known.
    pub fn model_called(step: u32, input: Option<u64>, output: Option<u64>) -> Self {
        let (model, error, purpose) = (String::new(), String::new(), String::new());
        Self::ModelCalled { step, attempts: 1, input, output, model, took_ms: 0, error, purpose }
    }
}
