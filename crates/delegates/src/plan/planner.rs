//! Makes a plan: a child run that has only the tool `planning`. The first plan that it creates counts.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    Reasoning, TextAction, run_agentic_loop,
};
use belay_protocol::{Durability, Message, ModelErrorKind, RunEnd};

use super::executors::PlanKit;
use super::plans::Plans;
use super::state::cut;
use super::step::{ChildEnd, end_of_child};
use super::tool::{Planning, SharedPlans};
use belay_run::core::{Asked, CallPurpose, ChildStart, RunCore};
use belay_run::effect_gate::unbound;
use belay_run::outage::OutageWait;

/// Most model calls for a plan. 3: the model can correct a refused call twice.
const MAX_STEPS: u32 = 3;
/// Length of the title of the default plan, in characters of the request.
const TITLE_CHARS: usize = 50;

/// The result of the planner.
pub(super) enum Planned {
    /// A plan, by the model or by default.
    Plan(Plans),
    /// The run must end.
    Over(RunEnd),
}

/// Asks the model for a plan. `history`: the conversation before the request.
///
/// # Errors
/// The model call failed, or the store does not answer.
pub(super) async fn make_plan(
    kit: &PlanKit,
    seed: &ChildStart,
    history: &[Arc<Message>],
    request: &str,
) -> Result<Planned, LoopError> {
    let mut history = history;
    loop {
        let plans = SharedPlans::default();
        let outcome = ask(kit, seed, history, request, plans.clone()).await;
        let made = std::mem::take(&mut *plans.lock().unwrap_or_else(PoisonError::into_inner));
        if made.active().is_some() {
            return Ok(Planned::Plan(made));
        }
        match outcome {
            Err(LoopError::Model(error)) if error.kind == ModelErrorKind::ContextTooLong && !history.is_empty() => {
                history = &[]; // try the request without the conversation
            }
            // The steps could not call the model either.
            Err(error @ LoopError::Model(_)) => return Err(error),
            outcome => match end_of_child(outcome)? {
                ChildEnd::Over(end) => return Ok(Planned::Over(end)),
                ChildEnd::Done(_) | ChildEnd::GaveUp(_) | ChildEnd::Failed(_) => {
                    return Ok(Planned::Plan(default_plan(request)));
                }
            },
        }
    }
}

async fn ask(
    kit: &PlanKit,
    seed: &ChildStart,
    history: &[Arc<Message>],
    request: &str,
    plans: SharedPlans,
) -> Result<LoopOutcome, LoopError> {
    let core = seed.grow(std::time::Duration::MAX);
    let reasoning = kit.planner(Arc::new(Planning::over(plans.clone())));
    let mut context = LoopContext::new(history.iter().cloned().chain([Message::user(request).into()]).collect());
    let rules = core.rules.clone();
    let config = AgenticLoopConfig { max_iterations: MAX_STEPS, ..AgenticLoopConfig::with_rules(rules) };
    let mut delegate = PlannerDelegate { core, reasoning: &reasoning, plans };
    let outcome = run_agentic_loop(&mut delegate, &reasoning, &mut context, &config).await?;
    delegate.core.journal.write(&context, Durability::Relaxed).await?;
    Ok(outcome)
}

/// The plan of a request that the model did not split.
fn default_plan(request: &str) -> Plans {
    let title = cut(&request.split_whitespace().collect::<Vec<_>>().join(" "), TITLE_CHARS);
    let title = if title.is_empty() { "Plan".to_owned() } else { title };
    let steps = ["Analyse the request", "Execute the task", "Verify the result"].map(str::to_owned);
    let mut plans = Plans::default();
    // Title and steps are within all limits.
    let _ = plans.create(None, &title, &steps);
    plans
}

/// Adapts the loop to a planner.
struct PlannerDelegate<'a> {
    core: RunCore,
    reasoning: &'a Reasoning,
    plans: SharedPlans,
}

#[async_trait]
impl LoopDelegate for PlannerDelegate<'_> {
    async fn check_signals(&mut self) -> LoopSignal {
        self.core.stopped().map_or(LoopSignal::Continue, LoopSignal::Stop)
    }

    fn meter(&self) -> Meter {
        self.core.meter()
    }

    async fn before_llm_call(&mut self, _context: &mut LoopContext, _iteration: u32) -> Option<LoopOutcome> {
        self.core.at_step().await.map(LoopOutcome::Stopped)
    }

    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        let allowance = self.core.allowance(self.core.services.max_attempts.max(1));
        let mut outage = OutageWait::default();
        loop {
            let asked = self.core.ask(reasoning, context, iteration, allowance).await?;
            let Asked::Failed(error) = asked else { return self.core.turn_of(asked, context) };
            let until = self.core.deadlines(context, CallPurpose::Step).earliest();
            if !Box::pin(outage.wait(&self.core, &error, until)).await {
                return Err(error.into());
            }
            if let Some(reason) = self.core.stopped() {
                return Ok(LlmTurn::Stopped(reason.into()));
            }
        }
    }

    /// A text ends the run without a plan.
    async fn handle_text_response(&mut self, text: String, _context: &mut LoopContext) -> TextAction {
        TextAction::Return(LoopOutcome::Response(text))
    }

    /// Executes the calls one after the other, so that the first of several plans counts. The calls after it are not
    /// executed.
    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        for call in calls {
            self.core.execute(vec![call], context, self.reasoning.tools(), &unbound).await?;
            if let Some(reason) = self.core.stopped() {
                return Ok(Some(LoopOutcome::Stopped(reason.into())));
            }
            if self.plans.lock().unwrap_or_else(PoisonError::into_inner).active().is_some() {
                return Ok(Some(LoopOutcome::Response(String::new())));
            }
        }
        Ok(None)
    }

    async fn on_tool_intent_nudge(&mut self, _text: &str, context: &LoopContext) {
        self.core.note_nudge(context);
    }

    async fn after_iteration(&mut self, _iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.core.note_guardrails(context);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::default_plan;

    #[test]
    fn the_default_plan_is_titled_with_the_beginning_of_the_request() {
        for (request, title) in [("tidy\n up", "tidy up"), (" ", "Plan")] {
            let plans = default_plan(request);
            let plan = plans.active().expect("made");
            assert_eq!((plan.title.as_str(), plan.steps.len()), (title, 3));
        }
        let plans = default_plan(&"ä".repeat(1000));
        assert_eq!(plans.active().map(|plan| plan.title.chars().count()), Some(50));
    }
}
