//! Settings of the web tools: the sections `[tools.web]` and `[tools.search]`.

use globset::Glob;
use serde::{Deserialize, Serialize};
use url::Url;

use super::allow_private::AllowPrivate;

/// Settings of `fetch_url` and `send_request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WebConfig {
    /// Whether the tool `fetch_url` exists.
    pub enabled: bool,
    /// Most bytes of a page that are read, after decompression.
    #[serde(skip)]
    pub max_bytes: u64,
    /// Time limit of one call, including redirects, in seconds.
    #[serde(skip)]
    pub timeout_s: u64,
    /// Allowed ports; at least one.
    pub ports: Vec<u16>,
    /// Allowed addresses that are not public: networks such as `10.0.0.0/8`, and single hosts with a port such as
    /// `wiki.intern:8080` or `127.0.0.1:3000`. The port of a single host need not be in [`Self::ports`].
    pub allow_private: Vec<String>,
    /// Globs of the allowed hosts, such as `*.example.com`. Empty: all hosts.
    pub allow_hosts: Vec<String>,
    /// Globs of forbidden hosts. They take precedence over `allow_hosts`.
    pub deny_hosts: Vec<String>,
    /// The methods that `send_request` may use, of [`METHODS`]. Empty: the tool does not exist.
    pub send_methods: Vec<String>,
}

/// The methods of requests that may change something.
pub const METHODS: [&str; 4] = ["POST", "PUT", "PATCH", "DELETE"];

/// Most results of one search. More would fill the context without helping the model.
pub const MAX_RESULTS: u32 = 20;

impl Default for WebConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_bytes: 2 * 1024 * 1024,
            timeout_s: 30,
            ports: vec![80, 443, 8080, 8443],
            allow_private: Vec::new(),
            allow_hosts: Vec::new(),
            deny_hosts: Vec::new(),
            send_methods: Vec::new(),
        }
    }
}

impl WebConfig {
    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.ports.is_empty() || self.ports.contains(&0) {
            problems.push("tools.web.ports: must name at least one port, and none may be 0".to_owned());
        }
        for problem in self.allow_private.iter().filter_map(|entry| entry.parse::<AllowPrivate>().err()) {
            problems.push(format!("tools.web.allow_private: {problem}"));
        }
        for (key, globs) in [("allow_hosts", &self.allow_hosts), ("deny_hosts", &self.deny_hosts)] {
            for problem in globs.iter().filter_map(|glob| Glob::new(glob).err()) {
                problems.push(format!("tools.web.{key}: {problem}"));
            }
        }
        let known = |method: &&String| METHODS.contains(&method.as_str());
        let twice = |at: usize| self.send_methods[..at].contains(&self.send_methods[at]);
        if !self.send_methods.iter().all(|method| known(&method)) || (0..self.send_methods.len()).any(twice) {
            problems.push(format!("tools.web.send_methods: may name each of {} once", METHODS.join(", ")));
        }
        problems
    }
}

/// Settings of `web_search`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchConfig {
    /// The search provider.
    pub provider: SearchProvider,
    /// Base URL of the provider. Absent: the provider's default, for SearXNG `http://127.0.0.1:8888`.
    pub base_url: Option<String>,
    /// Number of results if the call does not set it; 1 to [`MAX_RESULTS`].
    #[serde(skip)]
    pub results: u32,
    /// Time limit of one search, in seconds.
    #[serde(skip)]
    pub timeout_s: u64,
}

/// The search provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SearchProvider {
    /// No provider: the tool `web_search` does not exist.
    #[default]
    None,
    /// Your own SearXNG instance, with `json` in its `search.formats`.
    Searxng,
    /// Brave Search; requires an API key.
    Brave,
    /// Tavily; requires an API key.
    Tavily,
}

impl Default for SearchConfig {
    fn default() -> Self {
        Self { provider: SearchProvider::None, base_url: None, results: 5, timeout_s: 20 }
    }
}

impl SearchConfig {
    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        self.base_url.as_deref().and_then(base_problem).into_iter().collect()
    }
}

/// The problem with a base URL. The text does not quote the URL, because it may contain a password.
fn base_problem(base: &str) -> Option<String> {
    let wrong = |what| Some(format!("tools.search.base_url: {what}"));
    match Url::parse(base) {
        Err(error) => wrong(format!("cannot be read: {error}")),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => wrong("must begin with http:// or https://".to_owned()),
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            wrong("must not hold a name or password".to_owned())
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            wrong("must not have a query or a fragment".to_owned())
        }
        Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid_and_have_no_search_provider() {
        assert_eq!(WebConfig::default().validate(), Vec::<String>::new());
        assert_eq!(SearchConfig::default().validate(), Vec::<String>::new());
        assert_eq!(SearchConfig::default().provider, SearchProvider::None);
    }

    #[test]
    fn all_problems_are_reported_with_their_keys() {
        let web = WebConfig {
            ports: vec![],
            allow_private: vec!["10.0.0.0/8".into(), "everything".into()],
            allow_hosts: vec!["*.example.com".into()],
            deny_hosts: vec!["[".into()],
            send_methods: vec!["POST".into(), "post".into()],
            ..WebConfig::default()
        };
        let keys: Vec<_> = web.validate().iter().map(|p| p.split(':').next().unwrap_or_default().to_owned()).collect();
        assert_eq!(
            keys,
            ["tools.web.ports", "tools.web.allow_private", "tools.web.deny_hosts", "tools.web.send_methods"]
        );
        let twice = WebConfig { send_methods: vec!["PUT".into(), "PUT".into()], ..WebConfig::default() };
        assert_eq!(twice.validate(), ["tools.web.send_methods: may name each of POST, PUT, PATCH, DELETE once"]);
        for (base_url, problem) in [
            ("searx.example", "cannot be read"),
            ("ftp://searx.example", "http:// or https://"),
            ("http://me:sesame@searx.example", "must not hold a name or password"),
            ("http://searx.example/?q=1", "must not have a query"),
        ] {
            let config = SearchConfig {
                provider: SearchProvider::Searxng,
                base_url: Some(base_url.to_owned()),
                ..SearchConfig::default()
            };
            let problems = config.validate();
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(problem) && !problems[0].contains("sesame"), "{problems:?}");
        }
    }
}
