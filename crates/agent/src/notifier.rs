//! The notifier: sends answers to commands, and refusals, in the order in which they were given.
//!
//! They go through the outbox like every reply, so that a conversation has one order and the rate limits of a platform
//! apply. If the store fails, they are sent at once instead: an answer to `/stop` must not need a disk. A node of a
//! cluster does so only while it holds the lease of the channel.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Outbound, ReplyRoute, TextKind};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::agent_services::AgentServices;
use crate::own_texts;
use belay_run::restart::persist;

/// Capacity for answers that wait to be stored. When it is full, an answer is dropped with a warning; the program that
/// sent the command still gets its acknowledgement.
const CAPACITY: usize = 1024;
/// Time limit for an answer that is sent without the outbox.
const SAY_LIMIT: Duration = Duration::from_secs(10);

/// Sends texts to people. Clones share one queue.
#[derive(Clone)]
pub(crate) struct Notifier(mpsc::Sender<Outbound>);

impl Notifier {
    /// Returns the notifier, and the task that sends its texts. Run the task until every clone of the notifier is
    /// dropped.
    pub(crate) fn new(services: Arc<AgentServices>) -> (Self, impl Future<Output = ()> + Send) {
        let (tx, mut rx) = mpsc::channel::<Outbound>(CAPACITY);
        let work = async move {
            while let Some(message) = rx.recv().await {
                // An answer that cannot be sent delays the following ones, to keep their order, but loses none of them.
                persist("replies", &services.draining, || show(&services, message.clone())).await;
            }
        };
        (Self(tx), work)
    }

    /// Queues the answer to a command, or a refusal, for a conversation, if there is one.
    pub(crate) fn say(&self, route: Option<ReplyRoute>, text: String) {
        self.queue(route, text, TextKind::Command);
    }

    /// Queues another text for a conversation, if there is one.
    pub(crate) fn notify(&self, route: Option<ReplyRoute>, text: String) {
        self.queue(route, text, TextKind::Notice);
    }

    fn queue(&self, route: Option<ReplyRoute>, text: String, kind: TextKind) {
        if let Some(route) = route
            && self.0.try_send(Outbound::new(None, route, text).of_kind(kind)).is_err()
        {
            tracing::warn!("too many answers are waiting; one is dropped");
        }
    }
}

async fn show(services: &AgentServices, message: Outbound) {
    let Err(error) = services.store.outbox.enqueue(message.clone()).await else { return };
    tracing::error!(%error, "the answer to a command could not be stored; showing it at once");
    let Some(channel) = services.channels.get(&message.route.channel) else { return };
    if services.leases.as_ref().is_some_and(|leased| !leased.may_send(channel.id())) {
        tracing::warn!(channel = %channel.id(), "the answer to a command is not shown: this node does not send for its channel");
        return;
    }
    let (checked, _facts) = own_texts::checked(&services.hooks, &message).await; // the store takes no events now
    let message = checked.unwrap_or(message);
    match timeout(SAY_LIMIT, channel.deliver(&message)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::warn!(channel = %channel.id(), detail = %error, "the answer to a command was not delivered")
        }
        Err(_) => tracing::warn!(channel = %channel.id(), "the answer to a command took too long"),
    }
}
