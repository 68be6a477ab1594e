//! Who answers a worker: with the run's own way of asking the model, and the run's own gate.

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

/// What a clerk knows of the worker's conversation.
#[derive(Default)]
pub(super) struct WorkerConversation {
    context: LoopContext,
    /// How many messages the worker has told.
    told: usize,
    shortener: Shortener,
    /// Where its task stands in the context.
    start: usize,
}

/// Takes up what the worker tells: each time the whole conversation, which only grows. What it has told before is known,
/// and may have left the context since.
fn hear(context: &mut LoopContext, told: &mut usize, messages: Vec<Message>) {
    let known = std::mem::replace(told, messages.len().max(*told));
    context.messages.extend(messages.into_iter().skip(known).map(Arc::new));
}

/// The clerk of one job.
pub(super) struct JobHost {
    pub(super) core: RunCore,
    pub(super) reasoning: Reasoning,
    pub(super) orders: Arc<Orders>,
    pub(super) requests: mpsc::Receiver<Request>,
    /// The conversation that the worker has told, shortened where it has become too long, and the counters as the host has
    /// them.
    pub(super) talk: WorkerConversation,
    pub(super) max_turns: u32,
    /// Model calls so far.
    pub(super) turns: u32,
    /// Why the job is over, where the host knows it better than the worker.
    pub(super) reason: Option<StopReason>,
}

impl JobHost {
    /// Answers until the job is over: the worker says so, a limit is reached, the model cannot be asked, or the run's
    /// token is cancelled.
    ///
    /// # Cancel safety
    /// Not to be dropped: cancel the token instead, and it returns within the grace of tools.
    pub(super) async fn serve(&mut self) -> WorkerEnd {
        loop {
            let cancel = self.core.cancel.clone();
            let request = tokio::select! {
                biased; // what a worker said before it was cut off counts
                Some(request) = self.requests.recv() => request,
                () = cancel.cancelled() => return WorkerEnd::Stopped,
            };
            // Where an answer goes to nobody, the worker is gone, and whoever watches its process says so.
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

    /// Asks the model as any run does.
    async fn model(&mut self, ask: ModelAsk) -> Result<ModelReply, WorkerEnd> {
        // The worker counts too; but it is not the one whose count holds.
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

    /// Leads a batch through the gate. The worker's own tools are handed back to it from there.
    async fn batch(&mut self, batch: ToolBatch) -> (Vec<Message>, Option<WorkerEnd>) {
        let calls: Vec<AdmittedCall> =
            batch.calls.into_iter().map(|BatchCall { call, refused }| AdmittedCall { call, refused }).collect();
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

    /// The end that follows from an end of the run.
    fn over(&mut self, end: &RunEnd) -> WorkerEnd {
        self.reason = Some(end.reason);
        match end.reason {
            StopReason::ActiveTime | StopReason::WallClock => WorkerEnd::TimedOut,
            reason if reason.layer() == StopLayer::Operator => WorkerEnd::Stopped,
            reason => WorkerEnd::failed(reason.user_line()),
        }
    }
}

/// The end as the host can believe it: who stops a worker is the host, and success has a text.
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
        context.messages.drain(1..3); // shortened
        hear(&mut context, &mut told, say(&["task", "a", "b", "c", "d"]));
        assert_eq!(context.messages.iter().map(|message| message.text()).collect::<Vec<_>>(), ["task", "c", "d"]);
    }
}
