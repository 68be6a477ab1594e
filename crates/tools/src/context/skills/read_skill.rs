//! `read_skill`: reads files of skills outside of the workspace. It exists only if the operator has named such
//! directories. `read_file` reads all other skills.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::find::SKILL_FILE;
use super::{Library, MAX_FILE_BYTES};
use crate::arguments;
use crate::context::read::text;
use crate::files::blocking;
use crate::workspace::reason;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Its name in the list.
    name: String,
    /// A file in its folder, such as `references/units.md`.
    #[serde(default)]
    path: Option<String>,
}

/// The tool `read_skill`.
pub(in crate::context) struct ReadSkill {
    spec: ToolSpec,
    library: Arc<Library>,
}

impl ReadSkill {
    pub(in crate::context) fn new(library: Arc<Library>) -> Self {
        let description =
            "Reads the instructions of a skill that is listed without a path, or another file in its folder.";
        Self {
            spec: arguments::spec::<Arguments>("read_skill", description, Effect::Read, Duration::from_secs(10)),
            library,
        }
    }

    fn read(library: &Library, name: &str, path: &str) -> Result<String, ToolFailure> {
        let Some((root, folder)) = library.folder(name) else {
            return Err(ToolFailure::failed(format!(
                "There is no skill {name:?} outside of the workspace. A skill whose path is listed is read with read_file."
            )));
        };
        if path.split('/').any(|part| part == "..") {
            return Err(ToolFailure::failed("The path has to lie in the skill's folder, without \"..\"."));
        }
        let within = if folder == "." { path.to_owned() } else { format!("{folder}/{path}") };
        let Some((file, stamp)) = root.stamped(&within)? else {
            return Err(ToolFailure::failed(format!("There is no {path:?} in the folder of {name}.")));
        };
        let text = text(file, &stamp, MAX_FILE_BYTES)
            .map_err(|why| ToolFailure::failed(format!("{path:?} of {name} cannot be used: {why}.")))?;
        let place = root.directory(&folder).map_err(|failure| ToolFailure::failed(reason(failure)))?;
        Ok(format!("[The folder of this skill is {}]\n{text}", place.display()))
    }
}

#[async_trait]
impl Tool for ReadSkill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, _context: &ToolContext) -> ToolOutput {
        let Arguments { name, path } = arguments::read(arguments)?;
        let library = self.library.clone();
        let path = path.unwrap_or_else(|| SKILL_FILE.to_owned());
        blocking(move || Self::read(&library, &name, &path)).await.map(Into::into)
    }
}
