//! Settings of commands: the sections `[tools.commands]` and `[tools.shell]`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use globset::Glob;
use serde::{Deserialize, Serialize};

/// Settings of `run_command`: which programs may run, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CommandsConfig {
    /// Longest time limit that a call may set, in seconds; 1 to [`MAX_TIMEOUT_S`].
    pub max_timeout_s: u32,
    /// Commands of one conversation that may go on in the background at the same time, 0 to [`MAX_BACKGROUND`]; 0: none.
    pub background: usize,
    /// Programs that may run, as globs of names (`git`, `cargo*`) or, with a slash, of paths (`/usr/bin/*`). Empty: the
    /// tool `run_command` does not exist.
    pub allow: Vec<String>,
    /// Programs that may not run even if [`Self::allow`] matches them. This list only prevents mistakes, because an
    /// allowed program can start others. The sandbox enforces the limits.
    pub deny: Vec<String>,
    /// Directories that are searched for programs, in order. Absolute paths outside of the workspace.
    pub path: Vec<PathBuf>,
    /// Environment variables of commands, in addition to the default ones. Commands inherit no variable of the daemon.
    pub environment: BTreeMap<String, String>,
}

/// Settings of `run_shell`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShellConfig {
    /// Whether the tool `run_shell` exists. Every script needs an approval.
    pub enabled: bool,
}

/// Upper end of [`CommandsConfig::max_timeout_s`]: one day.
pub const MAX_TIMEOUT_S: u32 = 86_400;

/// Time limit of a command if the call sets none, in seconds. Two minutes: most builds and tests of a project are done
/// by then, and the model may ask for more.
const TIMEOUT_S: u32 = 120;

/// Upper end of [`CommandsConfig::background`]: the number in all.
pub const MAX_BACKGROUND: usize = 32;

/// Most variables of [`CommandsConfig::environment`].
pub const MAX_VARIABLES: usize = 64;

/// Variables that change how programs start, or that Belay itself sets.
const RESERVED: [&str; 8] = ["BASH_ENV", "ENV", "GLIBC_TUNABLES", "HOME", "IFS", "PATH", "TERM", "TMPDIR"];
const RESERVED_BEGINNINGS: [&str; 4] = ["BELAY_", "DYLD_", "GIT_", "LD_"];

impl Default for CommandsConfig {
    fn default() -> Self {
        let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        // Programs that change the user, the mounts or the namespaces. None of them works inside the sandbox.
        let denied = ["sudo", "su", "doas", "pkexec", "mount", "umount", "chroot", "nsenter", "unshare", "bwrap"];
        Self {
            max_timeout_s: 1800,
            background: 8,
            allow: vec!["*".to_owned()],
            deny: denied.map(str::to_owned).to_vec(),
            path: directories.map(PathBuf::from).to_vec(),
            environment: BTreeMap::new(),
        }
    }
}

impl CommandsConfig {
    /// Whether the tool `run_command` exists.
    pub fn enabled(&self) -> bool {
        !self.allow.is_empty()
    }

    /// Time limit of a command if the call sets none, in seconds.
    pub fn timeout_s(&self) -> u32 {
        TIMEOUT_S.min(self.max_timeout_s)
    }

    /// Returns all problems, each beginning with its key. Empty if the settings are valid.
    pub fn validate(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !(1..=MAX_TIMEOUT_S).contains(&self.max_timeout_s) {
            let is = self.max_timeout_s;
            problems.push(format!("tools.commands.max_timeout_s: must be from 1 to {MAX_TIMEOUT_S}, is {is}"));
        }
        if self.background > MAX_BACKGROUND {
            let is = self.background;
            problems.push(format!("tools.commands.background: must be from 0 to {MAX_BACKGROUND}, is {is}"));
        }
        for (key, globs) in [("allow", &self.allow), ("deny", &self.deny)] {
            for glob in globs {
                if let Err(error) = Glob::new(glob) {
                    problems.push(format!("tools.commands.{key}: {glob:?} is not a glob: {}", error.kind()));
                }
            }
        }
        if self.path.is_empty() {
            problems.push("tools.commands.path: without a directory no program is found".to_owned());
        }
        for path in
            self.path.iter().filter(|path| !path.is_absolute() || path.as_os_str().as_encoded_bytes().contains(&b':'))
        {
            problems.push(format!("tools.commands.path: must be absolute paths without a colon, has {path:?}"));
        }
        if self.environment.len() > MAX_VARIABLES {
            problems.push(format!("tools.commands.environment: at most {MAX_VARIABLES} variables"));
        }
        for (name, value) in &self.environment {
            if let Some(problem) = problem_of(name, value) {
                problems.push(format!("tools.commands.environment: {name:?} {problem}"));
            }
        }
        problems
    }
}

/// Why the configuration or a skill may not define this variable; `None`: it may.
pub(crate) fn problem_of(name: &str, value: &str) -> Option<&'static str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_word) || name.starts_with(|c: char| c.is_ascii_digit()) {
        Some("is not a name: letters, digits and _, no digit first")
    } else if RESERVED.contains(&name) || RESERVED_BEGINNINGS.iter().any(|begin| name.starts_with(begin)) {
        Some("is set by Belay or steers how programs start; it cannot be set here")
    } else if value.contains('\0') {
        Some("has a zero byte in its value")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(CommandsConfig::default().validate(), Vec::<String>::new());
    }

    #[test]
    fn all_problems_are_reported_with_their_keys() {
        let variables =
            [("1A", "x"), ("LD_PRELOAD", "x"), ("PATH", "x"), ("GIT_DIR", "x"), ("OK", "a\0b"), ("FINE", "x")];
        let config = CommandsConfig {
            max_timeout_s: MAX_TIMEOUT_S + 1,
            background: MAX_BACKGROUND + 1,
            allow: vec!["[".to_owned()],
            deny: vec!["{a".to_owned()],
            path: vec!["bin".into(), "/a:/b".into(), "/bin".into()],
            environment: variables.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        };
        let problems = config.validate();
        let keys: Vec<_> = problems.iter().map(|problem| problem.split(": ").next().unwrap_or_default()).collect();
        let (path, environment) = ("tools.commands.path", "tools.commands.environment");
        assert_eq!(
            keys,
            [
                "tools.commands.max_timeout_s",
                "tools.commands.background",
                "tools.commands.allow",
                "tools.commands.deny",
                path,
                path,
                environment,
                environment,
                environment,
                environment,
                environment,
            ]
        );
        assert!(CommandsConfig { path: Vec::new(), ..CommandsConfig::default() }.validate()[0].starts_with(path));
    }
}
