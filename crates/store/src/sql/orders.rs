//! Stops that apply to all nodes.

use async_trait::async_trait;
use belay_protocol::cluster::{OrderTarget, StopOrder, Topic};
use belay_protocol::store::OrderStore;
use belay_protocol::{BootId, Durability, OrderId, StoreError};
use serde_json::Value as Json;

use super::connection::{Connection, Row};
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use super::{SqlStore, rows};
use crate::value::params;

/// How long an order is kept: an hour, in milliseconds.
const KEPT_MS: i64 = 3_600_000;

#[async_trait]
impl OrderStore for SqlStore {
    async fn order(&self, order: StopOrder) -> Result<(), StoreError> {
        let ordered = self.write(Durability::Committed, move |tx| write(tx, &order)).await;
        ordered.inspect(|()| self.hint(Topic::Stops))
    }

    async fn orders_after(&self, number: u64, limit: u32) -> Result<Vec<(u64, StopOrder)>, StoreError> {
        self.read(move |conn| after(conn, number, limit)).await
    }

    async fn newest_order(&self) -> Result<u64, StoreError> {
        let sql = "SELECT COALESCE(MAX(seq), 0) FROM stop_orders";
        self.read(move |conn| Ok(from_sql_int(tx::row(conn, sql, [], |row| row.get(0))?.unwrap_or(0)))).await
    }

    async fn acknowledge(&self, order: OrderId, boot: BootId, report: Json) -> Result<(), StoreError> {
        let written = self.write(Durability::Committed, move |tx| acknowledge(tx, order, boot, &report)).await;
        written.inspect(|()| self.hint(Topic::Stops))
    }

    async fn acknowledgements(&self, order: OrderId) -> Result<Vec<(BootId, Json)>, StoreError> {
        let sql = "SELECT boot, report FROM stop_acks WHERE order_id = ?1 ORDER BY boot";
        let report = |row: &Row<'_>| Ok((rows::id(row, "boot")?, rows::from_json(row.text("report")?)?));
        self.read(move |conn| tx::rows(conn, sql, params![order.as_uuid()], report)).await
    }
}

/// One order at a time: a reader that has seen a number has seen all lower ones. Deletes old orders, but never the newest
/// one, so that numbers are never given twice.
fn write(tx: &mut Tx<'_>, order: &StopOrder) -> Done<()> {
    tx.exclusive("stop_orders")?;
    let (run, session) = match &order.target {
        OrderTarget::Run(run) => (Some(run.as_uuid()), None),
        OrderTarget::Session(session) => (None, Some(session.as_str())),
        OrderTarget::All => (None, None),
    };
    tx.post(
        "INSERT INTO stop_orders (id, at, run_id, session, cause, source) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (id) DO NOTHING",
        params![order.id.as_uuid(), order.at.0, run, session, rows::to_json(&order.cause)?, order.source.as_uuid()],
    )?;
    let old = order.at.0.saturating_sub(KEPT_MS);
    tx.post("DELETE FROM stop_acks WHERE order_id IN (SELECT id FROM stop_orders WHERE at < ?1)", params![old])?;
    tx.post("DELETE FROM stop_orders WHERE at < ?1 AND seq < (SELECT MAX(seq) FROM stop_orders)", params![old])
}

/// Does nothing for an order that is deleted.
fn acknowledge(tx: &mut Tx<'_>, order: OrderId, boot: BootId, report: &Json) -> Done<()> {
    tx.post(
        "INSERT INTO stop_acks (order_id, boot, report)
         SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 FROM stop_orders WHERE id = ?1)
         ON CONFLICT (order_id, boot) DO UPDATE SET report = excluded.report",
        params![order.as_uuid(), boot.as_uuid(), rows::to_json(report)?],
    )
}

fn after(conn: &Connection, number: u64, limit: u32) -> Done<Vec<(u64, StopOrder)>> {
    let sql =
        "SELECT seq, id, at, run_id, session, cause, source FROM stop_orders WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    tx::rows(conn, sql, params![to_sql_int(number), limit], order)
}

fn order(row: &Row<'_>) -> Done<(u64, StopOrder)> {
    let session: Option<String> = row.get("session")?;
    let target = match (rows::optional_id(row, "run_id")?, session) {
        (Some(run), _) => OrderTarget::Run(run),
        (None, Some(session)) => OrderTarget::Session(session.into()),
        (None, None) => OrderTarget::All,
    };
    let order = StopOrder {
        id: rows::id(row, "id")?,
        at: rows::date(row, "at")?,
        target,
        cause: rows::from_json(row.text("cause")?)?,
        source: rows::id(row, "source")?,
    };
    Ok((rows::count(row, "seq")?, order))
}
