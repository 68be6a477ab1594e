//! `search_files`: finds lines in the text files of the workspace by a regular expression.
//!
//! The matching time is linear in the length of the text. Files, bytes and time of a search are limited, and the result
//! counts what it left out.
//!
//! Reading order: here → `walk` (which files) → `search` (which lines).

mod search;
mod walk;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Effect, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::search::{MAX_SEARCH_TIME, Search};
use self::walk::Walk;
use super::blocking;
use crate::arguments;
use crate::config::ToolsConfig;
use crate::workspace::Workspace;

/// Longest pattern and glob, in bytes.
const MAX_PATTERN_BYTES: usize = 1000;
/// Largest compiled expression, in bytes. `(\pL{100}){100}` is refused instead of filling the memory.
const MAX_COMPILED_BYTES: usize = 1024 * 1024;
/// Most context lines before and after a match.
const MAX_CONTEXT: u32 = 20;
/// Matches that are shown by default, and at most.
const USUAL_MATCHES: u32 = 100;
const MAX_MATCHES: u32 = 1000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// Such as `(?i)todo`.
    #[schemars(length(min = 1, max = 1000))]
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    /// Such as `*.rs` or `src/**/*.{c,h}`.
    #[serde(default)]
    #[schemars(length(max = 1000))]
    glob: Option<String>,
    /// Lines around each match.
    #[serde(default)]
    #[schemars(range(max = 20))]
    context: Option<u32>,
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    max: Option<u32>,
}

/// The tool `search_files`.
pub(crate) struct SearchFiles {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    max_file_bytes: u64,
}

impl SearchFiles {
    pub(crate) fn new(workspace: Arc<Workspace>, config: &ToolsConfig) -> Self {
        let description = "Finds lines in text files by a regular expression.";
        let timeout = MAX_SEARCH_TIME + Duration::from_secs(10);
        Self {
            // File contents and names may come from other people or programs, so they are untrusted content.
            spec: ToolSpec {
                untrusted: true,
                ..arguments::spec::<Arguments>("search_files", description, Effect::Read, timeout)
            },
            workspace,
            max_file_bytes: config.max_file_bytes,
        }
    }
}

#[async_trait]
impl Tool for SearchFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let Arguments { pattern, path, glob, context: around, max } = arguments::read(arguments)?;
        let glob = glob.filter(|glob| !glob.is_empty());
        let around = around.unwrap_or(0).min(MAX_CONTEXT) as usize;
        let matches_left = max.unwrap_or(USUAL_MATCHES).clamp(1, MAX_MATCHES) as usize;
        let search = Search::new(compile(&pattern)?, around, matches_left, self.max_file_bytes);
        let filter = glob.as_deref().map(Filter::new).transpose()?;
        let (workspace, cancel) = (self.workspace.clone(), context.cancel.clone());
        blocking(move || {
            let path = path.as_deref().unwrap_or(".");
            let mut walk = Walk::new(&workspace, path, filter.as_ref(), &cancel)?;
            search.run(path, &mut walk, &cancel).map(Into::into)
        })
        .await
    }
}

fn compile(pattern: &str) -> Result<Regex, ToolFailure> {
    compile_within(pattern, MAX_COMPILED_BYTES)
}

/// Compiles a pattern of a model to at most `most` bytes. The time of a match is at worst the product of these and of the
/// text.
///
/// # Errors
/// It is no regular expression, or a larger one; the model reads why.
pub(crate) fn compile_within(pattern: &str, most: usize) -> Result<Regex, ToolFailure> {
    if pattern.is_empty() || pattern.len() > MAX_PATTERN_BYTES {
        return Err(ToolFailure::failed(format!("The pattern must have from 1 to {MAX_PATTERN_BYTES} bytes.")));
    }
    RegexBuilder::new(pattern).size_limit(most).dfa_size_limit(MAX_COMPILED_BYTES).build().map_err(|error| {
        ToolFailure::failed(format!(
            "{pattern:?} is not a regular expression that can be used here: {error}\nTo find text as it is, escape \
             . * + ? ( ) [ ] {{ }} ^ $ | and \\ with a backslash."
        ))
    })
}

/// Selects the files to search.
struct Filter {
    glob: GlobMatcher,
    /// Whether the glob is matched against the path instead of the name.
    paths: bool,
}

impl Filter {
    fn new(glob: &str) -> Result<Self, ToolFailure> {
        if glob.len() > MAX_PATTERN_BYTES {
            return Err(ToolFailure::failed(format!("The glob has more than {MAX_PATTERN_BYTES} bytes.")));
        }
        let built = GlobBuilder::new(glob.trim_start_matches("./")).literal_separator(true).build();
        let built = built.map_err(|error| ToolFailure::failed(format!("{glob:?} is not a glob: {}.", error.kind())))?;
        Ok(Self { glob: built.compile_matcher(), paths: glob.contains('/') })
    }

    fn takes(&self, beneath: &str) -> bool {
        let name = beneath.rsplit('/').next().unwrap_or(beneath);
        self.glob.is_match(if self.paths { beneath } else { name })
    }
}
