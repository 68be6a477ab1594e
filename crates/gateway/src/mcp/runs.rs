//! The tools about runs: start one, read its status, stop it.

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
use crate::routes::messages::NewMessage;
use crate::routes::stop::stop_run;

/// Interval of progress notifications during a wait, if the client asked for them. 2 s: clients use idle timeouts of
/// tens of seconds.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// The tool `send_message`: sends a message, and with `wait_ms` waits until its run has ended or waits for approval.
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
    let _permit = wait_permit(app, wait)?;
    let begun = Begun::of(hand_over(app, inbound, tied, context).await?)?;
    let (Some(limit), Some(run)) = (wait, begun.run) else { return Ok(begun.answer) };
    match wait_for(app, run, begun.watch, limit, context).await? {
        Waited::Until(Some(record)) => Ok(told_run(&record)),
        Waited::Until(None) => Ok(begun.answer), // deleted from the store meanwhile: the first answer is still correct
        Waited::Cancelled => {
            if tied && begun.ours {
                app.send_control(principal, Control::Stop(StopTarget::RunOfGoneClient(run)));
            }
            Err(CallFailure::cancelled())
        }
    }
}

/// The tool `run_status`: returns the status of a run. With `wait_ms` it waits until the run has ended or waits for
/// approval.
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
    let _permit = wait_permit(app, Some(limit).filter(|limit| !limit.is_zero()))?;
    let watch = app.watch(principal, run, false).await?;
    match wait_for(app, run, watch, limit, context).await? {
        Waited::Until(Some(record)) => Ok(told_run(&record)),
        Waited::Until(None) => Err(no_such_run(run).into()),
        Waited::Cancelled => Err(CallFailure::cancelled()),
    }
}

/// The tool `stop_run`: returns which runs have ended and which are still ending.
pub(super) async fn stop(app: &App, principal: Principal, asked: StopRun) -> Result<Value, CallFailure> {
    let run = app.visibility(&principal).visible_run(asked.run()?).await?;
    let report = stop_run(app, principal, run, Duration::ZERO).await?;
    let mut answer = json_of(&report);
    if !report.still_running.is_empty() {
        answer["next"] = json!("Some of its processes are still ending: ask run_status, or call stop_run again.");
    } else if report.stopped.is_empty() && report.ended_processes == 0 {
        answer["next"] = json!("There was nothing to stop; run_status shows how it ended.");
    }
    Ok(answer)
}

/// An accepted message.
struct Begun {
    /// The run that answers the message, or that continues because of it. `None`: it was a command, which has been
    /// answered.
    run: Option<RunId>,
    watch: Option<RunWatch>,
    /// Whether this call has started the run.
    ours: bool,
    /// The answer without waiting.
    answer: Value,
}

impl Begun {
    fn of(ack: Ack) -> Result<Self, CallFailure> {
        match ack {
            Ack::Accepted(Accepted { run_id, session, duplicate, watch, .. }) => {
                let next = next_step(belay_protocol::RunStatus::Accepted);
                let mut answer = json!({ "run_id": run_id, "session": session, "status": "accepted", "next": next });
                if duplicate {
                    answer["duplicate"] = json!(true);
                }
                Ok(Self { run: Some(run_id), watch, ours: !duplicate, answer })
            }
            Ack::Command(answer) => {
                let (run, mut answer) = (answer.resumes, json_of(&answer));
                answer["status"] = json!("answered");
                Ok(Self { run, watch: None, ours: false, answer })
            }
            other => Err(ApiError::unexpected(&other).into()),
        }
    }
}

/// Hands a message to the agent. A `tied` message is stopped if its call is cancelled before the run has an id.
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
        ack = app.ask_while_there(inbound, std::time::Duration::ZERO) => Ok(ack?),
    }
}

/// Takes a permit for a waiting call. A call that does not wait needs none.
fn wait_permit(app: &App, wait: Option<Duration>) -> Result<Option<OwnedSemaphorePermit>, CallFailure> {
    let taken = wait.map(|_| app.streams.clone().try_acquire_owned()).transpose();
    taken.map_err(|_full| CallFailure::too_many_wait())
}

/// The result of a wait.
enum Waited {
    /// The run has ended or waits for approval, the time is up, or the gateway ends. `None`: there is no such run.
    Until(Option<Arc<RunRecord>>),
    /// The client cancelled the call.
    Cancelled,
}

/// Waits until a run has ended or waits for approval. Sends progress notifications if the client gave a token for them.
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
            // If the notification fails, the client has disconnected, which ends the call by itself.
            let _ = context.peer.notify_progress(progress).await;
        }
    };
    // Concurrent: a stalled client or a slow store may delay the notifications, but not the end of the wait.
    tokio::select! {
        biased; // cancellation first
        () = context.ct.cancelled() => Ok(Waited::Cancelled),
        record = app.wait_for_run(run, watch, limit) => Ok(Waited::Until(record?)),
        never = telling => match never {},
    }
}

/// A progress notification of a run. Its figure is the elapsed time, because the remaining work of a run is unknown.
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
        // The wait itself reports a missing run or an unreadable store.
        Ok(None) | Err(_) => "the run goes on".to_owned(),
    };
    ProgressNotificationParam::new(token, waited.as_secs_f64()).with_total(limit.as_secs_f64()).with_message(about)
}
