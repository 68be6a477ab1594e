//! Finds skills: folders with a `SKILL.md`, up to a maximum depth, without leaving the directory of skills.

use belay_protocol::Unusable;

use crate::workspace::{Entry, EntryKind, Stamp, Workspace, shown};

/// The file that marks a folder as a skill.
pub(super) const SKILL_FILE: &str = "SKILL.md";
/// Deepest folder of a skill, relative to the directory of skills.
const MAX_DEPTH: usize = 6;
/// Most folders that are searched in one directory of skills.
const MAX_FOLDERS: usize = 2000;

/// A `SKILL.md`.
#[derive(Debug)]
pub(super) struct Found {
    /// Path relative to the root.
    pub(super) path: String,
    /// The stamp of the file, or why it cannot be opened.
    pub(super) stamp: Result<Stamp, Unusable>,
}

/// The skills of one directory.
#[derive(Debug, Default)]
pub(super) struct Walk {
    pub(super) found: Vec<Found>,
    /// Paths relative to the root, with the reasons.
    pub(super) skipped: Vec<(String, Unusable)>,
    folders: usize,
}

impl Walk {
    /// Searches a directory of skills beneath this root, in the order of the names. A missing directory contains no
    /// skills. Blocks.
    pub(super) fn through(root: &Workspace, skill_dir: &str) -> Self {
        let mut walk = Self::default();
        walk.folder(root, skill_dir, 0);
        walk
    }

    fn folder(&mut self, root: &Workspace, folder: &str, depth: usize) {
        self.folders += 1;
        if self.folders > MAX_FOLDERS {
            if self.folders == MAX_FOLDERS + 1 {
                self.skip(folder, format!("there are more than {MAX_FOLDERS} folders before it").into());
            }
            return;
        }
        let listing = match root.searched(folder) {
            Ok(Some(listing)) => listing,
            Ok(None) => return,
            Err(unusable) => return self.skip(folder, unusable),
        };
        if listing.entries.iter().any(|entry| entry.name == SKILL_FILE.as_bytes()) {
            return self.skill(root, join(folder, SKILL_FILE));
        }
        if depth == MAX_DEPTH {
            return;
        }
        for Entry { name, kind } in listing.entries {
            if name.starts_with(b".") || !matches!(kind, EntryKind::Directory | EntryKind::Link) {
                continue;
            }
            let Some(name) = std::str::from_utf8(&name).ok().filter(|name| belay_text::is_clear(name)) else {
                let what = join(folder, &shown(&name));
                self.skip(&what, "its name has characters that cannot be seen, or is not UTF-8".to_owned().into());
                continue;
            };
            let path = join(folder, name);
            // A link to a file is not a skill. A link that leads outside is reported as skipped.
            if kind == EntryKind::Directory || root.stamped(&path).is_err() {
                self.folder(root, &path, depth + 1);
            }
        }
    }

    fn skill(&mut self, root: &Workspace, path: String) {
        let stamp = match root.stamped(&path) {
            Ok(Some((_, stamp))) => Ok(stamp),
            Ok(None) => Err("it has gone".to_owned().into()),
            Err(unusable) => Err(unusable),
        };
        self.found.push(Found { path, stamp });
    }

    fn skip(&mut self, what: &str, why: Unusable) {
        self.skipped.push((what.to_owned(), why));
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder == "." { name.to_owned() } else { format!("{folder}/{name}") }
}

/// The folder of a skill, from the path of its `SKILL.md`.
pub(super) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(folder, _)| folder)
}
