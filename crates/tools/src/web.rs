//! The web tools: `fetch_url`, `send_request` and `web_search`.
//!
//! Reading order: [`config`] → `net`, `address` (public and private IP addresses) → `allow_private`, `url` (the URLs
//! that may be fetched) → `resolve`, `page_client` (sending a request safely) → `body`, `belay-readable`
//! (reading the response) → `fetch` → `request`, `send` → `search`; `callback` posts by the
//! same rules.

mod address;
mod allow_private;
mod body;
mod callback;
pub mod config;
mod fetch;
mod net;
mod page_client;
#[cfg_attr(not(feature = "web"), path = "web/no_readable.rs")]
pub(crate) mod readable;
mod request;
mod resolve;
mod search;
mod send;
#[cfg(test)]
mod tests;
mod url;

/// Whether one of these tools reads pages. Without the feature `web`, `fetch_url` reads no HTML.
fn reads_pages(tools: &[&str]) -> bool {
    cfg!(feature = "web") && tools.contains(&"fetch_url")
}

pub use callback::CallbackPoster;
pub(crate) use fetch::FetchUrl;
pub(crate) use resolve::SystemResolver;
pub(crate) use search::WebSearch;
pub(crate) use send::SendRequest;
