//! The location of the store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::postgres::PostgresUrl;

/// The section `[store]` of the configuration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// `sqlite://` and a path, `postgres://` and a database, or `memory:`. Absent: a file in the data directory, which the
    /// daemon chooses.
    pub url: Option<String>,
    /// PostgreSQL: the maximum number of connections that read. 1 to 64.
    pub connections: u32,
    /// PostgreSQL: the longest time of a statement, in seconds. 1 to 3600.
    pub statement_timeout_s: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { url: None, connections: 4, statement_timeout_s: 30 }
    }
}

/// The address of PostgreSQL is shown without its password.
impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreConfig")
            .field("url", &self.url.as_deref().map(without_password))
            .field("connections", &self.connections)
            .field("statement_timeout_s", &self.statement_timeout_s)
            .finish()
    }
}

impl StoreConfig {
    /// All problems, each beginning with the full key.
    pub fn validate(&self) -> Vec<String> {
        let problem = self.url.as_deref().and_then(|url| parse_url(url).err());
        let mut problems: Vec<String> = problem.map(|problem| format!("store.url: {problem}")).into_iter().collect();
        if !(1..=64).contains(&self.connections) {
            problems.push("store.connections: use a number from 1 to 64".into());
        }
        if !(1..=3600).contains(&self.statement_timeout_s) {
            problems.push("store.statement_timeout_s: use a number of seconds from 1 to 3600".into());
        }
        problems
    }

    /// PostgreSQL: the longest wait for a lock. A third of the longest statement: the statement that gets the lock has
    /// the rest of its time, and does not end as one that took too long.
    pub fn lock_timeout(&self) -> Duration {
        Duration::from_secs(self.statement_timeout_s) / 3
    }
}

/// A parsed store URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// A database file. The path is used verbatim: it is neither decoded nor expanded.
    Sqlite(PathBuf),
    /// A database of a PostgreSQL server.
    Postgres(PostgresUrl),
    /// A database in memory. It is lost when the process ends.
    Memory,
}

/// The forms of a store URL, for messages.
const FORMS: &str = "use sqlite:///path/to/belay.db, postgres://USER:PASSWORD@HOST:PORT/DATABASE or memory:";

/// A text that may be a URL with a password, without everything that may belong to it.
fn without_password(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 <= at => format!("{}***{}", &text[..scheme + 3], &text[at..]),
        (_, Some(at)) => format!("***{}", &text[at..]),
        (_, None) => text.to_owned(),
    }
}

/// Parses a store URL.
///
/// # Errors
/// The problem and the supported forms, as a sentence for the operator.
pub fn parse_url(text: &str) -> Result<StoreUrl, String> {
    if text == "memory:" {
        return Ok(StoreUrl::Memory);
    }
    if text.starts_with("postgres://") || text.starts_with("postgresql://") {
        return PostgresUrl::parse(text).map(StoreUrl::Postgres);
    }
    let Some(path) = text.strip_prefix("sqlite://") else {
        return Err(format!("{:?} is not understood: {FORMS}", without_password(text)));
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
            ("mysql://u:p@h/d", None),
            ("/var/lib/belay/belay.db", None),
            ("", None),
        ] {
            assert_eq!(parse_url(text).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_bad_url_is_reported_under_its_key() {
        assert!(StoreConfig::default().validate().is_empty());
        for url in
            ["mysql://x", "mysql://u:hunter2@h/d", "postgress://u:hunter2@h/d", "u:hunter2@h", "postgres://u:hunter2@h"]
        {
            let problems = StoreConfig { url: Some(url.into()), ..StoreConfig::default() }.validate();
            assert_eq!(problems.len(), 1);
            assert!(problems[0].starts_with("store.url: ") && !problems[0].contains("hunter2"), "{problems:?}");
        }
    }

    #[test]
    fn a_postgres_url_is_parsed_and_debug_hides_its_password() {
        let url = "postgres://u:hunter2@h/d?schema=s";
        assert!(matches!(parse_url(url), Ok(StoreUrl::Postgres(found)) if found.schema() == "s"));
        let config = StoreConfig { url: Some(url.into()), ..StoreConfig::default() };
        let shown = format!("{config:?} {:?}", parse_url(url));
        assert!(!shown.contains("hunter2") && shown.contains("@h/d"), "{shown}");
        assert!(config.validate().is_empty());
    }

    #[test]
    fn limits_out_of_range_are_reported_under_their_keys() {
        let good = StoreConfig::default();
        for (config, key) in [
            (StoreConfig { connections: 0, ..good.clone() }, "store.connections: "),
            (StoreConfig { connections: 65, ..good.clone() }, "store.connections: "),
            (StoreConfig { statement_timeout_s: 3601, ..good.clone() }, "store.statement_timeout_s: "),
            (StoreConfig { statement_timeout_s: 0, ..good.clone() }, "store.statement_timeout_s: "),
        ] {
            let problems = config.validate();
            assert!(problems.len() == 1 && problems[0].starts_with(key), "{problems:?}");
        }
    }
}
