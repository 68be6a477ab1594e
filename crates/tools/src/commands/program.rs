//! Resolves the name of a program to a file. This happens once, before a person is asked, and the command runs by the
//! resolved path. So the examined file is the file that runs.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_protocol::ToolFailure;

use crate::near::{did_you_mean, nearest};
use crate::workspace::Workspace;

/// A resolved program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// A program of this machine, in one of the directories that are searched for programs.
    Known {
        /// The path by which it runs.
        path: PathBuf,
        /// The path after its links are resolved.
        real: PathBuf,
    },
    /// A program of this machine that was named by a path outside of those directories.
    Elsewhere(PathBuf),
    /// A file of the workspace, by its path relative to the root.
    Inside(String),
}

impl Program {
    /// The path by which it runs. For a file of the workspace, this is relative to the root.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Known { path, .. } | Self::Elsewhere(path) => path,
            Self::Inside(path) => Path::new(path),
        }
    }

    /// The names of the program: its own, and the name after its links are resolved (`/usr/bin/awk` may be `mawk`).
    pub(super) fn names(&self) -> Vec<&str> {
        let real = match self {
            Self::Known { real, .. } => Some(real.as_path()),
            Self::Elsewhere(_) | Self::Inside(_) => None,
        };
        let names = std::iter::once(self.path()).chain(real);
        names.filter_map(|path| path.file_name().and_then(OsStr::to_str)).collect()
    }
}

/// The directories of programs, and the workspace.
#[derive(Debug)]
pub(super) struct CommandPaths {
    pub(super) workspace: Arc<Workspace>,
    /// The directories that are searched for programs.
    pub(super) path: Vec<PathBuf>,
    /// The path of the workspace as commands see it.
    pub(super) view: PathBuf,
}

impl CommandPaths {
    /// Resolves a program name for a command with this working directory (relative to the root of the workspace).
    ///
    /// # Errors
    /// The program does not exist; the model reads the explanation.
    pub(super) fn program(&self, name: &str, directory: &str) -> Result<Program, ToolFailure> {
        if let Some(inside) = self.inside(name, directory).filter(|_| name.contains('/')) {
            self.workspace.file(&inside)?;
            return Ok(Program::Inside(inside));
        }
        let path = PathBuf::from(name);
        if path.is_absolute() {
            let known = self.path.iter().any(|directory| path.parent() == Some(directory));
            return match (is_executable(&path), known) {
                (true, true) => Ok(known_program(path)),
                (true, false) => Ok(Program::Elsewhere(path)),
                _ => Err(ToolFailure::failed(format!("There is no program {name:?} on this machine."))),
            };
        }
        match self.path.iter().map(|directory| directory.join(name)).find(|path| is_executable(path)) {
            Some(path) => Ok(known_program(path)),
            None => Err(self.no_program(name)),
        }
    }

    /// Converts a path of a command to a path relative to the root of the workspace. `None` if it points outside by its
    /// form, or is the root itself.
    pub(super) fn inside(&self, path: &str, directory: &str) -> Option<String> {
        self.below(path, directory).filter(|inside| !inside.is_empty())
    }

    /// The same, but an empty path for the root.
    fn below(&self, path: &str, directory: &str) -> Option<String> {
        let whole = match Path::new(path).strip_prefix(&self.view) {
            Ok(below) => below.to_str()?.to_owned(),
            Err(_) if path.starts_with('/') || path.is_empty() => return None,
            Err(_) => format!("{directory}/{path}"),
        };
        // `..` stays in the path. The kernel resolves it, because it knows the links.
        let parts: Vec<&str> = whole.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        Some(parts.join("/"))
    }

    /// Whether an argument, or a value in it, names an existing file or directory of the workspace.
    pub(super) fn names_entry(&self, argument: &str, directory: &str) -> bool {
        // `-Idirectory`, `@file`
        let mut rest = argument.chars();
        let joined = match (rest.next(), rest.next()) {
            (Some('-'), Some(_)) => Some(rest.as_str()),
            (Some('@'), Some(_)) => argument.get(1..),
            _ => None,
        };
        let parts = argument.split(['=', ':', ',']);
        std::iter::once(argument).chain(parts).chain(joined).any(|word| match self.below(word, directory) {
            Some(below) => below.is_empty() || self.workspace.contains(&below),
            None => false,
        })
    }

    /// Whether an argument, or a value in it, names a program. A command with such an argument may start that program.
    pub(super) fn names_program(&self, argument: &str, directory: &str) -> bool {
        // `--shell=/bin/sh`, `-e/bin/sh`, `pager:sh`
        let joined = argument.starts_with('-').then(|| argument.find('/')).flatten().map(|at| &argument[at..]);
        let parts = argument.split(['=', ':', ',']);
        std::iter::once(argument).chain(parts).chain(joined).any(|word| self.is_program(word, directory))
    }

    fn is_program(&self, word: &str, directory: &str) -> bool {
        if !word.contains('/') {
            return !word.is_empty() && self.path.iter().any(|directory| is_executable(&directory.join(word)));
        }
        match self.inside(word, directory) {
            Some(inside) => self.workspace.file(&inside).is_ok_and(|(file, _)| {
                file.metadata().is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
            }),
            None => is_executable(Path::new(word)),
        }
    }

    fn no_program(&self, name: &str) -> ToolFailure {
        let names: Vec<String> = self
            .path
            .iter()
            .filter_map(|directory| std::fs::read_dir(directory).ok())
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        let near = nearest(name, names.iter().map(String::as_str), 3);
        ToolFailure::failed(format!(
            "There is no program {name:?} on this machine.{} A program of the workspace is named by its path, such as \
             ./build.sh.",
            did_you_mean(&near)
        ))
    }
}

fn known_program(path: PathBuf) -> Program {
    let real = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    Program::Known { path, real }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
