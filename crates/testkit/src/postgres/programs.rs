//! PostgreSQL's programs on this machine.

use std::{
    fmt, fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::bail;

/// Where Debian and Ubuntu keep the programs of each version, which are in no `PATH`.
const DEBIAN: &str = "/usr/lib/postgresql";

/// The programs that [`PostgresServer`](super::PostgresServer) needs. A value proves that the machine has them.
#[derive(Clone, Debug)]
pub struct Programs {
    pub(super) initdb: PathBuf,
    pub(super) postgres: PathBuf,
    pub(super) psql: PathBuf,
    pub(super) pg_basebackup: PathBuf,
    pub(super) openssl: PathBuf,
}

/// A program that this machine does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing(String);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(program) = self;
        let package = if program == "openssl" { "openssl" } else { "postgresql" };
        write!(f, "this test needs PostgreSQL, and {program} is not installed (apt install {package})")
    }
}

impl std::error::Error for Missing {}

impl Programs {
    /// The programs, for a test that needs them. `None`: the test is to return; a line on standard error, which `make test`
    /// counts, says that the test was skipped and how to install PostgreSQL.
    ///
    /// # Errors
    /// A program is missing and the variable `CI` is `true`: continuous integration skips no test.
    pub fn for_test() -> anyhow::Result<Option<Self>> {
        let required = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        let thread = std::thread::current();
        Self::or_skip(Self::find(), required, thread.name().unwrap_or("a test"), &mut std::io::stderr().lock())
    }

    fn or_skip(
        found: Result<Self, Missing>,
        required: bool,
        test: &str,
        report: &mut impl Write,
    ) -> anyhow::Result<Option<Self>> {
        match found {
            Ok(programs) => Ok(Some(programs)),
            Err(missing) if required => bail!("{missing}"),
            Err(missing) => {
                // The test harness captures `eprintln!` of a test that passes, but not this. One write, so that no other line is in it.
                report.write_all(format!("skipped {test}: {missing}\n").as_bytes())?;
                Ok(None)
            }
        }
    }

    /// Finds the programs in `PATH`, else those of the newest version that Debian's packages have installed.
    ///
    /// # Errors
    /// The first program that is missing.
    pub fn find() -> Result<Self, Missing> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::find_in(&std::env::split_paths(&path).collect::<Vec<_>>(), Path::new(DEBIAN))
    }

    fn find_in(path: &[PathBuf], debian: &Path) -> Result<Self, Missing> {
        // One folder for all, found through links: `psql` in `PATH` may be another version's than the server.
        let folders = path.iter().cloned().chain(newest_first(debian));
        let initdb = folders.map(|folder| folder.join("initdb")).find_map(|program| fs::canonicalize(program).ok());
        let initdb = initdb.ok_or_else(|| Missing("initdb".to_owned()))?;
        let of_server = |name: &str| Some(initdb.with_file_name(name)).filter(|program| program.is_file());
        let in_path = |name: &str| path.iter().map(|folder| folder.join(name)).find(|program| program.is_file());
        let missing = |name: &str| Missing(name.to_owned());
        let program = |name: &str| of_server(name).or_else(|| in_path(name)).ok_or_else(|| missing(name));
        Ok(Self {
            initdb: initdb.clone(),
            postgres: program("postgres")?,
            psql: program("psql")?,
            pg_basebackup: program("pg_basebackup")?,
            openssl: in_path("openssl").ok_or_else(|| missing("openssl"))?,
        })
    }
}

/// The folders with the programs of each version, the newest version first.
fn newest_first(debian: &Path) -> Vec<PathBuf> {
    let mut versions: Vec<(u32, PathBuf)> = fs::read_dir(debian)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    versions.into_iter().map(|(_, folder)| folder).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder with empty files of these names.
    fn folder(parent: &Path, name: &str, programs: &[&str]) -> PathBuf {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).expect("the folder can be made");
        for program in programs {
            fs::write(folder.join(program), "").expect("the file can be written");
        }
        folder
    }

    #[test]
    fn the_newest_version_is_taken_whole_and_a_missing_program_is_named() {
        let temporary = tempfile::tempdir().expect("a temporary folder");
        let here = fs::canonicalize(temporary.path()).expect("its path without links");
        let all = ["initdb", "postgres", "psql", "pg_basebackup"];
        let debian = here.join("versions");
        folder(&debian, "9/bin", &all);
        let newest = folder(&debian, "15/bin", &all);
        let usr = folder(&here, "usr", &["psql", "openssl"]);
        let found = Programs::find_in(std::slice::from_ref(&usr), &debian).expect("all programs are there");
        assert_eq!((found.postgres, found.psql), (newest.join("postgres"), newest.join("psql")));
        assert_eq!(found.openssl, usr.join("openssl"));

        let own = folder(&here, "own", &all);
        let found = Programs::find_in(&[usr.clone(), own.clone()], &debian).expect("all programs are there");
        assert_eq!(found.postgres, own.join("postgres"), "a server in PATH comes before Debian's");

        let links = folder(&here, "links", &[]);
        symlink(own.join("initdb"), links.join("initdb")).expect("the link can be made");
        let found = Programs::find_in(&[usr.clone(), links], &debian).expect("all programs are there");
        assert_eq!(found.psql, own.join("psql"), "a link leads to the folder of its version");

        let missing =
            |path: &[PathBuf], debian: &Path| Programs::find_in(path, debian).expect_err("a program is missing");
        assert_eq!(missing(std::slice::from_ref(&usr), Path::new("/nowhere")), Missing("initdb".to_owned()));
        assert_eq!(missing(&[], &debian), Missing("openssl".to_owned()));
    }

    #[test]
    fn a_missing_program_skips_the_test_with_a_reason_and_fails_it_in_continuous_integration() {
        let missing = || Err(Missing("initdb".to_owned()));
        let reason = "this test needs PostgreSQL, and initdb is not installed (apt install postgresql)";
        let mut report = Vec::new();
        let skipped = Programs::or_skip(missing(), false, "store::a_test", &mut report).expect("the test is skipped");
        assert!(skipped.is_none());
        assert_eq!(String::from_utf8_lossy(&report), format!("skipped store::a_test: {reason}\n"));
        let failed = Programs::or_skip(missing(), true, "store::a_test", &mut report).expect_err("the test fails");
        assert_eq!(failed.to_string(), reason);
    }
}
