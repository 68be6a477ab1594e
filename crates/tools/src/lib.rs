//! Tools that act on the world.
//!
//! **For**: the built-in tools of a run, each a small struct behind the [`Tool`] port: `clock`, `calculate`,
//! `read_file`, `list_files`, `remember` and `recall`. What they say is for a model to read, so a failure always says
//! what would work instead.
//!
//! **Does not know**: who calls, whether a call is allowed, or what becomes of its result: that is the effect gate's.
//! No tool here writes outside the notes of the session, opens a connection or starts a process.
//!
//! Reading order: [`config`] → `arguments` (how a tool is declared and called) → `clock` → `calculate` → `workspace`
//! (what keeps the file tools inside) → `files` → `notes` → [`process`] (what is started) → [`sandbox`] (its walls).

mod arguments;
mod calculate;
mod clock;
pub mod config;
mod error;
mod files;
mod near;
mod notes;
pub mod process;
pub mod sandbox;
#[cfg(test)]
mod testing;
mod workspace;

use std::sync::Arc;

use belay_protocol::{Clock, NoteStore, Tool};

pub use crate::config::ToolsConfig;
pub use crate::error::ToolsError;
use crate::workspace::Workspace;

/// Builds the built-in tools. The workspace is created when it does not exist, readable by its owner alone, and opened
/// once: the file tools stay with that directory even if another one takes its name.
///
/// # Errors
/// [`ToolsError::NoWorkspace`] when the configuration names none, [`ToolsError::Workspace`] when it cannot be created
/// or opened.
pub fn builtin(
    config: &ToolsConfig,
    notes: Arc<dyn NoteStore>,
    clock: Arc<dyn Clock>,
) -> Result<Vec<Arc<dyn Tool>>, ToolsError> {
    let path = config.workspace.as_deref().ok_or(ToolsError::NoWorkspace)?;
    let workspace = Arc::new(Workspace::open(path)?);
    Ok(vec![
        Arc::new(clock::ClockTool::new(clock.clone())),
        Arc::new(calculate::Calculate::new()),
        Arc::new(files::ReadFile::new(workspace.clone(), config)),
        Arc::new(files::ListFiles::new(workspace, config)),
        Arc::new(notes::Remember::new(notes.clone(), clock)),
        Arc::new(notes::Recall::new(notes)),
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use belay_protocol::{Effect, ToolSet};
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{FixedClock, MemoryNotes};

    fn all(dir: &std::path::Path) -> ToolSet {
        let config = ToolsConfig { workspace: Some(dir.join("a/workspace")), ..ToolsConfig::default() };
        ToolSet::new(builtin(&config, Arc::new(MemoryNotes::default()), Arc::new(FixedClock(0))).unwrap())
    }

    #[test]
    fn every_tool_declares_what_the_contract_says() {
        let dir = tempfile::tempdir().unwrap();
        let seen: Vec<_> = all(dir.path())
            .iter()
            .map(|tool| {
                let spec = tool.spec();
                let mut arguments: Vec<_> =
                    spec.schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
                arguments.sort_unstable();
                (spec.name.clone(), arguments.join(" "), spec.schema["required"].clone(), spec.effect, spec.idempotent)
            })
            .collect();
        let row = |name: &str, arguments: &str, required: Value, effect| {
            (name.to_owned(), arguments.to_owned(), required, effect, true)
        };
        assert_eq!(
            seen,
            [
                row("calculate", "expression", json!(["expression"]), Effect::None),
                row("clock", "timezone", Value::Null, Effect::None),
                row("list_files", "path", json!(["path"]), Effect::Read),
                row("read_file", "limit offset path", json!(["path"]), Effect::Read),
                row("recall", "query", json!(["query"]), Effect::Read),
                row("remember", "key text", json!(["key", "text"]), Effect::Write),
            ]
        );
    }

    #[test]
    fn every_schema_is_a_plain_object_that_takes_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for tool in all(dir.path()).iter() {
            let spec = tool.spec();
            assert_eq!(spec.schema["type"], "object", "{}", spec.name);
            assert_eq!(spec.schema["additionalProperties"], false, "{}", spec.name);
            assert!(spec.schema.get("$schema").is_none() && spec.schema.get("title").is_none(), "{}", spec.name);
            assert!(spec.schema["properties"].as_object().unwrap().values().all(|p| p["description"].is_string()));
            assert!(!spec.description.is_empty());
        }
    }

    #[test]
    fn without_a_workspace_nothing_is_built() {
        let built = builtin(&ToolsConfig::default(), Arc::new(MemoryNotes::default()), Arc::new(FixedClock(0)));
        assert!(matches!(built, Err(ToolsError::NoWorkspace)));
    }

    #[test]
    fn a_workspace_that_is_a_file_is_refused_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let config = ToolsConfig { workspace: Some(file.path().to_owned()), ..ToolsConfig::default() };
        let error = builtin(&config, Arc::new(MemoryNotes::default()), Arc::new(FixedClock(0))).err().unwrap();
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
    }
}
