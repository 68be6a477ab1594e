//! The registration of a node.

use std::time::{Duration, Instant, SystemTime};

use belay_protocol::BootId;

use super::connect::{IDLE_OF_WRITER, Limits};
use super::connection::PgConnection;
use super::direct::{CLOCK, millis, offset_ms};
use super::fault::PgError;
use super::living::lock_living;
use super::params::value;
use super::schema::{check_again_as, program};
use super::url::PostgresUrl;
use crate::error::OpenError;
use crate::schema_range::Program;
use crate::value::{ValueRef, params};

/// A node that registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Its start. The store of the node uses the same.
    pub boot: BootId,
    /// Its name, unique among the living nodes.
    pub name: String,
    /// The version of its program.
    pub version: String,
    /// The digest of the settings that all nodes must share.
    pub settings: String,
}

/// The limits of a registration: a machine that has just started may be slow. One that takes longer than
/// [`LOST_AFTER`](super::lease::LOST_AFTER) is of no use.
const LIMITS: Limits = Limits { statement: Duration::from_secs(8), lock: Duration::from_secs(8), idle: IDLE_OF_WRITER };

/// A registration.
pub(super) struct Registered {
    /// When its request was sent.
    pub(super) sent: Instant,
    /// See [`NodeLease::clock_offset`](super::lease::NodeLease::clock_offset).
    pub(super) offset_ms: i64,
    /// The names of living nodes with other settings.
    pub(super) differing: Vec<String>,
}

/// Ends the nodes whose lease is over, and registers this one, in one transaction and one node at a time.
pub(super) fn register(url: &PostgresUrl, node: &NewNode, lease: Duration) -> Result<Registered, OpenError> {
    register_as(url, program(), node, lease)
}

/// As [`register`], with the schemas of another program.
pub(super) fn register_as(
    url: &PostgresUrl,
    program: Program,
    node: &NewNode,
    lease: Duration,
) -> Result<Registered, OpenError> {
    let mut conn = PgConnection::connect(url, &LIMITS, "belay register").map_err(broken)?;
    let sent = Instant::now();
    let differing = match conn.begin().map_err(broken).and_then(|()| insert(&mut conn, url, program, node, lease)) {
        Ok(differing) => differing,
        Err(error) => {
            let _ = conn.rollback(); // the first error says more
            return Err(error);
        }
    };
    conn.commit().map_err(broken)?;
    let (asked, wall) = (Instant::now(), SystemTime::now());
    let rows = conn.query(&format!("SELECT {CLOCK}"), &[], &[]).map_err(broken)?;
    let clock = rows.first().map(|row| value(row, 0)).transpose().map_err(broken)?;
    let offset_ms = offset_ms(clock.unwrap_or(ValueRef::Null), wall, asked.elapsed());
    Ok(Registered { sent, offset_ms, differing })
}

/// Returns the names of living nodes with other settings.
fn insert(
    conn: &mut PgConnection,
    url: &PostgresUrl,
    program: Program,
    node: &NewNode,
    lease: Duration,
) -> Result<Vec<String>, OpenError> {
    let living = lock_living(conn)?;
    check_again_as(conn, url.schema(), program)?;
    let mut differing = Vec::new();
    for other in living {
        if other.name == node.name {
            let seconds = u64::try_from(other.left_ms).unwrap_or(0).div_ceil(1000);
            return Err(OpenError::NodeName { name: other.name, version: other.version, seconds });
        }
        if other.settings != node.settings {
            differing.push(other.name);
        }
    }
    let insert = format!(
        "INSERT INTO nodes (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, {CLOCK}, {CLOCK} + ?7)"
    );
    let (boot, lease, Program { oldest, own, .. }) = (node.boot.as_uuid(), millis(lease), program);
    conn.execute(&insert, &[], &params![boot, node.name, node.version, oldest, own, node.settings, lease])
        .map_err(broken)?;
    Ok(differing)
}

fn broken(error: PgError) -> OpenError {
    OpenError::Database(Box::new(error))
}
