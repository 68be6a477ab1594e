//! `list_files`: lists a directory.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::blocking;
use crate::arguments;
use crate::config::ToolsConfig;
use crate::workspace::{EntryKind, Listing, Workspace, shown};

/// Most bytes of entries in one result; below [`belay_protocol::tool::MAX_OUTPUT_BYTES`].
const MAX_ENTRIES_BYTES: usize = 60 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
}

/// The tool `list_files`.
pub(crate) struct ListFiles {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    max_entries: usize,
}

impl ListFiles {
    pub(crate) fn new(workspace: Arc<Workspace>, config: &ToolsConfig) -> Self {
        let description = "Lists a directory.";
        Self {
            // File names may come from other people or programs, so they are untrusted content.
            spec: ToolSpec {
                untrusted: true,
                ..arguments::spec::<Arguments>("list_files", description, Effect::Read, Duration::from_secs(30))
            },
            workspace,
            max_entries: config.max_list_entries as usize,
        }
    }
}

#[async_trait]
impl Tool for ListFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Arguments { path } = arguments::read(arguments)?;
        let (workspace, max_entries, cancel) = (self.workspace.clone(), self.max_entries, context.cancel.clone());
        blocking(move || Ok(show(&path, &workspace.list(&path, &cancel)?, max_entries).into())).await
    }
}

fn show(path: &str, listing: &Listing, max_entries: usize) -> String {
    let total = listing.entries.len();
    if total == 0 {
        return format!("[{path}: empty]");
    }
    let mut result = format!("[{path}: {total}{} entries]", if listing.more { " or more" } else { "" });
    let mut count = 0;
    for entry in listing.entries.iter().take(max_entries) {
        if result.len() > MAX_ENTRIES_BYTES {
            break;
        }
        result.push('\n');
        result.push_str(&shown(&entry.name));
        // Writing to a String cannot fail.
        let _ = match entry.kind {
            EntryKind::Directory => result.write_char('/'),
            EntryKind::File(bytes) => write!(result, "  {bytes}"),
            EntryKind::Link => result.write_str("  (link)"),
            EntryKind::Special => result.write_str("  (special file)"),
            EntryKind::Gone => result.write_str("  (gone)"),
        };
        count += 1;
    }
    if count < total || listing.more {
        let _ = write!(result, "\n[{}{} more not shown]", total - count, if listing.more { " or" } else { "" });
    }
    result
}
