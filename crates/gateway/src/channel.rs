//! The gateway as a channel: a bounded queue between the handlers and the agent.
//!
//! The end of intake ends messages, not the brakes: while the daemon drains, stops and questions about it still reach the
//! agent, until it drops the stream.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    Ack, Body, Channel, ChannelAccess, ChannelError, ChannelId, ChannelProfile, DeliverError, Envelope, InboundStream,
    Outbound, QueueMode, Refusal,
};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::auth::Auth;

/// Messages that wait for the dispatcher, which never waits itself. Then: 503 `busy`.
pub(crate) const INTAKE_CAPACITY: usize = 1024;

/// What comes in over HTTP, as a [`Channel`]. Its replies are read by whoever asked; nothing is delivered through it.
pub struct HttpChannel {
    id: ChannelId,
    /// Taken by `start`. The lock is held for that one move only.
    intake: Mutex<Option<mpsc::Receiver<Envelope>>>,
    /// Who is let in.
    auth: Arc<Auth>,
}

impl HttpChannel {
    /// The channel, and the end that handlers send to.
    pub(crate) fn new(id: ChannelId, auth: Arc<Auth>) -> (Self, mpsc::Sender<Envelope>) {
        let (sender, receiver) = mpsc::channel(INTAKE_CAPACITY);
        (Self { id, intake: Mutex::new(Some(receiver)), auth }, sender)
    }
}

#[async_trait]
impl Channel for HttpChannel {
    fn id(&self) -> &ChannelId {
        &self.id
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let taken = self.intake.lock().ok().and_then(|mut slot| slot.take());
        let receiver = taken.ok_or_else(|| ChannelError {
            channel: self.id.clone(),
            detail: "it was started before; a channel starts once".into(),
        })?;
        // When the stream is dropped the receiver goes with all that waits in it: each sender learns at once that its
        // message was not accepted.
        Ok(Box::pin(stream::unfold((receiver, intake), |(mut receiver, intake)| async move {
            let envelope = next(&mut receiver, &intake).await?;
            Some((envelope, (receiver, intake)))
        })))
    }

    /// A program waits for the answer to its own message, so each gets a turn, unless it asks for something else.
    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { queue_mode: QueueMode::Followup, ..ChannelProfile::default() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        Some(&*self.auth)
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        Err(DeliverError::Refused {
            detail: format!("nobody listens on {} for {}", self.id, message.route.conversation),
        })
    }
}

/// The next message; after the end of intake the next request of a program, since texts are refused then. `None` when
/// nobody can send any more. Cancel safe.
async fn next(receiver: &mut mpsc::Receiver<Envelope>, intake: &CancellationToken) -> Option<Envelope> {
    loop {
        let envelope = receiver.recv().await?;
        match envelope.inbound.body {
            Body::Text(_) | Body::Edit(_) if intake.is_cancelled() => {
                envelope.ack.send(Ack::Refused(Refusal::ShuttingDown))
            }
            Body::Text(_) | Body::Edit(_) | Body::Control(_) => return Some(envelope),
        }
    }
}
