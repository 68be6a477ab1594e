//! Money: reserved before each model call, settled after it, summed by day, purpose, principal and model.

use belay_protocol::{NewReservation, Purpose, RunId, SessionKey, Spent, StoreError, Work};
use rusqlite::{Row, params};

use super::rows;
use super::tx::{Done, Failure, Tx, to_sql_int};
use crate::limits::AMOUNT_MAX_MICRO_USD;

/// The key of a sum.
struct Account {
    utc_day: i64,
    purpose: Purpose,
    payer: Payer,
    model: String,
}

/// The principal that is charged. The id of a principal is unique within its channel.
#[derive(Default)]
struct Payer {
    channel: String,
    principal: String,
}

/// The creator of a job (`?1`): for the job of a routine, the creator of the routine.
const CREATOR_OF_JOB: &str =
    "SELECT COALESCE(r.channel, j.channel) AS channel, COALESCE(r.principal, j.principal) AS principal
     FROM jobs j LEFT JOIN routine_runs f ON f.id = j.routine_run_id LEFT JOIN routines r ON r.id = f.routine_id
     WHERE j.id = ?1";

/// The creator of the routine of a routine run (`?1`).
const CREATOR_OF_ROUTINE: &str =
    "SELECT r.channel, r.principal FROM routine_runs f JOIN routines r ON r.id = f.routine_id WHERE f.id = ?1";

/// Reads the rows of one day. They are one range of the primary key: one for each principal and model.
pub(super) fn spent(tx: &mut Tx<'_>, utc_day: i64) -> Done<Spent> {
    let each = tx.rows("SELECT purpose, micro_usd FROM spend WHERE utc_day = ?1", params![utc_day], |row| {
        Ok((rows::purpose(row)?, rows::count(row, "micro_usd")?))
    })?;
    let mut spent = Spent::default();
    each.into_iter().for_each(|(purpose, micro_usd)| spent.add(purpose, micro_usd));
    Ok(spent)
}

pub(super) fn session_spent(tx: &mut Tx<'_>, session: &SessionKey) -> Done<u64> {
    // TOTAL adds floating-point numbers and cannot overflow. A sum beyond 2^53 exceeds every limit anyway.
    let sql = "SELECT CAST(TOTAL(cost_micro_usd) AS INTEGER) AS micro_usd FROM (
                   SELECT cost_micro_usd FROM runs WHERE indexed = 0 AND session = ?1
                   UNION ALL SELECT cost_micro_usd FROM runs WHERE indexed = 1 AND session = ?1)";
    let sum = tx.row(sql, params![session.as_str()], |row| rows::count(row, "micro_usd"))?;
    Ok(sum.unwrap_or(0))
}

pub(super) fn reserve(tx: &mut Tx<'_>, new: &NewReservation) -> Done<u64> {
    let amount = to_sql_int(new.micro_usd.min(AMOUNT_MAX_MICRO_USD));
    let payer = payer(tx, new.run)?;
    tx.exec(
        "INSERT INTO reservations (utc_day, run_id, purpose, channel, principal, model, micro_usd)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        params![new.utc_day, new.run.as_uuid(), new.purpose.word(), payer.channel, payer.principal, new.model, amount],
    )?;
    let reservation = tx.last_insert();
    add(tx, &Account { utc_day: new.utc_day, purpose: new.purpose, payer, model: new.model.clone() }, amount)?;
    Ok(reservation)
}

pub(super) fn settle(tx: &mut Tx<'_>, reservation: u64, model: Option<&str>, micro_usd: u64) -> Done<()> {
    let amount = to_sql_int(micro_usd.min(AMOUNT_MAX_MICRO_USD));
    let sql = "SELECT utc_day, purpose, channel, principal, model, micro_usd FROM reservations WHERE id = ?1";
    let reserved = tx.row(sql, params![to_sql_int(reservation)], |row| {
        let (utc_day, model) = (row.get("utc_day")?, row.get("model")?);
        let account = Account { utc_day, purpose: rows::purpose(row)?, payer: payer_row(row)?, model };
        Ok((account, row.get::<_, i64>("micro_usd")?))
    })?;
    let (mut account, before) =
        reserved.ok_or_else(|| Failure::Refused(StoreError::NotFound(format!("reservation {reservation}"))))?;
    match model.filter(|model| *model != account.model) {
        None => add(tx, &account, amount - before)?,
        Some(model) => {
            add(tx, &account, -before)?;
            model.clone_into(&mut account.model);
            add(tx, &account, amount)?;
        }
    }
    tx.exec(
        "UPDATE reservations SET micro_usd = ?2, model = ?3, settled = 1 WHERE id = ?1",
        params![to_sql_int(reservation), amount, account.model],
    )?;
    Ok(())
}

fn add(tx: &mut Tx<'_>, account: &Account, micro_usd: i64) -> Done<()> {
    let Account { utc_day, purpose, payer, model } = account;
    tx.exec(
        "INSERT INTO spend (utc_day, purpose, channel, principal, model, micro_usd) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (utc_day, purpose, channel, principal, model) DO UPDATE SET micro_usd = micro_usd + excluded.micro_usd",
        params![utc_day, purpose.word(), payer.channel, payer.principal, model, micro_usd],
    )?;
    Ok(())
}

/// Empty for a run without a row: `/compact` calls a model outside every run.
fn payer(tx: &mut Tx<'_>, run: RunId) -> Done<Payer> {
    let sql = "SELECT work, channel, principal FROM runs WHERE id = ?1";
    let sender = tx.row(sql, params![run.as_uuid()], |row| Ok((rows::work(row)?, payer_row(row)?)))?;
    let Some((work, sender)) = sender else { return Ok(Payer::default()) };
    let creator = match work {
        Work::Chat => None,
        Work::Job { job, .. } => Some((CREATOR_OF_JOB, job.as_uuid())),
        Work::RoutineRun { id } | Work::Heartbeat { id } => Some((CREATOR_OF_ROUTINE, id.as_uuid())),
    };
    let Some((sql, id)) = creator else { return Ok(sender) };
    Ok(tx.row(sql, params![id], payer_row)?.unwrap_or(sender))
}

fn payer_row(row: &Row<'_>) -> Done<Payer> {
    Ok(Payer { channel: row.get("channel")?, principal: row.get("principal")? })
}
