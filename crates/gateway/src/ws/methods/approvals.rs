//! `approvals.list` and `approvals.decide`: the same bodies as over HTTP.

use belay_protocol::ApprovalFilter;
use serde::Deserialize;
use serde_json::Value;

use super::Caller;
use crate::checks::{check_cursor, check_limit};
use crate::error::ApiError;
use crate::routes::{decide_approval, list_approvals};

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ApprovalsListParams"))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListParams {
    session_key: Option<String>,
    /// Include answered requests.
    #[serde(default)]
    all: bool,
    /// The `next` of the page before.
    after: Option<String>,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "ApprovalsDecideParams"))]
#[serde(deny_unknown_fields)]
pub(super) struct DecideParams {
    id: String,
    decision: String,
    /// The values of a form, by field; only with `approve`.
    #[serde(default)]
    values: Option<serde_json::Map<String, Value>>,
}

pub(super) async fn list(caller: &Caller, params: ListParams) -> Result<Value, ApiError> {
    let visibility = caller.app.visibility(&caller.principal);
    let session = visibility.named_session("sessionKey", params.session_key.as_deref()).await?;
    let filter = ApprovalFilter {
        waiting: !params.all,
        before: check_cursor(params.after.as_deref())?,
        limit: check_limit(params.limit)?,
        ..ApprovalFilter::default()
    };
    list_approvals(&caller.app, &caller.principal, session, filter).await
}

/// Answers an approval request. The agent decides whether the answer counts.
pub(super) async fn decide(caller: &Caller, params: DecideParams) -> Result<Value, ApiError> {
    let id = params.id.parse().map_err(|_not_a_uuid| ApiError::invalid("id: not the id of a question"))?;
    decide_approval(&caller.app, caller.principal.clone(), id, (&params.decision, params.values)).await
}
