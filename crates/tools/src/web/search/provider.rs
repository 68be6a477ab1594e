//! Builds the requests for each provider and parses the answers.
//!
//! **Sources**: SearXNG "Search API" (<https://docs.searxng.org/dev/search_api.html>); Brave "Web Search API"
//! (<https://api-dashboard.search.brave.com/app/documentation/web-search>); Tavily "Search"
//! (<https://docs.tavily.com/documentation/api-reference/endpoint/search>).

use belay_protocol::Secret;
use reqwest::header::HeaderValue;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use url::Url;

use crate::web::config::SearchProvider;

/// A search provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Provider {
    Searxng,
    Brave,
    Tavily,
}

/// One result, as the provider returns it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Hit {
    pub(super) title: String,
    pub(super) url: String,
    pub(super) snippet: String,
}

impl Provider {
    /// The configured provider; `None` if there is none.
    pub(super) fn of(configured: SearchProvider) -> Option<Self> {
        match configured {
            SearchProvider::None => None,
            SearchProvider::Searxng => Some(Self::Searxng),
            SearchProvider::Brave => Some(Self::Brave),
            SearchProvider::Tavily => Some(Self::Tavily),
        }
    }

    /// The provider's name for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Searxng => "SearXNG",
            Self::Brave => "Brave Search",
            Self::Tavily => "Tavily",
        }
    }

    /// The default base URL. For SearXNG, which has no public service, the usual address on this machine.
    pub(super) fn default_url(self) -> &'static str {
        match self {
            Self::Searxng => "http://127.0.0.1:8888",
            Self::Brave => "https://api.search.brave.com",
            Self::Tavily => "https://api.tavily.com",
        }
    }

    /// The name of its API key in the vault, and the text for the person who is asked for it.
    pub(super) fn key(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Searxng => None,
            Self::Brave => Some((
                "brave_api_key",
                "A key of the Brave Search API, from <https://api-dashboard.search.brave.com/app/keys>.",
            )),
            Self::Tavily => Some(("tavily_api_key", "A key of Tavily, from <https://app.tavily.com>.")),
        }
    }

    /// Builds the request.
    pub(super) fn request(
        self,
        http: &Client,
        base: &Url,
        query: &str,
        count: u32,
        key: Option<&Secret>,
    ) -> RequestBuilder {
        let at = |path: &str, pairs: &[(&str, &str)]| {
            let mut url = base.clone();
            url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
            if !pairs.is_empty() {
                url.query_pairs_mut().extend_pairs(pairs);
            }
            url
        };
        match self {
            Self::Searxng => http.get(at("/search", &[("q", query), ("format", "json")])),
            Self::Brave => {
                let url = at("/res/v1/web/search", &[("q", query), ("count", &count.to_string())]);
                with_key(http.get(url).header("Accept", "application/json"), "X-Subscription-Token", "", key)
            }
            Self::Tavily => {
                let body = json!({ "query": query, "max_results": count });
                with_key(http.post(at("/search", &[])).json(&body), "Authorization", "Bearer ", key)
            }
        }
    }

    /// The results in an answer; `None` if this is not an answer of the provider.
    pub(super) fn hits(self, answer: &Value) -> Option<Vec<Hit>> {
        let (results, snippet) = match self {
            Self::Searxng | Self::Tavily => (answer.get("results")?, "content"),
            // Brave omits `web` if it finds nothing.
            Self::Brave => match answer.get("web") {
                Some(web) => (web.get("results")?, "description"),
                None if answer.get("type").and_then(Value::as_str) == Some("search") => return Some(Vec::new()),
                None => return None,
            },
        };
        let text = |result: &Value, key: &str| result.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let hit = |result: &Value| Hit {
            title: text(result, "title"),
            url: text(result, "url"),
            snippet: without_tags(&text(result, snippet)),
        };
        Some(results.as_array()?.iter().map(hit).filter(|hit| !hit.url.is_empty()).collect())
    }
}

/// Adds the key as a sensitive header, which logs do not show. A key that is no valid header value is omitted: then the
/// provider refuses the request, and the person is asked for a new key.
fn with_key(request: RequestBuilder, header: &str, prefix: &str, key: Option<&Secret>) -> RequestBuilder {
    let value = key.and_then(|key| HeaderValue::from_str(&format!("{prefix}{}", key.expose().trim())).ok());
    match value {
        Some(mut value) => {
            value.set_sensitive(true);
            request.header(header, value)
        }
        None => request,
    }
}

/// Removes the tags by which providers mark matching words.
fn without_tags(text: &str) -> String {
    ["<strong>", "</strong>", "<b>", "</b>", "<em>", "</em>"]
        .iter()
        .fold(text.to_owned(), |text, tag| text.replace(tag, ""))
}
