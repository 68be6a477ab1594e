//! The check of a lease, with which a write of a lane's owner begins.

use belay_protocol::{Lease, MailId, StoreError};
use uuid::Uuid;

use super::connection::{Asked, Engine, Row};
use super::rows;
use super::tx::{Done, Failure, Tx, to_sql_int};
use crate::value::params;

/// A lane with a valid lease.
pub(super) struct Lane {
    /// The active thread.
    pub(super) thread: Uuid,
    /// The number of its last turn.
    pub(super) turns: u32,
    /// The number of its turns that `/redo` can show again.
    pub(super) undone: u32,
    /// Whether lists leave the session out.
    pub(super) hidden: bool,
}

/// The condition that the caller has the lease, on a row `s` of the sessions. The arguments: the parameters of the session,
/// the owner and the epoch.
///
/// A statement of PostgreSQL that changes rows before the answer of the check has arrived has it too: without the lease it
/// changes none, and the caller is refused without a rollback of the other jobs of the transaction.
macro_rules! is_held {
    ($session:literal, $owner:literal, $epoch:literal) => {
        concat!("s.session = ", $session, " AND s.owner = ", $owner, " AND s.epoch = ", $epoch)
    };
}

pub(super) use is_held;

macro_rules! lane_sql {
    ($also:literal) => {
        concat!(
            "SELECT s.thread, t.turns, t.undone, s.hidden",
            $also,
            " FROM sessions s JOIN threads t ON t.id = s.thread WHERE ",
            is_held!("?1", "?2", "?3")
        )
    };
}

macro_rules! lane_params {
    ($lease:expr) => {
        params![$lease.session.as_str(), $lease.owner.as_uuid(), to_sql_int($lease.epoch)]
    };
}

/// Adds the oldest open mail of the lane. A message that was sent after that mail was committed finds it, also if this
/// statement waits for the row of the session: it sees what was committed before it began.
macro_rules! lane_and_mail_sql {
    () => {
        lane_sql!(
            ", (SELECT m.id FROM node_mail m WHERE m.session = s.session AND m.ack IS NULL ORDER BY m.seq LIMIT 1) AS mail"
        )
    };
}

/// Checks the lease. On PostgreSQL the row stays locked until the commit, so that no other owner can take the lane.
pub(super) fn lane(tx: &mut Tx<'_>, lease: &Lease) -> Done<Lane> {
    ask(tx, lease)?.answer(tx, lease)
}

/// A check of a lease whose answer may not have arrived.
///
/// The caller reads the answer after its next statement, and before it trusts the result of that statement. The next
/// statement has the condition [`is_held`] if it changes rows.
#[must_use]
pub(super) struct Guard(Asked<(Lane, Option<MailId>)>);

/// Sends the check of the lease together with the next statement.
pub(super) fn ask(tx: &mut Tx<'_>, lease: &Lease) -> Done<Guard> {
    let sql = match tx.engine() {
        Engine::Sqlite => lane_sql!(""),
        Engine::Postgres => concat!(lane_sql!(""), " FOR UPDATE OF s"),
    };
    Guard::of(tx.ask(sql, lane_params!(lease), |row| Ok((read_lane(row)?, None)))?, lease)
}

/// The same, and the oldest open mail of the lane.
pub(super) fn ask_with_mail(tx: &mut Tx<'_>, lease: &Lease) -> Done<Guard> {
    let sql = match tx.engine() {
        Engine::Sqlite => lane_and_mail_sql!(),
        Engine::Postgres => concat!(lane_and_mail_sql!(), " FOR UPDATE OF s"),
    };
    let read = |row: &Row<'_>| Ok((read_lane(row)?, rows::optional_id(row, "mail")?));
    Guard::of(tx.ask(sql, lane_params!(lease), read)?, lease)
}

impl Guard {
    /// Refuses at once what is known to have no lease: nothing is written then.
    fn of(asked: Asked<(Lane, Option<MailId>)>, lease: &Lease) -> Done<Self> {
        if matches!(asked, Asked::Known(None)) { Err(lost(lease)) } else { Ok(Self(asked)) }
    }

    /// A check that is answered.
    pub(super) fn answered(lane: Lane) -> Self {
        Self(Asked::Known(Some((lane, None))))
    }

    /// The lane, if it is known already: SQLite answers at once.
    pub(super) fn known(&self) -> Option<&Lane> {
        self.0.known().map(|(lane, _)| lane)
    }

    /// The lane.
    pub(super) fn answer(self, tx: &Tx<'_>, lease: &Lease) -> Done<Lane> {
        self.answer_with_mail(tx, lease).map(|(lane, _)| lane)
    }

    /// The lane, and its oldest open mail if that was asked for.
    pub(super) fn answer_with_mail(self, tx: &Tx<'_>, lease: &Lease) -> Done<(Lane, Option<MailId>)> {
        tx.answer(self.0)?.ok_or_else(|| lost(lease))
    }
}

fn lost(lease: &Lease) -> Failure {
    StoreError::LeaseLost(lease.session.clone()).into()
}

fn read_lane(row: &Row<'_>) -> Done<Lane> {
    Ok(Lane { thread: row.get(0)?, turns: row.get(1)?, undone: row.get(2)?, hidden: row.get(3)? })
}
