//! A channel that serves while the daemon lives, but does not keep it alive.

use std::sync::Arc;

use async_trait::async_trait;
use belay_protocol::{
    Channel, ChannelAccess, ChannelError, ChannelId, ChannelProfile, DeliverError, InboundStream, LookUp, Outbound,
    ReplyRoute, UnixMillis,
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

    async fn look_up(&self, message: &Outbound, since: UnixMillis) -> LookUp {
        self.0.look_up(message, since).await
    }

    fn profile(&self) -> ChannelProfile<'_> {
        ChannelProfile { keeps_alive: false, ..self.0.profile() }
    }

    fn admission(&self) -> Option<&dyn ChannelAccess> {
        self.0.admission()
    }

    fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    fn can_deliver(&self) -> bool {
        self.0.can_deliver()
    }

    async fn working(&self, route: &ReplyRoute, run: CancellationToken) {
        self.0.working(route, run).await;
    }
}
