//! `GET /api/v1/costs`: what model calls have cost, by day, person, model or purpose.

use axum::Json;
use axum::extract::State;
use belay_protocol::{CostKey, CostQuery, CostRow, OpenReservations, Purpose, Spent, UnixMillis};
use serde::{Deserialize, Serialize};

use super::status::status_of;
use crate::app::Shared;
use crate::checks::{LIST_MAX, check_limit};
use crate::dates;
use crate::error::ApiError;
use crate::extract::{Caller, Params};

/// Days before today that are summed without `since`.
const DAYS_DEFAULT: i64 = 29;

const DAY_MS: i64 = 86_400_000;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CostParams {
    #[serde(default)]
    by: CostKey,
    since: Option<String>,
    until: Option<String>,
    limit: Option<u32>,
}

/// Costs, and the budgets of today.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CostReport {
    by: CostKey,
    /// The first UTC day of the rows.
    first_day: String,
    /// The last one.
    last_day: String,
    rows: Vec<CostRow>,
    today: Today,
    caps: Vec<Cap>,
    open_reservations: OpenReservations,
}

/// The money of today (UTC), open reservations included.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Today {
    day: String,
    cost_micro_usd: u64,
    by_purpose: Spent,
}

/// A budget of the day, and what is spent of it.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cap {
    /// The purpose that it is for; `null`: all together.
    purpose: Option<Purpose>,
    limit_micro_usd: u64,
    spent_micro_usd: u64,
}

/// Sums costs by a key: for an operator those of everybody, else those of the principal.
pub(crate) async fn show(
    State(app): State<Shared>,
    Caller(principal): Caller,
    Params(params): Params<CostParams>,
) -> Result<Json<CostReport>, ApiError> {
    let now = app.clock.now();
    let since = dates::optional("since", params.since.as_deref(), now)?;
    let until = dates::optional("until", params.until.as_deref(), now)?;
    let last_day = until.map_or(now, |until| UnixMillis(until.0.saturating_sub(1))).utc_day();
    let first_day = since.map_or(last_day.saturating_sub(DAYS_DEFAULT), UnixMillis::utc_day);
    if first_day > last_day {
        return Err(ApiError::invalid("since: must be before until"));
    }
    let limit = check_limit(params.limit.or(Some(LIST_MAX)))?;
    let only = app.visibility(&principal).own_only().map(|id| (app.channel.clone(), id.to_owned()));
    let permit = app.slots.summing.acquire().await.map_err(|_closed| ApiError::internal())?;
    let rows = app.spending.costs(CostQuery { by: params.by, first_day, last_day, only, limit }).await?;
    drop(permit);
    let status = status_of(&app, principal).await?;
    let all = status.limit_today_micro_usd.map(|limit| Cap {
        purpose: None,
        limit_micro_usd: limit,
        spent_micro_usd: status.spent_today_micro_usd,
    });
    let of_purposes = status.limit_today_for.iter().map(|(purpose, limit)| Cap {
        purpose: Some(*purpose),
        limit_micro_usd: *limit,
        spent_micro_usd: status.spent_today_for.of(*purpose),
    });
    Ok(Json(CostReport {
        by: params.by,
        first_day: day_text(first_day),
        last_day: day_text(last_day),
        rows,
        caps: all.into_iter().chain(of_purposes).collect(),
        today: Today {
            day: now.day(),
            cost_micro_usd: status.spent_today_micro_usd,
            by_purpose: status.spent_today_for.clone(),
        },
        open_reservations: status.open_reservations,
    }))
}

fn day_text(utc_day: i64) -> String {
    UnixMillis(utc_day.saturating_mul(DAY_MS)).day()
}
