//! The gateway as a channel: a bounded queue between the handlers and the agent.
//!
//! After the end of intake, texts are refused, but control messages still pass: while the daemon drains, stops and
//! queries reach the agent until it drops the stream.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use belay_protocol::{
    Ack, Body, Channel, ChannelAccess, ChannelError, ChannelId, ChannelProfile, Confirmation, DeliverError,
    DeliveryQuality, Envelope, InboundStream, Outbound, Quality, QueueMode, Refusal,
};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::auth::Auth;

/// Capacity of the queue to the dispatcher, which never waits. When it is full: 503 `busy`.
const INTAKE_CAPACITY: usize = 1024 + CONTROL_SLOTS;

/// Slots that texts leave free, so that a stop is accepted when many messages wait. Handlers that look at the same moment may
/// take a few of them.
pub(crate) const CONTROL_SLOTS: usize = 64;

/// The HTTP interface as a [`Channel`]. Clients read their replies; nothing is delivered through it.
pub struct HttpChannel {
    id: ChannelId,
    /// Taken by `start`. The lock is held for that one move only.
    intake: Mutex<Option<mpsc::Receiver<Envelope>>>,
    /// Decides who is admitted.
    auth: Arc<Auth>,
}

impl HttpChannel {
    /// The channel, and the sender for handlers.
    pub(crate) fn new(id: ChannelId, auth: Arc<Auth>) -> (Self, mpsc::Sender<Envelope>) {
        let (sender, receiver) = mpsc::channel(INTAKE_CAPACITY);
        (Self { id, intake: Mutex::new(Some(receiver)), auth }, sender)
    }
}

/// An answer stays with its run, and a client reads it as often as it wants to.
pub const HTTP_QUALITY: Quality =
    Quality { delivery: DeliveryQuality::ExactlyOnce, confirmed_by: Confirmation::RealServer };

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
        // Dropping the stream drops the receiver and all waiting messages: each sender learns at once that its message
        // was not accepted.
        Ok(Box::pin(stream::unfold((receiver, intake), |(mut receiver, intake)| async move {
            let envelope = next(&mut receiver, &intake).await?;
            Some((envelope, (receiver, intake)))
        })))
    }

    /// A program waits for the answer to its own message, so each message gets a turn unless it asks for another mode.
    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { queue_mode: QueueMode::Followup, quality: HTTP_QUALITY, ..ChannelProfile::default() }
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

/// Returns the next message. After the end of intake texts are refused, and only control messages are returned. `None`
/// when all senders are dropped. Cancel safe.
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
