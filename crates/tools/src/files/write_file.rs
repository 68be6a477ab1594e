//! `write_file`: writes a whole file, new or as a replacement.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Ask, CallPreview, Effect, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use belay_text::escaped_line;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::blocking;
use crate::arguments;
use crate::config::ToolsConfig;
use crate::digest;
use crate::workspace::Workspace;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    content: String,
    /// Makes missing directories.
    #[serde(default)]
    create_dirs: Option<bool>,
}

/// The tool `write_file`.
pub(crate) struct WriteFile {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    max_bytes: u64,
}

impl WriteFile {
    pub(crate) fn new(workspace: Arc<Workspace>, config: &ToolsConfig) -> Self {
        let description = "Writes a whole file, new or in place of the old one.";
        let spec = arguments::spec::<Arguments>("write_file", description, Effect::Write, Duration::from_secs(30));
        let spec = ToolSpec { approval: Ask::UnlessApproved, ..spec };
        Self { spec, workspace, max_bytes: config.max_write_bytes }
    }

    fn read_arguments(&self, arguments: &Map<String, Value>) -> Result<Arguments, ToolFailure> {
        let arguments: Arguments = arguments::read(arguments)?;
        check_size(&arguments.path, arguments.content.len(), self.max_bytes)?;
        Ok(arguments)
    }
}

#[async_trait]
impl Tool for WriteFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn preview(&self, arguments: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let Arguments { path, content, create_dirs } = self.read_arguments(arguments)?;
        let workspace = self.workspace.clone();
        blocking(move || {
            let now = if create_dirs == Some(true) && workspace.lacks_directory_of(&path) {
                None
            } else {
                workspace.write_target(&path, false)?.exists().then(|| workspace.digest(&path)).transpose()?
            };
            let verb = if now.is_some() { "write" } else { "create" };
            let summary = format!("{verb} {} ({} bytes)", escaped_line(&path), content.len());
            let risky = workspace.is_in_git(&path);
            let mut preview = preview(
                "write_file",
                &["path", "content"],
                path,
                summary,
                digest::of_bytes(content.as_bytes()),
                now,
                risky,
            );
            preview.bound.push(("content".to_owned(), content));
            Ok(preview)
        })
        .await
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Arguments { path, content, create_dirs } = self.read_arguments(arguments)?;
        let (workspace, cancel) = (self.workspace.clone(), context.cancel.clone());
        blocking(move || {
            if cancel.is_cancelled() {
                return Err(ToolFailure::Cancelled);
            }
            let target = workspace.write_target(&path, create_dirs.unwrap_or(false))?;
            target.write_content(content.as_bytes(), &cancel)?;
            let verb = if target.exists() { "Wrote" } else { "Created" };
            Ok(format!("{verb} {path:?}: {} bytes.", content.len()).into())
        })
        .await
    }
}

pub(super) fn check_size(path: &str, bytes: usize, most: u64) -> Result<(), ToolFailure> {
    if bytes as u64 <= most {
        return Ok(());
    }
    Err(ToolFailure::failed(format!("The text for {path:?} has {bytes} bytes; at most {most} are written at once.")))
}

/// The preview of a change to a file. `now`: the digest of the current content. `risky`: each such change needs an
/// approval.
pub(super) fn preview(
    tool: &str,
    shows: &'static [&'static str],
    path: String,
    summary: String,
    change: String,
    now: Option<String>,
    risky: bool,
) -> CallPreview {
    CallPreview {
        summary,
        shows,
        bound: vec![
            ("path".to_owned(), path),
            ("change".to_owned(), change),
            ("file".to_owned(), now.unwrap_or_else(|| "does not exist".to_owned())),
        ],
        ask: risky.then_some(Ask::Always),
        covers: (!risky).then(|| tool.to_owned()),
        ..CallPreview::default()
    }
}
