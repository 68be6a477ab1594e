//! What a kind of run supplies to the loop, and the words they exchange.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{Message, ModelReply, RunEnd, StopReason, ToolCall, ToolResult};

use crate::context::{LoopContext, Reasoning};
use crate::error::LoopError;
use crate::policies::{Totals, Verdict};

/// Adapts the shared loop to a chat, a job or a container: the places where they differ, in the order in which an
/// iteration comes to them.
#[async_trait]
pub trait LoopDelegate: Send {
    /// What has been asked of the run since the last iteration. The first thing of every iteration, and asked again until
    /// there is nothing more.
    async fn check_signals(&mut self) -> LoopSignal;

    /// Hears that what [`LoopSignal::InjectMessage`] brought stands at the end of the context, once for all of it, before
    /// the model is asked with it: the place to store it.
    ///
    /// # Errors
    /// It could not be stored: it leaves the context, and the run ends.
    async fn on_injected(&mut self, _context: &LoopContext) -> Result<(), LoopError> {
        Ok(())
    }

    /// Prepares the context for the coming model call, or ends the run. `iteration` counts from 1.
    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome>;

    /// Asks the model. The request comes from [`Reasoning::request`] and from nowhere else, since that is where
    /// `force_text` is enforced.
    ///
    /// # Errors
    /// The call failed after all retries, or was refused by the cost guard. It ends the run.
    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError>;

    /// Decides about a text without calls that was not nudged. The text is possibly empty, and is in the context only if
    /// this method puts it there. Whether it was cut off, `context.state.last_finish` tells.
    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction;

    /// Runs a batch of calls and appends exactly one [`Message::tool`](belay_protocol::Message::tool) for each, in the
    /// order of `calls`; a refused one's result is [`AdmittedCall::refused`]. The assistant message with the calls is in
    /// the context already. Messages of any other kind may follow the results.
    ///
    /// The loop checks this: a missing result becomes [`NotExecuted`](belay_protocol::ToolStatus::NotExecuted), a second
    /// one is removed. Returning [`LoopOutcome::NeedApproval`] alone leaves missing results missing, for whoever resumes.
    ///
    /// # Errors
    /// Our side could not do its part, such as storing that a tool begins. A tool's failure is a result.
    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError>;

    /// The time, and what has been used so far, for the rules that are limits. Default: neither is told.
    fn meter(&self) -> Meter {
        Meter::default()
    }

    /// Reports that a text which announces a tool is answered by a nudge, the n-th in a row by `context.state.nudges`. Neither
    /// the text nor the nudge is in the context yet. Default: a line of the log; a delegate with events adds one.
    async fn on_tool_intent_nudge(&mut self, _text: &str, context: &LoopContext) {
        context.state.log_nudge();
    }

    /// The end of an iteration that goes on to the next: after results, a nudge, a discarded batch, or
    /// [`TextAction::Continue`]. The context is whole here, so this is the place to store it.
    ///
    /// # Errors
    /// Progress could not be stored. It ends the run.
    async fn after_iteration(&mut self, _iteration: u32, _context: &mut LoopContext) -> Result<(), LoopError> {
        Ok(())
    }
}

/// What has been asked of a run.
#[derive(Clone, Debug, PartialEq)]
pub enum LoopSignal {
    /// Nothing.
    Continue,
    /// End now.
    Stop(StopReason),
    /// Something more that the person said; it joins the conversation, and the iteration goes on. Where the run ends before
    /// [`LoopDelegate::on_injected`] has succeeded, it has not joined.
    InjectMessage(Arc<Message>),
}

/// What to do with a text.
#[derive(Clone, Debug, PartialEq)]
pub enum TextAction {
    /// It ends the run.
    Return(LoopOutcome),
    /// Go on with the next iteration.
    Continue,
}

/// How a run left the loop. Errors are not among these; see [`LoopError`].
#[derive(Clone, Debug, PartialEq)]
pub enum LoopOutcome {
    /// With this answer.
    Response(String),
    /// It rests until a person decides; resumed with the same context.
    NeedApproval(Box<PendingApproval>),
    /// It was told to end, a rule ended it, or the model did by a tool; with the reason and what was seen.
    Stopped(RunEnd),
    /// All iterations were used.
    MaxIterations {
        /// Iterations begun over all attempts.
        iterations: u32,
    },
}

/// A batch that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingApproval {
    /// The call in question.
    pub call: ToolCall,
    /// The calls behind it in the batch: not yet looked at, and without results.
    pub deferred: Vec<ToolCall>,
}

/// How a model call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum LlmTurn {
    /// With a whole answer.
    Reply(ModelReply),
    /// It was dropped, because the run was told to end or a limit was reached.
    Stopped(RunEnd),
    /// It was dropped, because the text it streamed repeated itself.
    Cut {
        /// What had been said.
        text: String,
        /// What the rules say to that.
        verdict: Verdict,
    },
}

/// What a run has used so far, as the rules are shown it before each model call and before each batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Now, in milliseconds since any fixed point. `None`: no time is told, and no rule about time fires.
    pub clock_ms: Option<u64>,
    /// What the run and everything it started have used.
    pub totals: Totals,
}

/// A call as the loop hands it over.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmittedCall {
    /// The call as it is in the context: its id is unique there.
    pub call: ToolCall,
    /// Its result, when it cannot run: the tool is not on the run's list, or the arguments are no JSON object.
    pub refused: Option<ToolResult>,
}
