//! The tools that reach the web: `fetch_url` and `web_search`.
//!
//! Reading order: [`config`] → `net`, `address` (which addresses are public) → `opening`, `url` (which addresses of the
//! web are fetched) → `resolve`, `reach` (how one is asked for) → `body`, `readable` (what its answer says) →
//! `fetch` → `search`.

mod address;
mod body;
pub mod config;
mod fetch;
mod net;
mod opening;
mod reach;
mod readable;
mod resolve;
mod search;
#[cfg(test)]
mod tests;
mod url;

pub(crate) use fetch::FetchUrl;
pub(crate) use resolve::SystemResolver;
pub(crate) use search::WebSearch;
