//! A channel that serves as long as the daemon lives, and is no reason for it to live.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelAccess, ChannelError, ChannelId, ChannelProfile, DeliverError, InboundStream, Outbound, ReplyRoute,
};
use tokio_util::sync::CancellationToken;

/// The HTTP channel without a listener: what comes over the control socket are the operator's commands, and a daemon
/// whose every conversation has ended would only wait for them.
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

    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { keeps_alive: false, ..self.0.profile() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        self.0.admission()
    }

    async fn working(&self, route: &ReplyRoute, run: CancellationToken) {
        self.0.working(route, run).await;
    }
}
