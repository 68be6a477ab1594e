//! The client side of a connection: requests and notifications of a server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::ErrorData;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ClientResult, ErrorCode, Implementation, ProtocolVersion, ServerNotification,
    ServerRequest,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient, Service};
use tracing::debug;

use crate::mcp::untrusted::line;

/// Longest shown method of a request, in bytes.
const MAX_METHOD: usize = 100;

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
    refused: Mutex<Refused>,
}

/// The requests of a server that were refused.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    /// What the last one asked for.
    last: String,
}

impl Notices {
    /// Number of notifications that the tools have changed.
    pub(super) fn tools_changed(&self) -> u64 {
        self.tools_changed.load(Ordering::SeqCst)
    }

    /// Number of requests of the server that were refused.
    pub(super) fn refused(&self) -> u64 {
        self.lock_refused().count
    }

    /// What the server asked for since this number of refused requests; `None`: nothing.
    pub(super) fn refused_since(&self, count: u64) -> Option<String> {
        let refused = self.lock_refused();
        (refused.count > count).then(|| refused.last.clone())
    }

    fn lock_refused(&self) -> MutexGuard<'_, Refused> {
        // Both fields are plain values: a panic leaves at worst the words of another request.
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
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
        let asked = asked(&request);
        debug!(server = self.server, asked, "mcp server asks for what is not offered, refused");
        {
            let mut refused = self.notices.lock_refused();
            refused.count += 1;
            refused.last = asked;
        }
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

/// What a request asks for, for the model and people.
fn asked(request: &ServerRequest) -> String {
    let method = match request {
        ServerRequest::CreateMessageRequest(_) => "sampling/createMessage",
        ServerRequest::ElicitRequest(_) => "elicitation/create",
        ServerRequest::ListRootsRequest(_) => "roots/list",
        ServerRequest::CustomRequest(custom) => &custom.method,
        _ => "another request",
    };
    let thing = match method {
        "sampling/createMessage" => "a model",
        "elicitation/create" => "an answer of a person",
        "roots/list" => "directories",
        other => return line(other, MAX_METHOD),
    };
    format!("{thing} ({method})")
}
