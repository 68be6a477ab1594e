//! A connection pooler before the server: pgbouncer.

use std::{
    fs,
    io::Write,
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::server::PostgresServer;

/// Where Debian keeps the program, beside `PATH`.
const DEBIAN: &str = "/usr/sbin/pgbouncer";

/// Time between two looks at whether the pooler listens.
const POLL: Duration = Duration::from_millis(5);

/// Runs the pooler until the test process has closed the input, also by its end. Newer versions wait for their clients after
/// SIGTERM.
const SUPERVISOR: &str = r#""$1" pgbouncer.ini & read -r _; kill -KILL "$!"; wait "$!""#;

/// For how long a client has a session of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolMode {
    /// Until it disconnects.
    Session,
    /// For a transaction.
    Transaction,
}

/// A running pgbouncer on a free port of 127.0.0.1. It ends with the value and with the process.
#[derive(Debug)]
pub struct Pooler {
    supervisor: Child,
    alive: Option<ChildStdin>,
    port: u16,
    _folder: TempDir,
}

impl PostgresServer {
    /// Starts pgbouncer before this server. `None`: the test is to return, since the program is not installed; a line on
    /// standard error says so.
    ///
    /// # Errors
    /// It does not start; or it is not installed, and the variable `CI` is `true`.
    pub fn pooler(&self, mode: PoolMode) -> Result<Option<Pooler>> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("no free port")?.port();
        self.pooler_at(port, mode)
    }

    /// The same on a port that is free, such as that of a pooler before.
    ///
    /// # Errors
    /// As [`pooler`](Self::pooler).
    pub fn pooler_at(&self, port: u16, mode: PoolMode) -> Result<Option<Pooler>> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let places = std::env::split_paths(&path).map(|folder| folder.join("pgbouncer"));
        let Some(program) = places.chain([PathBuf::from(DEBIAN)]).find(|program| program.is_file()) else {
            let missing = "this test needs pgbouncer, which is not installed (apt install pgbouncer)";
            if std::env::var_os("CI").is_some_and(|ci| ci == "true") {
                bail!("{missing}");
            }
            let test = thread::current();
            writeln!(std::io::stderr().lock(), "skipped {}: {missing}", test.name().unwrap_or("a test"))?;
            return Ok(None);
        };
        self.start_pooler(&program, port, mode).map(Some)
    }

    fn start_pooler(&self, program: &Path, port: u16, mode: PoolMode) -> Result<Pooler> {
        let folder = tempfile::Builder::new().prefix("belay-pgbouncer-").tempdir().context("no folder")?;
        self.account.own(folder.path())?;
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = users.txt\npool_mode = {mode}\nlogfile = pgbouncer.log\n",
            self.port
        );
        for (name, text) in [("pgbouncer.ini", settings), ("users.txt", format!("\"belay\" \"{}\"\n", self.password))] {
            let file = folder.path().join(name);
            fs::write(&file, text).with_context(|| format!("{name} cannot be written"))?;
            self.account.own(&file)?;
        }
        let mut command = self.account.command(Path::new("/bin/sh"), folder.path());
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(program);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut supervisor = command.spawn().context("/bin/sh")?;
        let alive = supervisor.stdin.take();
        let log = folder.path().join("pgbouncer.log");
        let mut pooler = Pooler { supervisor, alive, port, _folder: folder };
        loop {
            let log = fs::read_to_string(&log).unwrap_or_default();
            if log.contains("FATAL") || pooler.supervisor.try_wait().context("the supervisor")?.is_some() {
                bail!("pgbouncer did not start: {log}");
            }
            // Another program may have the port.
            if log.contains("process up") && TcpStream::connect(("127.0.0.1", port)).is_ok() {
                break;
            }
            thread::sleep(POLL);
        }
        Ok(pooler)
    }
}

impl Pooler {
    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.alive.take());
        drop(self.supervisor.wait()); // a test that ends has no use for the error
    }
}
