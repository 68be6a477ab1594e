//! `GET /api/v1/approvals`, `GET` and `POST /api/v1/approvals/{id}`: approval requests and their answers.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belay_protocol::{
    Ack, ApprovalFilter, ApprovalId, ApprovalKind, ApprovalRequest, ApprovalState, Asker, CallId, Control, Decision,
    FirstYes, Principal, RunId, SessionKey, UnixMillis,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::runs::id_prefix;
use crate::app::{App, Shared};
use crate::checks::{check_cursor, check_limit};
use crate::dates;
use crate::error::ApiError;
use crate::extract::{ApprovalPath, Caller, JsonBody, Params};
use crate::visibility::VisibleSession;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    session: Option<String>,
    /// Include answered requests.
    #[serde(default)]
    all: bool,
    /// Include only requests in this state.
    state: Option<ApprovalState>,
    /// Asked at this date or later.
    since: Option<String>,
    /// Asked before this date.
    until: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
    /// A prefix of the id.
    id: Option<String>,
}

/// An answer from a client.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ApprovalAnswer"))]
#[serde(deny_unknown_fields)]
pub(crate) struct Answer {
    /// A string, so that an unknown word gives another error than invalid JSON.
    #[cfg_attr(test, schemars(extend("enum" = ["approve", "always", "deny"])))]
    decision: String,
    /// The values of a form, by field; only with `approve`.
    #[serde(default)]
    values: Option<Map<String, Value>>,
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
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ApprovalList<'a> {
    approvals: Vec<Approval<'a>>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<ApprovalId>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "DecidedApproval"))]
pub(crate) struct DecidedBody<'a> {
    approval: Approval<'a>,
    run_id: RunId,
    reply: String,
}

/// An approval request in the API: all fields except the digest, which is internal.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Approval<'a> {
    id: ApprovalId,
    run_id: RunId,
    session: &'a SessionKey,
    call_id: &'a CallId,
    tool: &'a str,
    #[serde(flatten)]
    kind: &'a ApprovalKind,
    summary: &'a str,
    /// The arguments, an object in most cases; values of sensitive ones are replaced.
    arguments: &'a Value,
    detail: &'a str,
    bound: &'a [(String, String)],
    covers: Option<&'a str>,
    asker: &'a Asker,
    /// The work that asks, if it is autonomous.
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<&'a str>,
    /// The session of the conversation in which it is asked.
    asked_in: &'a SessionKey,
    /// Two persons must approve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    second: Option<Second<'a>>,
    asked_at: UnixMillis,
    expires_at: UnixMillis,
    state: ApprovalState,
    decided_by: Option<&'a str>,
    decided_at: Option<UnixMillis>,
}

/// One approval request, with the text that people were shown.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ShownApproval<'a> {
    #[serde(flatten)]
    approval: Approval<'a>,
    /// Markdown, as of the time of the question.
    question: String,
}

/// The approvals of a request that two persons must approve.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "SecondApproval"))]
pub(crate) struct Second<'a> {
    needed: u8,
    given: u8,
    first_by: Option<&'a str>,
    first_at: Option<UnixMillis>,
}

impl<'a> Second<'a> {
    fn of(first: Option<&'a FirstYes>) -> Self {
        Self {
            needed: 2,
            given: u8::from(first.is_some()),
            first_by: first.map(|first| &*first.by),
            first_at: first.map(|first| first.at),
        }
    }
}

impl<'a> Approval<'a> {
    /// The request as of `now`.
    pub(crate) fn at(approval: &'a ApprovalRequest, now: UnixMillis) -> Self {
        Self {
            id: approval.id,
            run_id: approval.run_id,
            session: &approval.session,
            call_id: &approval.call_id,
            tool: &approval.tool,
            kind: &approval.kind,
            summary: &approval.summary,
            arguments: &approval.arguments,
            detail: &approval.detail,
            bound: &approval.bound,
            covers: approval.covers.as_deref(),
            asker: &approval.asker,
            work: approval.place.as_ref().map(|place| &*place.work),
            asked_in: approval.asked_in(),
            second: approval.second.is_some().then(|| Second::of(approval.first_yes())),
            asked_at: approval.asked_at,
            expires_at: approval.expires_at,
            state: approval.state_at(now),
            decided_by: approval.decided_by.as_deref(),
            decided_at: approval.decided_at,
        }
    }
}

/// Lists approval requests, newest first, in pages: the open ones, or with `all` every one.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let session = app.visibility(&principal).named_session("session", params.session.as_deref()).await?;
    if params.all && params.state.is_some() {
        return Err(ApiError::invalid("state: give either all or state"));
    }
    let now = app.clock.now();
    let filter = ApprovalFilter {
        id: id_prefix(params.id.as_deref())?,
        waiting: !params.all && params.state.is_none_or(|state| state == ApprovalState::Waiting),
        state: params.state,
        since: dates::optional("since", params.since.as_deref(), now)?,
        until: dates::optional("until", params.until.as_deref(), now)?,
        before: check_cursor(params.after.as_deref())?,
        limit: check_limit(params.limit)?,
        ..ApprovalFilter::default()
    };
    let list = list_approvals(&app, &principal, session, filter).await?;
    Ok(Json(list).into_response())
}

/// A page of the approval requests that this principal may see, newest first; only those of `session` if it is given. An
/// expired request does not count as open, even if its lane has not noticed yet.
pub(crate) async fn list_approvals(
    app: &App,
    principal: &Principal,
    session: Option<VisibleSession>,
    filter: ApprovalFilter,
) -> Result<Value, ApiError> {
    let (now, waiting) = (app.clock.now(), filter.waiting);
    let filter = ApprovalFilter { session: session.map(VisibleSession::into_key), ..filter };
    let read = |limit| app.approvals.approvals(ApprovalFilter { limit, ..filter.clone() });
    let visibility = app.visibility(principal);
    let page = visibility.page(filter.limit, read, |approval| &approval.session, |approval| approval.id).await?;
    let state = filter.state.or(waiting.then_some(ApprovalState::Waiting));
    let wanted = page.rows.iter().filter(|approval| state.is_none_or(|state| approval.state_at(now) == state));
    let approvals = wanted.map(|approval| Approval::at(approval, now)).collect();
    shown(&ApprovalList { approvals, next: page.next })
}

/// Shows one approval request.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    ApprovalPath(id): ApprovalPath,
) -> Result<Response, ApiError> {
    let approval = find(&app, &principal, id).await?;
    let question = (app.texts.question)(&approval, approval.asked_at);
    Ok(Json(ShownApproval { approval: Approval::at(&approval, app.clock.now()), question }).into_response())
}

/// Answers an approval request. The agent decides whether the answer counts.
pub(crate) async fn decide(
    State(app): State<Shared>,
    Caller(principal): Caller,
    ApprovalPath(id): ApprovalPath,
    JsonBody(answer): JsonBody<Answer>,
) -> Result<Response, ApiError> {
    decide_approval(&app, principal, id, (&answer.decision, answer.values)).await.map(|body| Json(body).into_response())
}

/// Answers an approval request with a decision word of the API, and returns the request after that.
pub(crate) async fn decide_approval(
    app: &App,
    principal: Principal,
    id: ApprovalId,
    (word, values): (&str, Option<Map<String, Value>>),
) -> Result<Value, ApiError> {
    let decision = decision(word)?;
    let control = match (values, decision) {
        (None, decision) => Control::Decide { approval: id, decision },
        (Some(values), Decision::Approve) => Control::FillIn { approval: id, values },
        (Some(_), _) => return Err(ApiError::invalid("values: only with the decision approve")),
    };
    // An operator's answer does not wait for the store: the agent knows the request.
    if app.visibility(&principal).own_only().is_some() {
        find(app, &principal, id).await?;
    }
    let reply = app.control(principal.clone(), control).await;
    let reply = match reply.map_err(|error| error.about("decision"))? {
        Ack::Command(reply) => reply.reply,
        other => return Err(ApiError::unexpected(&other)),
    };
    let approval = find(app, &principal, id).await?;
    shown(&DecidedBody { approval: Approval::at(&approval, app.clock.now()), run_id: approval.run_id, reply })
}

fn shown(body: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(body).map_err(|error| {
        tracing::error!(%error, "a question cannot be written");
        ApiError::internal()
    })
}

/// Reads an approval request, if the principal may see its session.
async fn find(app: &App, principal: &Principal, id: ApprovalId) -> Result<ApprovalRequest, ApiError> {
    let absent = || ApiError::not_found(format!("no such question: {id}"));
    let approval = app.approvals.approval(id).await?.ok_or_else(absent)?;
    if app.visibility(principal).session(&approval.session).await? { Ok(approval) } else { Err(absent()) }
}
