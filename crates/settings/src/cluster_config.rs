//! The section `[cluster]`: several daemons over one PostgreSQL database.

use belay_channels::StdinConfig;
use belay_store::{StoreConfig, StoreUrl, parse_url};
use serde::{Deserialize, Serialize};

/// The greatest length of a node's name, in characters.
const NAME_MAX: usize = 64;

/// The section `[cluster]` of the settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClusterConfig {
    /// Whether other daemons may use the same database.
    pub enabled: bool,
    /// The name of this daemon among the others; absent: the name of the host.
    pub name: Option<String>,
}

impl ClusterConfig {
    /// All problems, each beginning with the full key.
    pub fn validate(&self, store: &StoreConfig, stdin: &StdinConfig) -> Vec<String> {
        let mut problems = Vec::new();
        let is_name = |name: &String| {
            (1..=NAME_MAX).contains(&name.chars().count()) && !name.chars().any(|c| c.is_control() || c.is_whitespace())
        };
        if self.name.as_ref().is_some_and(|name| !is_name(name)) {
            problems.push(format!("cluster.name: use 1 to {NAME_MAX} characters without spaces"));
        }
        if !self.enabled {
            return problems;
        }
        if !matches!(store.url.as_deref().map(parse_url), Some(Ok(StoreUrl::Postgres(_)) | Err(_))) {
            problems.push(
                "cluster.enabled: daemons can share PostgreSQL alone: set store.url to postgres://HOST/DATABASE, or set \
                 cluster.enabled to false"
                    .to_owned(),
            );
        }
        problems.extend(stdin.clone().in_cluster().err());
        problems
    }

    /// The name of this node.
    pub fn name(&self) -> String {
        let host = || rustix::system::uname().nodename().to_string_lossy().into_owned();
        self.name.clone().unwrap_or_else(host)
    }
}

#[cfg(test)]
mod tests {
    use belay_channels::Enabled;

    use super::*;

    #[test]
    fn a_cluster_needs_postgresql_and_no_terminal() {
        let store = |url: Option<&str>| StoreConfig { url: url.map(str::to_owned), ..StoreConfig::default() };
        let (postgres, file) = (store(Some("postgres://db/belay")), store(None));
        let on = |name: Option<&str>| ClusterConfig { enabled: true, name: name.map(str::to_owned) };
        let keys = |problems: Vec<String>| -> Vec<String> {
            problems.iter().map(|problem| problem.split(':').next().unwrap_or_default().to_owned()).collect()
        };
        let terminal = |enabled| StdinConfig { enabled, ..StdinConfig::default() };
        let (yes, no) = (terminal(Enabled::Yes), terminal(Enabled::No));
        assert!(ClusterConfig::default().validate(&file, &yes).is_empty());
        for stdin in [Enabled::Auto, Enabled::No] {
            assert!(on(Some("belay-1")).validate(&postgres, &terminal(stdin)).is_empty());
        }
        assert_eq!(keys(on(None).validate(&file, &yes)), ["cluster.enabled", "channels.stdin.enabled"]);
        assert_eq!(keys(on(None).validate(&store(Some("memory:")), &no)), ["cluster.enabled"]);
        for name in ["", "a b", "a\nb", &"n".repeat(65)] {
            assert_eq!(keys(on(Some(name)).validate(&postgres, &no)), ["cluster.name"], "{name:?}");
        }
        assert_eq!(on(Some("b")).name(), "b");
        assert!(!on(None).name().is_empty());
    }
}
