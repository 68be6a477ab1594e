//! The schema of the database: its creation, its migrations, and the checks at the start.

use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use self::tables::{Tables, check_rows};
use super::connect::Limits;
use super::connection::PgConnection;
use super::fault::{Cause, Ended, PgError};
use super::living::{Living, living, lock_living};
use super::params::value;
use super::url::PostgresUrl;
use crate::edition::edition;
use crate::error::OpenError;
use crate::schema_range::{Program, Step, Stored, decide};
use crate::unfinished::{UNFINISHED, Unfinished};
use crate::value::{FromValue, params};

mod tables;

/// A migration from the schema before.
pub(super) struct Migration {
    /// Its statements. A table that it makes or drops has a line of its own that begins with `CREATE TABLE` or `DROP TABLE`.
    pub(super) sql: &'static str,
    /// The oldest program, by the number of its migrations, that can use the database afterwards. A migration that only adds,
    /// such as a table or a column with a default value, has the number of the migration before. Any other one has its own
    /// number, or that of the program that stopped using what it removes.
    pub(super) oldest_beside: u32,
}

/// The migrations from an empty schema to that of this program. Until the first release there is one, which is edited in
/// place.
const MIGRATIONS: &[Migration] = &[Migration { sql: SCHEMA, oldest_beside: 1 }];

/// The oldest schema that this program migrates.
const OLDEST: u32 = 1;

/// The first migration.
const SCHEMA: &str = include_str!("migrations/0001_schema.sql");

/// Distinguishes the editions of the first migration, which all have the same number: FNV-1a of its text, in 31 bits.
pub(crate) const EDITION: u32 = edition(SCHEMA.as_bytes());

/// The time for the lock of the schema and for each migration. Ten minutes: another daemon may build an index of a large
/// table meanwhile.
const MIGRATION_LIMIT: Duration = Duration::from_secs(600);

/// How the schema is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opening {
    /// Whether no other daemon may use the database meanwhile. Otherwise it is that of a cluster.
    pub(crate) exclusive: bool,
    /// Whether the schema of a newer program is refused in each case, for a copy of all tables.
    pub(crate) exact: bool,
    /// What happens with a schema into which a copy was not finished.
    pub(crate) unfinished: Unfinished,
}

#[cfg(test)]
impl Opening {
    /// That of a daemon without others.
    pub(super) const ALONE: Self = Self { exclusive: true, exact: false, unfinished: Unfinished::Refuse };
}

/// The schema that was found or created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    /// The number of migrations. It may be higher than that of this program.
    pub(crate) version: u32,
    /// The identifier that all daemons with this schema share.
    pub(crate) cluster: Uuid,
    /// Whether the schema was created now.
    pub(crate) created: bool,
    /// The number of migrations before, if it was migrated now.
    pub(crate) migrated_from: Option<u32>,
}

/// The schemas of this program.
pub(super) fn program() -> Program {
    program_of(MIGRATIONS)
}

fn program_of(migrations: &[Migration]) -> Program {
    let own = u32::try_from(migrations.len()).unwrap_or(u32::MAX);
    let oldest_beside = migrations.iter().map(|migration| migration.oldest_beside).max().unwrap_or(own);
    Program { oldest: OLDEST, own, oldest_beside }
}

/// Creates the schema if it is missing, migrates it, and checks it. One transaction, under a lock: of several daemons that
/// start together, one creates or migrates it. `name`: the schema, as the connection's `search_path` has it.
///
/// # Errors
/// [`OpenError::OlderNodes`]: a node of the cluster lives that could not use the schema after the migration. Try again after
/// its end. [`OpenError::Locked`]: a daemon uses the database alone, or this one wants to. Others: the schema is of another
/// version or edition, or is damaged, or the database has failed. Nothing is changed in all of these cases.
pub(crate) fn open(conn: &mut PgConnection, name: &str, opening: Opening) -> Result<Opened, OpenError> {
    open_as(conn, name, MIGRATIONS, opening)
}

/// As [`open`], with the migrations of another program.
fn open_as(
    conn: &mut PgConnection,
    name: &str,
    migrations: &[Migration],
    opening: Opening,
) -> Result<Opened, OpenError> {
    let limit = conn.set_answer_limit(MIGRATION_LIMIT + Duration::from_secs(5));
    let opened = open_and_commit(conn, name, migrations, opening);
    conn.set_answer_limit(limit);
    let opened = opened?;
    if let Some(from) = opened.migrated_from {
        tracing::info!(from, to = opened.version, "the schema of the database was migrated");
    }
    Ok(opened)
}

fn open_and_commit(
    conn: &mut PgConnection,
    name: &str,
    migrations: &[Migration],
    opening: Opening,
) -> Result<Opened, OpenError> {
    let opened = conn.begin().map_err(broken).and_then(|()| open_locked(conn, name, migrations, opening));
    match opened {
        Ok(opened) => {
            conn.commit().map_err(broken)?;
            Ok(opened)
        }
        Err(error) => {
            let _ = conn.rollback(); // the first error says more
            Err(error)
        }
    }
}

fn open_locked(
    conn: &mut PgConnection,
    name: &str,
    migrations: &[Migration],
    opening: Opening,
) -> Result<Opened, OpenError> {
    let limit = MIGRATION_LIMIT.as_millis();
    conn.batch(&format!("SET LOCAL statement_timeout = {limit}; SET LOCAL lock_timeout = {limit}")).map_err(broken)?;
    let lock = "SELECT CAST(pg_advisory_xact_lock(hashtextextended('belay schema ' || ?1, 0)) AS TEXT)";
    conn.query(lock, &[], &params![name]).map_err(broken)?;
    create_namespace(conn, name)?;
    let tables = Tables::of(conn, name)?;
    if tables.is_empty() {
        return create(conn, name, migrations);
    }
    let found = Found::read(conn, name, &tables, opening.unfinished)?;
    found.check(conn, name, &tables, migrations)?;
    let (found_version, known) = (found.stored.version, program_of(migrations).own);
    if opening.exact && found_version > known {
        return Err(OpenError::Newer { found: found_version, oldest: found_version, known });
    }
    migrate(conn, name, migrations, &found, opening.exclusive)
}

fn create(conn: &mut PgConnection, name: &str, migrations: &[Migration]) -> Result<Opened, OpenError> {
    for migration in migrations {
        conn.batch(migration.sql).map_err(broken)?;
    }
    let Program { own, oldest_beside, .. } = program_of(migrations);
    let insert = "INSERT INTO belay_schema (id, version, edition, oldest_program) VALUES (1, ?1, ?2, ?3)";
    conn.execute(insert, &[], &params![own, EDITION, oldest_beside]).map_err(broken)?;
    let tables = Tables::of(conn, name)?;
    let found = Found::read(conn, name, &tables, Unfinished::Refuse)?;
    Ok(Opened { version: own, cluster: found.cluster, created: true, migrated_from: None })
}

/// Executes the missing migrations, if the program may do so now.
fn migrate(
    conn: &mut PgConnection,
    name: &str,
    migrations: &[Migration],
    found: &Found,
    exclusive: bool,
) -> Result<Opened, OpenError> {
    let program = program_of(migrations);
    let (version, cluster) = (found.stored.version, found.cluster);
    if allowed(program, found.stored, &[])? == Step::Use {
        return Ok(Opened { version, cluster, created: false, migrated_from: None });
    }
    let nodes = others(conn, exclusive)?;
    let oldest_program = match allowed(program, found.stored, &nodes)? {
        Step::Migrate { oldest_program } => oldest_program,
        step => {
            let nodes = waited_for(&step, &nodes).map(|node| format!("{} (version {})", node.name, node.version));
            let nodes = nodes.collect::<Vec<_>>().join(", ");
            return Err(OpenError::OlderNodes { found: version, own: program.own, nodes });
        }
    };
    for migration in &migrations[found.known(migrations).len()..] {
        conn.batch(migration.sql).map_err(broken)?;
    }
    let update = "UPDATE belay_schema SET version = ?1, oldest_program = ?2";
    conn.execute(update, &[], &params![program.own, oldest_program]).map_err(broken)?;
    Tables::of(conn, name)?.check(name, migrations, false)?;
    Ok(Opened { version: program.own, cluster, created: false, migrated_from: Some(version) })
}

/// Decides, with an error for a schema that this program may not use.
fn allowed(program: Program, stored: Stored, nodes: &[Living]) -> Result<Step, OpenError> {
    let schemas: Vec<u32> = nodes.iter().map(|node| node.schema).collect();
    let (found, known) = (stored.version, program.own);
    match decide(program, stored, &schemas) {
        Step::TooNew => Err(OpenError::Newer { found, oldest: stored.oldest_program, known }),
        Step::TooOld => Err(OpenError::TooOld { found, oldest: program.oldest, known }),
        step => Ok(step),
    }
}

/// The nodes for whose end a step waits.
fn waited_for<'a>(step: &'a Step, nodes: &'a [Living]) -> impl Iterator<Item = &'a Living> {
    let places: &[usize] = if let Step::Wait { too_old } = step { too_old } else { &[] };
    places.iter().filter_map(|at| nodes.get(*at))
}

/// Checks the schema again: a newer program may have migrated it since it was opened.
///
/// # Errors
/// [`OpenError::Newer`]: this program cannot use it any more. Or the database has failed.
pub(crate) fn check_again(conn: &mut PgConnection, name: &str) -> Result<(), OpenError> {
    check_again_as(conn, name, program())
}

/// As [`check_again`], for another program.
pub(super) fn check_again_as(conn: &mut PgConnection, name: &str, program: Program) -> Result<(), OpenError> {
    let stored = stored(conn, name)?;
    allowed(program, stored, &[]).map(drop)
}

/// The other nodes that live. No node registers until the end of the transaction.
///
/// # Errors
/// [`OpenError::Locked`]: a daemon uses the database, and one of the two wants it alone.
fn others(conn: &mut PgConnection, exclusive: bool) -> Result<Vec<Living>, OpenError> {
    let shared = if exclusive { "" } else { "_shared" };
    let sql = format!("SELECT CASE WHEN pg_try_advisory_xact_lock{shared}({WRITER_LOCK}) THEN 1 ELSE 0 END");
    let free = conn.query(&sql, &[], &[]).map_err(broken)?;
    if !free.first().map(|row| column::<bool>(row, 0)).transpose()?.unwrap_or(false) {
        return Err(OpenError::Locked { pid: None });
    }
    // Each daemon holds that lock: with it, an exclusive one knows that no node lives, whatever the rows say.
    if exclusive { Ok(Vec::new()) } else { lock_living(conn) }
}

/// The number of the lock that the connection that writes holds: an expression of SQL.
pub(crate) const WRITER_LOCK: &str = "hashtextextended(current_schema() || ' writer', 0)";

/// What [`inspect`] has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inspected {
    /// The number of migrations; `None`: there are no tables.
    pub(crate) version: Option<u32>,
    /// The number of migrations of this program.
    pub(crate) known: u32,
    /// Whether a daemon writes into the database.
    pub(crate) in_use: bool,
    /// The names of the living nodes for whose end the migration would wait.
    pub(crate) waits_for: Vec<String>,
}

/// Inspects the schema. It changes and creates nothing.
///
/// # Errors
/// The server does not accept the connection, or [`open`] would refuse the schema.
pub(crate) fn inspect(url: &PostgresUrl, limits: &Limits) -> Result<Inspected, OpenError> {
    let mut conn = PgConnection::connect(url, limits, "belay check").map_err(broken)?;
    inspect_as(&mut conn, url.schema(), MIGRATIONS)
}

fn inspect_as(conn: &mut PgConnection, name: &str, migrations: &[Migration]) -> Result<Inspected, OpenError> {
    let program = program_of(migrations);
    let tables = Tables::of(conn, name)?;
    if tables.is_empty() {
        return Ok(Inspected { version: None, known: program.own, in_use: false, waits_for: Vec::new() });
    }
    let found = Found::read(conn, name, &tables, Unfinished::Refuse)?;
    found.check(conn, name, &tables, migrations)?;
    let mut nodes = living(conn)?;
    nodes.retain(|node| node.left_ms > 0);
    let step = allowed(program, found.stored, &nodes)?;
    let waits_for = waited_for(&step, &nodes).map(|node| node.name.clone()).collect();
    // The connection ends after the inspection, and its lock with it.
    let sql = format!("SELECT CASE WHEN pg_try_advisory_lock({WRITER_LOCK}) THEN 0 ELSE 1 END");
    let in_use = conn.query(&sql, &[], &[]).map_err(broken)?.first().map(|row| column::<bool>(row, 0)).transpose()?;
    let (version, in_use) = (Some(found.stored.version), in_use.unwrap_or(true));
    Ok(Inspected { version, known: program.own, in_use, waits_for })
}

/// Creates the namespace. A user without the permission to create one can use one that exists.
fn create_namespace(conn: &mut PgConnection, name: &str) -> Result<(), OpenError> {
    let exists = "SELECT 1 FROM pg_namespace WHERE nspname = ?1";
    if conn.query(exists, &[], &params![name]).map_err(broken)?.is_empty() {
        conn.batch(&format!("CREATE SCHEMA \"{name}\"")).map_err(broken)?;
    }
    Ok(())
}

/// What a schema with tables says about itself.
struct Found {
    stored: Stored,
    cluster: Uuid,
    /// Whether a copy into it was not finished.
    unfinished: bool,
}

impl Found {
    /// Reads it, and refuses tables of other programs and of unreleased versions.
    fn read(conn: &mut PgConnection, name: &str, tables: &Tables, accepted: Unfinished) -> Result<Self, OpenError> {
        tables.check_own(name)?;
        // Without the columns that an unreleased edition may lack.
        let sql = "SELECT edition, uuid_send(cluster_id) FROM belay_schema WHERE id = 1";
        let rows = conn.query(sql, &[], &[]).map_err(broken)?;
        let row = rows.first().ok_or_else(|| emptied(name))?;
        let edition: u32 = column(row, 0)?;
        let unfinished = edition == UNFINISHED;
        if unfinished && accepted == Unfinished::Refuse {
            return Err(OpenError::Unfinished);
        }
        if edition != EDITION && !unfinished {
            return Err(OpenError::PostgresUnreleased { schema: name.into() });
        }
        Ok(Self { stored: stored(conn, name)?, cluster: column(row, 1)?, unfinished })
    }

    /// Refuses a schema that this program may not use, or that is damaged.
    fn check(
        &self,
        conn: &mut PgConnection,
        name: &str,
        tables: &Tables,
        migrations: &[Migration],
    ) -> Result<(), OpenError> {
        let program = program_of(migrations);
        allowed(program, self.stored, &[])?;
        tables.check(name, self.known(migrations), self.stored.version > program.own)?;
        // A copy that was interrupted may not have written them yet.
        if self.unfinished { Ok(()) } else { check_rows(conn, name) }
    }

    /// Those of the migrations that the schema has.
    fn known<'a>(&self, migrations: &'a [Migration]) -> &'a [Migration] {
        let version = usize::try_from(self.stored.version).unwrap_or(usize::MAX);
        &migrations[..version.min(migrations.len())]
    }
}

fn stored(conn: &mut PgConnection, name: &str) -> Result<Stored, OpenError> {
    let sql = "SELECT version, oldest_program FROM belay_schema WHERE id = 1";
    let rows = conn.query(sql, &[], &[]).map_err(broken)?;
    let row = rows.first().ok_or_else(|| emptied(name))?;
    Ok(Stored { version: column(row, 0)?, oldest_program: column(row, 1)? })
}

fn emptied(name: &str) -> OpenError {
    OpenError::PostgresEmptied { schema: name.into(), table: "belay_schema".into() }
}

pub(super) fn column<T: FromValue>(row: &Row, index: usize) -> Result<T, OpenError> {
    let found = value(row, index).map_err(broken)?;
    let wrong = || broken(PgError::new(Cause::Value, Ended::Nothing, format!("the column {index} has another type")));
    T::from_value(found).ok_or_else(wrong)
}

fn broken(error: PgError) -> OpenError {
    OpenError::Database(Box::new(error))
}

#[cfg(test)]
mod migration_tests;
#[cfg(test)]
mod tests;
