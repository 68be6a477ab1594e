//! The location of the store.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The section `[store]` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// `sqlite://` and a path, or `memory:`. Absent: a file in the data directory, which the daemon chooses.
    pub url: Option<String>,
}

impl StoreConfig {
    /// All problems, each beginning with the full key.
    pub fn validate(&self) -> Vec<String> {
        let problem = self.url.as_deref().and_then(|url| parse_url(url).err());
        problem.map(|problem| format!("store.url: {problem}")).into_iter().collect()
    }
}

/// A parsed store URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// A database file. The path is used verbatim: it is neither decoded nor expanded.
    Sqlite(PathBuf),
    /// A database in memory. It is lost when the process ends.
    Memory,
}

/// Parses a store URL.
///
/// # Errors
/// The problem and the supported forms, as a sentence for the operator.
pub fn parse_url(text: &str) -> Result<StoreUrl, String> {
    if text == "memory:" {
        return Ok(StoreUrl::Memory);
    }
    let Some(path) = text.strip_prefix("sqlite://") else {
        return Err(format!("{text:?} is not understood: use sqlite:///path/to/belay.db or memory:"));
    };
    if path.is_empty() || path.ends_with('/') {
        return Err(format!("{text:?} names no file: use sqlite:///path/to/belay.db"));
    }
    if path.contains(['?', '#', '\0']) {
        return Err(format!("{text:?} has parameters, and none are understood: use sqlite:///path/to/belay.db"));
    }
    Ok(StoreUrl::Sqlite(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_url_names_a_file_or_memory_and_nothing_else() {
        let file = |path: &str| Some(StoreUrl::Sqlite(path.into()));
        for (text, expected) in [
            ("sqlite:///var/lib/belay/belay.db", file("/var/lib/belay/belay.db")),
            ("sqlite://belay.db", file("belay.db")),
            ("sqlite:///with space/b.db", file("/with space/b.db")),
            ("memory:", Some(StoreUrl::Memory)),
            ("memory", None),
            ("sqlite://", None),
            ("sqlite:///var/lib/", None),
            ("sqlite:///a.db?mode=ro", None),
            ("sqlite::memory:", None),
            ("postgres://localhost/belay", None),
            ("/var/lib/belay/belay.db", None),
            ("", None),
        ] {
            assert_eq!(parse_url(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_bad_url_is_reported_under_its_key() {
        assert!(StoreConfig::default().validate().is_empty());
        let problems = StoreConfig { url: Some("mysql://x".into()) }.validate();
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("store.url: "), "{problems:?}");
    }
}
