//! The web tools: `fetch_url` and `web_search`.
//!
//! Reading order: [`config`] → `net`, `address` (public and private IP addresses) → `allow_private`, `url` (the URLs
//! that may be fetched) → `resolve`, `page_client` (sending a request safely) → `body`, `readable` (reading the
//! response) → `fetch` → `search`.

mod address;
mod allow_private;
mod body;
pub mod config;
mod fetch;
mod net;
mod page_client;
pub(crate) mod readable;
mod resolve;
mod search;
#[cfg(test)]
mod tests;
mod url;

pub(crate) use fetch::FetchUrl;
pub(crate) use resolve::SystemResolver;
pub(crate) use search::WebSearch;
