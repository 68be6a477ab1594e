//! The lists of a chat's prompt, from the daemon.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value as Json;

use crate::client::{Client, text};
use crate::completion::{Lists, Wanted};

/// Lists over the API of a daemon.
pub(super) struct DaemonLists(pub(super) Arc<Client>);

#[async_trait]
impl Lists for DaemonLists {
    async fn list(&self, what: Wanted) -> Vec<String> {
        let (path, list, name): (&[&str], _, _) = match what {
            Wanted::Words(_) => return Vec::new(),
            Wanted::Models => (&["v1", "models"], "/data", "/id"),
            Wanted::Sessions => (&["api", "v1", "sessions"], "/sessions", "/session"),
            Wanted::Runs => (&["api", "v1", "runs"], "/runs", "/run_id"),
            Wanted::Jobs => (&["api", "v1", "jobs"], "/jobs", "/job_id"),
            Wanted::Approvals => (&["api", "v1", "approvals"], "/approvals", "/id"),
            Wanted::Routines => (&["api", "v1", "routines"], "/routines", "/name"),
        };
        // Without a list there is nothing to complete; whatever is typed still works.
        let Ok(answer) = self.0.get(path, &[]).await else { return Vec::new() };
        let entries = answer.pointer(list).and_then(Json::as_array).into_iter().flatten();
        let is_open = |entry: &&Json| {
            what != Wanted::Runs || !matches!(text(entry, "/status"), "completed" | "stopped" | "failed")
        };
        entries.filter(is_open).map(|entry| text(entry, name).to_owned()).filter(|name| !name.is_empty()).collect()
    }
}
