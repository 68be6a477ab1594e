//! Money: reserved before each model call, settled after it, summed by day, purpose, principal and model.

use belay_protocol::{
    CallCharge, CostKey, CostQuery, CostRow, NewReservation, Purpose, SessionKey, Spent, StoreError, UnixMillis,
};

use super::connection::{Connection, Engine, Row};
use super::reads::from_id;
use super::tx::{self, Done, Failure, Tx, to_sql_int};
use super::{rows, slices};
use crate::limits::{AMOUNT_MAX_MICRO_USD, FREE_RUNS, PAGE_MAX, TOKENS_MAX, id_before};
use crate::value::params;

/// A day in milliseconds.
const DAY_MS: i64 = 86_400_000;

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

/// The part of a sum that one call adds.
#[derive(Default)]
struct Added {
    micro_usd: i64,
    input_tokens: i64,
    output_tokens: i64,
    calls: i64,
}

impl Added {
    fn money(micro_usd: i64) -> Self {
        Self { micro_usd, ..Self::default() }
    }

    /// The usage of a call.
    fn used(charge: &CallCharge) -> Self {
        let tokens = |count: u64| to_sql_int(count.min(TOKENS_MAX));
        let (input_tokens, output_tokens) = (tokens(charge.usage.input), tokens(charge.usage.output));
        Self { micro_usd: 0, input_tokens, output_tokens, calls: charge.requests.into() }
    }
}

/// The payer of a run `n`: its sender; the creator of its job, of which this is a part; or the creator of its routine.
macro_rules! payer {
    () => {
        "COALESCE(r.channel, j.channel, n.channel) AS channel, COALESCE(r.principal, j.principal, n.principal) AS principal"
    };
}

/// The rows that [`payer`] reads.
macro_rules! work_of_run {
    () => {
        "LEFT JOIN jobs j ON j.id = unhex(n.work ->> 'job', '-')
         LEFT JOIN routine_runs f ON f.id = COALESCE(j.routine_run_id, unhex(n.work ->> 'id', '-'))
         LEFT JOIN routines r ON r.id = f.routine_id"
    };
}

/// The payer is empty for a run without a row: `/compact` calls a model outside every run.
const RESERVE: &str = concat!(
    "INSERT OR FAIL INTO reservations (utc_day, run_id, purpose, channel, principal, model, micro_usd, node)
     SELECT ?1, ?2, ?3, COALESCE(p.channel, ''), COALESCE(p.principal, ''), ?4, ?5, ?6
     FROM (SELECT 1 AS one) o LEFT JOIN (
         SELECT ",
    payer!(),
    " FROM runs n ",
    work_of_run!(),
    " WHERE n.id = ?2) p ON 1 = 1
     RETURNING id, channel, principal"
);

/// Corrects the sums by the settlement of a reservation (`?1`) with the model (`?2`) and the cost (`?3`) of the call, or with
/// its own model. The sums of tokens and calls (`?4` to `?6`) change only the first time. The sums are locked in one order.
/// Without a reservation, the row has no day, and the database refuses it.
const SETTLE: &str =
    "INSERT OR FAIL INTO spend (utc_day, purpose, channel, principal, model, micro_usd, input_tokens, output_tokens, calls, node)
     SELECT r.utc_day, r.purpose, r.channel, r.principal, r.model, -r.micro_usd, 0, 0, 0, ?7
     FROM reservations r WHERE r.id = ?1 AND r.model <> ?2
     UNION ALL
     SELECT r.utc_day, r.purpose, r.channel, r.principal, COALESCE(?2, r.model),
            ?3 - CASE WHEN r.model <> ?2 THEN 0 ELSE r.micro_usd END,
            CASE r.settled WHEN 0 THEN ?4 ELSE 0 END, CASE r.settled WHEN 0 THEN ?5 ELSE 0 END,
            CASE r.settled WHEN 0 THEN ?6 ELSE 0 END, ?7
     FROM (SELECT 1 AS one) o LEFT JOIN reservations r ON r.id = ?1 WHERE 1 = 1
     ORDER BY 5
     ON CONFLICT (utc_day, purpose, channel, principal, model, node) DO UPDATE SET
         micro_usd = spend.micro_usd + excluded.micro_usd, input_tokens = spend.input_tokens + excluded.input_tokens,
         output_tokens = spend.output_tokens + excluded.output_tokens, calls = spend.calls + excluded.calls";

/// Reads the rows of one day. They are one range of the primary key: one for each principal, model and node.
pub(super) fn spent(tx: &mut Tx<'_>, utc_day: i64) -> Done<Spent> {
    let sql = "SELECT purpose, CAST(TOTAL(micro_usd) AS INTEGER) AS micro_usd FROM spend WHERE utc_day = ?1
               GROUP BY purpose";
    let each = tx.rows(sql, params![utc_day], |row| Ok((rows::purpose(row)?, rows::count(row, "micro_usd")?)))?;
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
    let slices = new.node.map(|node| slices::ask(tx, new.utc_day, node)).transpose()?;
    let node = new.node.map(|node| node.as_uuid());
    let reserved =
        tx.row(RESERVE, params![new.utc_day, new.run.as_uuid(), new.purpose.word(), new.model, amount, node], |row| {
            Ok((rows::count(row, "id")?, payer_row(row)?))
        })?;
    slices.map(|slices| slices::check(tx, slices)).transpose()?;
    let (reservation, payer) = reserved.ok_or_else(|| Failure::damaged("a reservation without its number"))?;
    let account = Account { utc_day: new.utc_day, purpose: new.purpose, payer, model: new.model.clone() };
    add(tx, &account, &Added::money(amount))?;
    Ok(reservation)
}

/// The change of the sums follows from the row of the reservation, which stays locked until the commit: of two settlements,
/// the second one sees the first.
pub(super) fn settle(tx: &mut Tx<'_>, reservation: u64, charge: &CallCharge) -> Done<()> {
    let id = to_sql_int(reservation);
    let lock = "SELECT 1 FROM reservations WHERE id = ?1";
    match tx.engine() {
        Engine::Sqlite => {
            let found = tx.row(lock, params![id], |_| Ok(()))?;
            found.ok_or_else(|| Failure::Refused(StoreError::NotFound(format!("reservation {reservation}"))))?;
        }
        Engine::Postgres => tx.post(&format!("{lock} FOR UPDATE"), params![id])?,
    }
    let amount = to_sql_int(charge.micro_usd.min(AMOUNT_MAX_MICRO_USD));
    let Added { input_tokens, output_tokens, calls, .. } = Added::used(charge);
    let node = tx.node();
    tx.post(SETTLE, params![id, charge.model, amount, input_tokens, output_tokens, calls, node])?;
    tx.post(
        "UPDATE reservations SET micro_usd = ?2, model = COALESCE(?3, model), settled = 1 WHERE id = ?1",
        params![id, amount, charge.model],
    )
}

/// Adds to a sum, in the row of this opening of the store.
fn add(tx: &mut Tx<'_>, account: &Account, added: &Added) -> Done<()> {
    let node = tx.node();
    add_as(tx, &node, account, added)
}

/// Moves the sums of days before this date from the rows of the nodes to those without a node, at most `most` rows. A node is
/// one opening of a store, so that their number would grow with each start. Another daemon may still add to a moved row: it
/// waits for the lock, and then writes a new row.
pub(super) fn merge(tx: &mut Tx<'_>, before: UnixMillis, most: i64) -> Done<()> {
    let lock = match tx.engine() {
        Engine::Sqlite => "",
        Engine::Postgres => "FOR UPDATE",
    };
    let sql = format!(
        "SELECT utc_day, purpose, channel, principal, model, node, micro_usd, input_tokens, output_tokens, calls
         FROM spend WHERE utc_day < ?1 AND node <> ?2
         ORDER BY utc_day, purpose, channel, principal, model, node LIMIT ?3 {lock}"
    );
    let found = tx.rows(&sql, params![before.0.div_euclid(DAY_MS), Vec::new(), most.max(0)], |row| {
        let (utc_day, model) = (row.get("utc_day")?, row.get("model")?);
        let account = Account { utc_day, purpose: rows::purpose(row)?, payer: payer_row(row)?, model };
        let added = Added {
            micro_usd: row.get("micro_usd")?,
            input_tokens: row.get("input_tokens")?,
            output_tokens: row.get("output_tokens")?,
            calls: row.get("calls")?,
        };
        Ok((account, row.get::<_, Vec<u8>>("node")?, added))
    })?;
    for (account, node, added) in found {
        let Account { utc_day, purpose, payer, model } = &account;
        tx.post(
            "DELETE FROM spend WHERE utc_day = ?1 AND purpose = ?2 AND channel = ?3 AND principal = ?4 AND model = ?5
               AND node = ?6",
            params![utc_day, purpose.word(), payer.channel, payer.principal, model, node],
        )?;
        add_as(tx, &[], &account, &added)?;
    }
    Ok(())
}

fn add_as(tx: &mut Tx<'_>, node: &[u8], account: &Account, added: &Added) -> Done<()> {
    let Account { utc_day, purpose, payer, model } = account;
    let Added { micro_usd, input_tokens, output_tokens, calls } = added;
    tx.post(
        "INSERT INTO spend (utc_day, purpose, channel, principal, model, micro_usd, input_tokens, output_tokens, calls, node)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
         ON CONFLICT (utc_day, purpose, channel, principal, model, node) DO UPDATE SET
             micro_usd = spend.micro_usd + excluded.micro_usd, input_tokens = spend.input_tokens + excluded.input_tokens,
             output_tokens = spend.output_tokens + excluded.output_tokens, calls = spend.calls + excluded.calls",
        params![
            utc_day,
            purpose.word(),
            payer.channel,
            payer.principal,
            model,
            micro_usd,
            input_tokens,
            output_tokens,
            calls,
            node
        ],
    )?;
    Ok(())
}

/// The ledger's rows of the days `?1` to `?2`, and the usage of runs that have cost nothing: of the newest `?7` runs
/// accepted from `?3` to before `?4`. `?8` is an id from before `?3`. `?5` and `?6`: only this payer.
const USED: &str = concat!(
    "
    WITH newest AS MATERIALIZED (
        SELECT id, accepted_at, ended_at, cost_micro_usd, input_tokens, output_tokens, model_calls, work, channel, principal
        FROM runs WHERE seq >= (SELECT MIN(seq + 0) ",
    from_id!(),
    "8) ORDER BY seq DESC LIMIT ?7
    ), used AS (
        SELECT utc_day, purpose, channel, principal, model, micro_usd, input_tokens, output_tokens, calls
        FROM spend WHERE utc_day BETWEEN ?1 AND ?2
        UNION ALL
        SELECT n.accepted_at / 86400000, CASE n.work ->> 'kind' WHEN 'routine_run' THEN 'routine' ELSE n.work ->> 'kind' END,
               ",
    payer!(),
    ", '',
               0, n.input_tokens, n.output_tokens, n.model_calls
        FROM newest n ",
    work_of_run!(),
    "
        WHERE n.cost_micro_usd = 0 AND n.model_calls > 0 AND n.ended_at IS NOT NULL
          AND n.accepted_at >= ?3 AND n.accepted_at < ?4
          -- The calls of a model with a price are in `spend`, also if they cost nothing.
          AND n.id NOT IN (SELECT run_id FROM reservations WHERE utc_day >= ?1 - 1)
    )"
);

pub(super) fn costs(conn: &Connection, query: &CostQuery) -> Done<Vec<CostRow>> {
    let (key, name, order) = match query.by {
        CostKey::Day => ("date(utc_day * 86400, 'unixepoch')", "CAST(NULL AS TEXT)", "key DESC"),
        CostKey::Person => (
            "CASE channel WHEN '' THEN '' ELSE channel || ':' || principal END",
            "(SELECT p.name FROM principals p WHERE p.channel = used.channel AND p.id = used.principal)",
            "micro_usd DESC, input_tokens DESC, key",
        ),
        CostKey::Model => ("model", "CAST(NULL AS TEXT)", "micro_usd DESC, input_tokens DESC, key"),
        CostKey::Purpose => ("purpose", "CAST(NULL AS TEXT)", "micro_usd DESC, input_tokens DESC, key"),
        CostKey::DayPurpose => {
            ("date(utc_day * 86400, 'unixepoch') || ' ' || purpose", "CAST(NULL AS TEXT)", "key DESC")
        }
    };
    // TOTAL adds floating-point numbers and cannot overflow.
    let sql = format!(
        "{USED} SELECT {key} AS key, {name} AS name, CAST(TOTAL(micro_usd) AS INTEGER) AS micro_usd,
             CAST(TOTAL(input_tokens) AS INTEGER) AS input_tokens,
             CAST(TOTAL(output_tokens) AS INTEGER) AS output_tokens, CAST(TOTAL(calls) AS INTEGER) AS calls
         FROM used WHERE ?5 IS NULL OR (channel = ?5 AND principal = ?6)
         GROUP BY 1, 2 HAVING TOTAL(used.micro_usd) > 0 OR TOTAL(used.calls) > 0 ORDER BY {order} LIMIT ?9"
    );
    let (from, until) =
        (query.first_day.saturating_mul(DAY_MS), query.last_day.saturating_add(1).saturating_mul(DAY_MS));
    let (channel, principal) = query.only.as_ref().map(|(channel, id)| (channel.as_str(), id.as_str())).unzip();
    let limit = query.limit.min(PAGE_MAX);
    let before = id_before(UnixMillis(from));
    tx::rows(
        conn,
        &sql,
        params![query.first_day, query.last_day, from, until, channel, principal, FREE_RUNS, before, limit],
        |row| {
            Ok(CostRow {
                key: row.get("key")?,
                name: row.get("name")?,
                cost_micro_usd: rows::count(row, "micro_usd")?,
                input_tokens: rows::count(row, "input_tokens")?,
                output_tokens: rows::count(row, "output_tokens")?,
                calls: rows::count(row, "calls")?,
            })
        },
    )
}

fn payer_row(row: &Row<'_>) -> Done<Payer> {
    Ok(Payer { channel: row.get("channel")?, principal: row.get("principal")? })
}
