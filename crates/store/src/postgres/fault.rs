//! The failure of a statement or of a connection.

use std::fmt;

use tokio_postgres::error::{DbError, SqlState};

use crate::error::OpenError;

/// The cause of a failure, as far as an operator or the caller acts on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// No server answers at the address.
    Unreachable,
    /// The server does not offer TLS, or its certificate is not trusted.
    Tls,
    /// The server rejects the user or the password.
    Login,
    /// The database does not exist.
    NoDatabase,
    /// The user may not do this.
    Permission,
    /// The server is a standby, or its transactions are read-only.
    ReadOnly,
    /// The server accepts no further connection.
    TooManyConnections,
    /// The disk of the server is full.
    DiskFull,
    /// The server is out of another resource, such as memory.
    Resources,
    /// The server starts, stops, or has closed the connection.
    Lost,
    /// The server did not answer in time.
    Silent,
    /// A statement ran longer than its limit, or was cancelled.
    Timeout,
    /// A lock was not free in time.
    LockTimeout,
    /// Transactions disturbed each other.
    Conflict,
    /// A pooler between Belay and the server does not keep prepared statements.
    Pooler,
    /// A row violates a constraint.
    Constraint,
    /// A value cannot be stored, or cannot be read.
    Value,
    /// A table, a column or a function is missing.
    Schema,
    /// An earlier statement of the transaction had failed.
    Aborted,
    /// Anything else.
    Other,
}

/// The extent of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ended {
    /// Nothing: the statement was not sent, or its result could not be read.
    Nothing,
    /// The transaction. The connection is usable after a rollback.
    Transaction,
    /// The connection, with its transaction.
    Connection,
}

/// The failure of a statement or of a connection. Its text is for operators. It contains neither a password nor values of
/// rows and parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PgError {
    cause: Cause,
    ended: Ended,
    code: Option<SqlState>,
    detail: String,
    commit: bool,
}

impl PgError {
    /// A failure that this program has found itself.
    pub(super) fn new(cause: Cause, ended: Ended, detail: impl Into<String>) -> Self {
        Self { cause, ended, code: None, detail: detail.into(), commit: false }
    }

    /// The failure of an attempt to connect to a server.
    pub(super) fn connecting(error: &tokio_postgres::Error) -> Self {
        let mut failed = Self::from_client(error);
        failed.ended = Ended::Connection;
        if error.as_db_error().is_some() {
            return failed;
        }
        let text = failed.detail.as_str();
        failed.cause = if text.contains("does not allow writes") {
            Cause::ReadOnly
        } else if text.contains("TLS") || text.contains("certificate") || has_source::<rustls::Error>(error) {
            Cause::Tls
        } else if text.contains("authentication") || text.contains("password") {
            Cause::Login
        } else {
            Cause::Unreachable
        };
        failed
    }

    /// The failure of a statement.
    pub(super) fn from_client(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(server) => Self::from_server(server),
            None if is_encoding(error) => Self::new(Cause::Value, Ended::Nothing, causes(error)),
            None => Self::new(Cause::Lost, Ended::Connection, causes(error)),
        }
    }

    fn from_server(error: &DbError) -> Self {
        let cause = cause(error.code(), error.message());
        let fatal = matches!(error.severity(), "FATAL" | "PANIC");
        // A session that became read-only stays so: another one may be with the new primary server.
        let ended = if fatal || matches!(cause, Cause::Lost | Cause::Pooler | Cause::ReadOnly) {
            Ended::Connection
        } else {
            Ended::Transaction
        };
        // A message of the class 22 repeats the wrong value. The details of every class may do so, and are omitted.
        let detail =
            if error.code().code().starts_with("22") { "wrong value".into() } else { error.message().to_owned() };
        Self { cause, ended, code: Some(error.code().clone()), detail, commit: false }
    }

    /// The failure of a pooler that gives one session to two connections.
    pub(crate) fn shared_session() -> Self {
        Self::new(Cause::Pooler, Ended::Connection, "two connections have the same session")
    }

    /// The same for a commit. If the connection is lost, nobody knows whether the server has committed.
    pub(super) fn of_commit(mut self) -> Self {
        self.commit = self.ended == Ended::Connection;
        self
    }

    /// The same, with the server.
    pub(super) fn at(mut self, host: &dyn fmt::Display) -> Self {
        self.detail = format!("{host}: {}", self.detail);
        self
    }

    /// Marks the connection as lost.
    pub(super) fn lose(&mut self) {
        self.ended = Ended::Connection;
    }

    /// Whether the server or the network has closed the connection. The end of a limit does not count.
    pub(crate) fn is_lost(&self) -> bool {
        self.ended == Ended::Connection && self.cause == Cause::Lost
    }

    /// Whether the same statement or connection may succeed later, without a change of settings, rights or data.
    pub(crate) fn is_outage(&self) -> bool {
        match self.cause {
            Cause::Unreachable
            | Cause::ReadOnly
            | Cause::TooManyConnections
            | Cause::DiskFull
            | Cause::Resources
            | Cause::Lost
            | Cause::Silent
            | Cause::Timeout
            | Cause::LockTimeout
            | Cause::Conflict => true,
            Cause::Tls
            | Cause::Login
            | Cause::NoDatabase
            | Cause::Permission
            | Cause::Pooler
            | Cause::Constraint
            | Cause::Value
            | Cause::Schema
            | Cause::Aborted
            | Cause::Other => false,
        }
    }

    /// The cause.
    pub(crate) fn cause(&self) -> Cause {
        self.cause
    }

    /// The extent of the failure.
    pub(crate) fn ended(&self) -> Ended {
        self.ended
    }

    /// The SQLSTATE. `None`: the server did not send the error.
    pub(crate) fn code(&self) -> Option<&str> {
        self.code.as_ref().map(SqlState::code)
    }

    /// Whether the server has ended the transaction because it and others waited for each other's locks.
    pub(super) fn is_deadlock(&self) -> bool {
        self.code.as_ref() == Some(&SqlState::T_R_DEADLOCK_DETECTED)
    }

    /// Whether a lock was not free in time, or never would have been: the transaction can be repeated.
    pub(crate) fn is_contended(&self) -> bool {
        self.cause == Cause::LockTimeout || self.is_deadlock()
    }

    /// Whether the transaction may have been committed: the connection was lost while the commit was under way. A repeated
    /// job must first look whether its rows are there.
    pub(crate) fn may_be_committed(&self) -> bool {
        self.commit
    }

    /// What happened, and the next step.
    fn words(&self) -> (&'static str, &'static str) {
        match self.cause {
            Cause::Unreachable => (
                "no connection to the database server",
                "check that it runs, and check the host and the port in store.url",
            ),
            Cause::Tls => (
                "no encrypted connection to the database server",
                "give the server a certificate for the name in store.url; sslrootcert=/PATH names the root of a private \
                 one; on this machine sslmode=disable is possible",
            ),
            Cause::Login => ("the database server rejects the login", "check the user and the password in store.url"),
            Cause::NoDatabase => ("the database does not exist", "create it (CREATE DATABASE), or correct store.url"),
            Cause::Permission => (
                "the database user lacks a permission",
                "make the user the owner of the schema, or grant CREATE on the database for the first start",
            ),
            Cause::ReadOnly => (
                "the database server accepts no writes, as a standby does",
                "name the primary server in store.url, or all servers, separated by commas",
            ),
            Cause::TooManyConnections => (
                "the database server accepts no further connection",
                "raise its max_connections, or lower store.connections",
            ),
            Cause::DiskFull => ("the disk of the database server is full", "free space there"),
            Cause::Resources => ("the database server is short of a resource", "see the log of the server"),
            Cause::Lost => ("the connection to the database was lost", "Belay connects again"),
            Cause::Silent => (
                "the database server did not answer in time, and the connection was closed",
                "check the server and the network; Belay connects again",
            ),
            Cause::Timeout => (
                "a statement was cancelled, or took longer than store.statement_timeout_s",
                "check the load of the server, or raise the limit",
            ),
            Cause::LockTimeout => (
                "a lock in the database was not free within a third of store.statement_timeout_s",
                "look for a session that holds it (pg_stat_activity, pg_locks)",
            ),
            Cause::Conflict => ("another transaction has interfered", "Belay repeats the work"),
            Cause::Pooler => (
                "a connection pooler does not keep the session of its client",
                "use pool_mode = session in pgbouncer, or connect directly to the server",
            ),
            Cause::Constraint => ("a row violates a constraint of the schema", "report this as a bug of Belay"),
            Cause::Value => ("the database cannot store or return a value", "report this as a bug of Belay"),
            Cause::Schema => (
                "a table, a column or a function of the schema is missing or differs",
                "restore the database, or use another schema (schema=NAME in store.url)",
            ),
            Cause::Aborted => ("an earlier statement of the transaction had failed", "report this as a bug of Belay"),
            Cause::Other => ("the database reports an error", "see the log of the database server"),
        }
    }
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (happened, step) = self.words();
        f.write_str(happened)?;
        match (self.code(), self.detail.is_empty()) {
            (Some(code), _) => write!(f, " ({code}: {})", self.detail)?,
            (None, false) => write!(f, " ({})", self.detail)?,
            (None, true) => {}
        }
        if self.commit {
            f.write_str("; it is unknown whether the last transaction was committed")?;
        }
        write!(f, ": {step}")
    }
}

impl std::error::Error for PgError {}

/// The cause of an error of the server.
///
/// PostgreSQL, "Error Codes": <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn cause(code: &SqlState, message: &str) -> Cause {
    let code = code.code();
    match code {
        // A lost prepared statement, one that exists already, and an unknown parameter of the start.
        "26000" | "42P05" => Cause::Pooler,
        "08P01" if message.contains("prepared statement") || message.contains("startup parameter") => Cause::Pooler,
        // pgbouncer gives 08P01 for the login errors of its own.
        "08P01" if message.contains("no such database") => Cause::NoDatabase,
        "08P01" if message.contains("authentication") || message.contains("no such user") => Cause::Login,
        "08P01" if message.contains("no more connections") => Cause::TooManyConnections,
        "28000" | "28P01" => Cause::Login,
        "3D000" => Cause::NoDatabase,
        "42501" => Cause::Permission,
        "25006" => Cause::ReadOnly,
        "25P02" => Cause::Aborted,
        "53300" | "53400" => Cause::TooManyConnections,
        "53100" => Cause::DiskFull,
        "53000" | "53200" => Cause::Resources,
        "40001" | "40P01" => Cause::Conflict,
        "55P03" => Cause::LockTimeout,
        "57014" => Cause::Timeout,
        "25P03" | "25P04" | "57P05" => Cause::Lost, // the server has closed an idle session
        "42P01" | "42703" | "42883" | "3F000" | "42P02" | "42704" => Cause::Schema,
        _ if code.starts_with("08") || code.starts_with("57P") => Cause::Lost,
        // 54: such as a text that is too long for an index.
        _ if code.starts_with("22") || code.starts_with("54") => Cause::Value,
        _ if code.starts_with("23") => Cause::Constraint,
        _ => Cause::Other,
    }
}

/// Whether the client could not write a parameter, or could not read a column. The connection is not concerned.
fn is_encoding(error: &tokio_postgres::Error) -> bool {
    let text = error.to_string();
    ["error serializing", "error deserializing", "invalid column", "expected ", "error encoding"]
        .iter()
        .any(|start| text.starts_with(start))
}

/// The error and its causes, once each.
fn causes(error: &tokio_postgres::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}

/// Whether a cause of the error is of this type, also within an error of input and output.
fn has_source<T: std::error::Error + 'static>(error: &tokio_postgres::Error) -> bool {
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if cause.is::<T>() || inner.is_some_and(|inner| inner.is::<T>()) {
            return true;
        }
        next = cause.source();
    }
    false
}

impl OpenError {
    /// Whether the database server is away, is starting, accepts no writes yet, or is short of something, so that the same
    /// attempt may succeed later. A rejected login, wrong settings and a file that cannot be used are no outage.
    pub fn is_outage(&self) -> bool {
        let Self::Database(cause) = self else { return false };
        let mut next: Option<&(dyn std::error::Error + 'static)> = Some(&**cause);
        while let Some(cause) = next {
            if let Some(error) = cause.downcast_ref::<PgError>() {
                return error.is_outage();
            }
            next = cause.source();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_a_cause() {
        for (code, message, expected) in [
            ("28P01", "password authentication failed for user \"u\"", Cause::Login),
            ("28000", "no pg_hba.conf entry", Cause::Login),
            ("3D000", "database \"d\" does not exist", Cause::NoDatabase),
            ("42501", "permission denied", Cause::Permission),
            ("25006", "cannot execute INSERT in a read-only transaction", Cause::ReadOnly),
            ("53300", "too many connections", Cause::TooManyConnections),
            ("53100", "could not extend file", Cause::DiskFull),
            ("53200", "out of memory", Cause::Resources),
            ("40001", "could not serialize access", Cause::Conflict),
            ("40P01", "deadlock detected", Cause::Conflict),
            ("55P03", "canceling statement due to lock timeout", Cause::LockTimeout),
            ("57014", "canceling statement due to statement timeout", Cause::Timeout),
            ("57P01", "terminating connection due to administrator command", Cause::Lost),
            ("57P03", "the database system is starting up", Cause::Lost),
            ("08006", "connection failure", Cause::Lost),
            ("26000", "prepared statement \"s1\" does not exist", Cause::Pooler),
            ("42P05", "prepared statement \"s1\" already exists", Cause::Pooler),
            ("08P01", "unsupported startup parameter: options", Cause::Pooler),
            ("08P01", "no such database: d", Cause::NoDatabase),
            ("22P02", "invalid input syntax for type bigint: \"secret\"", Cause::Value),
            ("54000", "index row size 8016 exceeds btree version 4 maximum 2704 for index \"i\"", Cause::Value),
            ("23505", "duplicate key value violates unique constraint \"c\"", Cause::Constraint),
            ("42P01", "relation \"t\" does not exist", Cause::Schema),
            ("XX000", "internal", Cause::Other),
        ] {
            assert_eq!(cause(&SqlState::from_code(code), message), expected, "{code} {message}");
        }
    }

    #[test]
    fn a_commit_is_uncertain_only_if_the_connection_is_lost() {
        let lost = PgError::new(Cause::Lost, Ended::Connection, "").of_commit();
        assert!(lost.may_be_committed());
        assert!(lost.to_string().contains("unknown whether"), "{lost}");
        assert!(!PgError::new(Cause::Conflict, Ended::Transaction, "").of_commit().may_be_committed());
    }
}
