//! Which addresses a name has.

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

/// Finds the addresses of names. Asked once for each hop of a call; what it says then is what is connected to.
#[async_trait]
pub(crate) trait Resolve: Send + Sync {
    /// Every address of the name.
    ///
    /// # Errors
    /// The name has none, or nobody could be asked.
    ///
    /// # Cancel safety
    /// Dropped, the answer is lost; a question already asked of the system goes on in its own thread.
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
