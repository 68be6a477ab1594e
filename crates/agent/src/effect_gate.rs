//! The one road to every effect: each tool call of every run passes here.
//!
//! Order: validate arguments → journal the intent → execute under a deadline and a cancellation token → clean the result
//! → journal it. (Hooks, approvals and rate limits join in front of it with the tools that need them.) A call that
//! writes has its intent on disk before it begins. A reading call's journal does not wait for the disk: after a crash it
//! is simply run again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use belay_agent_loop::policies::RunLimits;
use belay_agent_loop::{AdmittedCall, INVALID_ARGUMENTS, LoopContext};
use belay_protocol::{
    Arguments, Durability, EventKind, Message, RunId, SessionKey, StoreError, Tool, ToolCall, ToolContext, ToolFailure,
    ToolOutput, ToolResult, ToolSet, ToolStatus,
};
use jsonschema::Validator;
use serde_json::{Map, Value};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::core::Bind;
use crate::error::AgentError;
use crate::journal::RunJournal;
use crate::metrics;
use crate::tally::Tally;

/// Calls of one batch that run at the same time; the others follow as these end.
const MAX_PARALLEL: usize = 16;
/// How long a tool that was told to stop may take to return. Less than the 100 ms after which a stop is answered.
const STOP_GRACE: Duration = Duration::from_millis(60);
/// Problems of invalid arguments that the model is told of.
const MAX_PROBLEMS: usize = 5;

/// The gate. Holds what is compiled once: a validator for each tool.
pub struct EffectGate {
    validators: HashMap<String, Validator>,
}

/// Who calls.
pub struct Caller<'a> {
    /// The session.
    pub session: &'a SessionKey,
    /// The run.
    pub run: RunId,
    /// The run's tools.
    pub tools: &'a ToolSet,
    /// Gives a tool that acts on the run itself its hold on that run.
    pub bind: Bind<'a>,
    /// Where calls are counted.
    pub tally: &'a Tally,
    /// The limits that they are counted by.
    pub limits: &'a RunLimits,
    /// Says stop.
    pub cancel: &'a CancellationToken,
    /// Where intent and result are written.
    pub journal: &'a mut RunJournal,
}

/// A result, and how long its call took.
type Outcome = Option<(ToolResult, Duration)>;

/// A tool and its checked arguments.
type Checked = (Arc<dyn Tool>, Map<String, Value>);

/// A call that may run: its place in the batch, its tool, its checked arguments.
type Runnable = (usize, ToolCall, Arc<dyn Tool>, Map<String, Value>);

/// A call that runs.
struct Place {
    at: usize,
    call: ToolCall,
    bound: usize,
    /// Whether what it does cannot be taken back, so that a call without an end has an unknown outcome.
    lasting: bool,
    begun: Instant,
}

impl EffectGate {
    /// Compiles the validators.
    ///
    /// # Errors
    /// A tool's schema is no JSON Schema.
    pub fn new(tools: &ToolSet) -> Result<Self, AgentError> {
        let compile = |tool: &Arc<dyn Tool>| {
            let spec = tool.spec();
            jsonschema::validator_for(&spec.schema)
                .map(|validator| (spec.name.clone(), validator))
                .map_err(|error| AgentError::Tool { tool: spec.name.clone(), detail: error.to_string() })
        };
        Ok(Self { validators: tools.iter().map(compile).collect::<Result<_, _>>()? })
    }

    /// Takes one batch through the gate and appends one result for each call, in call order, to the context.
    ///
    /// # Errors
    /// The journal could not be written. Before the effect: nothing was run. After it: the results are in the context,
    /// and the caller ends the run with them.
    ///
    /// # Cancel safety
    /// Not to be dropped while it runs: cancel through the caller's token instead, and it returns within
    /// 60 ms with a result for each call. Dropped all the same, running tools are aborted, and a restart finds calls
    /// without results.
    pub async fn execute(
        &self,
        caller: Caller<'_>,
        context: &mut LoopContext,
        calls: Vec<AdmittedCall>,
    ) -> Result<(), StoreError> {
        let mut results: Vec<Outcome> = Vec::with_capacity(calls.len());
        let mut runnable: Vec<Runnable> = Vec::new();
        let mut durability = Durability::Relaxed;
        for (at, AdmittedCall { call, refused }) in calls.into_iter().enumerate() {
            let checked = match refused {
                Some(refused) => Err(refused),
                None => self.check(caller.tools, &call).and_then(|checked| admit(&caller, &call).map(|()| checked)),
            };
            match checked {
                Ok((tool, arguments)) => {
                    let tool = (caller.bind)(&call.name).unwrap_or(tool);
                    if tool.spec().effect.waits_for_disk() {
                        durability = Durability::Committed;
                    }
                    caller.journal.note(EventKind::ToolStarted { call_id: call.id.clone(), name: call.name.clone() });
                    runnable.push((at, call, tool, arguments));
                    results.push(None);
                }
                Err(result) => results.push(Some((result, Duration::ZERO))),
            }
        }
        if !runnable.is_empty() {
            caller.journal.write(context, durability).await?;
            let admitted = runnable.len();
            let begun = self.run_batch(&caller, runnable, &mut results).await;
            caller.tally.give_back_tools(admitted.saturating_sub(begun));
        }
        for (result, took) in results.into_iter().flatten() {
            metrics::tool_called(result.status);
            caller.journal.note(EventKind::ToolFinished {
                call_id: result.call_id.clone(),
                name: result.name.clone(),
                status: result.status,
                took_ms: took.as_millis() as u64,
            });
            context.messages.push(Arc::new(Message::tool(result)));
        }
        caller.journal.write(context, durability).await
    }

    fn check(&self, tools: &ToolSet, call: &ToolCall) -> Result<Checked, ToolResult> {
        let refuse = |text: String| result_of(call, ToolStatus::Error, text);
        let tool = tools.get(&call.name).ok_or_else(|| refuse(format!("there is no tool named {}", call.name)))?;
        let Arguments::Object(arguments) = &call.arguments else {
            return Err(refuse("the arguments are not a JSON object".into()));
        };
        let value = Value::Object(arguments.clone());
        if let Some(validator) = self.validators.get(&call.name) {
            let problems: Vec<String> = validator
                .iter_errors(&value)
                .take(MAX_PROBLEMS)
                .map(|e| {
                    let place = e.instance_path().to_string();
                    if place.is_empty() { e.to_string() } else { format!("{place}: {e}") }
                })
                .collect();
            if !problems.is_empty() {
                return Err(refuse(format!("{INVALID_ARGUMENTS}: {}", problems.join("; "))));
            }
        }
        match value {
            Value::Object(arguments) => Ok((tool.clone(), arguments)),
            _ => Err(refuse("the arguments are not a JSON object".into())),
        }
    }

    /// Runs calls side by side and fills their places. Returns how many were begun.
    async fn run_batch(&self, caller: &Caller<'_>, runnable: Vec<Runnable>, results: &mut [Outcome]) -> usize {
        let mut waiting = runnable.into_iter();
        let mut running: JoinSet<Option<ToolOutput>> = JoinSet::new();
        let mut places: HashMap<Id, Place> = HashMap::new();
        let mut begun = 0;
        let mut give_up: Option<Instant> = None;
        loop {
            while give_up.is_none() && !caller.cancel.is_cancelled() && running.len() < MAX_PARALLEL {
                let Some((at, call, tool, arguments)) = waiting.next() else { break };
                let context = ToolContext {
                    session: caller.session.clone(),
                    run_id: caller.run,
                    call_id: call.id.clone(),
                    cancel: caller.cancel.child_token(),
                };
                let bound = tool.spec().max_output_bytes;
                let lasting = tool.spec().effect.waits_for_disk();
                let id = running.spawn(call_tool(tool, arguments, context)).id();
                places.insert(id, Place { at, call, bound, lasting, begun: Instant::now() });
                begun += 1;
            }
            tokio::select! {
                biased; // a tool that has ended is taken before it would be given up
                ended = running.join_next_with_id() => match ended {
                    Some(Ok((id, output))) => if let Some(place) = places.remove(&id) {
                        results[place.at] = Some((finished(&place, output), place.begun.elapsed()));
                    },
                    Some(Err(error)) => if let Some(place) = places.remove(&error.id()) {
                        results[place.at] = Some((crashed(&place, &error), place.begun.elapsed()));
                    },
                    None => break,
                },
                () = caller.cancel.cancelled(), if give_up.is_none() => give_up = Some(Instant::now() + STOP_GRACE),
                () = sleep_until(give_up.unwrap_or_else(Instant::now)), if give_up.is_some() => {
                    // Aborted by the drop of the set, or, if it never yields, left to its thread: the run ends either way.
                    tracing::warn!(run = %caller.run, tools = running.len(), "tools did not stop when told and are abandoned");
                    break;
                }
            }
        }
        for place in places.into_values() {
            results[place.at] = Some((abandoned(&place), place.begun.elapsed()));
        }
        for (at, call, ..) in waiting {
            let text = "not executed: the run was stopped".to_owned();
            results[at] = Some((result_of(&call, ToolStatus::NotExecuted, text), Duration::ZERO));
        }
        begun
    }

    /// What a restart does with a call that has no result: run again where that is safe, else say that nobody knows.
    pub fn after_restart(&self, tools: &ToolSet, call: ToolCall) -> AdmittedCall {
        let again = tools.get(&call.name).is_some_and(|tool| tool.spec().idempotent);
        let unknown = "outcome unknown: the daemon restarted while this ran; check before doing it again";
        let refused = (!again).then(|| result_of(&call, ToolStatus::OutcomeUnknown, unknown.into()));
        AdmittedCall { call, refused }
    }
}

/// Counts a call that is about to begin; over a limit of the run it is not executed.
fn admit(caller: &Caller<'_>, call: &ToolCall) -> Result<(), ToolResult> {
    match caller.tally.admit_tool(caller.limits, &call.name) {
        None => Ok(()),
        Some(limit) => {
            let text =
                format!("not executed: the run has made all the calls that it may (limit {limit}); answer with text");
            Err(result_of(call, ToolStatus::NotExecuted, text))
        }
    }
}

/// Calls a tool under its deadline. A tool that passes it is told to stop and gets a moment to return; `None` then.
async fn call_tool(tool: Arc<dyn Tool>, arguments: Map<String, Value>, context: ToolContext) -> Option<ToolOutput> {
    let call = tool.call(&arguments, &context);
    tokio::pin!(call);
    match timeout(tool.spec().timeout, &mut call).await {
        Ok(output) => Some(output),
        Err(_elapsed) => {
            context.cancel.cancel();
            let _ = timeout(STOP_GRACE, &mut call).await; // whatever it says now, it took too long
            None
        }
    }
}

fn finished(place: &Place, output: Option<ToolOutput>) -> ToolResult {
    let Place { call, bound, .. } = place;
    match output {
        Some(Ok(text)) => result_of(call, ToolStatus::Success, clean(text, *bound)),
        Some(Err(ToolFailure::Failed(text))) => result_of(call, ToolStatus::Error, clean(text, *bound)),
        Some(Err(ToolFailure::Cancelled)) => {
            result_of(call, ToolStatus::Cancelled, "cancelled: the run was stopped".into())
        }
        None => {
            let text = format!("no result after {:.0} s: the call was given up", place.begun.elapsed().as_secs_f64());
            let unknown = "; what it did is unknown, check before doing it again";
            match place.lasting {
                true => result_of(call, ToolStatus::OutcomeUnknown, text + unknown),
                false => result_of(call, ToolStatus::Error, text),
            }
        }
    }
}

fn crashed(place: &Place, error: &JoinError) -> ToolResult {
    if !error.is_panic() {
        return abandoned(place);
    }
    let status = if place.lasting { ToolStatus::OutcomeUnknown } else { ToolStatus::Error };
    result_of(&place.call, status, "the tool crashed; this is a fault of the tool".into())
}

fn abandoned(place: &Place) -> ToolResult {
    let (status, text) = match place.lasting {
        true => {
            (ToolStatus::OutcomeUnknown, "outcome unknown: the run was stopped and the tool did not stop when told")
        }
        false => (ToolStatus::Cancelled, "cancelled: the tool did not stop when told and was abandoned"),
    };
    result_of(&place.call, status, text.into())
}

fn result_of(call: &ToolCall, status: ToolStatus, text: String) -> ToolResult {
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), status, text }
}

/// Removes control characters other than line feed and tab, and cuts to the bound, saying so.
fn clean(mut text: String, bound: usize) -> String {
    if text.chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        text.retain(|c| !c.is_control() || c == '\n' || c == '\t');
    }
    if text.len() > bound {
        let whole = text.len();
        let mut end = bound;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(&format!("\n[cut: {end} of {whole} bytes are shown]"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_cleaned_and_cut_with_the_cut_stated() {
        for (text, bound, expected) in [
            ("plain", 10, "plain".to_owned()),
            ("a\u{1b}[31mb\0c\td\n", 100, "a[31mbc\td\n".to_owned()),
            ("äöü", 3, "ä\n[cut: 2 of 6 bytes are shown]".to_owned()),
        ] {
            assert_eq!(clean(text.into(), bound), expected);
        }
    }
}
