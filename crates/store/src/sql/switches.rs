//! The switches of tools.

use async_trait::async_trait;
use belay_protocol::cluster::Topic;
use belay_protocol::{Durability, NewEvent, StoreError, ToolOff, ToolSwitch, ToolSwitches};

use super::connection::Connection;
use super::ledger::append_events;
use super::tx::{self, Done, Tx, to_sql_int};
use super::{SqlStore, rows};
use crate::value::params;

#[async_trait]
impl ToolSwitches for SqlStore {
    async fn switches(&self) -> Result<Vec<ToolSwitch>, StoreError> {
        self.read(all).await
    }

    async fn switch(&self, switch: ToolSwitch, events: Vec<NewEvent>) -> Result<bool, StoreError> {
        self.write(Durability::Committed, move |tx| write(tx, &switch, &events))
            .await
            .inspect(|_| self.hint(Topic::Tools))
    }
}

fn write(tx: &mut Tx<'_>, ToolSwitch { name, revision, off }: &ToolSwitch, events: &[NewEvent]) -> Done<bool> {
    let off = off.as_ref();
    let written = tx.exec(
        "INSERT INTO tool_breakers (name, revision, since, until, for_s, actor, detail, failures, runs)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (name) DO UPDATE
         SET revision = excluded.revision, since = excluded.since, until = excluded.until, for_s = excluded.for_s,
             actor = excluded.actor, detail = excluded.detail, failures = excluded.failures, runs = excluded.runs
         WHERE excluded.revision > tool_breakers.revision",
        params![
            name,
            to_sql_int(*revision),
            off.map(|off| off.since.0),
            off.and_then(|off| off.until).map(|until| until.0),
            off.map(|off| to_sql_int(off.for_s)),
            off.map(|off| &off.actor),
            off.map(|off| &off.detail),
            off.map(|off| off.failures),
            off.map(|off| off.runs),
        ],
    )?;
    // The events of an older write no longer apply.
    if written > 0 {
        append_events(tx, events)?;
    }
    Ok(written > 0)
}

fn all(conn: &Connection) -> Done<Vec<ToolSwitch>> {
    let all =
        "SELECT name, revision, since, until, for_s, actor, detail, failures, runs FROM tool_breakers ORDER BY name";
    tx::rows(conn, all, [], |row| {
        let off = match rows::optional_date(row, "since")? {
            None => None,
            Some(since) => Some(ToolOff {
                since,
                until: rows::optional_date(row, "until")?,
                for_s: rows::count(row, "for_s")?,
                actor: row.get("actor")?,
                detail: row.get("detail")?,
                failures: row.get("failures")?,
                runs: row.get("runs")?,
            }),
        };
        Ok(ToolSwitch { name: row.get("name")?, revision: rows::count(row, "revision")?, off })
    })
}
