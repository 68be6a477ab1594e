//! The speaker: shows the answers to commands, and refusals, in the order they were given.
//!
//! They go through the outbox like every reply, so that one conversation has one order and a platform's rate limits
//! hold. Should the store be in trouble, they are shown at once instead: an answer to `/stop` must not need a disk.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{Outbound, ReplyRoute};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::agent_services::AgentServices;
use belay_run::restart::persist;

/// Answers that wait to be stored. Then: one is dropped with a warning; the program that sent the command has its own
/// acknowledgement.
const CAPACITY: usize = 1024;
/// Longest time an answer may take to be shown beside the outbox.
const SAY_LIMIT: Duration = Duration::from_secs(10);

/// Where texts for people go.
#[derive(Clone)]
pub(crate) struct Notifier(mpsc::Sender<(ReplyRoute, String)>);

impl Notifier {
    /// The end that takes texts, and the work that shows them: run it until every speaker is dropped.
    pub(crate) fn new(services: Arc<AgentServices>) -> (Self, impl Future<Output = ()> + Send) {
        let (tx, mut rx) = mpsc::channel::<(ReplyRoute, String)>(CAPACITY);
        let work = async move {
            while let Some((route, text)) = rx.recv().await {
                let message = Outbound::new(None, route, text);
                // One answer that cannot be shown holds up those behind it, as they have one order, and loses none of them.
                persist("replies", &services.draining, || show(&services, message.clone())).await;
            }
        };
        (Self(tx), work)
    }

    /// Says something in a conversation, if there is one.
    pub(crate) fn say(&self, route: Option<ReplyRoute>, text: String) {
        if let Some(route) = route
            && self.0.try_send((route, text)).is_err()
        {
            tracing::warn!("too many answers are waiting; one is dropped");
        }
    }
}

async fn show(services: &AgentServices, message: Outbound) {
    let Err(error) = services.store.outbox.enqueue(message.clone()).await else { return };
    tracing::error!(%error, "the answer to a command could not be stored; showing it at once");
    let Some(channel) = services.channels.get(&message.route.channel) else { return };
    match timeout(SAY_LIMIT, channel.deliver(&message)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(channel = %channel.id(), %error, "the answer to a command was not delivered"),
        Err(_) => tracing::warn!(channel = %channel.id(), "the answer to a command took too long"),
    }
}
