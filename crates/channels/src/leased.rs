//! A channel whose messages one node of a cluster takes at a time.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelAccess, ChannelDisplay, ChannelError, ChannelHealth, ChannelId, ChannelProfile, DeliverError,
    Envelope, HeldLeases, InboundStream, LeasedWork, Outbound, SentMessages, WorkLease,
};
use futures_util::{StreamExt, stream};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

/// A channel that takes messages only while this node holds its lease: Telegram allows one poller for each bot.
///
/// The inner channel is started with each lease, and its stream is dropped when the lease is lost. If the stream ends
/// while the lease is held, the node leaves the channel to others for a while. Deliveries are not its part: the sender
/// holds the lease already.
pub struct LeasedChannel {
    inner: Arc<dyn Channel>,
    leases: HeldLeases,
}

impl LeasedChannel {
    /// A channel that has taken no messages yet. `inner` can be started again after its stream has ended.
    pub fn new(inner: Arc<dyn Channel>, leases: HeldLeases) -> Self {
        Self { inner, leases }
    }
}

#[async_trait]
impl Channel for LeasedChannel {
    fn id(&self) -> &ChannelId {
        self.inner.id()
    }

    /// Returns at once, before the node has the lease.
    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        let (inner, leases) = (Arc::clone(&self.inner), self.leases.clone());
        let work = LeasedWork::Channel(inner.id().clone());
        let messages = Messages { inner, leases, work, intake, open: None };
        Ok(Box::pin(stream::unfold(messages, |mut messages| async move {
            messages.next().await.map(|envelope| (envelope, messages))
        })))
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        self.inner.deliver(message).await
    }

    fn sent(&self) -> Option<&dyn SentMessages> {
        self.inner.sent()
    }

    fn profile(&self) -> ChannelProfile<'_> {
        self.inner.profile()
    }

    fn display(&self) -> ChannelDisplay<'_> {
        self.inner.display()
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        self.inner.admission()
    }

    fn health(&self) -> ChannelHealth {
        self.inner.health()
    }
}

/// The messages of the channel, over all leases.
struct Messages {
    inner: Arc<dyn Channel>,
    leases: HeldLeases,
    work: LeasedWork,
    intake: CancellationToken,
    open: Option<Open>,
}

/// The intake under one lease.
struct Open {
    lease: WorkLease,
    stream: InboundStream,
}

impl Messages {
    /// The next message; `None`: intake has ended.
    async fn next(&mut self) -> Option<Envelope> {
        loop {
            let Some(open) = &mut self.open else {
                self.begin().await?;
                continue;
            };
            tokio::select! {
                biased; // the loss first: nothing is taken after it
                () = self.leases.lost(&open.lease) => {
                    info!(channel = %self.inner.id(), "this node takes no messages any more: another may do so");
                    // Dropped, not ended: its end would ask the platform once more, beside the next holder.
                    self.open = None;
                }
                message = open.stream.next() => match message {
                    Some(message) => return Some(message),
                    None if self.intake.is_cancelled() => return None,
                    None => self.leave().await?,
                }
            }
        }
    }

    /// Waits for the lease and starts the inner channel. `None`: intake has ended.
    async fn begin(&mut self) -> Option<()> {
        let lease = self.intake.run_until_cancelled(self.leases.obtained(&self.work)).await?;
        let mut lost = self.leases.clone();
        let started = tokio::select! {
            biased;
            () = lost.lost(&lease) => return Some(()),
            started = self.inner.start(self.intake.child_token()) => started,
        };
        match started {
            Ok(stream) => self.open = Some(Open { lease, stream }),
            Err(error) => {
                error!(detail = %error, "this node cannot take the messages of the channel; another may");
                self.give_up(&lease).await?;
            }
        }
        Some(())
    }

    /// Leaves the channel to other nodes for a while. `None`: intake has ended.
    async fn leave(&mut self) -> Option<()> {
        let Some(open) = self.open.take() else { return Some(()) };
        warn!(channel = %self.inner.id(), "the messages of the channel have ended on this node");
        self.give_up(&open.lease).await
    }

    async fn give_up(&mut self, lease: &WorkLease) -> Option<()> {
        self.leases.give_up(lease);
        self.intake.run_until_cancelled(self.leases.lost(lease)).await
    }
}
