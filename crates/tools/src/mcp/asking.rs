//! Asks servers for their tools, each over a connection of its own that is closed afterwards.

use std::sync::Arc;

use belay_protocol::{Generation, RunId};
use futures_util::future::join_all;
use tokio::sync::Semaphore;

use crate::mcp::host::{Listing, bounded};
use crate::mcp::listing::Listed;
use crate::mcp::offer::check;
use crate::mcp::server::{Endpoint, Server};
use crate::mcp::server_error::ServerError;
use crate::mcp::sessions::McpSessions;
use crate::mcp::wire::Watch;

/// Most programs that are asked at the same time. 4: interpreters that load their libraries keep a processor busy for
/// seconds, and more of them at once only make each other late.
const MAX_PROGRAMS: usize = 4;

/// Asks servers, a few at a time. Clones share the limit.
#[derive(Clone)]
pub(super) struct Asking {
    sessions: Arc<McpSessions>,
    places: Arc<Semaphore>,
}

impl Asking {
    pub(super) fn new(sessions: Arc<McpSessions>) -> Self {
        Self { sessions, places: Arc::new(Semaphore::new(MAX_PROGRAMS)) }
    }

    /// Lists the tools of these servers, in their order.
    ///
    /// # Cancel safety
    /// If the future is dropped, the started servers are ended.
    pub(super) async fn all(&self, servers: Vec<Arc<Server>>) -> Vec<(Arc<Server>, Listing)> {
        let listings = join_all(servers.iter().map(|server| self.one(server))).await;
        servers.into_iter().zip(listings).collect()
    }

    /// Lists the tools of one server. A program waits for its turn; the wait does not count as part of its start.
    ///
    /// # Cancel safety
    /// If the future is dropped, the server is ended.
    pub(super) async fn one(&self, server: &Server) -> Listing {
        let _place = match server.endpoint() {
            Endpoint::Program(_) => self.places.acquire().await.ok(), // never closed
            Endpoint::Remote(_) => None,
        };
        let watch = Arc::new(Watch::default());
        let listing = match self.listed(server, &watch).await {
            Err(ServerError::SessionGone) => self.listed(server, &watch).await,
            listing => listing,
        };
        let tools = listing.map_err(|trouble| (trouble, watch.last_words()))?;
        Ok(bounded(tools.into_iter().map(|tool| tool.and_then(|listed| check(&listed.tool))).collect()))
    }

    async fn listed(&self, server: &Server, watch: &Arc<Watch>) -> Result<Vec<Listed>, ServerError> {
        // A new run id for this listing only, so that lists of running processes still show the server.
        let (run, generation) = (RunId::new(), Generation::default());
        let connection = Box::pin(self.sessions.connect(server, run, &generation, watch.clone())).await?;
        let tools = connection.tools().await;
        connection.end().await;
        tools
    }
}
