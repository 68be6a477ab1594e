//! The worker's side: the shared loop, with a delegate that only has a link to its host.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_agent_loop::{
    AdmittedCall, AgenticLoopConfig, LlmTurn, LoopContext, LoopDelegate, LoopError, LoopOutcome, LoopSignal, Reasoning,
    TextAction, run_agentic_loop,
};
use belay_protocol::{
    Approved, BatchCall, CallId, DoneOutput, Generation, LentTool, LinkError, Message, ModelAnswer, ModelAsk, Prompt,
    RunEnd, RunId, SessionKey, StopReason, Tool, ToolBatch, ToolContext, ToolDone, ToolFailure, ToolOutput, ToolSet,
    ToolSpec, WorkerCommand, WorkerEnd, WorkerLink, WorkerTask,
};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde_json::{Map, Value};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use belay_run::deadlines::{Deadline, WaitClock};
use belay_run::effect_gate::CRASHED;
use belay_run::reply::{self, Reply};

/// Pause before the worker requests orders again after a failure of the link.
const LINK_PAUSE: Duration = Duration::from_millis(200);
/// Time within which tools must end after their calls were cancelled.
const LAST_TOOLS: Duration = Duration::from_secs(5);

const SAY_SOMETHING: &str = "Your message was empty. Answer with your result as text, or continue working with the \
tools.";

/// Executes the job behind this link with the worker's own tools, and reports its end to the host.
///
/// # Errors
/// The host could not be reached for the task or the report: it does not wait for this worker any more.
///
/// # Cancel safety
/// When dropped, running tools are dropped too. The host notices the end of the process.
pub async fn work(link: Arc<dyn WorkerLink>, own: ToolSet) -> Result<WorkerEnd, LinkError> {
    let task = link.task().await?;
    // The host's timeout is binding. This one ends a worker that its host has forgotten. It does not count the time in
    // which the worker only waits for the results of a batch, since a person may have to decide on a call.
    let waits = WaitClock::alone();
    let deadline = Deadline::at(Instant::now() + Duration::from_millis(task.time_ms), &waits);
    let end = tokio::select! {
        end = carry_out(link.clone(), own, task, waits) => end,
        () = deadline.passed() => WorkerEnd::TimedOut,
    };
    link.finish(end.clone()).await?;
    Ok(end)
}

async fn carry_out(link: Arc<dyn WorkerLink>, own: ToolSet, task: WorkerTask, waits: WaitClock) -> WorkerEnd {
    let WorkerTask { message, tools, max_turns, .. } = task;
    let tools =
        Arc::new(ToolSet::new(tools.into_iter().map(|tool| Arc::new(Lent::new(tool)) as Arc<dyn Tool>).collect()));
    // The host has the prompt and the limits of an answer; the loop here only uses the list of tools.
    let reasoning = Reasoning::new(Prompt::default(), Prompt::default(), tools, 1, 1);
    let mut context = LoopContext::new(vec![Arc::new(Message::user(message))]);
    let config = AgenticLoopConfig { max_iterations: max_turns, ..AgenticLoopConfig::default() };
    let mut delegate = ContainerDelegate { link, own, run: RunId::new(), over: None, received: 0, waits };
    let outcome = run_agentic_loop(&mut delegate, &reasoning, &mut context, &config).await;
    if let Some(why) = delegate.over {
        return WorkerEnd::Failed { detail: why };
    }
    match outcome {
        Ok(LoopOutcome::Response(reply)) => WorkerEnd::Completed { reply },
        Ok(LoopOutcome::MaxIterations { .. }) => WorkerEnd::MaxTurns,
        Ok(LoopOutcome::Stopped(end)) if end.reason == StopReason::MaxIterations => WorkerEnd::MaxTurns,
        Ok(LoopOutcome::Stopped(end)) => WorkerEnd::failed(end.line()),
        Ok(LoopOutcome::NeedApproval(pending)) => {
            WorkerEnd::failed(format!("{} needs an approval, and nobody can be asked", pending.call.name))
        }
        Err(error) => WorkerEnd::failed(error.to_string()),
    }
}

/// A tool of the host's list, as the loop needs it. Calls of it go to the host.
struct Lent(ToolSpec);

impl Lent {
    fn new(tool: LentTool) -> Self {
        let LentTool { name, description, schema } = tool;
        Self(ToolSpec::new(name, description, schema))
    }
}

#[async_trait]
impl Tool for Lent {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    async fn call(&self, _arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        Err(ToolFailure::failed("a worker's calls go through its host"))
    }
}

/// Adapts the loop to a worker. It checks no signals: the host ends the process.
pub(crate) struct ContainerDelegate {
    link: Arc<dyn WorkerLink>,
    /// The tools that it executes on the host's orders.
    own: ToolSet,
    run: RunId,
    /// Why the host has ended the job, or why it cannot be reached.
    over: Option<String>,
    /// The number of the last order received.
    received: u64,
    /// The times in which it only waits for its host.
    waits: WaitClock,
}

impl ContainerDelegate {
    fn end(&mut self, why: String) -> RunEnd {
        self.over = Some(why);
        StopReason::ParentStopped.into()
    }

    /// Executes the host's orders until the batch has its results.
    async fn follow(&mut self, batch: ToolBatch) -> Result<belay_protocol::BatchAnswer, LinkError> {
        let link = self.link.clone();
        let answered = link.batch(batch);
        tokio::pin!(answered);
        let mut running = FuturesUnordered::new();
        let mut tokens: HashMap<CallId, CancellationToken> = HashMap::new();
        let waits = self.waits.clone();
        let answer = loop {
            let _wait = running.is_empty().then(|| waits.begin());
            tokio::select! {
                biased; // with the results, no order is left
                answer = &mut answered => break answer,
                Some(()) = running.next() => {}
                order = self.next_order() => match order {
                    Some(WorkerCommand::Run { call, tool, arguments, approved }) => {
                        let cancel = CancellationToken::new();
                        tokens.insert(call.clone(), cancel.clone());
                        running.push(self.carry_out(call, &tool, (arguments, approved), cancel));
                    }
                    Some(WorkerCommand::Cancel { call }) => {
                        tokens.get(&call).into_iter().for_each(CancellationToken::cancel);
                    }
                    None => {}
                },
            }
        };
        // The host has given up the calls that still run.
        tokens.values().for_each(CancellationToken::cancel);
        let rest = async { while running.next().await.is_some() {} };
        if timeout(LAST_TOOLS, rest).await.is_err() {
            tracing::warn!("a tool did not react to the stop and is dropped");
        }
        answer
    }

    /// The next order. `None`: there is none yet.
    ///
    /// # Cancel safety
    /// The host sends an order again that was not returned.
    async fn next_order(&mut self) -> Option<WorkerCommand> {
        match self.link.order(self.received).await {
            Ok(Some(order)) => {
                self.received = order.number;
                Some(order.order)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::debug!(%error, "no orders");
                tokio::time::sleep(LINK_PAUSE).await;
                None
            }
        }
    }

    /// Executes one call and sends its result to the host.
    fn carry_out(
        &self,
        call: CallId,
        tool: &str,
        (arguments, approved): (Map<String, Value>, Option<Approved>),
        cancel: CancellationToken,
    ) -> impl Future<Output = ()> + Send + use<> {
        let tool = self.own.get(tool).cloned().ok_or_else(|| format!("this worker has no tool {tool:?}"));
        let link = self.link.clone();
        let context = ToolContext {
            session: SessionKey::new("worker"),
            run_id: self.run,
            call_id: call.clone(),
            cancel,
            generation: Generation::default(),
            credential: None,
            progress: belay_protocol::Progress::default(),
            variables: std::sync::Arc::default(),
            approved,
            memory: belay_protocol::MemoryOwner::Group { session: SessionKey::new("worker") },
            untrusted: true,
            person: belay_protocol::PersonPort::default(),
            handle: belay_protocol::HandlePort::default(),
        };
        async move {
            let output = match tool {
                // A tool that panics fails only its call, as on the host.
                Ok(tool) => match AssertUnwindSafe(tool.call(&arguments, &context)).catch_unwind().await {
                    Ok(output) => output.into(),
                    Err(_panic) => DoneOutput::Failed { text: CRASHED.into() },
                },
                Err(text) => DoneOutput::Failed { text },
            };
            if let Err(error) = link.done(ToolDone { call, output }).await {
                tracing::warn!(%error, "the result of a tool could not be sent to the host");
            }
        }
    }
}

#[async_trait]
impl LoopDelegate for ContainerDelegate {
    async fn check_signals(&mut self) -> LoopSignal {
        LoopSignal::Continue
    }

    async fn before_llm_call(&mut self, _context: &mut LoopContext, _iteration: u32) -> Option<LoopOutcome> {
        None
    }

    async fn call_llm(
        &mut self,
        _reasoning: &Reasoning,
        context: &mut LoopContext,
        iteration: u32,
    ) -> Result<LlmTurn, LoopError> {
        let messages = context.messages.iter().map(|message| (**message).clone()).collect();
        let ask = ModelAsk { step: iteration, force_text: context.state.force_text, messages };
        Ok(match self.link.model(ask).await {
            Ok(ModelAnswer::Reply(reply)) => LlmTurn::Reply(reply),
            Ok(ModelAnswer::Over { why }) => LlmTurn::Stopped(self.end(why)),
            Err(error) => LlmTurn::Stopped(self.end(error.to_string())),
        })
    }

    /// The final text is the result of the worker.
    async fn handle_text_response(&mut self, text: String, context: &mut LoopContext) -> TextAction {
        match reply::shape(&text) {
            Reply::Text(text) => {
                let note = reply::cut_note(context.state.last_finish).1;
                TextAction::Return(LoopOutcome::Response(text + note))
            }
            Reply::Empty | Reply::OnlyEchoes | Reply::Silent => {
                context.push(Message::system(SAY_SOMETHING).for_run());
                TextAction::Continue
            }
        }
    }

    async fn execute_tool_calls(
        &mut self,
        calls: Vec<AdmittedCall>,
        context: &mut LoopContext,
    ) -> Result<Option<LoopOutcome>, LoopError> {
        let calls = calls.into_iter().map(|AdmittedCall { call, refused }| BatchCall { call, refused }).collect();
        match self.follow(ToolBatch { calls }).await {
            Ok(answer) => {
                context.messages.extend(answer.messages.into_iter().map(Arc::new));
                Ok(answer.over.map(|why| LoopOutcome::Stopped(self.end(why))))
            }
            Err(error) => Ok(Some(LoopOutcome::Stopped(self.end(error.to_string())))),
        }
    }
}
