//! Runs the calls of one batch in parallel. Each call has a deadline and a cancellation token, and exactly one end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::LoopContext;
use belay_protocol::{
    ApprovalId, Approved, FaultKind, RunId, Secret, Tool, ToolCall, ToolContext, ToolFailure, ToolOutput, ToolReply,
    ToolStatus,
};
use serde_json::{Map, Value};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};

use super::CallContext;
use super::handles::{Kept, UNKNOWN};
use crate::deadlines::Deadline;
use crate::joining::Joining;
use crate::own_tools::starts_run;
use crate::tool_health::Permit;

/// Maximum number of calls of one batch that run at the same time. The others start as these end.
const MAX_PARALLEL: usize = 16;
/// Time in which a tool must return after it was told to stop. It is shorter than the 100 ms within which a stop is
/// answered.
pub(super) const STOP_GRACE: Duration = Duration::from_millis(60);

/// The result of a call that had not begun when the person sent a newer message.
pub(super) const SKIPPED: &str = "skipped: the user sent a newer message first";
/// The result of a call whose tool panicked.
pub const CRASHED: &str = "the tool crashed; this is an error in the tool";

/// The result of a command that a stop has ended.
const ENDED: &str = "cancelled: the run was stopped, and the daemon ends the processes of the command. What the command had done, \
                     and does until it has ended, remains";

/// A call that may run, with its tool and its validated arguments.
pub(super) struct Runnable {
    pub(super) call: ToolCall,
    pub(super) tool: Arc<dyn Tool>,
    pub(super) arguments: Map<String, Value>,
    pub(super) credential: Option<Secret>,
    /// The circuit breaker's permit for the call.
    pub(super) pass: Permit,
    /// Approvals that the call uses up.
    pub(super) uses: Vec<ApprovalId>,
    /// The details that a person approved, if a person was asked.
    pub(super) approved: Option<Approved>,
    /// The handle of an earlier attempt at the call, which this one continues.
    pub(super) earlier: Option<Value>,
}

impl Runnable {
    /// Whether a newer message of the person may come first. The approval of an approved call is marked as used already, so
    /// that no other batch can run it; and a call that continues has begun.
    fn may_be_skipped(&self) -> bool {
        self.uses.is_empty() && self.earlier.is_none()
    }
}

/// A call that has ended or never began.
pub(super) struct Ran {
    pub(super) at: usize,
    pub(super) call: ToolCall,
    pub(super) tool: Arc<dyn Tool>,
    pub(super) end: End,
    pub(super) took: Duration,
    pub(super) pass: Permit,
    /// The secret that the call used. It must not appear in reports.
    pub(super) credential: Option<Secret>,
    /// Whether the tool was called.
    pub(super) began: bool,
}

/// How a call ended.
pub(super) enum End {
    /// The tool's reply.
    Reply(ToolReply),
    /// A failure that the tool reported.
    Failure(ToolFailure),
    /// The gate ended the call because of a fault of the tool, with this status and text.
    Broken(FaultKind, ToolStatus, String),
    /// The gate ended the call for another reason, with this status and text.
    Ours(ToolStatus, String),
}

/// A call that is running.
struct RunningCall {
    at: usize,
    call: ToolCall,
    tool: Arc<dyn Tool>,
    begun: Instant,
    pass: Permit,
    credential: Option<Secret>,
}

impl RunningCall {
    /// Whether the effect of the call cannot be undone, so that a call without an end has an unknown outcome.
    fn lasting(&self) -> bool {
        self.tool.spec().effect.waits_for_disk()
    }

    /// Whether the tool starts programs for the run. A stop of the run ends their processes, whether or not the tool returns in
    /// time, so that nothing of the call goes on.
    fn runs_programs(&self) -> bool {
        self.tool.spec().takes_variables
    }

    /// Shows that the call has ended.
    fn is_over(&self, caller: &CallContext<'_>, is_success: bool) {
        caller.live.display.call_ended(&self.call.id, Some((self.begun.elapsed(), is_success)));
    }

    fn ended(self, end: End) -> Ran {
        let took = self.begun.elapsed();
        let Self { at, call, tool, pass, credential, .. } = self;
        Ran { at, call, tool, end, took, pass, credential, began: true }
    }

    fn with(self, output: Option<ToolOutput>) -> Ran {
        let end = match output {
            Some(Ok(reply)) => End::Reply(reply),
            Some(Err(failure)) => End::Failure(failure),
            None => {
                let text = format!("no result after {:.0} s: the call timed out", self.begun.elapsed().as_secs_f64());
                let unknown = "; its effect is unknown, check before you repeat it";
                match self.lasting() {
                    true => End::Broken(FaultKind::TimedOut, ToolStatus::OutcomeUnknown, text + unknown),
                    false => End::Broken(FaultKind::TimedOut, ToolStatus::Error, text),
                }
            }
        };
        self.ended(end)
    }

    fn crashed(self, error: &JoinError) -> Ran {
        if !error.is_panic() {
            return self.abandoned();
        }
        let status = if self.lasting() { ToolStatus::OutcomeUnknown } else { ToolStatus::Error };
        self.ended(End::Broken(FaultKind::Crashed, status, CRASHED.into()))
    }

    fn abandoned(self) -> Ran {
        let (status, text) = match (self.runs_programs(), self.lasting()) {
            (true, _) => (ToolStatus::Cancelled, ENDED),
            (false, true) => (
                ToolStatus::OutcomeUnknown,
                "outcome unknown: the run was stopped and the tool did not react to the stop",
            ),
            (false, false) => {
                (ToolStatus::Cancelled, "cancelled: the tool did not react to the stop and was abandoned")
            }
        };
        self.ended(End::Ours(status, text.into()))
    }
}

/// Runs calls in parallel. Each call comes with its position in the batch. Returns the end of each call, in any order,
/// and the number of calls that began, without those that continue.
///
/// # Cancel safety
/// When the token is cancelled, it returns within [`STOP_GRACE`], and the time of a write if the store is writing a handle.
/// If the future is dropped, running tools are aborted.
pub(super) async fn run(
    caller: &mut CallContext<'_>,
    context: &mut LoopContext,
    runnable: Vec<(usize, Runnable)>,
) -> (Vec<Ran>, usize) {
    let (cancel, mut kept) = (caller.cancel, Kept::new());
    let mut waiting = runnable.into_iter().peekable();
    let mut running: JoinSet<Option<ToolOutput>> = JoinSet::new();
    let mut places: HashMap<Id, RunningCall> = HashMap::new();
    let mut ran = Vec::with_capacity(waiting.len());
    let mut begun = 0;
    let mut give_up: Option<Instant> = None;
    loop {
        let stopped = || cancel.is_cancelled() || !caller.generation.is_current();
        while give_up.is_none() && !stopped() && running.len() < MAX_PARALLEL {
            let skips =
                |(_, next): &(usize, Runnable)| next.may_be_skipped() && caller.newer.is_some_and(Joining::is_offered);
            if let Some(skipped) = waiting.next_if(skips) {
                ran.push(never_began(skipped, SKIPPED));
                continue;
            }
            let Some((at, next)) = waiting.next() else {
                break;
            };
            let Runnable { call, tool, arguments, credential, pass, approved, earlier, .. } = next;
            begun += usize::from(earlier.is_none());
            match starts_run(&call.name) {
                true => caller.live.activity.touch(),
                false => caller.live.activity.quiet_for(tool.spec().timeout), // the call has a deadline of its own
            }
            caller.live.display.call_begins(&call.id, &call.name, &arguments, &tool.spec().sensitive);
            let handle = kept.port(&call.id, earlier);
            let of_call = caller.tool_context(&call, tool.spec(), credential.clone(), approved, handle);
            // A call that starts another run may last longer while that run waits for a person, and so may a call whose
            // server asks one.
            let may_wait = starts_run(&call.name) || tool.spec().server.is_some();
            let limit = may_wait.then(|| Deadline::at(Instant::now() + tool.spec().timeout, caller.waits));
            let working = caller.live.calls.begin(&call.name);
            let calling = call_tool(tool.clone(), arguments, of_call, limit);
            let id = running
                .spawn(async move {
                    let _working = working;
                    calling.await
                })
                .id();
            places.insert(id, RunningCall { at, call, tool, begun: Instant::now(), pass, credential });
        }
        tokio::select! {
            biased; // a tool that has ended is collected before it would be abandoned
            ended = running.join_next_with_id() => match ended {
                Some(Ok((id, output))) => {
                    let place = taken(caller, &mut places, id, matches!(output, Some(Ok(_))));
                    ran.extend(place.map(|place| place.with(output)));
                }
                Some(Err(error)) => {
                    ran.extend(taken(caller, &mut places, error.id(), false).map(|place| place.crashed(&error)));
                }
                None => break,
            },
            wanted = kept.wanted() => wanted.store(caller, context).await,
            () = cancel.cancelled(), if give_up.is_none() => give_up = Some(Instant::now() + STOP_GRACE),
            () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                // Dropping the set aborts the tools. A tool that never yields keeps its thread. The run ends in both
                // cases.
                tell_abandoned(caller.request.run, &places);
                break;
            }
        }
    }
    caller.live.activity.end_quiet();
    places.values().for_each(|place| place.is_over(caller, false));
    ran.extend(places.into_values().map(RunningCall::abandoned));
    ran.extend(waiting.map(|waiting| never_began(waiting, "not executed: the run was stopped")));
    (ran, begun)
}

/// Takes a call that has ended from the running ones.
fn taken(
    caller: &CallContext<'_>,
    places: &mut HashMap<Id, RunningCall>,
    id: Id,
    is_success: bool,
) -> Option<RunningCall> {
    let place = places.remove(&id)?;
    place.is_over(caller, is_success);
    Some(place)
}

fn never_began((at, runnable): (usize, Runnable), text: &str) -> Ran {
    let Runnable { call, tool, pass, credential, earlier, .. } = runnable;
    let end = match earlier {
        None => End::Ours(ToolStatus::NotExecuted, text.into()),
        Some(_) => End::Ours(ToolStatus::OutcomeUnknown, UNKNOWN.into()),
    };
    Ran { at, call, tool, end, took: Duration::ZERO, pass, credential, began: false }
}

/// Logs which tools were abandoned. Only a tool with an unknown effect is worth a warning. Any other tool goes on with
/// nothing.
fn tell_abandoned(run: RunId, places: &HashMap<Id, RunningCall>) {
    let named = |unknown: bool| -> Vec<&str> {
        let is_unknown = |place: &&RunningCall| (place.lasting() && !place.runs_programs()) == unknown;
        places.values().filter(is_unknown).map(|place| place.call.name.as_str()).collect()
    };
    let (unknown, harmless) = (named(true), named(false));
    if !unknown.is_empty() {
        tracing::warn!(%run, tools = ?unknown, "tools did not react to the stop; their effects are unknown");
    }
    if !harmless.is_empty() {
        tracing::debug!(%run, tools = ?harmless, "tools did not react to the stop and are abandoned");
    }
}

/// Calls a tool under its deadline: its time limit, or this one. After the deadline, the tool is told to stop and gets
/// [`STOP_GRACE`] to return. The result is `None` then.
async fn call_tool(
    tool: Arc<dyn Tool>,
    arguments: Map<String, Value>,
    context: ToolContext,
    limit: Option<Deadline>,
) -> Option<ToolOutput> {
    let call = tool.call(&arguments, &context);
    tokio::pin!(call);
    let output = match limit {
        None => timeout(tool.spec().timeout, &mut call).await.ok(),
        Some(limit) => tokio::select! {
            output = &mut call => Some(output),
            () = limit.passed() => None,
        },
    };
    if output.is_none() {
        context.cancel.cancel();
        let _ = timeout(STOP_GRACE, &mut call).await; // any result is too late now
    }
    output
}
