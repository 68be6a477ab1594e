//! `GET /api/v1/approvals`, `GET` and `POST /api/v1/approvals/{id}`: questions about tool calls, and their answers.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belay_protocol::{
    Ack, Asker, CallId, Control, Decision, Gate, GateFilter, GateId, GateKind, GateState, Principal, RunId, SessionKey,
    UnixMillis,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::runs::id_prefix;
use crate::app::{App, Shared};
use crate::checks::check_limit;
use crate::error::ApiError;
use crate::extract::{Caller, GatePath, JsonBody, Params};
use crate::visibility::VisibleSession;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    session: Option<String>,
    /// Those that were answered, too.
    #[serde(default)]
    all: bool,
    limit: Option<u32>,
    /// The beginning of the id.
    id: Option<String>,
}

/// An answer as a client sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// A text, so that anything else is told apart from broken JSON.
    decision: String,
}

fn decision(word: &str) -> Result<Decision, ApiError> {
    match word {
        "approve" => Ok(Decision::Approve),
        "always" => Ok(Decision::Always),
        "deny" => Ok(Decision::Deny),
        other => Err(ApiError::invalid(format!("decision: must be approve, always or deny, not {other:?}"))),
    }
}

#[derive(Serialize)]
struct ApprovalList<'a> {
    approvals: Vec<Approval<'a>>,
}

#[derive(Serialize)]
struct DecidedBody<'a> {
    approval: Approval<'a>,
    run_id: RunId,
    reply: String,
}

/// A question as the outside sees it: all of it but the digest, which is no business of anybody else.
#[derive(Serialize)]
pub(crate) struct Approval<'a> {
    id: GateId,
    run_id: RunId,
    session: &'a SessionKey,
    call_id: &'a CallId,
    tool: &'a str,
    #[serde(flatten)]
    kind: &'a GateKind,
    summary: &'a str,
    arguments: &'a Value,
    detail: &'a str,
    bound: &'a [(String, String)],
    covers: Option<&'a str>,
    asker: &'a Asker,
    asked_at: UnixMillis,
    expires_at: UnixMillis,
    state: GateState,
    decided_by: Option<&'a str>,
    decided_at: Option<UnixMillis>,
}

impl<'a> Approval<'a> {
    /// The question as it stands now.
    pub(crate) fn at(gate: &'a Gate, now: UnixMillis) -> Self {
        Self {
            id: gate.id,
            run_id: gate.run_id,
            session: &gate.session,
            call_id: &gate.call_id,
            tool: &gate.tool,
            kind: &gate.kind,
            summary: &gate.summary,
            arguments: &gate.arguments,
            detail: &gate.detail,
            bound: &gate.bound,
            covers: gate.covers.as_deref(),
            asker: &gate.asker,
            asked_at: gate.asked_at,
            expires_at: gate.expires_at,
            state: gate.state_at(now),
            decided_by: gate.decided_by.as_deref(),
            decided_at: gate.decided_at,
        }
    }
}

/// Questions, newest first: those that nobody has answered, or with `all` every one.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let session = app.visibility(&principal).named_session("session", params.session.as_deref()).await?;
    let filter = GateFilter {
        id: id_prefix(params.id.as_deref())?,
        waiting: !params.all,
        limit: check_limit(params.limit)?,
        ..GateFilter::default()
    };
    let list = list_gates(&app, &principal, session, filter).await?;
    Ok(Json(list).into_response())
}

/// Questions as the API shows them to this principal, newest first, of that session where one is named. A question whose time is
/// up waits no more, whether or not its lane has noticed.
pub(crate) async fn list_gates(
    app: &App,
    principal: &Principal,
    session: Option<VisibleSession>,
    filter: GateFilter,
) -> Result<Value, ApiError> {
    let (now, waiting) = (app.clock.now(), filter.waiting);
    let filter = GateFilter { session: session.map(VisibleSession::into_key), ..filter };
    let read = |limit| app.gates.gates(GateFilter { limit, ..filter.clone() });
    let gates = app.visibility(principal).page(filter.limit, read, |gate| &gate.session).await?;
    let wanted = gates.iter().filter(|gate| !waiting || gate.state_at(now) == GateState::Waiting);
    shown(&ApprovalList { approvals: wanted.map(|gate| Approval::at(gate, now)).collect() })
}

/// One question.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    GatePath(id): GatePath,
) -> Result<Response, ApiError> {
    Ok(Json(Approval::at(&find(&app, &principal, id).await?, app.clock.now())).into_response())
}

/// Answers a question. Whether the answer counts, the agent says.
pub(crate) async fn decide(
    State(app): State<Shared>,
    Caller(principal): Caller,
    GatePath(id): GatePath,
    JsonBody(answer): JsonBody<Answer>,
) -> Result<Response, ApiError> {
    decide_gate(&app, principal, id, &answer.decision).await.map(|body| Json(body).into_response())
}

/// Answers a question by a word of the API, and shows it as it stands then.
pub(crate) async fn decide_gate(app: &App, principal: Principal, id: GateId, word: &str) -> Result<Value, ApiError> {
    let decision = decision(word)?;
    // An operator's answer does not wait for a store to say whose question it is: the agent knows.
    if app.visibility(&principal).own_only().is_some() {
        find(app, &principal, id).await?;
    }
    let reply = match app.control(principal.clone(), Control::Decide { gate: id, decision }).await? {
        Ack::Command(reply) => reply.reply,
        other => return Err(ApiError::unexpected(&other)),
    };
    let gate = find(app, &principal, id).await?;
    shown(&DecidedBody { approval: Approval::at(&gate, app.clock.now()), run_id: gate.run_id, reply })
}

fn shown(body: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(body).map_err(|error| {
        tracing::error!(%error, "a question cannot be written");
        ApiError::internal()
    })
}

/// A question, for those who are shown its session.
async fn find(app: &App, principal: &Principal, id: GateId) -> Result<Gate, ApiError> {
    let absent = || ApiError::not_found(format!("no such question: {id}"));
    let gate = app.gates.gate(id).await?.ok_or_else(absent)?;
    if app.visibility(principal).session(&gate.session).await? { Ok(gate) } else { Err(absent()) }
}
