//! The environment of the process, read once. No other code reads it, so tests can pass their own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use secrecy::SecretString;

/// A snapshot of the environment variables.
#[derive(Clone, Default)]
pub struct Environment {
    vars: BTreeMap<OsString, OsString>,
    /// The credentials of a service's unit, when `belay check --unit` reads one.
    declared: BTreeMap<String, Declared>,
    /// The unit that declares them.
    unit: Option<PathBuf>,
}

/// A credential that a unit declares.
#[derive(Clone)]
pub enum Declared {
    /// Its content.
    Content(SecretString),
    /// The credential exists, but its content is unknown.
    Unseen,
}

impl Environment {
    /// The environment of this process, now.
    pub fn of_process() -> Self {
        Self { vars: std::env::vars_os().collect(), ..Self::default() }
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.vars.insert(name.into(), value.into());
        self
    }

    /// Adds a service's unit and the credentials that it declares.
    #[must_use]
    pub fn with_unit(mut self, unit: PathBuf, declared: BTreeMap<String, Declared>) -> Self {
        (self.unit, self.declared) = (Some(unit), declared);
        self
    }

    /// The service's unit, if one was read.
    pub fn unit(&self) -> Option<&Path> {
        self.unit.as_deref()
    }

    /// The credential of that name, if the service's unit declares it.
    pub fn declared(&self, name: &str) -> Option<&Declared> {
        self.declared.get(name)
    }

    /// The value of a variable, if it is set, not empty, and UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.raw(name).and_then(OsStr::to_str)
    }

    /// The command line of the person's editor: `VISUAL`, else `EDITOR`.
    pub fn editor(&self) -> Option<String> {
        let named = |name| self.raw(name).and_then(|value| value.to_str()).filter(|value| !value.trim().is_empty());
        named("VISUAL").or_else(|| named("EDITOR")).map(str::to_owned)
    }

    /// Whether a terminal may be written with colours: without `NO_COLOR` (<https://no-color.org>), and unless it is dumb.
    pub fn has_colour(&self) -> bool {
        self.raw("NO_COLOR").is_none() && !self.has_dumb_terminal()
    }

    /// Whether the terminal says that it understands no escape sequences.
    pub fn has_dumb_terminal(&self) -> bool {
        self.text("TERM") == Some("dumb")
    }

    /// The raw value of a variable, if it is set and not empty.
    pub fn raw(&self, name: &str) -> Option<&OsStr> {
        self.given(name).filter(|value| !value.is_empty())
    }

    /// The raw value of a variable, if it is set, even if it is empty.
    pub fn given(&self, name: &str) -> Option<&OsStr> {
        self.vars.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// The value of a variable as a directory. Relative paths are ignored, as the XDG base directory specification
    /// requires (<https://specifications.freedesktop.org/basedir-spec/latest/>, "Basics").
    pub fn directory(&self, name: &str) -> Option<PathBuf> {
        self.raw(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    /// All variables with this prefix, sorted by name.
    pub fn with_prefix<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a OsStr)> {
        self.vars.iter().filter_map(move |(name, value)| {
            let name = name.to_str()?;
            name.starts_with(prefix).then_some((name, value.as_os_str()))
        })
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(pairs: [(&str, &str); N]) -> Self {
        let vars = pairs.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        Self { vars, ..Self::default() }
    }
}

impl std::fmt::Debug for Environment {
    /// Names only: values may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.vars.keys()).finish()
    }
}
