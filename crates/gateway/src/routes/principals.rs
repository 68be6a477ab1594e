//! `GET /api/v1/principals`: the people and programs that have sent messages.

use axum::Json;
use axum::extract::State;
use belay_protocol::KnownPrincipal;
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::checks::check_limit;
use crate::error::ApiError;
use crate::extract::{Operator, Params};

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// The length of the list.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PrincipalList {
    principals: Vec<KnownPrincipal>,
}

/// Lists principals, the most recently seen first.
pub(crate) async fn list(
    State(app): State<Shared>,
    Operator(_): Operator,
    Params(params): Params<ListParams>,
) -> Result<Json<PrincipalList>, ApiError> {
    let principals = app.sessions.principals(check_limit(params.limit)?).await?;
    Ok(Json(PrincipalList { principals }))
}
