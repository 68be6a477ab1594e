//! All operations of the document.

use axum::http::Method;
use belay_protocol::attachment::BlobDigest;
use belay_protocol::{
    BegunLogin, CommandReply, ContextReport, Delta, EndedLogin, Event, HeartbeatReport, LoginReport, Note,
    PeopleReport, RoutineRecord, RoutineRunRecord, RoutineSpec, RunRecord, SessionSummary, StopReport, ToolHealth,
    UnixMillis,
};
use serde_json::{Map, Value};

use super::operation::{Caller, Operation, client, operator};
use crate::agent_rpc::{AcceptedAnswer, AgentAnswer, WaitParams, WaitedRun};
use crate::parts::{BackupFailure, BackupRequest, RoutineTest, SettingsReport};
use crate::routes::openai::{anthropic, responses};
use crate::routes::{
    approvals, archive, console, context, costs, ends, events, files, freeze, health, hooks, jobs, judge, logins,
    memory, messages, models, nodes, openai, people, principals, progress, resume, routine_runs, routines, runs,
    sessions, status, stop, tools, webhook,
};
use crate::streams::AgentEvent;
use crate::submit::AgentParams;

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const DELETE: Method = Method::DELETE;

/// The data of the events of a stream of facts.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema matters")]
enum StreamedFact {
    Fact(Box<Event>),
    Begin(events::Begin),
    Reset(resume::Reset),
}

/// The data of the events of a run.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema matters")]
enum StreamedFactOrDelta {
    Fact(Box<Event>),
    Reset(resume::Reset),
    Delta(Delta),
}

/// The data of the events of a stream of agent events.
#[derive(schemars::JsonSchema)]
#[serde(untagged)]
#[allow(dead_code, reason = "only its schema matters")]
enum StreamedAgentEvent {
    Agent(AgentEvent),
    Reset(resume::Reset),
}

/// The backups of a daemon. Its values are made where backups are.
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema matters")]
struct BackupList {
    /// The newest first.
    backups: Vec<Backup>,
    /// The date of the next scheduled one; `null`: there is no schedule.
    next: Option<UnixMillis>,
    /// The last failure; `null`: no backup has failed since the last success.
    last_failure: Option<BackupFailure>,
}

/// A backup.
#[derive(schemars::JsonSchema)]
#[allow(dead_code, reason = "only its schema matters")]
struct Backup {
    /// Its path on the machine of the daemon.
    file: String,
    /// Its size.
    bytes: u64,
    /// Whether it can be restored. If not, it has a `problem` and no field below.
    verified: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// When it was begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    created: Option<UnixMillis>,
    #[schemars(with = "String", extend("enum" = ["request", "schedule"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// The version of the program that wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    /// The schema of its database.
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<u32>,
    /// How many entries it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    /// Whether the key of the vault is in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    with_key: Option<bool>,
    /// The files of messages that were damaged on the disk, by SHA-256. They are not in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<Vec<BlobDigest>>,
}

/// The operations, in the order of the reference.
pub(super) fn all() -> Vec<Operation> {
    let parts = [health(), messages(), runs(), jobs(), routines(), approvals(), stops(), people(), memory()];
    let more = [sessions(), administration(), browsers(), openai(), responses(), anthropic(), webhooks()];
    parts.into_iter().chain(more).flatten().collect()
}

fn health() -> Vec<Operation> {
    let open = |path, id, summary| client(GET, path, id, summary).called_by(Caller::Anyone);
    vec![
        open("/openapi.json", "describeApi", "This document").json::<Map<String, Value>>(200, "The document."),
        open("/livez", "isAlive", "Whether the process answers").json::<health::Live<'_>>(200, "It does."),
        open("/readyz", "isReady", "Whether a message would be accepted now")
            .json::<health::Ready>(200, "It would.")
            .json::<health::Ready>(503, "It would not, for this reason."),
        open("/startupz", "hasStarted", "Whether a message could be accepted since the start")
            .json::<health::Started>(200, "It could.")
            .json::<health::Started>(503, "It could not yet."),
    ]
}

fn messages() -> Vec<Operation> {
    vec![
        client(POST, "/api/v1/messages", "sendMessage", "Accepts a message, and perhaps waits for its run")
            .body::<messages::NewMessage>()
            .json::<RunRecord>(200, "The run has ended or waits for approval; or the reply to a command.")
            .json::<messages::AnsweredCommand>(200, "")
            .json::<messages::AcceptedBody>(202, "The message is on disk.")
            .errors(&[404, 409, 429]),
        client(POST, "/api/v1/files", "uploadFile", "Stores a file that a message can name")
            .query::<files::UploadParams>()
            .bytes_body()
            .json::<files::UploadedFile<'_>>(201, "The file is stored.")
            .errors(&[429]),
        client(GET, "/api/v1/files/{token}", "downloadFile", "The bytes of a sent file")
            .called_by(Caller::Anyone)
            .bytes("The file, as an attachment.")
            .with_headers(&["content-disposition"])
            .errors(&[410, 503]),
        client(POST, "/api/v1/agent", "sendAgentMessage", "Accepts a message in the form of the WebSocket RPC")
            .body::<AgentParams>()
            .json::<AgentAnswer>(200, "The end of the run of a repeated message; or the reply to a command.")
            .json::<AcceptedAnswer>(202, "The message is on disk.")
            .errors(&[404, 409, 429]),
        client(POST, "/api/v1/agent/wait", "waitForAgentRun", "Waits for the end of a run, as `agent.wait`")
            .body::<WaitParams>()
            .json::<WaitedRun>(200, "The run, ended or not.")
            .errors(&[404]),
    ]
}

fn runs() -> Vec<Operation> {
    let of = |method, path, id, summary| client(method, path, id, summary);
    vec![
        of(GET, "/api/v1/runs", "listRuns", "Lists runs, newest first")
            .query::<runs::ListParams>()
            .json::<runs::RunList>(200, "The runs.")
            .errors(&[404]),
        of(GET, "/api/v1/runs/{id}", "showRun", "One run").json::<RunRecord>(200, "The run."),
        of(GET, "/api/v1/runs/{id}/wait", "waitForRun", "Waits until a run has ended or waits for approval")
            .query::<runs::WaitParams>()
            .json::<RunRecord>(200, "The run as it is then, or when the time is up."),
        of(GET, "/api/v1/runs/{id}/events", "followRun", "Streams the facts of a run, to its end")
            .query::<resume::ResumeParams>()
            .header("last-event-id")
            .events::<StreamedFactOrDelta>("Facts have an id; `delta` events have none."),
        of(GET, "/api/v1/runs/{id}/stream", "followAgentRun", "Streams the agent events of a run, to its end")
            .query::<resume::ResumeParams>()
            .header("last-event-id")
            .events::<StreamedAgentEvent>("The `agent` events of the WebSocket RPC."),
        of(GET, "/api/v1/runs/{id}/trajectory", "exportRun", "The messages and calls of a run as a recording")
            .text("application/jsonl", "One JSON object a line."),
        of(GET, "/api/v1/events", "followAll", "Streams the facts of all runs and sessions, without end")
            .query::<events::AllParams>()
            .header("last-event-id")
            .events::<StreamedFact>("Facts have an id. The first event may be `begin` or `reset`, about the cursor."),
        operator(POST, "/api/v1/events", "reportEvent", "Reports an event, which triggers routines")
            .body::<routine_runs::ReportedEvent>()
            .json::<routine_runs::RoutineRunList>(200, "The routine runs that it has triggered.")
            .errors(&[409, 429]),
    ]
}

fn jobs() -> Vec<Operation> {
    vec![
        client(GET, "/api/v1/jobs", "listJobs", "Lists jobs, newest first")
            .query::<jobs::ListParams>()
            .json::<jobs::JobList>(200, "The jobs."),
        client(POST, "/api/v1/jobs", "createJob", "Makes a job")
            .body::<jobs::NewJob>()
            .json::<progress::JobView>(202, "The job; its work is not done yet.")
            .errors(&[404, 409, 429]),
        client(GET, "/api/v1/jobs/{id}", "showJob", "One job, and its current work")
            .json::<progress::JobView>(200, "The job."),
        client(GET, "/api/v1/jobs/{id}/events", "followJob", "Streams the facts of a job, to its end")
            .query::<resume::ResumeParams>()
            .header("last-event-id")
            .events::<StreamedFact>("Facts have an id. The first event may be `begin` or `reset`, about the cursor."),
        client(POST, "/api/v1/jobs/{id}/messages", "messageJob", "Sends a message to a running job")
            .body::<jobs::JobMessage>()
            .json::<jobs::SaidBody>(200, "It was delivered.")
            .errors(&[409, 429]),
        job_change("/api/v1/jobs/{id}/cancel", "cancelJob", "Cancels a job; does not wait for its end")
            .optional_body::<status::Nothing>(),
        job_change("/api/v1/jobs/{id}/accept", "acceptJob", "Accepts the result of a job")
            .optional_body::<status::Nothing>(),
        job_change("/api/v1/jobs/{id}/revoke", "revokeJobGrant", "Revokes a grant of a job").body::<jobs::Revocation>(),
    ]
}

fn job_change(path: &'static str, id: &'static str, summary: &'static str) -> Operation {
    client(POST, path, id, summary).json::<progress::JobView>(200, "The job after it.").errors(&[409])
}

fn routines() -> Vec<Operation> {
    let mut list = routine_records();
    list.extend([
        client(POST, "/api/v1/routines/{name}/fire", "fireRoutine", "Starts a run of a routine by hand")
            .header("idempotency-key")
            .optional_body::<routines::ManualRun>()
            .json::<RoutineRunRecord>(202, "The routine run; its work is not done yet.")
            .errors(&[409, 429]),
        client(GET, "/api/v1/routines/{name}/runs", "listRunsOfRoutine", "The runs of a routine, newest first")
            .query::<routine_runs::OwnParams>()
            .json::<routine_runs::RoutineRunList>(200, "The routine runs."),
        client(POST, "/api/v1/routines/{name}/test", "testRoutine", "Whether a routine would run at a date")
            .body::<routines::At>()
            .json::<routines::TestedRoutine>(200, "The answer."),
        client(GET, "/api/v1/routine-runs", "listRoutineRuns", "The runs of all routines, newest first")
            .query::<routine_runs::ListParams>()
            .json::<routine_runs::RoutineRunList>(200, "The routine runs.")
            .errors(&[404]),
        client(GET, "/api/v1/routine-runs/next", "nextRoutineRuns", "The next scheduled runs")
            .query::<routine_runs::NextParams>()
            .json::<routine_runs::NextRuns>(200, "The times, without regard to guardrails.")
            .errors(&[404]),
        client(GET, "/api/v1/routine-runs/{id}", "showRoutineRun", "One routine run")
            .json::<RoutineRunRecord>(200, "The routine run."),
        operator(GET, "/api/v1/heartbeat", "showHeartbeat", "The state of the heartbeat")
            .json::<HeartbeatReport>(200, "The state, and what it would do now."),
    ]);
    list
}

fn routine_records() -> Vec<Operation> {
    let change = |path, id, summary| {
        client(POST, path, id, summary).json::<RoutineRecord>(200, "The routine after it.").errors(&[409])
    };
    vec![
        client(GET, "/api/v1/routines", "listRoutines", "Lists routines by name")
            .query::<routines::ListParams>()
            .json::<routines::RoutineList>(200, "The routines."),
        client(POST, "/api/v1/routines", "createRoutine", "Makes a routine; one of that name is refused")
            .body::<RoutineSpec>()
            .json::<RoutineRecord>(201, "The routine.")
            .errors(&[409, 429]),
        client(GET, "/api/v1/routines/{name}", "showRoutine", "One routine").json::<RoutineRecord>(200, "The routine."),
        client(PUT, "/api/v1/routines/{name}", "putRoutine", "Creates or replaces a routine")
            .body::<RoutineSpec>()
            .json::<RoutineRecord>(200, "The routine.")
            .errors(&[409, 429]),
        client(DELETE, "/api/v1/routines/{name}", "deleteRoutine", "Deletes a routine")
            .json::<routines::RoutineDeleted>(200, "It is deleted.")
            .errors(&[409]),
        client(POST, "/api/v1/routines/{name}", "testNewRoutine", "As `/test`, for a routine that does not exist yet")
            .body::<routines::SpecAt>()
            .json::<RoutineTest>(200, "The answer. `name` is `test`; other names are refused.")
            .errors(&[405]),
        change("/api/v1/routines/{name}/enable", "enableRoutine", "Enables a routine")
            .optional_body::<status::Nothing>(),
        change("/api/v1/routines/{name}/disable", "disableRoutine", "Disables a routine")
            .optional_body::<status::Nothing>(),
        change("/api/v1/routines/{name}/revoke", "revokeRoutineGrant", "Revokes a grant of a routine")
            .body::<routines::RoutineRevocation>(),
    ]
}

fn approvals() -> Vec<Operation> {
    vec![
        client(GET, "/api/v1/approvals", "listApprovals", "The questions that wait for an answer, newest first")
            .query::<approvals::ListParams>()
            .json::<approvals::ApprovalList<'_>>(200, "The questions.")
            .errors(&[404]),
        client(GET, "/api/v1/approvals/{id}", "showApproval", "One question")
            .json::<approvals::ShownApproval<'_>>(200, "The question, with the text that people were shown."),
        client(POST, "/api/v1/approvals/{id}", "decideApproval", "Answers a question")
            .body::<approvals::Answer>()
            .json::<approvals::DecidedBody<'_>>(200, "The question after it.")
            .errors(&[409]),
    ]
}

fn stops() -> Vec<Operation> {
    let stop = |operation: Operation| {
        let operation = operation.query::<stop::StopParams>().optional_body::<status::Nothing>();
        operation.json::<StopReport>(200, "What has ended, and what is still ending.")
    };
    let freezes = |operation: Operation| operation.json::<freeze::FreezeList>(200, "The freezes.");
    vec![
        stop(client(POST, "/api/v1/runs/{id}/stop", "stopRun", "Stops one run")),
        stop(client(POST, "/api/v1/sessions/{key}/stop", "stopSession", "Stops the turn and the queue of a session")),
        stop(operator(POST, "/api/v1/stop", "stopAll", "Stops everything")),
        freezes(operator(GET, "/api/v1/freeze", "listFreezes", "Lists freezes").query::<freeze::FreezeParams>()),
        freezes(operator(POST, "/api/v1/freeze", "freeze", "Begins a freeze").optional_body::<freeze::Part>()),
        freezes(operator(POST, "/api/v1/thaw", "thaw", "Ends a freeze").optional_body::<freeze::Part>()).errors(&[404]),
    ]
}

fn people() -> Vec<Operation> {
    let report = |operation: Operation| operation.json::<PeopleReport>(200, "The people who may write.");
    vec![
        report(operator(GET, "/api/v1/people", "listPeople", "The people of channels with lists")),
        report(operator(POST, "/api/v1/people/pair", "pairPerson", "Admits the stranger with this code"))
            .body::<people::Pair>()
            .errors(&[404, 409]),
        report(operator(DELETE, "/api/v1/people/{person}", "removePerson", "Revokes the admission of a person")),
        operator(GET, "/api/v1/principals", "listPrincipals", "The people and programs that have sent messages")
            .query::<principals::ListParams>()
            .json::<principals::PrincipalList>(200, "Most recently seen first."),
    ]
}

fn memory() -> Vec<Operation> {
    vec![
        client(GET, "/api/v1/memory", "listNotes", "Lists or searches notes")
            .query::<memory::ListParams>()
            .json::<memory::NoteList>(200, "The notes."),
        client(DELETE, "/api/v1/memory", "deleteNotes", "Deletes all notes of a person or a group")
            .query::<memory::DeleteParams>()
            .json::<memory::NotesDeleted>(200, "How many were deleted."),
        client(GET, "/api/v1/memory/{id}", "showNote", "One note").json::<Note>(200, "The note."),
        client(PUT, "/api/v1/memory/{id}", "editNote", "Replaces the text of a note")
            .body::<memory::Edited>()
            .json::<Note>(200, "The note after it."),
        client(DELETE, "/api/v1/memory/{id}", "deleteNote", "Deletes a note")
            .json::<memory::NotesDeleted>(200, "How many were deleted."),
    ]
}

fn sessions() -> Vec<Operation> {
    vec![
        client(GET, "/api/v1/sessions", "listSessions", "Lists sessions, most recently used first")
            .query::<sessions::ListParams>()
            .json::<sessions::SessionList>(200, "The sessions."),
        client(GET, "/api/v1/sessions/{key}", "showSession", "One session").json::<SessionSummary>(200, "The session."),
        client(GET, "/api/v1/sessions/{key}/messages", "listMessages", "The messages of a session, oldest first")
            .query::<sessions::HistoryParams>()
            .json::<sessions::History>(200, "A page of messages."),
        client(GET, "/api/v1/sessions/{key}/stream", "followSession", "Streams the agent events of a session")
            .query::<resume::ResumeParams>()
            .header("last-event-id")
            .events::<StreamedAgentEvent>("The `agent` events of the WebSocket RPC, without end."),
        client(GET, "/api/v1/sessions/{key}/context", "showContext", "The prompt of the next model call")
            .query::<context::ContextParams>()
            .json::<ContextReport>(200, "The prompt, part by part."),
        client(GET, "/api/v1/sessions/{key}/threads", "listThreads", "The conversations of a session, oldest first")
            .json::<archive::ThreadList>(200, "The conversations."),
        client(GET, "/api/v1/sessions/{key}/export", "exportSession", "An export of a session, as a stream")
            .query::<archive::ExportParams>()
            .text("text/markdown", "The export in the asked format.")
            .text("application/jsonl", ""),
        client(GET, "/api/v1/search", "search", "Searches messages for words, best match first")
            .query::<archive::SearchParams>()
            .json::<archive::FoundList>(200, "The messages.")
            .errors(&[404]),
        operator(PUT, "/api/v1/sessions/{key}", "changeSession", "Gives a session a title, hides it or shows it again")
            .body::<archive::SessionChanges>()
            .json::<SessionSummary>(200, "The session."),
        operator(DELETE, "/api/v1/sessions/{key}", "deleteSession", "Deletes a session with all its data")
            .optional_body::<status::Nothing>()
            .json::<archive::Deleted>(200, "What was deleted.")
            .errors(&[409]),
        operator(DELETE, "/api/v1/sessions/{key}/secrets", "deleteSecrets", "Deletes the secrets of a session")
            .json::<archive::Forgotten>(200, "How many were deleted."),
        operator(DELETE, "/api/v1/sessions/{key}/secrets/{name}", "deleteSecret", "Deletes a secret of a session")
            .json::<archive::Forgotten>(200, "How many were deleted."),
        operator(POST, "/api/v1/prune", "prune", "Deletes data that is older than the settings allow")
            .query::<archive::PruneParams>()
            .optional_body::<status::Nothing>()
            .json::<archive::Pruned>(200, "What was deleted."),
    ]
}

fn administration() -> Vec<Operation> {
    vec![
        client(GET, "/api/v1/tools", "listTools", "The tools that runs can call, by name")
            .json::<tools::ToolList>(200, "The tools and their health."),
        operator(POST, "/api/v1/tools/{name}/disable", "disableTool", "Disables a tool")
            .body::<tools::DisableReason>()
            .json::<ToolHealth>(200, "The tool after it."),
        operator(POST, "/api/v1/tools/{name}/enable", "enableTool", "Enables a tool")
            .optional_body::<status::Nothing>()
            .json::<ToolHealth>(200, "The tool after it."),
        client(GET, "/api/v1/status", "showStatus", "Running and queued work, the model, and budgets")
            .json::<status::DaemonStatus>(200, "The status."),
        operator(GET, "/api/v1/nodes", "listNodes", "Lists the daemons that share the database")
            .json::<nodes::NodeReport>(200, "The nodes, and the work that one of them does at a time."),
        operator(GET, "/api/v1/backups", "listBackups", "Lists backups, with the schedule")
            .json::<BackupList>(200, "The backups, newest first, the next one, and the last failure."),
        operator(POST, "/api/v1/backups", "createBackup", "Makes a backup and verifies it")
            .optional_body::<BackupRequest>()
            .json::<Backup>(200, "The backup."),
        client(GET, "/api/v1/costs", "listCosts", "Sums the cost of model calls, by day, person, model or purpose")
            .query::<costs::CostParams>()
            .json::<costs::CostReport>(200, "The sums, today's cost and its limits."),
        client(GET, "/api/v1/ends", "countEnds", "Counts ended runs by reason, for each day or hour")
            .query::<ends::EndParams>()
            .json::<ends::EndReport>(200, "The counts."),
        client(GET, "/api/v1/latency", "showLatency", "How long things took in each half hour of the last day")
            .json::<status::LatencyReport>(200, "The latencies, by kind.")
            .errors(&[404]),
        operator(POST, "/api/v1/judge", "judgeRuns", "Says what other stop rules would have done in recorded runs")
            .body::<judge::JudgeRequest>()
            .json::<judge::JudgeReport>(200, "The runs, each with the judgement.")
            .errors(&[404]),
        client(GET, "/api/v1/models", "listCandidates", "The models of this daemon, and their state")
            .json::<models::ModelsReport>(200, "The models."),
        client(GET, "/api/v1/mcp", "listServers", "The MCP servers of this daemon, and their state")
            .json::<models::ServersReport>(200, "The servers."),
        operator(POST, "/api/v1/mcp/{name}/login", "beginLogin", "Begins a login at an MCP server")
            .body::<logins::LoginRequest>()
            .json::<BegunLogin>(200, "The address for a browser.")
            .errors(&[409]),
        operator(POST, "/api/v1/mcp/{name}/login/finish", "finishLogin", "Completes a login at an MCP server")
            .body::<logins::LoginAnswer>()
            .json::<LoginReport>(200, "The login. Its tokens are on disk.")
            .errors(&[409]),
        operator(DELETE, "/api/v1/mcp/{name}/login", "endLogin", "Revokes and deletes the tokens of an MCP server")
            .json::<EndedLogin>(200, "What was ended.")
            .errors(&[409, 422]),
        operator(GET, "/api/v1/settings", "showSettings", "The merged settings, masked, with their origins")
            .json::<SettingsReport>(200, "The settings."),
        operator(POST, "/api/v1/shutdown", "shutdown", "Drains and ends the daemon")
            .optional_body::<status::Nothing>()
            .json::<CommandReply>(200, "It drains."),
        client(GET, "/metrics", "showMetrics", "Counters in the text format of Prometheus")
            .text("text/plain", "The metrics.")
            .errors(&[404]),
    ]
}

fn browsers() -> Vec<Operation> {
    vec![
        client(POST, "/console/sign-in", "signIn", "Signs a browser in, by a token or a one-time link")
            .called_by(Caller::Anyone)
            .body::<console::Proof>()
            .json::<console::Session>(200, "It is signed in, by the cookie of this answer.")
            .errors(&[401, 403, 409, 429]),
        client(GET, "/console/session", "showSignIn", "Who the page is")
            .json::<console::Session>(200, "The role, and whether a cookie says so."),
        client(DELETE, "/console/session", "signOut", "Signs this browser out")
            .json::<console::EndedSignIns>(200, "It is signed out."),
        client(GET, "/console/sessions", "listSignIns", "The browsers that are signed in")
            .json::<console::SignInList>(200, "The newest first."),
        client(DELETE, "/console/sessions", "signOutEverywhere", "Signs all browsers out")
            .json::<console::EndedSignIns>(200, "They are signed out. A client ends only its own."),
        client(DELETE, "/console/sessions/{id}", "endSignIn", "Signs one browser out")
            .json::<console::EndedSignIns>(200, "It is signed out."),
        operator(
            POST,
            "/api/v1/console/links",
            "makeConsoleLink",
            "Makes a one-time link, over the control socket only",
        )
        .json::<console::ConsoleLink>(200, "The address of the console.")
        .errors(&[409]),
    ]
}

fn openai() -> Vec<Operation> {
    vec![
        client(GET, "/v1/models", "listModels", "The model names that a chat request may use")
            .json::<openai::ModelList>(200, "The names."),
        client(GET, "/v1/models/{name}", "showModel", "One model name").json::<openai::ModelBody>(200, "The name."),
        client(POST, "/v1/chat/completions", "createChatCompletion", "Answers a chat request of OpenAI's clients")
            .header("x-belay-session")
            .header("idempotency-key")
            .body::<openai::ChatBody>()
            .json::<openai::Completion<'_>>(200, "The answer; with `stream`, in pieces.")
            .events::<openai::Chunk<'_>>("")
            .with_headers(&["x-belay-run", "x-belay-session", "x-belay-reason"])
            .errors(&[402, 404, 409, 429, 502]),
        client(POST, "/v1/completions", "createCompletion", "Answers a text as the older API of OpenAI does")
            .header("x-belay-session")
            .header("idempotency-key")
            .body::<openai::TextBody>()
            .json::<openai::TextCompletion<'_>>(200, "The answer; with `stream`, in pieces.")
            .with_headers(&["x-belay-run", "x-belay-session", "x-belay-reason"])
            .errors(&[402, 404, 409, 429, 502]),
        client(
            POST,
            "/v1/embeddings",
            "createEmbeddings",
            "Makes vectors of texts, where a server for them is configured",
        )
        .body::<openai::EmbeddingsRequest>()
        .json::<openai::Embeddings>(200, "The vectors, in the order of the texts.")
        .errors(&[404, 429, 502]),
    ]
}

fn responses() -> Vec<Operation> {
    const ONE: &str = "/v1/responses/{response}";
    vec![
        client(POST, "/v1/responses", "createResponse", "Answers a request of OpenAI's Responses API")
            .header("x-belay-session")
            .header("idempotency-key")
            .body::<responses::ResponsesRequest>()
            .json::<responses::ResponseBody>(200, "The response; with `stream`, as events.")
            .events::<responses::ResponseEvent>("")
            .with_headers(&["x-belay-run", "x-belay-session", "x-belay-reason"])
            .errors(&[402, 404, 409, 429, 502]),
        client(GET, ONE, "showResponse", "Shows a response as it is, or streams it")
            .query::<responses::ShowParams>()
            .json::<responses::ResponseBody>(200, "The response; with `stream`, as events.")
            .events::<responses::ResponseEvent>("")
            .with_headers(&["x-belay-run", "x-belay-session", "x-belay-reason"]),
        client(DELETE, ONE, "deleteResponse", "Deletes a response with its conversation")
            .json::<responses::DeletedResponse>(200, "It is deleted.")
            .errors(&[409]),
        client(POST, "/v1/responses/{response}/cancel", "cancelResponse", "Stops the run of a response")
            .json::<responses::ResponseBody>(200, "The response."),
        client(
            GET,
            "/v1/responses/{response}/input_items",
            "listResponseInput",
            "The items that a request has brought",
        )
        .query::<responses::ItemParams>()
        .json::<responses::ItemList>(200, "A page of items."),
    ]
}

fn anthropic() -> Vec<Operation> {
    vec![
        client(POST, "/v1/messages", "createMessage", "Answers a request of Anthropic's Messages API")
            .header("x-belay-session")
            .header("idempotency-key")
            .body::<anthropic::MessagesRequest>()
            .json::<anthropic::MessageBody>(200, "The message; with `stream`, as events.")
            .events::<anthropic::MessageEvent>("")
            .with_headers(&["request-id", "x-belay-run", "x-belay-session", "x-belay-reason"])
            .errors(&[402, 404, 409, 429, 502]),
        client(POST, "/v1/messages/count_tokens", "countTokens", "Estimates the tokens of such a request")
            .body::<anthropic::MessagesRequest>()
            .json::<anthropic::TokenCount>(200, "The estimate.")
            .with_headers(&["request-id"])
            .errors(&[404]),
    ]
}

fn webhooks() -> Vec<Operation> {
    vec![
        client(POST, "/hooks/{name}", "triggerRoutine", "Triggers a routine")
            .called_by(Caller::Secret)
            .header("x-delivery-id")
            .text_body()
            .json::<hooks::TriggeredRoutine<'_>>(200, "The routine run.")
            .errors(&[401, 403, 409, 429, 503]),
        client(POST, "/webhook", "sendSignedMessage", "Accepts a signed message, where a secret is configured")
            .called_by(Caller::Signer)
            .body::<webhook::Delivery>()
            .json::<messages::AcceptedBody>(200, "It was accepted before; or the reply to a command.")
            .json::<messages::AnsweredCommand>(200, "")
            .json::<messages::AcceptedBody>(202, "The message is on disk.")
            .errors(&[401, 403, 404, 409, 429, 503]),
        client(GET, "/ws", "openWebSocket", "Opens the WebSocket RPC, whose frames have a schema of their own")
            .called_by(Caller::Anyone)
            .errors(&[401, 403, 429, 503]),
    ]
}
