//! Resolves host names.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

/// Resolves host names to addresses. Called once per request; the connection uses exactly these addresses.
#[async_trait]
pub(crate) trait Resolve: Send + Sync {
    /// All addresses of the name.
    ///
    /// # Errors
    /// The name has no address, or no name server answers.
    ///
    /// # Cancel safety
    /// If the future is dropped, the answer is lost. A running system call continues in its own thread.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver: `/etc/hosts`, then its name servers.
#[derive(Debug)]
pub(crate) struct SystemResolver;

#[async_trait]
impl Resolve for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }
}
