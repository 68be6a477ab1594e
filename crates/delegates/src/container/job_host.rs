//! The job host answers the requests of a worker with the run's own model calls and effect gate.

use std::collections::HashSet;
use std::sync::Arc;

use belay_agent_loop::{AdmittedCall, LlmTurn, LoopContext, Reasoning};
use belay_protocol::{
    BatchAnswer, BatchCall, Message, ModelAnswer, ModelAsk, ModelReply, RunEnd, StopLayer, StopReason, Tool, ToolBatch,
    ToolSet, WORKER_TOOLS, WorkerEnd,
};
use tokio::sync::mpsc;

use super::orders::Orders;
use super::remote::Remote;
use super::session::Request;
use belay_run::compaction::Shortener;
use belay_run::core::{RunCore, failure};
use belay_run::model_call::ModelCall;

/// The worker's conversation, as the host knows it.
#[derive(Default)]
pub(super) struct WorkerConversation {
    context: LoopContext,
    /// Number of messages that the worker has sent.
    told: usize,
    shortener: Shortener,
    /// The index of the task in the context.
    start: usize,
}

/// Appends the new messages. The worker sends the whole conversation each time, and it only grows. Earlier messages
/// are skipped, since a compaction may have removed them from the context.
fn hear(context: &mut LoopContext, told: &mut usize, messages: Vec<Message>) {
    let known = std::mem::replace(told, messages.len().max(*told));
    context.messages.extend(messages.into_iter().skip(known).map(Arc::new));
}

/// The host's part of one job.
pub(super) struct JobHost {
    pub(super) core: RunCore,
    pub(super) reasoning: Reasoning,
    pub(super) orders: Arc<Orders>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// The conversation of the worker, compacted when it becomes too long, with the host's counters.
    pub(super) talk: WorkerConversation,
    pub(super) max_turns: u32,
    /// Model calls so far.
    pub(super) turns: u32,
    /// Why the job is over, when the host knows it better than the worker.
    pub(super) reason: Option<StopReason>,
}

impl JobHost {
    /// Answers requests until the job is over: the worker reports its end, a limit is reached, a model call fails, or
    /// the run's token is cancelled.
    ///
    /// # Cancel safety
    /// Do not drop it: cancel the token. It then returns within the grace period of tools.
    pub(super) async fn serve(&mut self) -> WorkerEnd {
        loop {
            let cancel = self.core.cancel.clone();
            let request = tokio::select! {
                biased; // a request that the worker sent before the cancellation counts
                Some(request) = self.requests.recv() => request,
                () = cancel.cancelled() => return WorkerEnd::Stopped,
            };
            // A failed send means that the worker is gone. The watch on its process reports this.
            let over = match request {
                Request::Model(ask, answer) => match self.model(ask).await {
                    Ok(reply) => {
                        let _ = answer.send(ModelAnswer::Reply(reply));
                        None
                    }
                    Err(end) => {
                        let _ = answer.send(ModelAnswer::Over { why: words(&end) });
                        Some(end)
                    }
                },
                Request::Batch(batch, answer) => {
                    let (messages, over) = self.batch(batch).await;
                    let _ = answer.send(BatchAnswer { messages, over: over.as_ref().map(words) });
                    over
                }
                Request::Finish(end, answer) => {
                    let _ = answer.send(());
                    Some(plausible(end))
                }
            };
            if let Some(end) = over {
                return end;
            }
        }
    }

    /// Makes a model call, as any run does.
    async fn model(&mut self, ask: ModelAsk) -> Result<ModelReply, WorkerEnd> {
        // The worker counts its steps too, but only the host's count is binding.
        if let Some(end) = self.core.at_step().await {
            return Err(self.over(&end));
        }
        if self.turns >= self.max_turns {
            return Err(WorkerEnd::MaxTurns);
        }
        self.turns += 1;
        let WorkerConversation { context, told, shortener, start } = &mut self.talk;
        hear(context, told, ask.messages);
        context.state.iteration = self.turns;
        context.state.force_text |= ask.force_text;
        let roomy = ModelCall { core: &mut self.core, shortener, start };
        match roomy.call(&self.reasoning, context, self.turns).await {
            Ok(LlmTurn::Reply(reply)) => Ok(reply),
            Ok(LlmTurn::Stopped(end)) => Err(self.over(&end)),
            Ok(LlmTurn::Cut { .. }) => Err(self.over(&StopReason::Chanting.into())),
            Err(error) => Err(self.over(&failure(error))),
        }
    }

    /// Passes a batch through the effect gate, which hands calls of the worker's own tools back to the worker.
    async fn batch(&mut self, batch: ToolBatch) -> (Vec<Message>, Option<WorkerEnd>) {
        let calls: Vec<AdmittedCall> =
            batch.calls.into_iter().map(|BatchCall { call, refused }| AdmittedCall { call, refused }).collect();
        let mut ids = HashSet::new();
        if !calls.iter().all(|admitted| ids.insert(admitted.call.id.clone())) {
            let detail = "the worker sent two calls with one id".to_owned();
            return (Vec::new(), Some(WorkerEnd::Failed { detail }));
        }
        let asked = calls.iter().map(|admitted| admitted.call.clone()).collect();
        let state = self.talk.context.state.clone();
        let mut context = LoopContext { messages: vec![Arc::new(Message::assistant_calls("", asked))], state };
        let tools: Arc<ToolSet> = self.reasoning.tools().clone();
        let (lent, orders) = (tools.clone(), self.orders.clone());
        let bind = move |name: &str| {
            let declaration = lent.get(name).filter(|_| WORKER_TOOLS.contains(&name))?.clone();
            Some(Arc::new(Remote { declaration, orders: orders.clone() }) as Arc<dyn Tool>)
        };
        let executed = self.core.execute(calls, &mut context, &tools, &bind).await;
        let messages = context.messages.iter().skip(1).map(|message| (**message).clone()).collect();
        self.core.after_step(self.turns).await;
        let over = match executed {
            _ if self.core.cancel.is_cancelled() => Some(WorkerEnd::Stopped),
            Ok(_) => None,
            Err(error) => Some(self.over(&failure(error))),
        };
        (messages, over)
    }

    /// Converts an end of the run to the end of the worker.
    fn over(&mut self, end: &RunEnd) -> WorkerEnd {
        self.reason = Some(end.reason);
        match end.reason {
            StopReason::ActiveTime | StopReason::WallClock => WorkerEnd::TimedOut,
            reason if reason.layer() == StopLayer::Operator => WorkerEnd::Stopped,
            reason => WorkerEnd::failed(reason.user_line()),
        }
    }
}

/// Corrects an implausible report: only the host stops a worker, and a success needs a text.
fn plausible(told: WorkerEnd) -> WorkerEnd {
    match told {
        WorkerEnd::Completed { reply } if reply.trim().is_empty() => WorkerEnd::failed("it ended without an answer"),
        WorkerEnd::Stopped => WorkerEnd::failed("it reports that it was stopped, but nobody stopped it"),
        told => told,
    }
}

fn words(end: &WorkerEnd) -> String {
    match end {
        WorkerEnd::Completed { .. } => "it is completed".to_owned(),
        WorkerEnd::MaxTurns => "its step limit is reached".to_owned(),
        WorkerEnd::TimedOut => "its time limit is reached".to_owned(),
        WorkerEnd::Stopped => "it was stopped".to_owned(),
        WorkerEnd::Failed { detail } => detail.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_tells_again_is_not_heard_twice_and_does_not_bring_back_what_has_left() {
        let say = |texts: &[&str]| -> Vec<Message> { texts.iter().map(|text| Message::user(*text)).collect() };
        let (mut context, mut told) = (LoopContext::default(), 0);
        for (says, heard) in [
            (&["task"][..], &["task"][..]),
            (&["task"], &["task"]),
            (&["task", "a", "b"], &["task", "a", "b"]),
            (&["task", "a"], &["task", "a", "b"]),
            (&["task", "a", "b", "c"], &["task", "a", "b", "c"]),
        ] {
            hear(&mut context, &mut told, say(says));
            let texts: Vec<&str> = context.messages.iter().map(|message| message.text()).collect();
            assert_eq!(texts, heard, "{says:?}");
        }
        context.messages.drain(1..3); // the context was compacted
        hear(&mut context, &mut told, say(&["task", "a", "b", "c", "d"]));
        assert_eq!(context.messages.iter().map(|message| message.text()).collect::<Vec<_>>(), ["task", "c", "d"]);
    }
}
