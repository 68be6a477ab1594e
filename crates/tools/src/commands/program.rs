//! Which file a program's name stands for. Found out once, before anybody is asked, and run by that path: what is looked
//! at is what is run.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belay_protocol::ToolFailure;
use belay_text::near::{did_you_mean, nearest_names};

use crate::workspace::Workspace;

/// A program that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// Of this machine, in a directory where programs are looked for.
    Known {
        /// What it is run by.
        path: PathBuf,
        /// Where links lead.
        real: PathBuf,
    },
    /// Of this machine, named by its path, and in none of those directories.
    Elsewhere(PathBuf),
    /// A file of the workspace, by its path from the root.
    Inside(String),
}

impl Program {
    /// What it is run by, where it is a file of this machine.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Known { path, .. } | Self::Elsewhere(path) => path,
            Self::Inside(path) => Path::new(path),
        }
    }

    /// The names that it goes by: what it is called, and what that leads to (`/usr/bin/awk` may be `mawk`).
    pub(super) fn names(&self) -> Vec<&str> {
        let real = match self {
            Self::Known { real, .. } => Some(real.as_path()),
            Self::Elsewhere(_) | Self::Inside(_) => None,
        };
        let names = std::iter::once(self.path()).chain(real);
        names.filter_map(|path| path.file_name().and_then(OsStr::to_str)).collect()
    }
}

/// Where programs and files are.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) workspace: Arc<Workspace>,
    /// The directories where programs are looked for.
    pub(super) path: Vec<PathBuf>,
    /// The workspace as commands see it.
    pub(super) view: PathBuf,
}

impl Places {
    /// Finds the program of that name, for a command that works in `directory` (a path from the root of the workspace).
    ///
    /// # Errors
    /// There is none; the model reads why.
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

    /// A path of a command as a path from the root of the workspace; `None` when it leads elsewhere by its look, or is
    /// the root itself.
    pub(super) fn inside(&self, path: &str, directory: &str) -> Option<String> {
        self.below(path, directory).filter(|inside| !inside.is_empty())
    }

    /// The same; empty for the root.
    fn below(&self, path: &str, directory: &str) -> Option<String> {
        let whole = match Path::new(path).strip_prefix(&self.view) {
            Ok(below) => below.to_str()?.to_owned(),
            Err(_) if path.starts_with('/') || path.is_empty() => return None,
            Err(_) => format!("{directory}/{path}"),
        };
        // `..` stays: where it leads is the kernel's to say, which knows the links.
        let parts: Vec<&str> = whole.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        Some(parts.join("/"))
    }

    /// Whether an argument, or the value in it, names a file or directory of the workspace that is there.
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
            Some(below) => below.is_empty() || self.workspace.holds(&below),
            None => false,
        })
    }

    /// Whether an argument names a program, or the value in it does: what is given one may start it.
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
        let near = nearest_names(name, &names, 3);
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
