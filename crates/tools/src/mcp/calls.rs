//! The calls of a connection that wait for their answers, and how the server learns that nobody waits any more.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use rmcp::Peer;
use rmcp::model::{CancelledNotificationParam, ClientRequest, CustomRequest, RequestId, ServerResult};
use rmcp::service::{PeerRequestOptions, RoleClient, ServiceError};
use serde_json::json;
use tokio::time::{Instant, timeout};

use crate::mcp::membership::Membership;

/// The requests of a connection. If the future of a request is dropped, the server is told at once
/// (`notifications/cancelled`).
pub(super) struct Calls {
    peer: Peer<RoleClient>,
    /// Whether tasks of other nodes' calls may be among those that are kept.
    membership: Membership,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The requests without an answer.
    waiting: HashSet<RequestId>,
    /// The tasks that calls wait for, by the server's names, and whether the state of the run may have the handle.
    tasks: HashMap<String, bool>,
    /// The notifications and cancellations that the SDK has and that are not done yet.
    telling: Vec<BoxFuture<'static, ()>>,
    /// The time of the last notification.
    told: Option<Instant>,
}

/// A request that waits for its answer.
struct Waiting<'a> {
    calls: &'a Calls,
    id: RequestId,
    answered: bool,
}

/// A task that a call waits for. If it is dropped before the task has ended, the server is told to cancel it. A node whose
/// lease does not hold leaves a kept task alone: another node may follow it by the handle.
pub(super) struct LiveTask {
    calls: Arc<Calls>,
    id: String,
}

impl Calls {
    pub(super) fn new(peer: Peer<RoleClient>, membership: Membership) -> Self {
        Self { peer, membership, state: Mutex::default() }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is told.
    pub(super) async fn ask(&self, request: ClientRequest) -> Result<ServerResult, ServiceError> {
        let handle = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()).await?;
        let mut waiting = Waiting { calls: self, id: handle.id.clone(), answered: false };
        self.state().waiting.insert(handle.id.clone());
        let answer = handle.await_response().await;
        waiting.answered = true;
        answer
    }

    /// A task for which a call waits from now on. `is_kept`: whether the state of the run has its handle.
    pub(super) fn live_task(self: &Arc<Self>, id: &str, is_kept: bool) -> LiveTask {
        self.state().tasks.insert(id.to_owned(), is_kept);
        LiveTask { calls: self.clone(), id: id.to_owned() }
    }

    /// Cancels all requests without an answer and all tasks that calls wait for, and waits until the server has been
    /// told, for `limit` at most. Returns the time of the last notification; `None`: there was none.
    ///
    /// # Cancel safety
    /// If the future is dropped, notifications that were not sent may be lost.
    pub(super) async fn cancel_all(&self, limit: Duration) -> Option<Instant> {
        let (telling, told) = {
            let mut state = self.state();
            for id in std::mem::take(&mut state.waiting) {
                self.tell(&mut state, id);
            }
            for (task, is_kept) in std::mem::take(&mut state.tasks) {
                self.cancel_task(&mut state, task, is_kept);
            }
            (std::mem::take(&mut state.telling), state.told)
        };
        // Beyond the limit, the server does not take them.
        let _ = timeout(limit, join_all(telling)).await;
        told
    }

    fn tell(&self, state: &mut State, id: RequestId) {
        let peer = self.peer.clone();
        let reason = Some("nobody waits for the answer any more".to_owned());
        let telling = async move {
            // An error means that the connection has ended.
            let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
        };
        Self::hand_over(state, telling.boxed());
    }

    fn cancel_task(&self, state: &mut State, id: String, is_kept: bool) {
        if is_kept && !self.membership.holds() {
            return;
        }
        let peer = self.peer.clone();
        let request = CustomRequest::new("tasks/cancel", Some(json!({ "taskId": id })));
        let telling = async move {
            // The server decides whether it cancels the task; nobody waits for its end any more.
            let _ = peer.send_request(ClientRequest::CustomRequest(request)).await;
        };
        Self::hand_over(state, telling.boxed());
    }

    fn hand_over(state: &mut State, mut telling: BoxFuture<'static, ()>) {
        state.telling.retain_mut(|telling| telling.now_or_never().is_none());
        // This hands it to the SDK, so that it is sent also if nobody waits for that.
        if (&mut telling).now_or_never().is_none() {
            state.telling.push(telling);
        }
        state.told = Some(Instant::now());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one insertion or removal, so a panic cannot leave it inconsistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.calls.state();
        if state.waiting.remove(&self.id) && !self.answered {
            self.calls.tell(&mut state, self.id.clone());
        }
    }
}

impl LiveTask {
    /// Whether the state of the run may have the handle of the task.
    pub(super) fn set_kept(&self, is_kept: bool) {
        if let Some(task) = self.calls.state().tasks.get_mut(&self.id) {
            *task = is_kept;
        }
    }

    /// The task has ended, or nobody is there to cancel it.
    pub(super) fn end(&mut self) {
        self.calls.state().tasks.remove(&self.id);
    }
}

impl Drop for LiveTask {
    fn drop(&mut self) {
        let mut state = self.calls.state();
        if let Some(is_kept) = state.tasks.remove(&self.id) {
            self.calls.cancel_task(&mut state, self.id.clone(), is_kept);
        }
    }
}
