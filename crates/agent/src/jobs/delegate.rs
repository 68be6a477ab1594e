//! The delegate of a job: what the shared loop does differently for work that nobody reads along with.
//!
//! It wraps the turn's own delegate, which stores, shortens and lets messages join as for a conversation. A text is no end
//! unless it says that the work is done; a model that is away for a while is waited for.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Meter,
    Reasoning, TextAction, run_agentic_loop,
};
use belay_protocol::{
    FinishReason, JobRoom, Message, MessageBody, ModelError, ModelErrorKind, RunEnd, StopLayer, StopReason, Tool,
    ToolSet,
};
use tokio::time::sleep;

use super::begin::Errand;
use super::{text, worker};
use crate::chat::ChatDelegate;
use crate::completion::signals_completion;
use crate::completion_check;
use crate::house::House;
use crate::judge;
use crate::multiplying::multiplies;
use crate::prompt::Briefing;
use crate::reply::{self, Reply};
use crate::terminate::{TERMINATE, Terminate};
use crate::turn::failure;

/// How often in a row a model may be away before the job has failed. Ten, each after retries of its own.
const MOST_AWAY: u32 = 10;
/// First and longest pause before a model that was away is asked again. What it says itself wins, within a quarter of an hour.
const AWAY: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
const MOST_RETRY_AFTER: Duration = Duration::from_secs(900);

/// Takes a job through the loop to the end of its attempt. Whatever ends it but a person, the best that it had to say is the
/// turn's summary.
///
/// # Errors
/// The store does not answer.
pub(crate) async fn pursue(
    turn: &mut ChatDelegate,
    context: &mut LoopContext,
    errand: &Errand,
) -> Result<LoopOutcome, LoopError> {
    if errand.job.room == JobRoom::Worker {
        return worker::pursue(turn, context, errand).await;
    }
    let reasoning = turn.reasoning.clone();
    let (limit, rules) = (errand.budget.max_steps, turn.core.rules.clone());
    let config = AgenticLoopConfig { max_iterations: limit, rules, ..AgenticLoopConfig::default() };
    let mut delegate = JobDelegate { turn, errand, said: None, away: 0, getting_on: false };
    let end = match run_agentic_loop(&mut delegate, &reasoning, context, &config).await {
        Ok(LoopOutcome::MaxIterations { iterations }) => {
            RunEnd::of(StopReason::MaxIterations).with("iterations", iterations).with("max_steps", limit)
        }
        Ok(LoopOutcome::Stopped(end)) => end,
        Ok(answered) => return Ok(answered),
        Err(error @ LoopError::Store(_)) => return Err(error),
        Err(error) => {
            tracing::warn!(run = %turn.core.live.id, %error, "a job's attempt failed");
            failure(error)
        }
    };
    if turn.summary.is_none() && end.reason.layer() != StopLayer::Operator {
        turn.summary = last_words(context, turn.turn_start);
    }
    Ok(LoopOutcome::Stopped(end))
}

/// The last text of the model in this attempt.
fn last_words(context: &LoopContext, from: usize) -> Option<String> {
    let own = context.messages.get(from..).unwrap_or_default().iter().rev();
    let said = own.filter(|said| matches!(said.body, MessageBody::Assistant { .. }));
    said.map(|message| message.text().trim()).find(|text| !text.is_empty()).map(str::to_owned)
}

/// Adapts the loop to a job.
struct JobDelegate<'a> {
    turn: &'a mut ChatDelegate,
    errand: &'a Errand,
    /// The text before this one, where no calls came in between.
    said: Option<String>,
    /// How often in a row the model was away.
    away: u32,
    /// Whether the store knows that the job gets on since the last crash.
    getting_on: bool,
}

impl JobDelegate<'_> {
    /// How the run ends here, since its job is over or is another attempt's. A stop tells the run as well; this is for one
    /// that came before the run could be told.
    async fn is_over(&self) -> Option<RunEnd> {
        let (store, job) = (&self.turn.core.house.store.jobs, &self.errand.job);
        match store.job(job.job_id).await {
            Ok(Some(now)) if !now.state.is_over() && now.attempt == job.attempt => None,
            Ok(now) => {
                let state = now.map_or("unknown", |now| now.state.word());
                Some(RunEnd::of(StopReason::ParentStopped).with(text::NOT_AT_WORK, state))
            }
            // A store in trouble shows itself at the next write.
            Err(error) => {
                tracing::warn!(%error, job = %job.job_id, "the state of a job could not be read");
                None
            }
        }
    }

    /// Waits for a model that is away. Returns whether it is to be asked again.
    async fn bear(&mut self, error: &ModelError) -> bool {
        let asked = match error.kind {
            ModelErrorKind::RateLimited { retry_after } | ModelErrorKind::Overloaded { retry_after } => retry_after,
            ModelErrorKind::Network => None,
            ModelErrorKind::Auth | ModelErrorKind::ContextTooLong | ModelErrorKind::BadRequest => return false,
        };
        self.away += 1;
        if self.away >= MOST_AWAY {
            return false;
        }
        let own = AWAY.0.saturating_mul(1 << (self.away - 1).min(8)).min(AWAY.1);
        let pause = asked.unwrap_or_default().clamp(own, MOST_RETRY_AFTER);
        let live = self.turn.core.live.clone();
        tracing::info!(run = %live.id, away = self.away, pause_s = pause.as_secs(), "the model is away; a job waits for it");
        live.quiet_for(pause);
        tokio::select! {
            biased; // a stop waits for no model
            () = live.cancel.cancelled() => {}
            () = sleep(pause) => {}
        }
        true
    }

    /// Notes once that the job gets on, where a crash came before.
    async fn note_progress(&mut self) {
        if std::mem::replace(&mut self.getting_on, true) || self.errand.job.crashes == 0 {
            return;
        }
        let store = &self.turn.core.house.store.jobs;
        if let Err(error) = store.note_progress(self.errand.job.job_id).await {
            tracing::warn!(%error, job = %self.errand.job.job_id, "that a job gets on could not be stored");
        }
    }
}

#[async_trait]
impl LoopDelegate for JobDelegate<'_> {
    async fn check_signals(&mut self) -> LoopSignal {
        self.turn.check_signals().await
    }

    async fn on_injected(&mut self, context: &LoopContext) -> Result<(), LoopError> {
        self.said = None; // it was said before this
        self.turn.on_injected(context).await
    }

    fn meter(&self) -> Meter {
        self.turn.meter()
    }

    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome> {
        if let Some(end) = self.is_over().await {
            return Some(LoopOutcome::Stopped(end));
        }
        if iteration == self.errand.budget.max_steps {
            context.push(Message::system(text::LAST_CALL).for_run());
        }
        let start = self.turn.turn_start;
        judge::consult(&mut self.turn.core, context, start).await
    }

    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        loop {
            let error = match self.turn.call_llm(reasoning, context, iteration).await {
                Err(LoopError::Model(error)) => error,
                answered => {
                    self.away = 0;
                    return answered;
                }
            };
            if let Some(reason) = self.turn.core.stopped() {
                return Ok(LlmTurn::Stopped(reason.into()));
            }
            if !self.bear(&error).await {
                return Err(error.into());
            }
        }
    }

    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        let text = match reply::shape(&text) {
            Reply::Text(text) => text,
            Reply::OnlyEchoes | Reply::Empty | Reply::Silent => String::new(),
        };
        if text.is_empty() {
            // Told to end the job or to go on, it has nothing to add: what it said before is its answer.
            if let Some(said) = self.said.take() {
                return TextAction::Return(LoopOutcome::Response(said));
            }
            context.push(Message::system(text::EMPTY).for_run());
            return TextAction::Continue;
        }
        context.push(Message::assistant(&text));
        let whole = matches!(context.state.last_finish, FinishReason::Stop | FinishReason::ToolCalls);
        if !(whole && signals_completion(&text)) {
            self.said = whole.then_some(text);
            context.push(Message::system(text::NUDGE).for_run());
            return TextAction::Continue;
        }
        if self.turn.core.house.config.completion_check {
            let (task, step) = (&self.errand.job.task, context.state.iteration);
            // A store that does not answer shows itself at the next write; the text stands.
            let missing = completion_check::missing(&mut self.turn.core, task, &text, step).await.ok().flatten();
            if let Some(missing) = missing {
                let notice =
                    format!("A check of this answer says that something is missing: {missing}. {}", text::NUDGE);
                context.push(Message::system(notice).for_run());
                return TextAction::Continue;
            }
        }
        TextAction::Return(LoopOutcome::Response(text))
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        self.said = None;
        self.turn.execute_tool_calls(calls, context).await
    }

    async fn after_iteration(&mut self, iteration: u32, context: &mut LoopContext) -> Result<(), LoopError> {
        self.note_progress().await;
        self.turn.after_iteration(iteration, context).await
    }
}

/// How the model is asked for a job: with the tools of a conversation but the ones that make more work by themselves.
pub(crate) fn reasoning(house: &House, briefing: &Briefing) -> Arc<Reasoning> {
    let lends = |name: &str| !multiplies(name) && name != TERMINATE;
    let all = house.reasoning.tools().iter().filter(|tool| lends(&tool.spec().name));
    let tools = all.cloned().chain([Arc::new(Terminate::new()) as Arc<dyn Tool>]).collect();
    Arc::new(house.ask_with(briefing, Arc::new(ToolSet::new(tools)), Some(text::ROLE)))
}
