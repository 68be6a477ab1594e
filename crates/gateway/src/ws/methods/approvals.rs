//! `approvals.list` and `approvals.decide`: the same bodies as over HTTP.

use belay_protocol::GateFilter;
use serde::Deserialize;
use serde_json::Value;

use super::{Caller, session_key};
use crate::error::ApiError;
use crate::routes::{check_limit, decide_gate, list_gates};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ListParams {
    session_key: Option<String>,
    /// Those that were answered, too.
    #[serde(default)]
    all: bool,
    limit: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DecideParams {
    id: String,
    decision: String,
}

pub(super) async fn list(caller: &Caller, params: ListParams) -> Result<Value, ApiError> {
    let session = params.session_key.as_deref().map(session_key).transpose()?;
    let limit = check_limit(params.limit)?;
    list_gates(&caller.app, GateFilter { session, waiting: !params.all, limit, ..GateFilter::default() }).await
}

/// Whether the answer counts, the agent says.
pub(super) async fn decide(caller: &Caller, params: DecideParams) -> Result<Value, ApiError> {
    let id = params.id.parse().map_err(|_not_a_uuid| ApiError::invalid("id: not the id of a question"))?;
    decide_gate(&caller.app, caller.principal.clone(), id, &params.decision).await
}
