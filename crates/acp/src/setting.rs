//! Facts that an editor and a daemon have told about themselves.

use std::path::{Path, PathBuf};

use belay_cli::client::{number, text};
use serde_json::Value as Json;

use crate::daemon::{Daemon, Trouble};

/// The directory in which the daemon's tools work, as far as this user may know it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Workspace {
    /// Only operators read the settings.
    #[default]
    Unknown,
    /// The daemon's own directory: none is set.
    Own,
    /// This one.
    At(PathBuf),
}

impl Workspace {
    pub(crate) fn directory(&self) -> Option<PathBuf> {
        match self {
            Self::At(path) => Some(path.clone()),
            Self::Unknown | Self::Own => None,
        }
    }
}

/// The facts that are known since `initialize`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Whether the editor shows notices.
    pub(crate) notices: bool,
    pub(crate) workspace: Workspace,
    /// Whether this user is an operator.
    pub(crate) operator: bool,
    /// The length of the model's context in tokens; 0: unknown.
    pub(crate) context_tokens: u64,
}

impl Setting {
    /// Asks the daemon.
    ///
    /// # Errors
    /// No daemon answers, or it refuses this user.
    pub(crate) async fn read(daemon: &Daemon, capabilities: &Json) -> Result<Self, Trouble> {
        let status = daemon.get(&["api", "v1", "status"], &[]).await?;
        let settings = daemon.get(&["api", "v1", "settings"], &[]).await;
        Ok(Self {
            notices: capabilities.pointer("/session/notices").is_some_and(Json::is_object),
            workspace: settings.as_ref().map(workspace).unwrap_or_default(),
            operator: settings.is_ok(),
            context_tokens: number(&status, "/model/context_tokens"),
        })
    }

    /// The remark for a person about a session with this directory and so many MCP servers of the editor. `None`: there is none.
    pub(crate) fn remark(&self, cwd: &str, servers: usize) -> Option<String> {
        let mut lines = Vec::new();
        match &self.workspace {
            Workspace::At(path) if !cwd.is_empty() && !is_within(cwd, path) => {
                lines.push(format!("Belay's tools work in {}, not in {cwd}.", path.display()));
            }
            Workspace::Own if !cwd.is_empty() => lines.push(format!(
                "Belay's tools work in the daemon's own directory, not in {cwd}. The setting `tools.workspace` changes that."
            )),
            Workspace::At(_) | Workspace::Own | Workspace::Unknown => {}
        }
        if servers > 0 {
            lines.push("Belay uses the MCP servers of its own settings, not those of the editor.".to_owned());
        }
        (!lines.is_empty()).then(|| lines.join(" "))
    }
}

fn workspace(settings: &Json) -> Workspace {
    let value = settings.get("settings").and_then(|all| all.get("tools.workspace")).unwrap_or(&Json::Null);
    match text(value, "/value") {
        "" => Workspace::Own,
        path => Workspace::At(path.into()),
    }
}

/// Whether a directory is within another one. Links are followed where both are on this machine.
fn is_within(cwd: &str, workspace: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    real(Path::new(cwd)).starts_with(real(workspace))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_person_is_told_where_the_tools_work_if_it_is_elsewhere() {
        let at = |workspace: Workspace| Setting { workspace, ..Setting::default() };
        let inside = at(Workspace::At("/no/such/p".into()));
        assert_eq!(inside.remark("/no/such/p", 0), None);
        assert_eq!(inside.remark("/no/such/p/src", 0), None);
        let outside = inside.remark("/no/such/pq", 0);
        assert_eq!(outside, Some("Belay's tools work in /no/such/p, not in /no/such/pq.".into()));
        assert!(at(Workspace::Own).remark("/p", 0).is_some_and(|words| words.contains("own directory, not in /p")));
        assert_eq!(at(Workspace::Unknown).remark("/p", 0), None);
        for workspace in [Workspace::Own, Workspace::At("/no/such/p".into())] {
            assert_eq!(at(workspace).remark("", 0), None, "the editor has named none");
        }
        assert!(at(Workspace::Unknown).remark("/p", 2).is_some_and(|words| words.contains("MCP servers of its own")));
    }

    #[test]
    fn the_workspace_is_that_of_the_settings() {
        let set = json!({"settings": {"tools.workspace": {"value": "/w", "origin": "file"}}});
        assert_eq!(workspace(&set), Workspace::At("/w".into()));
        assert_eq!(workspace(&json!({"settings": {"tools.workspace": {"value": null}}})), Workspace::Own);
        assert_eq!(workspace(&json!({})), Workspace::Own);
    }
}
