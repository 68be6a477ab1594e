//! The interface between the loop and a kind of run.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{Message, ModelReply, RunEnd, StopReason, ToolCall, ToolResult};

use crate::context::{LoopContext, Reasoning};
use crate::error::LoopError;
use crate::policies::{Totals, Verdict};

/// Adapts the shared loop to a chat, a job or a container. The methods stand in the order in which an iteration calls
/// them.
#[async_trait]
pub trait LoopDelegate: Send {
    /// Returns one request to the run that arrived since the last iteration. Each iteration begins with it, and calls
    /// it again until it returns [`LoopSignal::Continue`].
    async fn check_signals(&mut self) -> LoopSignal;

    /// Called once after all messages of [`LoopSignal::InjectMessage`] are at the end of the context, and before the
    /// model is asked. A delegate stores them here.
    ///
    /// # Errors
    /// They could not be stored. They are removed from the context, and the run ends.
    async fn on_injected(&mut self, _context: &LoopContext) -> Result<(), LoopError> {
        Ok(())
    }

    /// Prepares the context for the coming model call, or ends the run. `iteration` counts from 1.
    async fn before_llm_call(&mut self, context: &mut LoopContext, iteration: u32) -> Option<LoopOutcome>;

    /// Asks the model. The request must come from [`Reasoning::request`], because only that function enforces
    /// `force_text`.
    ///
    /// # Errors
    /// The call failed after all retries, or the cost guard refused it. The run ends.
    async fn call_llm(
        &mut self,
        reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError>;

    /// Whether a text without calls is certainly the answer, so that no guardrail and no rule may hold it back. `is_call`:
    /// the text is nothing but the JSON of a call of one of the run's tools.
    fn is_answer(&self, _text: &str, _is_call: bool) -> bool {
        false
    }

    /// Decides about a text without calls that got no nudge. The text may be empty. It is in the context only if this
    /// method adds it. `context.state.last_finish` says whether the text was cut off.
    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction;

    /// Runs a batch of calls and appends exactly one [`Message::tool`](belay_protocol::Message::tool) for each, in the
    /// order of `calls`. The result of a refused call is [`AdmittedCall::refused`]. The assistant message with the
    /// calls is already in the context. Messages of other kinds may follow the results.
    ///
    /// The loop checks this. A missing result becomes [`NotExecuted`](belay_protocol::ToolStatus::NotExecuted), a
    /// second one is removed. Only after [`LoopOutcome::NeedApproval`] do missing results stay missing: the code that
    /// resumes the run adds them.
    ///
    /// # Errors
    /// A failure on our side, such as that the begin of a tool call could not be stored. A failure of a tool is a
    /// result.
    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError>;

    /// The time and the usage so far, for the rules that are limits. Default: neither is known.
    fn meter(&self) -> Meter {
        Meter::default()
    }

    /// Called before a nudge answers a text that announces a tool. `context.state.nudges` counts the nudges in a row.
    /// Neither the text nor the nudge is in the context yet. Default: a log line. A delegate with events adds an event.
    async fn on_tool_intent_nudge(&mut self, _text: &str, context: &LoopContext) {
        context.state.log_nudge();
    }

    /// Called at the end of an iteration that is followed by another: after results, a nudge, a discarded batch, or
    /// [`TextAction::Continue`]. The context is complete here, so a delegate stores it here.
    ///
    /// # Errors
    /// Progress could not be stored. The run ends.
    async fn after_iteration(&mut self, _iteration: u32, _context: &mut LoopContext) -> Result<(), LoopError> {
        Ok(())
    }
}

/// A request to a run.
#[derive(Clone, Debug, PartialEq)]
pub enum LoopSignal {
    /// Nothing is requested.
    Continue,
    /// End the run now.
    Stop(StopReason),
    /// Another message of the person. It joins the conversation, and the iteration continues. If the run ends before
    /// [`LoopDelegate::on_injected`] has succeeded, the message has not joined.
    InjectMessage(Arc<Message>),
}

/// The action of the loop after a text.
#[derive(Clone, Debug, PartialEq)]
pub enum TextAction {
    /// End the run.
    Return(LoopOutcome),
    /// Continue with the next iteration.
    Continue,
}

/// How a run left the loop. Errors are separate; see [`LoopError`].
#[derive(Clone, Debug, PartialEq)]
pub enum LoopOutcome {
    /// The run ended with this answer.
    Response(String),
    /// The run is paused until a person decides. It is resumed with the same context.
    NeedApproval(Box<PendingApproval>),
    /// A request, a rule, or a tool call of the model ended the run. Contains the reason and the evidence.
    Stopped(RunEnd),
    /// All iterations were used.
    MaxIterations {
        /// Iterations begun over all attempts.
        iterations: u32,
    },
}

/// A batch that waits for an approval.
#[derive(Clone, Debug, PartialEq)]
pub struct PendingApproval {
    /// The call that needs the approval.
    pub call: ToolCall,
    /// The calls behind it in the batch. They are not checked yet and have no results.
    pub deferred: Vec<ToolCall>,
}

/// How a model call ended.
#[derive(Clone, Debug, PartialEq)]
pub enum LlmTurn {
    /// With a complete reply.
    Reply(ModelReply),
    /// The call was dropped, because the run was stopped or a limit was reached.
    Stopped(RunEnd),
    /// The call was dropped, because its streamed text repeated itself.
    Cut {
        /// The text until then.
        text: String,
        /// The verdict of the rules.
        verdict: Verdict,
    },
}

/// The time and the usage of a run. The rules see it before each model call and before each batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meter {
    /// Now, in milliseconds since any fixed point. `None`: the time is unknown, and no rule about time fires.
    pub clock_ms: Option<u64>,
    /// The usage of the run and its child runs.
    pub totals: Totals,
}

/// A call as the loop passes it to the delegate.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmittedCall {
    /// The call as it is in the context, where its id is unique.
    pub call: ToolCall,
    /// The result of a call that cannot run, because the run does not have the tool or the arguments are not a JSON
    /// object.
    pub refused: Option<ToolResult>,
}
