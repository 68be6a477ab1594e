//! Executes a batch of tool calls through the effect gate, within the deadline of the run.

use std::sync::Arc;

use belay_agent_loop::{AdmittedCall, LoopContext, LoopError};
use belay_protocol::{EventKind, Generation, ToolCall, ToolSet};
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::RunCore;
use crate::approvals::Standing;
use crate::deadlines::Deadlines;
use crate::effect_gate::{Asking, Bind, CallContext, unbound};
use crate::grants::WorkGrants;
use crate::terminate::{self, Terminated};

/// Why a run in its closing turn cannot ask a person.
const ENDING: &str = "this run is ending; submit the results that you have";

/// The result of a batch.
#[derive(Default)]
pub struct Executed {
    /// The end of the run, if the model ended it in this batch.
    pub ended: Option<Terminated>,
    /// The approval request at which the batch stopped.
    pub asking: Option<Asking>,
}

impl RunCore {
    /// Executes a batch through the effect gate. `bind` binds the tools that act on this run. Returns the end of the
    /// run, if the model ended it, and the approval request that must be answered before the other calls can run.
    pub fn execute<'a>(
        &'a mut self,
        calls: Vec<AdmittedCall>,
        context: &'a mut LoopContext,
        tools: &'a ToolSet,
        bind: Bind<'a>,
    ) -> BoxFuture<'a, Result<Executed, LoopError>> {
        Box::pin(self.execute_batch(calls, context, tools, bind)) // boxed as the model call is
    }

    async fn execute_batch(
        &mut self,
        mut calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
        tools: &ToolSet,
        bind: Bind<'_>,
    ) -> Result<Executed, LoopError> {
        let unavailable = calls.iter().filter(|admitted| admitted.refused.is_some()).count() as u32;
        terminate::hold_back(&mut calls);
        if unavailable > 0 {
            let force_text = context.state.force_text;
            self.journal.note(EventKind::GuardrailTriggered {
                guardrail: "unavailable_tool".into(),
                count: unavailable,
                force_text,
            });
        }
        let before = context.messages.len();
        let deadlines = self.deadlines(context, self.allowance(1).purpose);
        self.journal.set_deadlines(deadlines.clone());
        let cancel = self.cancel.child_token();
        let asking = loop {
            match self.pass(calls, context, tools, bind, (&deadlines, &cancel)).await? {
                // A run that another run has started waits for the answer here. Its calls then pass the gate again. Boxed,
                // because few batches ask.
                Some(asking) if self.child => {
                    calls = Box::pin(self.ask_in_place(asking, &cancel)).await?;
                    terminate::hold_back(&mut calls);
                }
                asking => break asking,
            }
        };
        if self.child {
            self.answers.clear(); // a later call may have the same id
        }
        self.note_waited(context);
        self.live.activity.touch();
        self.tally.add_output(context.messages[before..].iter().map(|message| message.text().len()).sum());
        Ok(Executed { ended: terminate::ended(&context.messages[before.saturating_sub(1)..]), asking })
    }

    /// Passes calls through the effect gate, up to the first one that needs a person's answer. At the deadline, the gate
    /// is not dropped: its token is cancelled, and it returns soon after.
    async fn pass(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
        tools: &ToolSet,
        bind: Bind<'_>,
        (deadlines, cancel): (&Deadlines, &CancellationToken),
    ) -> Result<Option<Asking>, LoopError> {
        let services = self.services.clone();
        let generation = self.live.control.generation.renewed();
        let caller = self.call_context((tools, bind), cancel, &generation);
        let running = services.gate.execute(caller, context, calls);
        tokio::pin!(running);
        tokio::select! {
            asking = &mut running => Ok(asking?),
            () = deadlines.passed() => {
                cancel.cancel();
                Ok(running.await?)
            }
        }
    }

    /// The permission for the check of a goal as the call is now. `None`: the call cannot be made, and the gate says why.
    pub async fn standing_of(&mut self, call: &ToolCall, tools: &ToolSet) -> Option<Standing> {
        let (services, cancel) = (self.services.clone(), self.cancel.child_token());
        let generation = self.live.control.generation.renewed();
        services.gate.standing_of(&self.call_context((tools, &unbound), &cancel, &generation), call).await
    }

    /// The context of a batch.
    fn call_context<'a>(
        &'a mut self,
        (tools, bind): (&'a ToolSet, Bind<'a>),
        cancel: &'a CancellationToken,
        generation: &'a Generation,
    ) -> CallContext<'a> {
        let asks = tools.iter().any(|tool| tool.spec().server.is_some());
        let people = asks.then(|| self.batch_people());
        CallContext {
            people,
            request: &self.request,
            live: &self.live,
            tools,
            bind,
            cancel,
            generation,
            answers: &self.answers,
            standing: self.standing.as_deref(),
            by_itself: self.child || self.request.work.is_autonomous(),
            may_ask: if self.closing.is_some() { Err(ENDING) } else { self.may_ask },
            work: self.work.as_deref().map(|work| work as &dyn WorkGrants),
            limits: self.rules.limits(),
            journal: &mut self.journal,
            // A child run has no skills in its prompt, so it does not need their variables.
            variables: if self.child { Arc::default() } else { self.briefing.variables() },
            memory: self.services.memory.owner(&self.live.origin, &self.request),
            newer: self.joining.as_deref().filter(|_| self.closing.is_none()),
            waits: &self.waits,
        }
    }
}
