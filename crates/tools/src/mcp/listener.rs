//! The client side of a connection: requests and notifications of a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, ErrorCode, Implementation, ProtocolVersion, ServerNotification,
    ServerRequest,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, Service};
use tracing::debug;

/// Answers a server's requests. Belay declares no client capabilities, so every request except a ping is refused: there
/// is no sampling, no list of roots, no elicitation.
pub(super) struct Listener {
    server: String,
    notices: Arc<Notices>,
}

/// Counts the notifications of a server.
#[derive(Debug, Default)]
pub(super) struct Notices {
    tools_changed: AtomicU64,
}

impl Notices {
    /// Number of notifications that the tools have changed.
    pub(super) fn tools_changed(&self) -> u64 {
        self.tools_changed.load(Ordering::SeqCst)
    }
}

impl Listener {
    pub(super) fn new(server: &str, notices: Arc<Notices>) -> Self {
        Self { server: server.to_owned(), notices }
    }
}

impl Service<RoleClient> for Listener {
    async fn handle_request(
        &self,
        request: ServerRequest,
        _context: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        if matches!(request, ServerRequest::PingRequest(_)) {
            return Ok(ClientResult::empty(()));
        }
        debug!(server = self.server, "mcp server asks for what is not offered, refused");
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "this client offers servers nothing to ask for", None))
    }

    async fn handle_notification(
        &self,
        notification: ServerNotification,
        _context: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
            self.notices.tools_changed.fetch_add(1, Ordering::SeqCst);
            debug!(server = self.server, "mcp server says that its tools have changed");
        }
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let us = Implementation::new("belay", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), us)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
