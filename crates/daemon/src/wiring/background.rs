//! A channel that serves while the daemon lives, but does not keep it alive.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelAccess, ChannelDisplay, ChannelError, ChannelHealth, ChannelId, ChannelProfile, DeliverError,
    InboundStream, Outbound, SentMessages,
};
use tokio_util::sync::CancellationToken;

/// The HTTP channel without a listener: only operators' commands arrive, over the control socket. A daemon whose other
/// channels have ended would only wait for them.
pub(super) struct Background(pub(super) Arc<dyn Channel>);

#[async_trait]
impl Channel for Background {
    fn id(&self) -> &ChannelId {
        self.0.id()
    }

    async fn start(&self, intake: CancellationToken) -> Result<InboundStream, ChannelError> {
        self.0.start(intake).await
    }

    async fn deliver(&self, message: &Outbound) -> Result<(), DeliverError> {
        self.0.deliver(message).await
    }

    fn sent(&self) -> Option<&dyn SentMessages> {
        self.0.sent()
    }

    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { keeps_alive: false, ..self.0.profile() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        self.0.admission()
    }

    fn display(&self) -> ChannelDisplay<'_> {
        self.0.display()
    }

    fn health(&self) -> ChannelHealth {
        self.0.health()
    }
}
