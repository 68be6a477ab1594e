//! `GET /api/v1/principals`: the people and programs that have sent messages.

use axum::Json;
use axum::extract::State;
use belay_protocol::{KnownPrincipal, PrincipalFilter};
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::checks::check_limit;
use crate::cursor;
use crate::dates;
use crate::error::ApiError;
use crate::extract::{Operator, Params};
use crate::visibility::Page;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// Last seen at this date or later.
    since: Option<String>,
    /// The `next` of the page before.
    after: Option<String>,
    /// The length of a page.
    #[cfg_attr(test, schemars(range(min = 1, max = 500)))]
    limit: Option<u32>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PrincipalList {
    principals: Vec<KnownPrincipal>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// Lists principals, the most recently seen first, in pages.
pub(crate) async fn list(
    State(app): State<Shared>,
    Operator(_): Operator,
    Params(params): Params<ListParams>,
) -> Result<Json<PrincipalList>, ApiError> {
    let limit = check_limit(params.limit)?;
    let filter = PrincipalFilter {
        limit: limit.saturating_add(1),
        since: dates::optional("since", params.since.as_deref(), app.clock.now())?,
        after: cursor::principal(params.after.as_deref())?,
    };
    let page = Page::cut(app.sessions.principals(filter).await?, limit, cursor::of_principal);
    Ok(Json(PrincipalList { principals: page.rows, next: page.next }))
}
