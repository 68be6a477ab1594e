//! `POST /api/v1/judge`: what other stop rules would have done in recorded runs.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use belay_protocol::{RunFilter, RunId, RunRecord, RunStatus, SessionKey, StopReason};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::app::{App, Shared};
use crate::checks::no_such_run;
use crate::error::ApiError;
use crate::extract::{JsonBody, Operator};
use crate::parts::Judged;
use crate::routes::compactions;

/// Most runs of one request. 200: some seconds of one processor.
const RUNS_MAX: usize = 200;
/// Runs that are judged if the request names none.
const RUNS_DEFAULT: u32 = 20;
/// Longest text of rules, in bytes. 64 KiB: the operator's longest file has some hundred lines.
const RULES_MAX_BYTES: usize = 64 * 1024;
/// The time after which no further run is judged. 20 s: clients wait for 30.
const TIME_MAX: Duration = Duration::from_secs(20);

#[derive(Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct JudgeRequest {
    /// The runs; absent: the last ones.
    runs: Option<Vec<RunId>>,
    /// The number of the last runs that have ended.
    last: Option<u32>,
    /// The rules: TOML with the keys of `[stops]`.
    rules: String,
}

/// The verdicts, in the order of the runs.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct JudgeReport {
    runs: Vec<JudgedRun>,
    /// Whether every run was judged; `false`: the time was up.
    complete: bool,
}

/// A run: its end, and what the rules would have done.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct JudgedRun {
    run_id: RunId,
    session: SessionKey,
    status: RunStatus,
    reason: Option<StopReason>,
    would: Judged,
}

/// Judges recorded runs by the rules of the request. Changes nothing.
pub(crate) async fn judge(
    State(app): State<Shared>,
    Operator(_): Operator,
    JsonBody(request): JsonBody<JudgeRequest>,
) -> Result<Json<JudgeReport>, ApiError> {
    if request.rules.len() > RULES_MAX_BYTES {
        return Err(ApiError::invalid(format!("rules: at most {RULES_MAX_BYTES} bytes")));
    }
    let busy = |_taken| ApiError::busy("another request judges runs");
    let _permit = app.slots.judging.try_acquire().map_err(busy)?;
    let (compile, rules) = (app.judge.clone(), request.rules);
    let judge = spawn_blocking(move || compile(&rules)).await.map_err(|_panicked| ApiError::internal())?;
    let judge = judge.map_err(|problems| ApiError::invalid(format!("rules: {problems}")))?;
    let until = Instant::now() + TIME_MAX;
    let chosen = chosen(&app, request.runs, request.last).await?;
    let count = chosen.len();
    let mut runs = Vec::with_capacity(count);
    for run in chosen {
        if Instant::now() > until {
            break;
        }
        let messages = app.runs.run_messages(run.run_id).await?;
        let compactions = compactions::of_run(&*app.events, run.run_id).await?;
        let judge = judge.clone();
        // Off the threads of the server: it computes. If the client goes away, it ends with this run.
        let would =
            spawn_blocking(move || judge(&messages, &compactions)).await.map_err(|_panicked| ApiError::internal())?;
        let RunRecord { run_id, session, status, reason, .. } = run;
        runs.push(JudgedRun { run_id, session, status, reason, would });
    }
    Ok(Json(JudgeReport { complete: runs.len() == count, runs }))
}

/// The named runs, or the last ones that have ended, newest first.
async fn chosen(app: &App, named: Option<Vec<RunId>>, last: Option<u32>) -> Result<Vec<RunRecord>, ApiError> {
    match (named, last) {
        (Some(_), Some(_)) => Err(ApiError::invalid("last: give either runs or last")),
        (Some(ids), None) => {
            if !(1..=RUNS_MAX).contains(&ids.len()) {
                return Err(ApiError::invalid(format!("runs: must be 1 to {RUNS_MAX} ids")));
            }
            let mut runs = Vec::with_capacity(ids.len());
            for id in ids {
                runs.push(app.runs.run(id).await?.ok_or_else(|| no_such_run(id))?);
            }
            Ok(runs)
        }
        (None, last) => {
            let last = last.unwrap_or(RUNS_DEFAULT);
            if last == 0 || last as usize > RUNS_MAX {
                return Err(ApiError::invalid(format!("last: must be 1 to {RUNS_MAX}")));
            }
            // Open runs are few, so twice as many runs have enough that have ended.
            let filter = RunFilter { limit: last.saturating_mul(2), ..RunFilter::default() };
            let mut runs = app.runs.runs(filter).await?;
            runs.retain(|run| run.status.is_end());
            runs.truncate(last as usize);
            Ok(runs)
        }
    }
}
