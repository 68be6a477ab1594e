//! The effect gate: the one place that every tool call of every run passes, also a call that a person has just
//! approved.
//!
//! Order: refuse a call of autonomous work that [creates work](crate::own_tools) → refuse a
//! [disabled](crate::tool_health) tool → hook → validate → approval → secret → rate limit → budget → journal the intent
//! → execute under a deadline and a cancellation token → clean the result → journal the result → event.
//!
//! The intent of a call that writes is on disk before the call begins. The same commit marks the approval of the call
//! as used. The intent of a call that only reads does not wait for the disk: after a crash the call is repeated.

mod batch;
mod clean;
mod client;
mod consult;
mod context;
mod handles;
mod people;
mod preflight;
mod rates;
mod says;
mod schemas;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use belay_agent_loop::{AdmittedCall, LoopContext};
use belay_crash_point::crash_point;
use belay_protocol::{
    ApprovalStore, Arguments, CallId, Durability, EventKind, Message, MessageBody, OutputKeeper, Picture, SecretVault,
    StopReason, StoreError, Tool, ToolCall, ToolFailure, ToolReply, ToolResult, ToolSet, ToolStatus,
};

use crate::approvals::{Policy, Wanted};
pub use crate::effect_gate::batch::CRASHED;
use crate::effect_gate::batch::{End, Ran, Runnable, SKIPPED};
pub use crate::effect_gate::consult::put_changed;
pub use crate::effect_gate::context::CallContext;
use crate::effect_gate::handles::{QUESTION_ENDED, UNKNOWN};
pub use crate::effect_gate::people::BatchPeople;
use crate::effect_gate::preflight::Verdict;
use crate::effect_gate::rates::Rates;
use crate::effect_gate::schemas::Schemas;
use crate::hooks::HookChain;
use crate::live::{arguments_line, bounded};
use crate::metrics;
use crate::own_tools::{denied, manages_work};
use crate::tool_health::{Health, Permit};

/// Characters of the arguments and of the result in an event.
const EVENT_CHARS: usize = 1_000;

/// The effect gate. Holds a schema and a rate limiter for each tool, and the approval rules.
pub struct EffectGate {
    schemas: Schemas,
    /// Replaced as a whole when the settings are reloaded. One call uses one version of the rules.
    policy: ArcSwap<Policy>,
    rates: Rates,
    approvals: Arc<dyn ApprovalStore>,
    vault: Arc<dyn SecretVault>,
    outputs: Option<Arc<dyn OutputKeeper>>,
    hooks: Arc<HookChain>,
    health: Arc<Health>,
}

/// The ports of the gate.
pub struct GatePorts {
    /// Stores permanent approvals.
    pub approvals: Arc<dyn ApprovalStore>,
    /// The secrets of sessions.
    pub vault: Arc<dyn SecretVault>,
    /// Stores long outputs.
    pub outputs: Option<Arc<dyn OutputKeeper>>,
    /// The operator's hooks.
    pub hooks: Arc<HookChain>,
    /// The circuit breakers of the tools.
    pub health: Arc<Health>,
}

/// Binds a tool that acts on the run itself to that run; `None` for every other tool.
pub(crate) type Bind<'a> = &'a (dyn Fn(&str) -> Option<Arc<dyn Tool>> + Send + Sync);

/// The [`Bind`] of runs without such tools.
pub fn unbound(_name: &str) -> Option<Arc<dyn Tool>> {
    None
}

/// A batch that stopped at a call that needs a person's answer.
pub struct Asking {
    /// The call that needs the answer.
    pub call: ToolCall,
    /// The calls after it. The gate has not checked them.
    pub deferred: Vec<ToolCall>,
    /// The approval request.
    pub wanted: Wanted,
}

/// The result of a call, as it enters the context.
struct Outcome {
    result: ToolResult,
    took_ms: u64,
    untrusted: bool,
    pictures: Vec<Picture>,
    /// Whether the text comes from the gate, not from the tool.
    own_words: bool,
    /// The signal for the circuit breaker of the tool; `None`: the tool was not called.
    about: Option<Box<About>>,
    /// Whether the tool itself has ended the call, and so the work of its handle.
    is_settled: bool,
}

/// The state of one call of a batch. Slots are in call order.
enum Slot {
    /// The call has its result.
    Ended(Box<Outcome>),
    /// The call may run.
    Ready(Box<Runnable>),
    /// The call is running.
    Running,
}

/// The signal that the end of a call gives to the circuit breaker of its tool.
struct About {
    tool: Arc<dyn Tool>,
    pass: Permit,
    end: says::ResultSignal,
}

impl From<ToolResult> for Outcome {
    fn from(result: ToolResult) -> Self {
        let (pictures, about) = (Vec::new(), None);
        Self { result, took_ms: 0, untrusted: false, pictures, own_words: true, about, is_settled: false }
    }
}

impl EffectGate {
    /// A gate for these tools.
    pub fn new(tools: &ToolSet, policy: Policy, ports: GatePorts) -> Self {
        let GatePorts { approvals, vault, outputs, hooks, health } = ports;
        let (schemas, policy) = (Schemas::of(tools), ArcSwap::from_pointee(policy));
        Self { schemas, policy, rates: Rates::of(tools), approvals, vault, outputs, hooks, health }
    }

    /// Checks the arguments of these tools too. Tools of MCP servers have no rate limits of their own.
    pub(crate) fn add_tools(&self, tools: &[Arc<dyn Tool>]) {
        self.schemas.add(tools);
    }

    /// Uses these approval rules from the next call on. Approval requests that are waiting do not change.
    pub fn adopt(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// Executes one batch and appends one result for each call to the context, in call order. If a call needs a
    /// person's answer, the calls before it have run. That call and the calls after it have no results yet.
    ///
    /// # Errors
    /// The journal could not be written. If this happened before the calls, none has run. If it happened after them,
    /// the results are in the context, and the caller ends the run with them.
    ///
    /// # Cancel safety
    /// Do not drop the future: cancel the caller's token instead. The future then returns within 60 ms with a result
    /// for each call. If it is dropped anyway, running tools are aborted, and a restart finds calls without results.
    pub async fn execute(
        &self,
        mut caller: CallContext<'_>,
        context: &mut LoopContext,
        calls: Vec<AdmittedCall>,
    ) -> Result<Option<Asking>, StoreError> {
        let (slots, asking) = self.admit_batch(&mut caller, context, calls).await?;
        // The changed call is kept while that same call waits for an answer, and until it runs after the answer.
        let about = asking.as_ref().map(|asking| &asking.call.id);
        context.state.changed.take_if(|changed| Some(&changed.id) != about);
        let durability = durability_of(&slots);
        self.run_batch(&mut caller, context, slots, durability).await?;
        // If there is an approval request, the pause writes the new messages.
        if asking.is_none() {
            crash_point!("tool.before-result");
            caller.journal.write(context, durability).await?;
            crash_point!("tool.result-journaled");
        }
        Ok(asking)
    }

    /// First phase: decides about each call, in call order, up to the first call that needs a person's answer.
    async fn admit_batch(
        &self,
        caller: &mut CallContext<'_>,
        context: &mut LoopContext,
        calls: Vec<AdmittedCall>,
    ) -> Result<(Vec<Slot>, Option<Asking>), StoreError> {
        let mut slots = Vec::with_capacity(calls.len());
        let mut calls = calls.into_iter();
        while let Some(AdmittedCall { call, refused }) = calls.next() {
            if refused.is_none() && context.state.handles.contains_key(&call.id) {
                slots.push(self.continued(caller, context, call));
                continue;
            }
            let consulted = match refused {
                _ if caller.by_itself && manages_work(&call.name) => Err(denied(&call)),
                Some(refused) => Err(refused),
                None if let Some(off) = self.switched_off(caller, &call) => Err(off),
                None if caller.skips(&call) => Err(result_of(&call, ToolStatus::NotExecuted, SKIPPED.into())),
                None => self.consult(caller, context, call).await,
            };
            let call = match consulted {
                Ok(call) => call,
                Err(refused) => {
                    slots.push(Slot::Ended(Box::new(refused.into())));
                    continue;
                }
            };
            slots.push(match self.preflight(caller, call.clone()).await? {
                Verdict::Run(ready) => Slot::Ready(ready),
                Verdict::Answered(result) => Slot::Ended(Box::new(result.into())),
                Verdict::Ask(wanted) => match self.check_question(caller, &call, *wanted).await {
                    Ok(wanted) => {
                        let deferred = calls.map(|admitted| admitted.call).collect();
                        return Ok((slots, Some(Asking { call, deferred, wanted })));
                    }
                    Err(refused) => Slot::Ended(Box::new(refused.into())),
                },
            });
        }
        Ok((slots, None))
    }

    /// Second and third phase: runs the admitted calls in parallel, and appends one result for each slot to the
    /// context, in call order. The results before the first call that runs are written with the intent. So after a
    /// crash, only calls that may have begun have no result.
    async fn run_batch(
        &self,
        caller: &mut CallContext<'_>,
        context: &mut LoopContext,
        mut slots: Vec<Slot>,
        durability: Durability,
    ) -> Result<(), StoreError> {
        let first = slots.iter().position(|slot| matches!(slot, Slot::Ready(_))).unwrap_or(slots.len());
        for slot in slots.drain(..first) {
            self.record(caller, context, slot).await;
        }
        if slots.is_empty() {
            return Ok(());
        }
        crash_point!("tool.before-intent");
        intend(caller, &slots, durability, context).await?;
        crash_point!("tool.intent-journaled");
        let mut ready = Vec::with_capacity(slots.len());
        for (at, slot) in slots.iter_mut().enumerate() {
            match std::mem::replace(slot, Slot::Running) {
                Slot::Ready(runnable) => ready.push((at, *runnable)),
                ended => *slot = ended,
            }
        }
        // A call that continues was counted before.
        let admitted = ready.iter().filter(|(_, ready)| ready.earlier.is_none()).count();
        let (ran, begun) = batch::run(caller, context, ready).await;
        crash_point!("tool.exited");
        // The next attempt gives the call its result. Others without one would lose what they have come to.
        if ran.iter().any(|ran| goes_on_later(caller, context, ran)) && open_calls(&context.messages).len() == 1 {
            caller.journal.suspend();
            return Ok(());
        }
        caller.tally().give_back_tools(admitted.saturating_sub(begun));
        for ran in ran {
            let at = ran.at;
            slots[at] = Slot::Ended(Box::new(self.conclude(caller, ran).await));
        }
        for slot in slots {
            self.record(caller, context, slot).await;
        }
        Ok(())
    }

    /// Converts the end of a call into its result.
    async fn conclude(&self, caller: &CallContext<'_>, ran: Ran) -> Outcome {
        let began = ran.began;
        let outcome = self.concluded(caller, ran).await;
        // A call that was cut off may have reached nobody who could end its work.
        let is_cut = matches!(outcome.result.status, ToolStatus::Cancelled | ToolStatus::OutcomeUnknown);
        Outcome { is_settled: began && !is_cut, ..outcome }
    }

    async fn concluded(&self, caller: &CallContext<'_>, ran: Ran) -> Outcome {
        let Ran { call, tool, end, took, pass, credential, .. } = ran;
        let spec = tool.spec();
        let told = says::of(&end, spec, &call, credential.as_ref(), caller.cancel.is_cancelled());
        let about = Some(Box::new(About { tool: tool.clone(), pass, end: told }));
        let (status, reply) = match end {
            End::Reply(reply) => (ToolStatus::Success, reply),
            End::Failure(ToolFailure::Failed(text) | ToolFailure::Ended(text)) => (ToolStatus::Error, text.into()),
            End::Failure(ToolFailure::Denied(text)) => (ToolStatus::Denied, text.into()),
            End::Failure(ToolFailure::Unknown(text)) => (ToolStatus::OutcomeUnknown, text.into()),
            End::Failure(ToolFailure::Cancelled) => {
                return ours(&call, took, ToolStatus::Cancelled, "cancelled: the run was stopped".into(), about);
            }
            End::Failure(ToolFailure::CredentialRefused(text)) => {
                self.forget_secret(caller, &*tool).await;
                (ToolStatus::Error, text.into())
            }
            End::Broken(_, status, text) | End::Ours(status, text) => return ours(&call, took, status, text, about),
        };
        let keeper = self.outputs.as_deref();
        let ToolReply { text, pictures, untrusted, .. } =
            clean::clean(reply, spec, caller.request.run, &call.id, keeper).await;
        let result = result_of(&call, status, text);
        // An error text may quote untrusted content that was read during the call, for example by a subagent.
        let untrusted = untrusted || (status != ToolStatus::Success && caller.tally().untrusted());
        let took_ms = took.as_millis() as u64;
        Outcome { result, took_ms, untrusted, pictures, own_words: false, about, is_settled: true }
    }

    /// Records a result and appends it to the context, after hooks have changed it.
    async fn record(&self, caller: &mut CallContext<'_>, context: &mut LoopContext, slot: Slot) {
        let Slot::Ended(mut outcome) = slot else { return }; // `batch::run` returned an end for each call that ran
        self.show(caller, context, &mut outcome).await;
        context.state.call_ended(&outcome.result.call_id, outcome.is_settled);
        let Outcome { result, took_ms, untrusted, pictures, about, .. } = *outcome;
        let took = about.is_some().then(|| Duration::from_millis(took_ms));
        if let Some(about) = about {
            let About { tool, pass, end } = *about;
            self.health.ended(pass, tool.spec(), caller.request.run, &end.seen_in(&result.text)).await;
        }
        metrics::tool_called(result.status, took);
        caller.journal.note(EventKind::ToolFinished {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            status: result.status,
            took_ms,
            result: bounded(&belay_text::untrusted::without(&result.text), EVENT_CHARS), // people read events
        });
        if untrusted {
            caller.tally().note_untrusted();
        }
        context.messages.push(Arc::new(Message::tool(result).with_untrusted(untrusted).with_pictures(pictures)));
    }

    /// The refusal of a call whose tool is disabled; `None`: it is enabled.
    fn switched_off(&self, caller: &CallContext<'_>, call: &ToolCall) -> Option<ToolResult> {
        let refusal = self.health.refusal(caller.tools.get(&call.name)?.spec())?;
        Some(result_of(call, ToolStatus::Denied, refusal))
    }

    /// Deletes a secret that the other side refused. The next call asks the person for it again.
    async fn forget_secret(&self, caller: &CallContext<'_>, tool: &dyn Tool) {
        let Some(need) = &tool.spec().credential else { return };
        if let Err(error) = self.vault.forget(&caller.request.session, &need.name).await {
            tracing::error!(%error, name = need.name, "a refused secret could not be forgotten");
        }
    }

    /// Admits a call without a result after a restart. A call with a handle continues; an idempotent one runs again; any
    /// other gets an "outcome unknown" result.
    pub fn after_restart(&self, tools: &ToolSet, context: &LoopContext, call: ToolCall) -> AdmittedCall {
        let continues = context.state.handles.contains_key(&call.id);
        let tool = tools.get(&call.name).map(|tool| tool.spec());
        let again = tool.is_some_and(|spec| continues || spec.idempotent);
        let question = if tool.is_some_and(|spec| spec.server.is_some()) { QUESTION_ENDED } else { "" };
        let refused = (!again).then(|| result_of(&call, ToolStatus::OutcomeUnknown, format!("{UNKNOWN}{question}")));
        AdmittedCall { call, refused }
    }
}

/// Writes the intents of the calls that are about to begin, and marks their approvals as used.
async fn intend(
    caller: &mut CallContext<'_>,
    slots: &[Slot],
    durability: Durability,
    context: &LoopContext,
) -> Result<(), StoreError> {
    // A call that continues has its event already.
    for Runnable { call, tool, uses, .. } in ready(slots).filter(|ready| ready.earlier.is_none()) {
        let arguments = match &call.arguments {
            Arguments::Object(arguments) => bounded(&arguments_line(arguments, &tool.spec().sensitive), EVENT_CHARS),
            Arguments::Malformed(_) => String::new(),
        };
        let (call_id, name) = (call.id.clone(), call.name.clone());
        caller.journal.note(EventKind::ToolStarted { call_id, name, arguments });
        caller.journal.use_up(uses);
    }
    let intended = caller.journal.write(context, durability).await;
    if intended.is_err() {
        // None of the calls begins, so the end of the run must not record that they did.
        let is_here = |id: &CallId| ready(slots).any(|ready| ready.call.id == *id);
        caller.journal.retract(|fact| matches!(fact, EventKind::ToolStarted { call_id, .. } if is_here(call_id)));
    }
    intended
}

/// Whether a call that a shutdown has cut off goes on at the next start: it waits for a person, and its handle is
/// stored.
fn goes_on_later(caller: &CallContext<'_>, context: &LoopContext, ran: &Ran) -> bool {
    let is_shutdown = caller.live.control.stopped_by().is_some_and(|cause| cause.reason == StopReason::Shutdown);
    let is_cut_off = matches!(ran.end, End::Failure(ToolFailure::Cancelled));
    let handle = context.state.handles.get(&ran.call.id).filter(|_| is_shutdown && is_cut_off);
    handle.is_some_and(|handle| ran.tool.waits_for_person(handle))
}

/// The calls that may run.
fn ready(slots: &[Slot]) -> impl Iterator<Item = &Runnable> {
    slots.iter().filter_map(|slot| match slot {
        Slot::Ready(ready) => Some(&**ready),
        Slot::Ended(_) | Slot::Running => None,
    })
}

/// The calls of the last assistant message that have no result.
pub fn open_calls(own: &[Arc<Message>]) -> Vec<ToolCall> {
    let Some(at) = own.iter().rposition(|message| !message.tool_calls().is_empty()) else { return Vec::new() };
    let answered = |call: &ToolCall| {
        own[at + 1..].iter().any(|m| matches!(&m.body, MessageBody::Tool(result) if result.call_id == call.id))
    };
    own[at].tool_calls().iter().filter(|call| !answered(call)).cloned().collect()
}

/// The durability of a batch: committed, if one of its calls writes or uses an approval.
fn durability_of(slots: &[Slot]) -> Durability {
    let waits = |ready: &Runnable| ready.tool.spec().effect.waits_for_disk() || !ready.uses.is_empty();
    if ready(slots).any(waits) { Durability::Committed } else { Durability::Relaxed }
}

fn ours(
    call: &ToolCall,
    took: std::time::Duration,
    status: ToolStatus,
    text: String,
    about: Option<Box<About>>,
) -> Outcome {
    Outcome { took_ms: took.as_millis() as u64, about, ..result_of(call, status, text).into() }
}

fn result_of(call: &ToolCall, status: ToolStatus, text: String) -> ToolResult {
    ToolResult { call_id: call.id.clone(), name: call.name.clone(), status, text }
}
