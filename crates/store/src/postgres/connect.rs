//! Connecting to a server, and the parameters of the session.

use std::time::Duration;

use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::{Client, Config, Connection, Row, Socket};

use super::fault::{Cause, Ended, PgError};
use super::params::value;
use super::passfile;
use super::tls::{Connector, Stream};
use super::url::{Host, Password, PostgresUrl, Tls};
use crate::value::ValueRef;

/// Limits of the statements of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The longest time of a statement.
    pub(crate) statement: Duration,
    /// The longest wait for a lock.
    pub(crate) lock: Duration,
    /// The longest pause between two statements of a transaction, after which the server ends the session.
    pub(crate) idle: Duration,
}

/// The oldest supported version: PostgreSQL 14.
const OLDEST_VERSION: i64 = 140_000;

/// [`Limits::idle`] of most connections: a minute. A stopped process must not hold its locks for ever.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// [`Limits::idle`] of the connection that writes: 5 s. It pauses for 50 ms at most, and other daemons wait for its locks.
/// While large parameters arrive, a transaction may pause for longer, see `connection`.
pub(crate) const IDLE_OF_WRITER: Duration = Duration::from_secs(5);

/// The longest time for which sent data may stay unacknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// The silence after which the system probes the connection, the time between two probes, and their number: a connection
/// whose other end is gone is found after 25 s.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(10), Duration::from_secs(5), 3);

/// Connects to the first server that accepts writes.
pub(super) async fn first(url: &PostgresUrl, name: &str) -> Result<(Client, Connection<Socket, Stream>), PgError> {
    let mut failures: Vec<PgError> = Vec::new();
    for host in &url.hosts {
        match tokio::time::timeout(url.connect_timeout, one(url, host, name)).await {
            Ok(Ok(connected)) => return Ok(connected),
            Ok(Err(error)) => failures.push(error.at(host)),
            Err(_) => failures.push(silent(url.connect_timeout).at(host)),
        }
    }
    // A rejected login says more than a standby, and a standby more than a server that is away.
    let rank = |error: &PgError| match error.cause() {
        Cause::Unreachable | Cause::Silent => 2,
        Cause::ReadOnly => 1,
        _ => 0,
    };
    Err(failures.into_iter().min_by_key(rank).unwrap_or_else(|| silent(url.connect_timeout)))
}

fn silent(limit: Duration) -> PgError {
    PgError::new(Cause::Unreachable, Ended::Connection, format!("no connection within {} s", limit.as_secs()))
}

async fn one(url: &PostgresUrl, host: &Host, name: &str) -> Result<(Client, Connection<Socket, Stream>), PgError> {
    let mut config = Config::new();
    config
        .user(&url.user)
        .dbname(&url.database)
        .application_name(name)
        .target_session_attrs(TargetSessionAttrs::ReadWrite)
        .connect_timeout(url.connect_timeout)
        .tcp_user_timeout(UNACKNOWLEDGED)
        .keepalives_idle(KEEPALIVE.0)
        .keepalives_interval(KEEPALIVE.1)
        .keepalives_retries(KEEPALIVE.2);
    match &url.password {
        None => {}
        Some(Password::Text(text)) => _ = config.password(text.as_bytes()),
        Some(Password::File(path)) => {
            let found = passfile::password(path, host, &url.database, &url.user);
            let found = found.map_err(|problem| PgError::new(Cause::Login, Ended::Connection, problem))?;
            config.password(found.as_bytes());
        }
    }
    let connector = match host {
        Host::Tcp(host, port) => {
            config.host(host).port(*port);
            config.ssl_mode(if url.tls == Tls::Disabled { SslMode::Disable } else { SslMode::Require });
            Connector::new(&url.tls)?
        }
        Host::Unix(path, port) => {
            config.host_path(path).port(*port).ssl_mode(SslMode::Disable);
            Connector::none()
        }
    };
    let connected = config.connect(connector).await;
    let (client, connection) = connected.map_err(|error| PgError::connecting(&error))?;
    Ok((client, connection))
}

/// The parameters of the session.
///
/// They are set by statements, and not with the start of the connection: poolers refuse unknown parameters of the start.
/// `synchronous_commit` is raised only: an administrator may have chosen a stronger value. Short statements never profit
/// from compilation (`jit`). The server probes the connection as the client does: a session of a machine that is gone would
/// hold the lock of the writer for the two hours of the system's own limits.
pub(super) fn session(url: &PostgresUrl, limits: &Limits) -> String {
    format!(
        "SET statement_timeout = {}; SET lock_timeout = {}; SET idle_in_transaction_session_timeout = {};
         SET search_path = \"{}\"; SET default_transaction_isolation = 'read committed';
         SET standard_conforming_strings = on; SET TimeZone = 'UTC'; SET jit = off; SET {MARK} = 'set';
         SET tcp_keepalives_idle = {}; SET tcp_keepalives_interval = {}; SET tcp_keepalives_count = {};
         SET tcp_user_timeout = {};
         SELECT set_config('synchronous_commit', 'on', false)
         WHERE current_setting('synchronous_commit') IN ('off', 'local')",
        limits.statement.as_millis(),
        limits.lock.as_millis(),
        limits.idle.as_millis(),
        url.schema,
        KEEPALIVE.0.as_secs(),
        KEEPALIVE.1.as_secs(),
        KEEPALIVE.2,
        UNACKNOWLEDGED.as_millis(),
    )
}

/// A parameter of the session that marks it as ours. A new session that has it already is not new: a pooler in transaction
/// mode gives the sessions of one client to others. That is refused at once, because the names of prepared statements are the
/// same in each daemon, so that a daemon could run the statement of another one. Of two connections, the second is refused:
/// poolers give the session that was used last.
const MARK: &str = "belay.session";

/// Whether the session is the own one, as a column: false behind a pooler that gave it to another connection.
pub(super) fn is_own() -> String {
    format!("COALESCE(current_setting('{MARK}', TRUE), '') = 'set'")
}

/// Tells the connection that was given the session before that it is shared, see [`is_own`]. For a connection that
/// [`check`] refuses: the lease of a node must end, if the other connections of the node are refused.
pub(super) fn report_shared() -> String {
    format!("SET {MARK} = 'shared'")
}

/// Facts about the server and the session that [`check`] reads.
pub(super) fn facts() -> String {
    format!(
        "SELECT CAST(current_setting('server_version_num') AS INTEGER), current_setting('server_encoding'),
                COALESCE(current_setting('{MARK}', TRUE), '')"
    )
}

/// Refuses a server that the store cannot use.
pub(super) fn check(facts: Option<&Row>) -> Result<(), PgError> {
    let unsuitable = |problem: String| PgError::new(Cause::Other, Ended::Connection, problem);
    let Some(facts) = facts else { return Err(unsuitable("the server does not tell its version".into())) };
    let version = value(facts, 0)?;
    if !matches!(version, ValueRef::Int(OLDEST_VERSION..)) {
        return Err(unsuitable(format!("the server has version {version:?}, and Belay needs PostgreSQL 14 or newer")));
    }
    let encoding = value(facts, 1)?;
    if encoding.as_str() != Some("UTF8") {
        let encoding = encoding.as_str().unwrap_or_default();
        return Err(unsuitable(format!("the database has the encoding {encoding}: create one with ENCODING 'UTF8'")));
    }
    if value(facts, 2)?.as_str() != Some("") {
        return Err(PgError::new(Cause::Pooler, Ended::Connection, "a new session has the parameters of another one"));
    }
    Ok(())
}
