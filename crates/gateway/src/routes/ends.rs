//! `GET /api/v1/ends`: how many runs have ended for which reason, hour by hour or day by day.

use axum::Json;
use axum::extract::State;
use belay_protocol::{EndCount, EndQuery, Period, RunStatus, StopLayer, StopReason, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::app::Shared;
use crate::dates;
use crate::error::ApiError;
use crate::extract::{Caller, Params};

/// Longest time that one request covers, in periods. 400: a year by day, more than two weeks by hour.
const PERIODS_MAX: i64 = 400;
/// Periods that are counted without `since`: two weeks by day, two days by hour.
const DAYS_DEFAULT: i64 = 14;
const HOURS_DEFAULT: i64 = 48;

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct EndParams {
    #[serde(default)]
    by: Period,
    since: Option<String>,
    until: Option<String>,
    /// Whether the channels are counted apart.
    #[serde(default)]
    channels: bool,
    /// Whether the models are counted apart: for each run, the one that answered its last step.
    #[serde(default)]
    models: bool,
}

/// The ends of a time.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct EndReport {
    by: Period,
    since: UnixMillis,
    until: UnixMillis,
    ends: Vec<End>,
}

/// The ends for one reason in one period.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct End {
    at: UnixMillis,
    reason: StopReason,
    layer: StopLayer,
    status: RunStatus,
    /// The channel of the runs, if channels are counted apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<String>,
    /// The model that answered the last step of the runs, if models are counted apart; empty: it is not known, or none
    /// has answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    count: u64,
}

impl From<EndCount> for End {
    fn from(EndCount { at, reason, channel, model, count }: EndCount) -> Self {
        Self { at, reason, layer: reason.layer(), status: reason.status(), channel, model, count }
    }
}

/// Counts ended runs by reason and period. `since` is rounded down to the start of its period.
pub(crate) async fn count(
    State(app): State<Shared>,
    Caller(_): Caller,
    Params(params): Params<EndParams>,
) -> Result<Json<EndReport>, ApiError> {
    let (now, length) = (app.clock.now(), params.by.millis());
    let until = dates::optional("until", params.until.as_deref(), now)?.unwrap_or(now);
    let default = match params.by {
        Period::Day => DAYS_DEFAULT,
        Period::Hour => HOURS_DEFAULT,
    };
    let since = dates::optional("since", params.since.as_deref(), now)?;
    let since = since.unwrap_or(UnixMillis(until.0.saturating_sub((default - 1).saturating_mul(length))));
    let since = UnixMillis(since.0.div_euclid(length).saturating_mul(length));
    if since >= until {
        return Err(ApiError::invalid("since: must be before until"));
    }
    if until.0.saturating_sub(since.0) / length > PERIODS_MAX {
        return Err(ApiError::invalid(format!("since: at most {PERIODS_MAX} periods before until; count by day")));
    }
    let _permit = app.slots.summing.acquire().await.map_err(|_closed| ApiError::internal())?;
    let EndParams { by, channels, models, .. } = params;
    let ends = app.ends.ends(EndQuery { by, since, until, by_channel: channels, by_model: models }).await?;
    Ok(Json(EndReport { by, since, until, ends: ends.into_iter().map(End::from).collect() }))
}
