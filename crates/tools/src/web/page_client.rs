//! Requests one page, redirect by redirect. Each request connects only to addresses that were checked.
//!
//! For each request: parse the URL by the [`Rules`] → resolve its host name once → refuse unless every address is
//! allowed → connect to exactly these addresses. The HTTP client of a request is created for it and dropped after it.
//! It uses no proxy, keeps no connection or cookie, follows no redirect, and its resolver returns only the checked
//! addresses. So later answers of a name server (DNS rebinding) have no effect.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolving};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use tokio::task::spawn_blocking;
use url::Host;

use super::resolve::Resolve;
use super::url::{Rules, Target};

/// Most redirects that are followed. Usual pages need two or three: to https, to `www`, to the new URL.
const MAX_REDIRECTS: usize = 5;

/// Longest time for connecting. 10 s: includes the first retransmissions of the system.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Longest silence while headers or body are read. The limit of the whole call ends a server that sends single bytes.
const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// The accepted media types: text first.
const ACCEPTED: &str = "text/html, application/xhtml+xml, text/*;q=0.9, application/json;q=0.9, */*;q=0.5";

/// The user agent; the same for all installations, so that it reveals nothing about the operator.
pub(super) const USER_AGENT: &str = concat!("belay/", env!("CARGO_PKG_VERSION"));

/// Requests pages.
pub(super) struct PageClient {
    pub(super) rules: Rules,
    pub(super) resolver: Arc<dyn Resolve>,
}

/// The headers of the last response; its body has not been read.
pub(super) struct PageResponse {
    /// The target that returned the response.
    pub(super) target: Target,
    /// The targets that redirected, in order.
    pub(super) redirects: Vec<Target>,
    /// The response.
    pub(super) response: Response,
}

impl PageClient {
    /// Requests a page and follows its redirects. The caller limits the time.
    ///
    /// # Errors
    /// Why there is no response, for the model.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection is closed.
    pub(super) async fn get(&self, target: Target) -> Result<PageResponse, String> {
        let mut target = target;
        let mut redirects = Vec::new();
        loop {
            let response = self.request_once(&target).await?;
            if !is_redirect(response.status().as_u16()) {
                return Ok(PageResponse { target, redirects, response });
            }
            let Some(next) = location(&response)? else {
                return Ok(PageResponse { target, redirects, response });
            };
            if redirects.len() == MAX_REDIRECTS {
                return Err(format!("{} redirects more than {MAX_REDIRECTS} times.", redirects[0].origin()));
            }
            let next = self.rules.redirected(&target, &next)?;
            redirects.push(std::mem::replace(&mut target, next));
        }
    }

    async fn request_once(&self, target: &Target) -> Result<Response, String> {
        let client = self.client_for(target).await?;
        client.get(target.url.clone()).send().await.map_err(|error| unreachable_because(target, &error))
    }

    /// A client that connects only to the checked addresses of this target, and follows no redirect.
    pub(super) async fn client_for(&self, target: &Target) -> Result<Client, String> {
        let addresses = self.addresses(target).await?;
        let https = target.url.scheme() == "https";
        // Loading the system's certificates reads and parses files for some milliseconds.
        let client = spawn_blocking(move || client(addresses, https)).await;
        let client = client.map_err(|_| "The client could not be made.".to_owned())?;
        client.map_err(|error| format!("The client could not be made: {}.", innermost(&error)))
    }

    /// Resolves the target; all of its addresses are checked.
    async fn addresses(&self, target: &Target) -> Result<Vec<SocketAddr>, String> {
        let found = match target.host() {
            Host::Ipv4(ip) => vec![IpAddr::V4(ip)],
            Host::Ipv6(ip) => vec![IpAddr::V6(ip)],
            Host::Domain(name) => self.resolver.resolve(name).await.map_err(|error| unknown(name, &error))?,
        };
        if found.is_empty() {
            return Err(format!("{} has no address.", target.host()));
        }
        // A private address among public ones is an attack or a mistake. In both cases, the next answer may contain
        // only the private one.
        found.iter().try_for_each(|ip| self.rules.check_address(target, *ip))?;
        Ok(found.into_iter().map(|ip| SocketAddr::new(ip, target.port)).collect())
    }
}

fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

fn location(response: &Response) -> Result<Option<String>, String> {
    let Some(value) = response.headers().get(LOCATION) else { return Ok(None) };
    let value = std::str::from_utf8(value.as_bytes());
    value.map(|to| Some(to.to_owned())).map_err(|_| "The page redirects to an address that cannot be read.".to_owned())
}

fn client(addresses: Vec<SocketAddr>, https: bool) -> reqwest::Result<Client> {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .default_headers(headers)
        .no_proxy()
        .redirect(Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .connect_timeout(CONNECT_LIMIT)
        .read_timeout(SILENCE_LIMIT)
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::new(Pinned(addresses)));
    let builder = if https { builder } else { builder.tls_certs_only([]) };
    builder.build()
}

/// A resolver with one fixed answer.
struct Pinned(Vec<SocketAddr>);

impl reqwest::dns::Resolve for Pinned {
    fn resolve(&self, _name: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

fn unknown(name: &str, error: &io::Error) -> String {
    format!("The name {name} cannot be resolved: {error}. Check its spelling.")
}

pub(super) fn unreachable_because(target: &Target, error: &reqwest::Error) -> String {
    let origin = target.origin();
    if error.is_timeout() {
        return format!("{origin} did not answer in time. It may be down; try again later or another address.");
    }
    let doing = if error.is_connect() { "cannot be connected to" } else { "did not answer as a web server does" };
    format!("{origin} {doing}: {}.", innermost(error))
}

/// The innermost cause. The outer layers only say that the request failed.
pub(super) fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
