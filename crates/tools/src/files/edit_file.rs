//! `edit_file`: replaces an exact piece of text in a file.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use belay_protocol::{Ask, CallPreview, Effect, SessionKey, Tool, ToolContext, ToolFailure, ToolOutput, ToolSpec};
use belay_text::escaped_line;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::blocking;
use super::misses::explain_miss;
use super::read_file::text_of;
use super::write_file::{check_size, preview};
use crate::arguments;
use crate::config::ToolsConfig;
use crate::digest;
use crate::workspace::{Workspace, WriteTarget};

/// Most line numbers in a failure or a result.
const MAX_LISTED: usize = 10;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    path: String,
    /// Exactly as in the file, with white space. It must occur once.
    #[schemars(length(min = 1))]
    old: String,
    new: String,
    /// Replaces every occurrence.
    #[serde(default)]
    all: Option<bool>,
}

/// The tool `edit_file`.
pub(crate) struct EditFile {
    spec: ToolSpec,
    workspace: Arc<Workspace>,
    max_read_bytes: u64,
    max_write_bytes: u64,
}

/// An edit that can be applied to the current content of the file.
struct Fitted {
    target: WriteTarget,
    before: String,
    after: String,
    /// The lines where the replaced pieces begin, from 1.
    lines: Vec<usize>,
}

impl EditFile {
    pub(crate) fn new(workspace: Arc<Workspace>, config: &ToolsConfig) -> Self {
        let description = "Replaces a text in a file. Read the file first.";
        let spec = arguments::spec::<Arguments>("edit_file", description, Effect::Write, Duration::from_secs(30));
        let spec = ToolSpec { idempotent: false, approval: Ask::UnlessApproved, ..spec };
        Self { spec, workspace, max_read_bytes: config.max_file_bytes, max_write_bytes: config.max_write_bytes }
    }

    /// Prepares the edit, then runs `then` with it on the blocking pool.
    async fn with_fitted<T: Send + 'static>(
        &self,
        arguments: &Map<String, Value>,
        cancel: CancellationToken,
        then: impl FnOnce(&Arguments, Fitted) -> Result<T, ToolFailure> + Send + 'static,
    ) -> Result<T, ToolFailure> {
        let arguments: Arguments = arguments::read(arguments)?;
        let (workspace, most_read, most_written) = (self.workspace.clone(), self.max_read_bytes, self.max_write_bytes);
        blocking(move || {
            let target = workspace.write_target(&arguments.path, false)?;
            let (file, size) = workspace.file(&arguments.path)?;
            let before = text_of(&arguments.path, file, size, most_read, &cancel)?;
            let (after, lines) = edited(&arguments, &before)?;
            check_size(&arguments.path, after.len(), most_written)?;
            then(&arguments, Fitted { target, before, after, lines })
        })
        .await
    }
}

#[async_trait]
impl Tool for EditFile {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    async fn preview(&self, arguments: &Map<String, Value>, _session: &SessionKey) -> Result<CallPreview, ToolFailure> {
        let workspace = self.workspace.clone();
        self.with_fitted(arguments, CancellationToken::new(), move |arguments, fitted| {
            let (minus, plus) = (arguments.old.lines().count(), arguments.new.lines().count());
            let summary =
                format!("edit {} ({}: -{minus} +{plus} lines)", escaped_line(&arguments.path), listed(&fitted.lines));
            let change = digest::of_bytes(fitted.after.as_bytes());
            let now = digest::of_bytes(fitted.before.as_bytes());
            let risky = workspace.is_in_git(&arguments.path);
            let mut preview = preview(
                "edit_file",
                &["path", "old", "new"],
                arguments.path.clone(),
                summary,
                change,
                Some(now),
                risky,
            );
            preview.bound.push(("old".to_owned(), arguments.old.clone()));
            preview.bound.push(("new".to_owned(), arguments.new.clone()));
            Ok(preview)
        })
        .await
    }

    async fn call(&self, arguments: &Map<String, Value>, context: &ToolContext) -> ToolOutput {
        let cancel = context.cancel.clone();
        self.with_fitted(arguments, context.cancel.clone(), move |arguments, fitted| {
            fitted.target.write_content(fitted.after.as_bytes(), &cancel)?;
            let (path, lines) = (&arguments.path, listed(&fitted.lines));
            Ok(format!("Edited {path:?} at {lines}; it has {} bytes now.", fitted.after.len()).into())
        })
        .await
    }
}

/// The text after the edit, and the numbers of the changed lines.
fn edited(arguments: &Arguments, text: &str) -> Result<(String, Vec<usize>), ToolFailure> {
    let Arguments { path, old, new, all } = arguments;
    if old.is_empty() {
        return Err(ToolFailure::failed(
            "The old text is empty. Give the text to replace; write_file writes whole files.",
        ));
    }
    if old == new {
        return Err(ToolFailure::failed("The old and the new text are the same: there is nothing to change."));
    }
    let lines = lines_of(text, old);
    match lines.len() {
        0 => Err(ToolFailure::failed(explain_miss(path, text, old))),
        1 => Ok((text.replacen(old.as_str(), new, 1), lines)),
        _ if *all == Some(true) => Ok((text.replace(old.as_str(), new), lines)),
        times => Err(ToolFailure::failed(format!(
            "The old text occurs {times} times in {path:?}, at {}. Give more of the text around the one you mean, or \
             set all to replace each.",
            listed(&lines)
        ))),
    }
}

/// The lines where the piece begins, from 1. Occurrences do not overlap.
fn lines_of(text: &str, piece: &str) -> Vec<usize> {
    let (mut line, mut counted) = (1, 0);
    text.match_indices(piece)
        .map(|(at, _)| {
            line += text[counted..at].matches('\n').count();
            counted = at;
            line
        })
        .collect()
}

/// `line 3`, `lines 3, 9 and 20`, `lines 1, 2, 3 and 40 more`.
fn listed(lines: &[usize]) -> String {
    let (shown, hidden) = lines.split_at(lines.len().min(MAX_LISTED));
    let mut text = if lines.len() == 1 { "line ".to_owned() } else { "lines ".to_owned() };
    for (index, line) in shown.iter().enumerate() {
        let joint = match index {
            0 => "",
            _ if index + 1 == shown.len() && hidden.is_empty() => " and ",
            _ => ", ",
        };
        // Writing to a String cannot fail.
        let _ = write!(text, "{joint}{line}");
    }
    if !hidden.is_empty() {
        let _ = write!(text, " and {} more", hidden.len());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_numbers_are_listed_like_in_a_sentence() {
        for (lines, expected) in [
            (vec![3], "line 3"),
            (vec![3, 9], "lines 3 and 9"),
            (vec![1, 2, 3], "lines 1, 2 and 3"),
            ((1..=12).collect(), "lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more"),
        ] {
            assert_eq!(listed(&lines), expected);
        }
    }

    #[test]
    fn lines_are_counted_from_one_and_occurrences_do_not_overlap() {
        for (text, piece, expected) in [
            ("a\nb\na", "a", vec![1, 3]),
            ("aaa", "aa", vec![1]),
            ("x\ny\nz\n", "y\nz", vec![2]),
            ("", "a", vec![]),
            ("é\né", "é", vec![1, 2]),
        ] {
            assert_eq!(lines_of(text, piece), expected, "{text:?} {piece:?}");
        }
    }
}
