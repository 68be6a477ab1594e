//! Walks the files beneath a directory in a fixed order, without following links.

use std::fs::File;

use belay_protocol::ToolFailure;
use tokio_util::sync::CancellationToken;

use super::Filter;
use crate::workspace::{EntryKind, Workspace};

/// Most entries that one walk visits.
const MAX_ENTRIES: usize = 200_000;
/// Deepest directory that is visited.
const MAX_DEPTH: usize = 64;

/// What a walk left out, by reason.
#[derive(Debug, Default)]
pub(super) struct LeftOut {
    pub(super) binary: usize,
    pub(super) too_large: usize,
    pub(super) unreadable: usize,
    links: usize,
    special: usize,
    git: usize,
    /// Why the walk ended early.
    pub(super) stopped: Option<&'static str>,
}

impl LeftOut {
    /// A list in plain words; empty if nothing was left out.
    pub(super) fn describe(&self, max_file_bytes: u64) -> String {
        let mut parts: Vec<String> = [
            (self.binary, "binary".to_owned()),
            (self.too_large, format!("larger than {max_file_bytes} bytes")),
            (self.unreadable, "not readable".to_owned()),
            (self.links, "links".to_owned()),
            (self.special, "pipes, sockets or devices".to_owned()),
            (self.git, ".git".to_owned()),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        if let Some(stopped) = self.stopped {
            parts.push(format!("everything else, because {stopped}: narrow it with path, glob or pattern"));
        }
        parts.join(", ")
    }
}

/// A file of the walk.
pub(super) struct Found {
    /// Path relative to the root of the workspace.
    pub(super) path: String,
    /// Size in bytes.
    pub(super) size: u64,
    /// The open file.
    pub(super) file: File,
}

/// A walk in progress.
pub(super) struct Walk<'a> {
    workspace: &'a Workspace,
    filter: Option<&'a Filter>,
    cancel: &'a CancellationToken,
    start: String,
    /// The remaining entries, the next one last: path beneath the start, kind and depth.
    rest: Vec<(String, EntryKind, usize)>,
    looked_at: usize,
    pub(super) left_out: LeftOut,
}

impl<'a> Walk<'a> {
    /// Starts a walk at a directory or a file.
    pub(super) fn new(
        workspace: &'a Workspace,
        path: &str,
        filter: Option<&'a Filter>,
        cancel: &'a CancellationToken,
    ) -> Result<Self, ToolFailure> {
        let start = path.trim_end_matches('/').to_owned();
        let (rest, left_out) = (Vec::new(), LeftOut::default());
        let mut walk = Self { workspace, filter, cancel, start, rest, looked_at: 0, left_out };
        match workspace.file(path) {
            Ok((_, size)) => walk.rest.push((String::new(), EntryKind::File(size), 0)),
            // Not a file. Opening it as a directory succeeds or returns the reason.
            Err(_) => walk.open_directory("", 0)?,
        }
        Ok(walk)
    }

    /// The next file that the filter accepts.
    ///
    /// # Errors
    /// Only [`ToolFailure::Cancelled`]. Unreadable entries are counted instead.
    pub(super) fn next(&mut self) -> Result<Option<Found>, ToolFailure> {
        while let Some((beneath, kind, depth)) = self.rest.pop() {
            self.looked_at += 1;
            if self.looked_at > MAX_ENTRIES {
                self.left_out.stopped = Some("there are too many files");
                return Ok(None);
            }
            match kind {
                EntryKind::Directory if name_of(&beneath).eq_ignore_ascii_case(".git") => self.left_out.git += 1,
                EntryKind::Directory if depth >= MAX_DEPTH => self.left_out.unreadable += 1,
                EntryKind::Directory => match self.open_directory(&beneath, depth) {
                    Err(ToolFailure::Cancelled) => return Err(ToolFailure::Cancelled),
                    Err(_) => self.left_out.unreadable += 1,
                    Ok(()) => {}
                },
                EntryKind::File(_) if !self.is_meant(&beneath) => {}
                EntryKind::File(_) => {
                    let path = self.path_of(&beneath);
                    match self.workspace.file(&path) {
                        Ok((file, size)) => return Ok(Some(Found { path, size, file })),
                        Err(_) => self.left_out.unreadable += 1,
                    }
                }
                EntryKind::Link => self.left_out.links += 1,
                EntryKind::Special => self.left_out.special += 1,
                EntryKind::Gone => {}
            }
        }
        Ok(None)
    }

    fn is_meant(&self, beneath: &str) -> bool {
        let named = if beneath.is_empty() { name_of(&self.start) } else { beneath };
        self.filter.is_none_or(|filter| filter.takes(named))
    }

    fn open_directory(&mut self, beneath: &str, depth: usize) -> Result<(), ToolFailure> {
        let listing = self.workspace.list(&self.path_of(beneath), self.cancel)?;
        self.left_out.unreadable += usize::from(listing.more);
        for entry in listing.entries.into_iter().rev() {
            match String::from_utf8(entry.name) {
                Ok(name) if beneath.is_empty() => self.rest.push((name, entry.kind, depth + 1)),
                Ok(name) => self.rest.push((format!("{beneath}/{name}"), entry.kind, depth + 1)),
                // A name that is not UTF-8 cannot be an argument of a tool.
                Err(_) => self.left_out.unreadable += 1,
            }
        }
        Ok(())
    }

    /// Path relative to the root of the workspace.
    fn path_of(&self, beneath: &str) -> String {
        match (self.start.as_str(), beneath) {
            (".", beneath) if !beneath.is_empty() => beneath.to_owned(),
            (start, "") => start.to_owned(),
            (start, beneath) => format!("{start}/{beneath}"),
        }
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
