//! The calls of a connection that wait for their answers, and how the server learns that nobody waits any more.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use rmcp::Peer;
use rmcp::model::{CancelledNotificationParam, ClientRequest, RequestId, ServerResult};
use rmcp::service::{PeerRequestOptions, RoleClient, ServiceError};
use tokio::time::{Instant, timeout};

/// The requests of a connection. If the future of a request is dropped, the server is told at once
/// (`notifications/cancelled`).
pub(super) struct Calls {
    peer: Peer<RoleClient>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The requests without an answer.
    waiting: HashSet<RequestId>,
    /// The notifications that the SDK has and has not sent yet.
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

impl Calls {
    pub(super) fn new(peer: Peer<RoleClient>) -> Self {
        Self { peer, state: Mutex::default() }
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

    /// Cancels all requests without an answer, and waits until the server has been told, for `limit` at most. Returns the
    /// time of the last notification; `None`: there was none.
    ///
    /// # Cancel safety
    /// If the future is dropped, notifications that were not sent may be lost.
    pub(super) async fn cancel_all(&self, limit: Duration) -> Option<Instant> {
        let (telling, told) = {
            let mut state = self.state();
            for id in std::mem::take(&mut state.waiting) {
                self.tell(&mut state, id);
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
        let mut telling = async move {
            // An error means that the connection has ended.
            let _ = peer.notify_cancelled(CancelledNotificationParam::new(Some(id), reason)).await;
        }
        .boxed();
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
