//! The handles of running calls: stored with the state of the run, so that the call continues after a restart.

use std::sync::Arc;

use async_trait::async_trait;
use belay_agent_loop::LoopContext;
use belay_protocol::{Arguments, CallId, Durability, HandlePort, KeepHandle, ToolCall, ToolStatus};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::batch::Runnable;
use super::{CallContext, EffectGate, Slot, result_of};

/// The result of a call that a restart has interrupted.
pub(super) const UNKNOWN: &str = "outcome unknown: the daemon restarted while this ran; check before you repeat it";

/// Follows [`UNKNOWN`] if the call was one of an MCP server, which may have been asking a person.
pub(super) const QUESTION_ENDED: &str = "; if its server was asking a person, that question has ended";

/// Handles that wait for the store. 16, as many as calls run at the same time: each waits for one at most.
const WAITING: usize = 16;

/// A handle that a call wants to keep.
pub(super) struct Wanted {
    call: CallId,
    handle: Value,
    stored: oneshot::Sender<bool>,
}

/// The handles that the calls of a batch want to keep. One task writes the journal of a run, so the batch stores them.
pub(super) struct Kept {
    ask: mpsc::Sender<Wanted>,
    asked: mpsc::Receiver<Wanted>,
}

struct Keeper {
    call: CallId,
    ask: mpsc::Sender<Wanted>,
}

#[async_trait]
impl KeepHandle for Keeper {
    async fn keep(&self, handle: Value) -> bool {
        let (stored, answer) = oneshot::channel();
        let wanted = Wanted { call: self.call.clone(), handle, stored };
        // Without the batch there is no run.
        self.ask.send(wanted).await.is_ok() && answer.await.unwrap_or(false)
    }
}

impl Kept {
    pub(super) fn new() -> Self {
        let (ask, asked) = mpsc::channel(WAITING);
        Self { ask, asked }
    }

    /// The way of a call to its handle.
    pub(super) fn port(&self, call: &CallId, earlier: Option<Value>) -> HandlePort {
        HandlePort::new(earlier, Arc::new(Keeper { call: call.clone(), ask: self.ask.clone() }))
    }

    /// The next handle that a call wants to keep.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn wanted(&mut self) -> Wanted {
        match self.asked.recv().await {
            Some(wanted) => wanted,
            None => std::future::pending().await, // this value itself can send
        }
    }
}

impl Wanted {
    /// Stores the handle, and tells the call. If that fails, the call goes on: only a restart would need the handle. An error
    /// does not say that nothing was written, so the handle then counts as stored.
    pub(super) async fn store(self, caller: &mut CallContext<'_>, context: &mut LoopContext) {
        let may_be_stored = caller.journal.keeps_state();
        if may_be_stored {
            context.state.handles.insert(self.call.clone(), self.handle);
            if let Err(error) = caller.journal.write(context, Durability::Committed).await {
                crate::log_failure!(warn, error, %error, run = %caller.request.run, "the handle of a call could not be stored");
            }
        }
        // A call that has ended meanwhile does not listen.
        let _ = self.stored.send(may_be_stored);
    }
}

impl EffectGate {
    /// A call that has begun in an earlier attempt, which continues. It was checked and approved before it began, and its
    /// effect is not repeated, so nobody is asked again and no limit counts it twice.
    pub(super) fn continued(&self, caller: &CallContext<'_>, context: &LoopContext, call: ToolCall) -> Slot {
        let unknown = |why: &str| {
            let text = if why.is_empty() { UNKNOWN.to_owned() } else { format!("{UNKNOWN}; {why}") };
            Slot::Ended(Box::new(result_of(&call, ToolStatus::OutcomeUnknown, text).into()))
        };
        let (Some(tool), Arguments::Object(arguments)) = (caller.tools.get(&call.name), &call.arguments) else {
            return unknown("");
        };
        match self.health.admit(tool.spec()) {
            Err(refusal) => unknown(&refusal),
            Ok(pass) => Slot::Ready(Box::new(Runnable {
                tool: tool.clone(),
                arguments: arguments.clone(),
                credential: None,
                pass,
                uses: Vec::new(),
                approved: None,
                earlier: context.state.handles.get(&call.id).cloned(),
                call,
            })),
        }
    }
}
