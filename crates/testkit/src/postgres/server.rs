//! The server: start, stop, kill, and what tests ask of it.

use std::{
    fs,
    io::Write,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    sync::OnceLock,
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Signal;
use tempfile::TempDir;
use uuid::Uuid;

use super::{
    account::{Account, finished, run},
    certificates,
    process::Process,
    programs::Programs,
};

/// The superuser whom [`PostgresServer::url`] names.
const USER: &str = "belay";
/// A file system in memory, where Linux has one. A test database has 400 files, and to make one takes 0.02 ms of processor time
/// there, but 0.6 ms on a disk.
const MEMORY: &str = "/dev/shm";
/// The free space that [`MEMORY`] must have: several servers with their logs of writes. Containers often have 64 MiB in all.
const SPACE: u64 = 2 << 30;
/// How many free ports are tried, since another process may take one before the server does.
const PORTS: usize = 10;

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// As in production.
    Fsync,
    /// A commit survives the end of the server, and not that of the machine.
    NoFsync,
}

/// What the server speaks over TCP. The socket in its folder never has TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP without TLS.
    Plain,
    /// TLS, and nothing else. The certificate is for 127.0.0.1 and localhost.
    Tls,
}

/// How a server is set up.
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    /// By default [`Durability::Fsync`].
    pub durability: Durability,
    /// By default [`Transport::Plain`].
    pub transport: Transport,
    /// More lines of `postgresql.conf`, each a name and a value.
    pub settings: Vec<(String, String)>,
    /// The folder in which the server's own is made, such as a mount with little space. `None`: one in memory if it has space,
    /// otherwise the one for temporary files.
    pub within: Option<PathBuf>,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { durability: Durability::Fsync, transport: Transport::Plain, settings: Vec::new(), within: None }
    }
}

/// How a server stops.
///
/// Source: PostgreSQL's documentation, "Shutting Down the Server".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Waits until all clients have gone, however long that takes.
    Smart,
    /// Ends the clients' transactions and connections.
    Fast,
    /// Ends at once, without a checkpoint; the next start recovers.
    Immediate,
}

/// A PostgreSQL server on a free port of 127.0.0.1 and on a socket in its folder. The time zone and the messages are the C locale's.
///
/// The end of the value ends the server and removes its folder. So does the end of the process, also by SIGKILL.
#[derive(Debug)]
pub struct PostgresServer {
    /// `None` while the server does not run. Before the folder, which is removed after the server has ended.
    pub(super) process: Option<Process>,
    pub(super) programs: Programs,
    pub(super) account: Account,
    pub(super) folder: TempDir,
    pub(super) port: u16,
    pub(super) password: String,
    pub(super) root_certificate: Option<PathBuf>,
}

impl PostgresServer {
    /// The server that the tests of this process share, with 300 connections and without fsync. Nobody stops it.
    ///
    /// # Errors
    /// The server does not start: each test of the process gets the same error.
    pub fn shared(programs: &Programs) -> Result<&'static Self> {
        // A static because the tests of a binary have no other common owner. It is never dropped: the end of the process ends the server.
        static SHARED: OnceLock<Result<PostgresServer, String>> = OnceLock::new();
        let start = || {
            let settings = vec![("max_connections".to_owned(), "300".to_owned())];
            let options = PostgresOptions { durability: Durability::NoFsync, settings, ..PostgresOptions::default() };
            Self::start(programs, &options).map_err(|error| format!("{error:#}"))
        };
        SHARED.get_or_init(start).as_ref().map_err(|error| anyhow!("the shared server: {error}"))
    }

    /// Makes a data directory and starts a server, which accepts connections when this returns.
    ///
    /// # Errors
    /// A program failed. The error has what it wrote.
    pub fn start(programs: &Programs, options: &PostgresOptions) -> Result<Self> {
        let mut server = Self::new_folder(programs, options.within.as_deref())?;
        server.initialise(options)?;
        server.start_on_a_free_port()?;
        Ok(server)
    }

    /// A server with an empty folder.
    pub(super) fn new_folder(programs: &Programs, within: Option<&Path>) -> Result<Self> {
        let account = Account::of_this_process()?;
        let within = within.map_or_else(folder_of_servers, Path::to_owned);
        let folder = tempfile::Builder::new().prefix("belay-postgres-").tempdir_in(within).context("no folder")?;
        account.own(folder.path())?;
        // Everybody on this machine reaches the port, and a superuser may run programs: the password is not one to guess.
        let password = Uuid::now_v7().simple().to_string();
        Ok(Self {
            process: None,
            programs: programs.clone(),
            account,
            folder,
            port: 0,
            password,
            root_certificate: None,
        })
    }

    /// Makes the data directory and its settings.
    fn initialise(&mut self, options: &PostgresOptions) -> Result<()> {
        let (here, data) = (self.folder.path(), self.data());
        let password = here.join("password");
        fs::write(&password, &self.password).context("the password cannot be written")?;
        self.account.own(&password)?;
        let mut initdb = self.account.command(&self.programs.initdb, here);
        initdb.args(["--username", USER, "--pwfile", "password", "--pgdata", "data", "--no-sync", "--no-instructions"]);
        run(initdb.args(["--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8"]))?;
        if options.transport == Transport::Tls {
            self.root_certificate = Some(certificates::make(&self.programs, self.account, here)?);
        }
        let (host, ssl) = match options.transport {
            Transport::Plain => ("host", "off"),
            Transport::Tls => ("hostssl", "on"),
        };
        // The folder of the socket is closed to other users.
        let rules = format!("local all,replication all trust\n{host} all,replication all 127.0.0.1/32 scram-sha-256\n");
        fs::write(data.join("pg_hba.conf"), rules).context("pg_hba.conf")?;
        let fsync = if options.durability == Durability::Fsync { "on" } else { "off" };
        // A standby copies this file: what differs between the two is given on the command line.
        let mut lines =
            format!("ssl = {ssl}\nfsync = {fsync}\nwal_keep_size = '64MB'\nmax_wal_size = '256MB'\ntimezone = 'UTC'\n");
        for (name, value) in &options.settings {
            lines.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
        }
        let mut file =
            fs::File::options().append(true).open(data.join("postgresql.conf")).context("postgresql.conf")?;
        file.write_all(lines.as_bytes()).context("postgresql.conf")
    }

    pub(super) fn start_on_a_free_port(&mut self) -> Result<()> {
        let mut tries = 0;
        loop {
            // Dropped at once, so another process may take the port before the server does.
            self.port =
                TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("no free port")?.port();
            tries += 1;
            match self.restart() {
                Err(error) if tries < PORTS && error.to_string().contains("could not bind") => {}
                done => return done,
            }
        }
    }

    /// Starts the server again after [`stop`](Self::stop) or [`kill`](Self::kill), with the same data, port and password. It has
    /// recovered and accepts connections when this returns.
    ///
    /// # Errors
    /// The server runs, or it does not start; the error has what it wrote.
    pub fn restart(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("the server runs");
        }
        let here = self.folder.path();
        let mut arguments = vec!["-D".to_owned(), "data".to_owned()];
        let settings = [
            ("port", self.port.to_string()),
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", here.display().to_string()),
        ];
        for (name, value) in settings {
            arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
        }
        self.process = Some(Process::start(self.account, here, &self.programs.postgres, &arguments)?);
        Ok(())
    }

    /// Stops the server and waits for its end.
    ///
    /// # Errors
    /// The server does not run, or it did not end in order.
    pub fn stop(&mut self, how: Shutdown) -> Result<()> {
        let signal = match how {
            Shutdown::Smart => Signal::TERM,
            Shutdown::Fast => Signal::INT,
            Shutdown::Immediate => Signal::QUIT,
        };
        let status = self.process.take().context("the server does not run")?.end(signal)?;
        if !status.success() {
            bail!("the server ended with {status}: {}", self.log().lines().last().unwrap_or_default());
        }
        Ok(())
    }

    /// Kills all processes of the server at once, by SIGKILL.
    ///
    /// # Errors
    /// The server does not run.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().context("the server does not run")?.kill()
    }

    /// The address of a database over TCP, with user and password. It demands TLS, verified in full, where the server has it.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let tls = self.root_certificate.as_ref();
        let tls = tls.map(|root| format!("?sslmode=verify-full&sslrootcert={}", root.display())).unwrap_or_default();
        format!("postgres://{USER}:{}@127.0.0.1:{}/{database}{tls}", self.password, self.port)
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the socket.
    #[must_use]
    pub fn socket_folder(&self) -> &Path {
        self.folder.path()
    }

    /// The root of the server's certificate, in PEM. `None`: the server has no TLS.
    #[must_use]
    pub fn root_certificate(&self) -> Option<&Path> {
        self.root_certificate.as_deref()
    }

    /// Makes another root, in PEM, that has not signed the server's certificate.
    ///
    /// # Errors
    /// `openssl` failed.
    pub fn wrong_root_certificate(&self) -> Result<PathBuf> {
        certificates::stranger(&self.programs, self.account, self.folder.path())
    }

    /// Makes an empty database.
    ///
    /// # Errors
    /// There is one of this name, or the server does not answer.
    pub fn create_database(&self, name: &str) -> Result<()> {
        self.sql("postgres", &format!("create database {}", quoted(name))).map(drop)
    }

    /// Runs statements over the socket by `psql`, each in a transaction of its own, and returns the rows without a header:
    /// a line each, with `|` between the columns. The first error ends the statements.
    ///
    /// # Errors
    /// A statement failed, or the server does not answer. The error has the message of the server.
    pub fn sql(&self, database: &str, statements: &str) -> Result<String> {
        let (folder, port) = (self.folder.path().display(), self.port);
        self.psql(
            &format!("host={folder} port={port} user={USER} dbname='{}'", database.replace('\'', "\\'")),
            statements,
        )
    }

    /// As [`sql`](Self::sql), by an address or a connection string, such as that of [`url`](Self::url).
    ///
    /// # Errors
    /// As [`sql`](Self::sql); and the connection was refused.
    pub fn psql(&self, address: &str, statements: &str) -> Result<String> {
        let program = &self.programs.psql;
        let mut psql = self.account.command(program, self.folder.path());
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only", "--set=ON_ERROR_STOP=1", "--no-password"]);
        psql.args(["--file=-", address]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = psql.spawn().context("psql cannot be started")?;
        let mut input = child.stdin.take().context("psql has an input")?;
        let output = std::thread::scope(|scope| {
            // Beside the reading: psql prints rows before it has read all statements. It stops reading at an error.
            scope.spawn(move || input.write_all(statements.as_bytes()));
            child.wait_with_output()
        });
        finished(program.as_os_str(), &output.context("psql")?)
    }

    /// What the server and its supervisor have written so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.folder.path().join("log")).unwrap_or_default()).into_owned()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            // A test that ends has no use for the error; the supervisor ends the server in any case.
            drop(process.end(Signal::QUIT));
        }
    }
}

/// The folder in which servers are made. No test ends the machine, so none needs a disk.
fn folder_of_servers() -> PathBuf {
    let free = rustix::fs::statvfs(MEMORY).map_or(0, |disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if free >= SPACE { MEMORY.into() } else { std::env::temp_dir() }
}

/// A name in SQL.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
