//! The leases under which a node of a cluster delivers.

use belay_protocol::{ChannelId, HeldLeases, LeasedWork};
use tokio::sync::watch;

/// The leases and hints that the deliveries of a node follow.
#[derive(Clone)]
pub struct LeasedDelivery {
    /// The leases of the node.
    pub held: HeldLeases,
    /// Changes when other nodes have committed messages: [`Topic::Outbox`](belay_protocol::Topic::Outbox).
    pub committed: watch::Receiver<u64>,
}

impl LeasedDelivery {
    /// Whether this node may send the messages of a channel now.
    pub(crate) fn may_send(&self, channel: &ChannelId) -> bool {
        self.held.of(&LeasedWork::Channel(channel.clone())).is_some()
    }

    /// Waits until other leases are held, or other nodes have committed messages.
    pub(crate) async fn changed(leased: Option<&mut Self>) {
        let Some(Self { held, committed }) = leased else { return std::future::pending().await };
        tokio::select! {
            () = held.changed() => {}
            Ok(()) = committed.changed() => {}
        }
    }
}
