//! The tools about runs: begin one, see where it stands, stop it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Accepted, Ack, Control, Inbound, Principal, RunId, RunRecord, RunWatch, StopTarget};
use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::results::{CallFailure, json_of, next_step, run as told_run};
use super::tools::{RunStatus, SendMessage, StopRun};
use crate::app::App;
use crate::checks::no_such_run;
use crate::error::ApiError;
use crate::routes::{NewMessage, stop_run};

/// How often a client that asked for it hears that a wait goes on. 2 s: clients that count silence count in tens of seconds.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// `send_message`: hands a message over, and with `wait_ms` waits until its run rests.
pub(super) async fn send(
    app: &App,
    principal: Principal,
    message: SendMessage,
    context: &RequestContext<RoleServer>,
) -> Result<Value, CallFailure> {
    let SendMessage { session, text, wait_ms, stop_on_cancel, idempotency_key } = message;
    let message = NewMessage::plain(session, text, idempotency_key, wait_ms);
    let (inbound, wait) = message.check(&app.config, app.channel.clone(), principal.clone())?;
    let tied = stop_on_cancel && wait.is_some();
    let _place = place(app, wait)?;
    let begun = Begun::of(hand_over(app, inbound, tied, context).await?)?;
    let (Some(limit), Some(run)) = (wait, begun.run) else { return Ok(begun.told) };
    match wait_for(app, run, begun.watch, limit, context).await? {
        Waited::Until(Some(record)) => Ok(told_run(&record)),
        Waited::Until(None) => Ok(begun.told), // gone from the store meanwhile: what was said at the beginning holds
        Waited::Cancelled => {
            if tied && begun.ours {
                app.tell(principal, Control::Stop(StopTarget::RunOfGoneClient(run)));
            }
            Err(CallFailure::cancelled())
        }
    }
}

/// `run_status`: where a run stands, with `wait_ms` once it rests.
pub(super) async fn status(
    app: &App,
    principal: Principal,
    asked: RunStatus,
    context: &RequestContext<RoleServer>,
) -> Result<Value, CallFailure> {
    let run = asked.run()?;
    let limit = Duration::from_millis(asked.wait_ms.unwrap_or(0));
    if limit > app.config.max_wait() {
        return Err(CallFailure::wrong(format!("wait_ms: at most {}", app.config.max_wait_ms)));
    }
    let run = app.visibility(&principal).visible_run(run).await?.id();
    if app.runs.run(run).await.map_err(ApiError::from)?.is_none() {
        return Err(no_such_run(run).into());
    }
    let _place = place(app, Some(limit).filter(|limit| !limit.is_zero()))?;
    let watch = app.watch(principal, run, false).await?;
    match wait_for(app, run, watch, limit, context).await? {
        Waited::Until(Some(record)) => Ok(told_run(&record)),
        Waited::Until(None) => Err(no_such_run(run).into()),
        Waited::Cancelled => Err(CallFailure::cancelled()),
    }
}

/// `stop_run`: what has ended, and what has not yet.
pub(super) async fn stop(app: &App, principal: Principal, asked: StopRun) -> Result<Value, CallFailure> {
    let run = app.visibility(&principal).visible_run(asked.run()?).await?;
    let report = stop_run(app, principal, run, Duration::ZERO).await?;
    let mut told = json_of(&report);
    if !report.still_running.is_empty() {
        told["next"] = json!("Some of its processes are still ending: ask run_status, or call stop_run again.");
    } else if report.stopped.is_empty() {
        told["next"] = json!("There was nothing to stop; run_status shows how it ended.");
    }
    Ok(told)
}

/// A message that was taken.
struct Begun {
    /// The run that answers it, or goes on because of it; `None`: it was a command and is answered.
    run: Option<RunId>,
    watch: Option<RunWatch>,
    /// Whether this call has begun the run.
    ours: bool,
    /// What is said about it without waiting.
    told: Value,
}

impl Begun {
    fn of(ack: Ack) -> Result<Self, CallFailure> {
        match ack {
            Ack::Accepted(Accepted { run_id, session, duplicate, watch, .. }) => {
                let next = next_step(belay_protocol::RunStatus::Accepted);
                let mut told = json!({ "run_id": run_id, "session": session, "status": "accepted", "next": next });
                if duplicate {
                    told["duplicate"] = json!(true);
                }
                Ok(Self { run: Some(run_id), watch, ours: !duplicate, told })
            }
            Ack::Command(answer) => {
                let (run, mut told) = (answer.resumes, json_of(&answer));
                told["status"] = json!("answered");
                Ok(Self { run, watch: None, ours: false, told })
            }
            other => Err(ApiError::unexpected(&other).into()),
        }
    }
}

/// Hands a message to the agent; one that is `tied` to its call is not left behind by a call that is cancelled before the
/// run has a name.
async fn hand_over(
    app: &App,
    inbound: Inbound,
    tied: bool,
    context: &RequestContext<RoleServer>,
) -> Result<Ack, CallFailure> {
    if !tied {
        return Ok(app.ask(inbound).await?);
    }
    tokio::select! {
        biased;
        () = context.ct.cancelled() => Err(CallFailure::cancelled()),
        ack = app.ask_while_there(inbound) => Ok(ack?),
    }
}

/// A place among those who wait; a call that does not wait needs none.
fn place(app: &App, wait: Option<Duration>) -> Result<Option<OwnedSemaphorePermit>, CallFailure> {
    let taken = wait.map(|_| app.streams.clone().try_acquire_owned()).transpose();
    taken.map_err(|_full| CallFailure::too_many_wait())
}

/// What came of waiting.
enum Waited {
    /// The run rests, or the time is up, or the gateway ends. `None`: there is no such run.
    Until(Option<Arc<RunRecord>>),
    /// Nobody waits any more.
    Cancelled,
}

/// Waits until a run rests, and tells a client that gave a token for it how it gets on.
async fn wait_for(
    app: &App,
    run: RunId,
    watch: Option<RunWatch>,
    limit: Duration,
    context: &RequestContext<RoleServer>,
) -> Result<Waited, CallFailure> {
    let begun = Instant::now();
    let token = context.meta.get_progress_token();
    let mut ticks = interval_at(begun + PROGRESS_EVERY, PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let telling = async {
        let Some(token) = token else { return std::future::pending::<Infallible>().await };
        loop {
            ticks.tick().await;
            let progress = progress(app, run, token.clone(), begun.elapsed(), limit).await;
            // A client that cannot be told has gone away, which ends the call by itself.
            let _ = context.peer.notify_progress(progress).await;
        }
    };
    // Side by side: a client that has stopped reading, or a slow store, holds up the telling, but no end of the wait.
    tokio::select! {
        biased; // who is gone waits for nothing
        () = context.ct.cancelled() => Ok(Waited::Cancelled),
        record = app.wait_for_run(run, watch, limit) => Ok(Waited::Until(record?)),
        never = telling => match never {},
    }
}

/// How a run gets on. What grows is the time: how much work a run has before it nobody knows.
async fn progress(
    app: &App,
    run: RunId,
    token: ProgressToken,
    waited: Duration,
    limit: Duration,
) -> ProgressNotificationParam {
    let about = match app.runs.run(run).await {
        Ok(Some(record)) => format!(
            "{}: {} model calls, {} tool calls",
            record.status.word(),
            record.usage.model_calls,
            record.usage.tool_calls
        ),
        // The wait itself tells of a run that is gone, or a store that cannot be read.
        Ok(None) | Err(_) => "the run goes on".to_owned(),
    };
    ProgressNotificationParam::new(token, waited.as_secs_f64()).with_total(limit.as_secs_f64()).with_message(about)
}
