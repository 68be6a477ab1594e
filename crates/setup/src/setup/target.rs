//! The settings file that is written, and the settings in force before and after.

use std::path::{Path, PathBuf};

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_settings::{Loaded, Settings, SettingsArgs, load, own_files_problems, refused};
use serde_json::Value as Json;

use super::SetupArgs;
use super::document::Change;
use crate::check::{environment_of_unit, refuse_workspace, writable};

/// The settings file, and what is known before it is changed.
pub(super) struct Target {
    /// The file, with links resolved.
    pub(super) path: PathBuf,
    /// Its text; `None`: it does not exist.
    pub(super) text: Option<String>,
    /// The settings in force now.
    pub(super) loaded: Loaded,
    /// The paths of this user.
    pub(super) paths: Paths,
    /// The environment of the daemon: that of this process, with the credentials of the unit.
    pub(super) env: Environment,
    /// Whether a start reads the file without `--config`.
    pub(super) is_usual: bool,
}

impl Target {
    /// Finds the file, reads it, and loads the settings in force.
    ///
    /// # Errors
    /// The file cannot be read or written, or the settings in force have problems.
    pub(super) fn find(args: &SetupArgs, env: &Environment) -> Result<Self, Failure> {
        let env = match &args.unit {
            Some(unit) => environment_of_unit(env, unit)?,
            None => env.clone(),
        };
        let paths = Paths::find(&env)?;
        let usual = if args.unit.is_some() { paths.settings.first() } else { paths.settings.last() };
        let named = match (&args.config, usual) {
            (Some(file), _) => std::path::absolute(file).unwrap_or_else(|_| file.clone()),
            (None, Some(file)) => file.clone(),
            (None, None) => {
                return Err(Failure::new(Exit::Refused, "there is no place for settings").next("give --config FILE"));
            }
        };
        let is_usual = paths.settings.contains(&named);
        // A link stays a link: the file that it leads to is replaced.
        let path = named.canonicalize().unwrap_or(named);
        let exists = path.symlink_metadata().is_ok();
        let files = if is_usual || !exists { Vec::new() } else { vec![path.clone()] };
        let paths = paths.with_named(&files);
        let next = "correct the file, or name another one with --config; nothing was changed";
        let loaded = load(&SettingsArgs { files, ..SettingsArgs::default() }, &env, &paths)
            .map_err(|problems| refused(&problems).next(next))?;
        let text = exists.then(|| std::fs::read_to_string(&path)).transpose().map_err(|error| {
            Failure::new(Exit::Refused, format!("{} cannot be read: {error}", path.display())).next(next)
        })?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        writable(directory).map_err(|error| {
            Failure::new(Exit::OutOfReach, format!("{} cannot be written: {error}", path.display()))
                .next("name another file with --config; nothing was changed")
        })?;
        Ok(Self { path, text, loaded, paths, env, is_usual })
    }

    /// The settings in force now.
    pub(super) fn settings(&self) -> &Settings {
        &self.loaded.settings
    }

    /// The file of a secret.
    pub(super) fn secret(&self, name: &str) -> PathBuf {
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        self.path.parent().unwrap_or(Path::new("/")).join("secrets").join(name)
    }

    /// Leaves out the changes that change nothing.
    pub(super) fn needed(&self, mut changes: Vec<Change>) -> Vec<Change> {
        let now = serde_json::to_value(self.settings()).unwrap_or_default();
        changes.retain(|change| value_at(&now, change.key) != wanted(change));
        changes
    }

    /// Checks the new text of the file as a start does, and that every change takes effect.
    ///
    /// # Errors
    /// The settings would be refused, or another source overrides one of them (78).
    pub(super) fn check(&self, text: &str, changes: &[Change]) -> Result<(), Failure> {
        let internal = |error| Failure::new(Exit::Internal, format!("no temporary file can be made: {error}"));
        let copy = tempfile::Builder::new().suffix(".toml").tempfile().map_err(internal)?;
        std::fs::write(copy.path(), text).map_err(internal)?;
        let mut paths = self.paths.clone();
        let mut args = SettingsArgs::default();
        match paths
            .settings
            .iter_mut()
            .find(|path| **path == self.path || path.canonicalize().is_ok_and(|path| path == self.path))
        {
            Some(path) => copy.path().clone_into(path),
            None => args.files = vec![copy.path().to_owned()],
        }
        let (of_copy, of_file) = (copy.path().display().to_string(), self.path.display().to_string());
        let new = load(&args, &self.env, &paths).map_err(|problems| {
            let failure = refused(&problems);
            Failure { what: failure.what.replace(&of_copy, &of_file), ..failure }.next("nothing was changed")
        })?;
        self.has_effect(&new, changes, &of_copy)?;
        refuse_workspace(&new.settings, &self.paths, &self.env)
            .map_err(|failure| failure.next("nothing was changed"))?;
        let mut paths = self.paths.clone();
        paths.named.push(self.path.clone());
        match own_files_problems(&new.settings, &self.env, &paths).as_slice() {
            [] => Ok(()),
            problems => Err(refused(problems).next("nothing was changed")),
        }
    }

    /// Checks that no other source overrides a change.
    fn has_effect(&self, new: &Loaded, changes: &[Change], of_copy: &str) -> Result<(), Failure> {
        let now = serde_json::to_value(&new.settings).unwrap_or_default();
        let overridden = changes.iter().find(|change| value_at(&now, change.key) != wanted(change));
        let Some(Change { key, .. }) = overridden else { return Ok(()) };
        let origin = new.origins.of(key).unwrap_or("another source").replace(of_copy, &self.path.display().to_string());
        let what = format!("{key} in {} would have no effect: {origin} decides it", self.path.display());
        Err(Failure::new(Exit::Refused, what).next("remove it there first; nothing was changed"))
    }
}

/// The value of a key in a tree of settings.
fn value_at(tree: &Json, key: &str) -> Json {
    key.split('.').try_fold(tree, |at, name| at.get(name)).cloned().unwrap_or_default()
}

/// The value that the settings in force have after a change.
fn wanted(change: &Change) -> Json {
    change.value.as_ref().map(super::document::Setting::json).unwrap_or_default()
}
