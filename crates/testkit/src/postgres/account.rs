//! The user that runs PostgreSQL, which refuses to run as root, and what this user runs.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{fs::chown, process::CommandExt},
    path::Path,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, bail};

/// Users that root runs the server as: the first one that exists.
const UNPRIVILEGED: [&str; 2] = ["postgres", "nobody"];

/// The user that runs the server and its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Account {
    /// The user that runs the test.
    Own,
    /// Another user, because root runs the test.
    Other {
        /// Number of the user.
        user: u32,
        /// Number of its group.
        group: u32,
    },
}

impl Account {
    /// The user of this process, or an unprivileged one where that is root.
    ///
    /// # Errors
    /// Root runs the test, and the machine has no unprivileged user that is known.
    pub(super) fn of_this_process() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Own);
        }
        let passwd = fs::read_to_string("/etc/passwd").context("/etc/passwd cannot be read")?;
        Self::unprivileged(&passwd).with_context(|| format!("/etc/passwd has none of the users {UNPRIVILEGED:?}"))
    }

    fn unprivileged(passwd: &str) -> Option<Self> {
        UNPRIVILEGED.iter().find_map(|name| {
            let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
            let mut numbers = line.split(':').skip(2).map(str::parse::<u32>);
            Some(Self::Other { user: numbers.next()?.ok()?, group: numbers.next()?.ok()? })
        })
    }

    /// Makes this user the owner of a file or folder.
    pub(super) fn own(self, path: &Path) -> Result<()> {
        match self {
            Self::Own => Ok(()),
            Self::Other { user, group } => chown(path, Some(user), Some(group))
                .with_context(|| format!("{} cannot be given to the user {user}", path.display())),
        }
    }

    /// A program that this user runs in the folder, without input, and with no variable of ours: neither a language nor
    /// libpq's `PG…` may change what it does.
    pub(super) fn command(self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).stdin(Stdio::null()).env_clear().env("LC_ALL", "C").env("HOME", folder);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()));
        if let Self::Other { user, group } = self {
            command.uid(user).gid(group);
        }
        command
    }
}

/// Runs a program to its end and returns what it printed.
///
/// # Errors
/// The program failed; the error has what it wrote to standard error.
pub(super) fn run(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_owned();
    let output = command.output().with_context(|| format!("{} cannot be started", program.display()))?;
    finished(&program, &output)
}

/// What a program that has ended printed, without the last line feed. Errors as of [`run`].
pub(super) fn finished(program: &OsStr, output: &Output) -> Result<String> {
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed ({}): {}", program.display(), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_runs_the_server_as_postgres_or_else_as_nobody() {
        fn check(passwd: &str, expected: Option<(u32, u32)>) {
            let expected = expected.map(|(user, group)| Account::Other { user, group });
            assert_eq!(Account::unprivileged(passwd), expected, "{passwd}");
        }
        let (root, nobody) = ("root:x:0:0::/root:/bin/sh\n", "nobody:x:65534:65533::/:/bin/false\n");
        check(&format!("{root}{nobody}postgres:x:101:104:,,,:/var/lib/postgresql:/bin/bash\n"), Some((101, 104)));
        check(&format!("{root}{nobody}postgres2:x:7:7::/:\n"), Some((65534, 65533)));
        check(root, None);
        check("postgres:x:one:two::/:\n", None);
    }
}
