//! Slices of the budgets of days: money that one node of a cluster may spend without asking the others.
//!
//! The row of a budget counts the money in all slices, spent or not, and the money that was spent before its first slice.
//! Locks are taken in one order: the budget, then the slice.

use async_trait::async_trait;
use belay_protocol::{BootId, BudgetSlices, Draw, Drawn, Durability, Purpose, StoreError};
use uuid::Uuid;

use super::SqlStore;
use super::connection::{Asked, Connection, Engine};
use super::tx::{self, Done, Failure, Tx, from_sql_int, to_sql_int};
use crate::limits::AMOUNT_MAX_MICRO_USD;
use crate::value::params;

#[async_trait]
impl BudgetSlices for SqlStore {
    async fn draw(&self, draw: Draw) -> Result<Drawn, StoreError> {
        self.write(Durability::Committed, move |tx| grant(tx, &draw)).await
    }

    async fn give_back(
        &self,
        utc_day: i64,
        budget: Option<Purpose>,
        boot: BootId,
        keep_micro_usd: u64,
    ) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| give_back(tx, utc_day, word(budget), boot, keep_micro_usd)).await
    }

    async fn reconcile(&self, utc_day: i64) -> Result<u64, StoreError> {
        // Each node looks once a second: without such a slice, that costs no commit.
        if self.read(move |conn| ended_slices(conn, utc_day)).await?.is_empty() {
            return Ok(0);
        }
        self.write(Durability::Committed, move |tx| reconcile(tx, utc_day)).await
    }
}

/// The stored name of the budget of all purposes.
const ALL: &str = "";

fn word(budget: Option<Purpose>) -> &'static str {
    budget.map_or(ALL, Purpose::word)
}

/// The slice of a node.
struct Slice {
    granted: u64,
    reconciled: bool,
}

fn grant(tx: &mut Tx<'_>, draw: &Draw) -> Done<Drawn> {
    let Draw { utc_day, boot, limit, least, need, want, .. } = *draw;
    let budget = word(draw.budget);
    let granted = match granted(tx, utc_day, budget)? {
        Some(granted) => granted,
        None => begin(tx, utc_day, budget)?,
    };
    let known = slice(tx, utc_day, budget, boot.as_uuid())?;
    if known.is_some_and(|slice| slice.reconciled) {
        return Err(ended());
    }
    let room = limit.min(AMOUNT_MAX_MICRO_USD).saturating_sub(granted);
    let wanted = if room <= limit / 10 { need } else { want.max(need) };
    let granted = if room < least { 0 } else { wanted.min(room) };
    if granted > 0 {
        change(tx, utc_day, budget, to_sql_int(granted))?;
        tx.post(
            "INSERT INTO budget_slices (utc_day, budget, boot, granted) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (utc_day, budget, boot) DO UPDATE SET granted = budget_slices.granted + excluded.granted",
            params![utc_day, budget, boot.as_uuid(), to_sql_int(granted)],
        )?;
    }
    Ok(Drawn { granted, left: room - granted })
}

fn give_back(tx: &mut Tx<'_>, utc_day: i64, budget: &str, boot: BootId, keep: u64) -> Done<()> {
    if granted(tx, utc_day, budget)?.is_none() {
        return Ok(());
    }
    let Some(slice) = slice(tx, utc_day, budget, boot.as_uuid())?.filter(|slice| !slice.reconciled) else {
        return Ok(());
    };
    let returned = to_sql_int(slice.granted.saturating_sub(keep));
    if returned == 0 {
        return Ok(());
    }
    change(tx, utc_day, budget, -returned)?;
    let sql = "UPDATE budget_slices SET granted = granted - ?4 WHERE utc_day = ?1 AND budget = ?2 AND boot = ?3";
    tx.post(sql, params![utc_day, budget, boot.as_uuid(), returned])
}

/// The slices of ended nodes that are not reconciled, by budget and node. A node of a cluster has ended if the table
/// `nodes` does not have it as a living one.
fn ended_slices(conn: &Connection, utc_day: i64) -> Done<Vec<(String, Uuid)>> {
    let sql = "SELECT budget, boot FROM budget_slices WHERE utc_day = ?1 AND reconciled = 0
                 AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.boot = budget_slices.boot AND n.ended_at IS NULL)
               ORDER BY budget, boot";
    tx::rows(conn, sql, params![utc_day], |row| Ok((row.get("budget")?, row.get("boot")?)))
}

fn reconcile(tx: &mut Tx<'_>, utc_day: i64) -> Done<u64> {
    let mut returned = 0;
    for (budget, boot) in tx.read(|conn| ended_slices(conn, utc_day))? {
        granted(tx, utc_day, &budget)?;
        // The lock waits for the reservations of the node, and another reconciliation may have come first.
        let Some(slice) = slice(tx, utc_day, &budget, boot)?.filter(|slice| !slice.reconciled) else { continue };
        let spent = "SELECT CAST(TOTAL(micro_usd) AS INTEGER) AS spent FROM reservations
                     WHERE utc_day = ?1 AND node = ?2 AND (?3 = '' OR purpose = ?3)";
        let spent = tx.row(spent, params![utc_day, boot, budget], |row| Ok(from_sql_int(row.get("spent")?)))?;
        // A call may cost more than was reserved for it.
        let spent = spent.unwrap_or(0);
        change(tx, utc_day, &budget, to_sql_int(spent).saturating_sub(to_sql_int(slice.granted)))?;
        tx.post(
            "UPDATE budget_slices SET granted = ?4, reconciled = 1 WHERE utc_day = ?1 AND budget = ?2 AND boot = ?3",
            params![utc_day, budget, boot, to_sql_int(spent)],
        )?;
        if budget == ALL {
            returned += slice.granted.saturating_sub(spent);
        }
    }
    Ok(returned)
}

/// Asks whether a slice of a node was reconciled, and keeps a reconciliation from coming in between until the commit.
/// PostgreSQL gets this together with the next statement that waits.
pub(super) fn ask(tx: &mut Tx<'_>, utc_day: i64, node: BootId) -> Done<Asked<bool>> {
    let sql = match tx.engine() {
        Engine::Sqlite => "SELECT MAX(reconciled) AS reconciled FROM budget_slices WHERE utc_day = ?1 AND boot = ?2",
        Engine::Postgres => {
            "SELECT MAX(s.reconciled) AS reconciled FROM (SELECT reconciled FROM budget_slices
             WHERE utc_day = ?1 AND boot = ?2 ORDER BY budget FOR SHARE) s"
        }
    };
    tx.ask(sql, params![utc_day, node.as_uuid()], |row| Ok(row.get::<_, Option<bool>>("reconciled")? == Some(true)))
}

/// Refuses a reservation of a node whose slices were reconciled, after [`ask`].
pub(super) fn check(tx: &Tx<'_>, reconciled: Asked<bool>) -> Done<()> {
    if tx.answer(reconciled)? == Some(true) { Err(ended()) } else { Ok(()) }
}

fn ended() -> Failure {
    let words = "this node counts as ended, and its money of the day was returned to the other nodes: start it again";
    Failure::Refused(StoreError::Unavailable(words.to_owned()))
}

/// The money in the slices of a budget. Locks its row; `None`: there is none yet.
fn granted(tx: &mut Tx<'_>, utc_day: i64, budget: &str) -> Done<Option<u64>> {
    let sql = "SELECT granted FROM budgets WHERE utc_day = ?1 AND budget = ?2";
    tx.locked(sql, "budgets", params![utc_day, budget], |row| Ok(from_sql_int(row.get("granted")?)))
}

/// Begins a budget with the money that is spent already: a daemon that was alone may have spent it.
fn begin(tx: &mut Tx<'_>, utc_day: i64, budget: &str) -> Done<u64> {
    tx.post(
        "INSERT INTO budgets (utc_day, budget, granted)
         SELECT ?1, ?2, CAST(TOTAL(micro_usd) AS INTEGER) FROM spend WHERE utc_day = ?1 AND (?2 = '' OR purpose = ?2)
         ON CONFLICT (utc_day, budget) DO NOTHING",
        params![utc_day, budget],
    )?;
    Ok(granted(tx, utc_day, budget)?.unwrap_or(u64::MAX))
}

/// The slice of a node. Locks its row.
fn slice(tx: &mut Tx<'_>, utc_day: i64, budget: &str, boot: Uuid) -> Done<Option<Slice>> {
    let sql = "SELECT granted, reconciled FROM budget_slices WHERE utc_day = ?1 AND budget = ?2 AND boot = ?3";
    tx.locked(sql, "budget_slices", params![utc_day, budget, boot], |row| {
        Ok(Slice { granted: from_sql_int(row.get("granted")?), reconciled: row.get("reconciled")? })
    })
}

fn change(tx: &mut Tx<'_>, utc_day: i64, budget: &str, by: i64) -> Done<()> {
    let sql = "UPDATE budgets SET granted = granted + ?3 WHERE utc_day = ?1 AND budget = ?2";
    tx.post(sql, params![utc_day, budget, by])
}
