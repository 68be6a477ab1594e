//! The notifications of a server of the new revision, which only come if they are asked for.

use std::sync::Arc;
use std::time::Duration;

use rmcp::Peer;
use rmcp::model::{ServerNotification, SubscriptionFilter};
use rmcp::service::RoleClient;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use crate::mcp::listener::Notices;

/// How long a server may take to confirm that it will report changes.
const CONFIRM_LIMIT: Duration = Duration::from_secs(10);

/// Asks the server to report changes of its tools, if it can, until the set is dropped. A change that comes before the
/// confirmation, or after the end of the subscription, is not reported, so both count as changes.
pub(super) fn subscribe(peer: &Peer<RoleClient>, notices: &Arc<Notices>) -> JoinSet<()> {
    let mut listening = JoinSet::new();
    let is_told = peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize() && tools.is_some_and(|tools| tools.list_changed == Some(true))
    });
    if is_told {
        let (peer, notices) = (peer.clone(), notices.clone());
        listening.spawn(async move {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            let subscribed = timeout(CONFIRM_LIMIT, peer.listen(filter)).await;
            let Ok(Ok(mut subscription)) = subscribed else {
                return debug!("an mcp server does not report changes of its tools, although it says so");
            };
            notices.tools_have_changed();
            while let Ok(Some(notification)) = subscription.next().await {
                if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                    notices.tools_have_changed();
                }
            }
            notices.tools_have_changed();
        });
    }
    listening
}
