//! `/api/v1/routines`: rules that start work by time or event. The agent makes all changes; reads come from the store.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse, Response};
use belay_protocol::{
    Ack, Body, Control, IdempotencyKey, Principal, RoutineAnswer, RoutineRecord, RoutineRequest, RoutineRunRecord,
    RoutineSpec,
};
use serde::{Deserialize, Serialize};

use super::status::Nothing;
use crate::app::{App, Shared};
use crate::checks::{LIST_MAX, check_key, check_limit};
use crate::error::ApiError;
use crate::extract::{Caller, JsonBody, NamePath, OptionalBody, Params};
use crate::parts::RoutineTest;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// A name: lists the routines after it.
    after: Option<String>,
    /// The length of the list.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RoutineList {
    routines: Vec<RoutineRecord>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// The input of a routine run that is started by hand.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ManualRun {
    payload: Option<String>,
    /// Makes a repeated request recognisable. The header [`KEY_HEADER`] does the same.
    idempotency_key: Option<String>,
}

/// The header with the key of a routine run that is started by hand, for clients that send no body.
pub(crate) const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// A date to test a routine at: with an offset, or in local time of the routine's zone.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "TestDate"))]
#[serde(deny_unknown_fields)]
pub(crate) struct At {
    at: String,
}

/// A routine that does not exist yet, and a date to test it at.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "RoutineAndDate"))]
#[serde(deny_unknown_fields)]
pub(crate) struct SpecAt {
    spec: RoutineSpec,
    at: String,
}

/// Lists routines by name, in pages.
pub(crate) async fn list(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<ListParams>,
) -> Result<Response, ApiError> {
    let limit = check_limit(Some(params.limit.unwrap_or(LIST_MAX)))? as usize;
    let mut routines = app.routines.routines().await?;
    routines.retain(|routine| app.visibility(&principal).routine(routine));
    if let Some(after) = params.after {
        routines.retain(|routine| routine.spec.name > after);
    }
    let more = routines.len() > limit;
    routines.truncate(limit);
    let next = routines.last().filter(|_| more).map(|routine| routine.spec.name.clone());
    Ok(Json(RoutineList { routines, next }).into_response())
}

/// Shows one routine.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
) -> Result<Json<RoutineRecord>, ApiError> {
    find(&app, &principal, &name).await.map(Json)
}

/// Creates a routine; an existing one is refused.
pub(crate) async fn create(
    State(app): State<Shared>,
    Caller(principal): Caller,
    JsonBody(spec): JsonBody<RoutineSpec>,
) -> Result<Response, ApiError> {
    let routine = changed(&app, principal, RoutineRequest::Put { spec, fresh: true }).await?;
    Ok((StatusCode::CREATED, Json(routine)).into_response())
}

/// Creates or replaces the routine of this name.
pub(crate) async fn put(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    JsonBody(spec): JsonBody<RoutineSpec>,
) -> Result<Json<RoutineRecord>, ApiError> {
    if spec.name != name {
        return Err(ApiError::invalid(format!("name: {:?} is not the one in the path, {name:?}", spec.name)));
    }
    changed(&app, principal, RoutineRequest::Put { spec, fresh: false }).await.map(Json)
}

/// Refuses to change a routine that the caller may not see, as if it did not exist. The agent checks too; for an
/// operator only the agent checks.
async fn check_visible(app: &App, principal: &Principal, name: &str) -> Result<(), ApiError> {
    match app.visibility(principal).own_only() {
        Some(_) => find(app, principal, name).await.map(|_theirs| ()),
        None => Ok(()),
    }
}

/// Enables a routine.
pub(crate) async fn enable(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<RoutineRecord>, ApiError> {
    check_visible(&app, &principal, &name).await?;
    changed(&app, principal, RoutineRequest::Enable { name, on: true }).await.map(Json)
}

/// Disables a routine.
pub(crate) async fn disable(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    OptionalBody(Nothing {}): OptionalBody<Nothing>,
) -> Result<Json<RoutineRecord>, ApiError> {
    check_visible(&app, &principal, &name).await?;
    changed(&app, principal, RoutineRequest::Enable { name, on: false }).await.map(Json)
}

/// The grant of a routine that is revoked.
#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct RoutineRevocation {
    /// The number of the grant, from 1.
    grant: usize,
}

/// Revokes a grant of a routine.
pub(crate) async fn revoke(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    JsonBody(RoutineRevocation { grant }): JsonBody<RoutineRevocation>,
) -> Result<Json<RoutineRecord>, ApiError> {
    check_visible(&app, &principal, &name).await?;
    changed(&app, principal, RoutineRequest::Revoke { name, grant }).await.map(Json)
}

/// The name of the deleted routine.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RoutineDeleted {
    deleted: String,
}

/// Deletes a routine.
pub(crate) async fn delete(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
) -> Result<Json<RoutineDeleted>, ApiError> {
    check_visible(&app, &principal, &name).await?;
    match ask_agent(&app, principal, RoutineRequest::Delete(name)).await? {
        RoutineAnswer::Deleted(deleted) => Ok(Json(RoutineDeleted { deleted })),
        other => Err(unexpected(&other)),
    }
}

/// Starts a routine run by hand: 202, because its work is not done yet.
pub(crate) async fn fire(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    headers: HeaderMap,
    OptionalBody(ManualRun { payload, idempotency_key }): OptionalBody<ManualRun>,
) -> Result<Response, ApiError> {
    check_visible(&app, &principal, &name).await?;
    let key = manual_key(&headers, idempotency_key.as_deref())?;
    let mut inbound = app
        .without_session(principal, Body::Control(Control::Routine(Box::new(RoutineRequest::Fire { name, payload }))));
    inbound.key = key.map(|key| IdempotencyKey {
        channel: app.channel.clone(),
        account: inbound.principal.id.clone(),
        message_id: key.into(),
    });
    let routine_runs = runs_of_answer(answer_of(app.ask(inbound).await?)?)?;
    // The request names one routine.
    let Some(routine_run) = routine_runs.into_iter().next() else { return Err(ApiError::internal()) };
    Ok((StatusCode::ACCEPTED, Json(routine_run)).into_response())
}

/// The key of a routine run that is started by hand, from the header or the body.
fn manual_key<'a>(headers: &'a HeaderMap, in_body: Option<&'a str>) -> Result<Option<&'a str>, ApiError> {
    let in_header = headers.get(KEY_HEADER).map(|key| key.to_str().unwrap_or_default());
    if in_header.is_some() && in_body.is_some() && in_header != in_body {
        return Err(ApiError::invalid("idempotency_key: the header Idempotency-Key says another: send one of them"));
    }
    let key = in_header.or(in_body).map(check_key).transpose();
    key.map_err(|e| ApiError::invalid(format!("idempotency_key: {e}")))
}

/// The result of testing a stored routine.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TestedRoutine {
    #[serde(flatten)]
    test: RoutineTest,
    /// Why it is disabled; absent: it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled_detail: Option<String>,
}

/// Tests whether a routine would trigger at a date.
pub(crate) async fn test(
    State(app): State<Shared>,
    Caller(principal): Caller,
    NamePath(name): NamePath,
    JsonBody(At { at }): JsonBody<At>,
) -> Result<Json<TestedRoutine>, ApiError> {
    let routine = find(&app, &principal, &name).await?;
    let test = tested(&app, &routine.spec, &at)?;
    let disabled_detail = (!routine.enabled).then_some(routine.disabled_detail);
    Ok(Json(TestedRoutine { test, disabled_detail }))
}

/// Tests a routine that does not exist yet. No other name accepts POST.
pub(crate) async fn test_new(
    State(app): State<Shared>,
    NamePath(name): NamePath,
    JsonBody(SpecAt { spec, at }): JsonBody<SpecAt>,
) -> Result<Json<RoutineTest>, ApiError> {
    if name != "test" {
        return Err(ApiError::method_not_allowed());
    }
    tested(&app, &spec, &at).map(Json)
}

fn tested(app: &App, spec: &RoutineSpec, at: &str) -> Result<RoutineTest, ApiError> {
    app.times.test(spec, at).map_err(|problem| ApiError::invalid(problem).about("at"))
}

/// The routine of that name, if the principal may see it.
///
/// # Errors
/// 404.
pub(super) async fn find(app: &App, principal: &Principal, name: &str) -> Result<RoutineRecord, ApiError> {
    let routine = app.routines.routine(name).await?.filter(|routine| app.visibility(principal).routine(routine));
    routine.ok_or_else(|| ApiError::not_found(format!("no such routine: {name}")))
}

/// Sends a request that triggers routines, and returns the routine runs.
pub(super) async fn trigger_runs(
    app: &App,
    principal: Principal,
    request: RoutineRequest,
) -> Result<Vec<RoutineRunRecord>, ApiError> {
    runs_of_answer(ask_agent(app, principal, request).await?)
}

fn runs_of_answer(answer: RoutineAnswer) -> Result<Vec<RoutineRunRecord>, ApiError> {
    match answer {
        RoutineAnswer::Fired(routine_runs) => Ok(routine_runs),
        other => Err(unexpected(&other)),
    }
}

async fn changed(app: &App, principal: Principal, request: RoutineRequest) -> Result<RoutineRecord, ApiError> {
    match ask_agent(app, principal, request).await? {
        RoutineAnswer::Routine(routine) => Ok(*routine),
        other => Err(unexpected(&other)),
    }
}

async fn ask_agent(app: &App, principal: Principal, request: RoutineRequest) -> Result<RoutineAnswer, ApiError> {
    answer_of(app.control(principal, Control::Routine(Box::new(request))).await?)
}

fn answer_of(ack: Ack) -> Result<RoutineAnswer, ApiError> {
    match ack {
        Ack::Routine(answer) => Ok(answer),
        other => Err(ApiError::unexpected(&other)),
    }
}

fn unexpected(answer: &RoutineAnswer) -> ApiError {
    tracing::error!(?answer, "unexpected answer about routines");
    ApiError::internal()
}
