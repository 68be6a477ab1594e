//! Tools that are switched off.

use async_trait::async_trait;
use belay_protocol::{Durability, NewEvent, StoreError, ToolOff, ToolSwitch, ToolSwitches};
use rusqlite::{Connection, params};

use super::ledger::append_events;
use super::tx::{self, Done, Tx, from_sql_int, to_sql_int};
use super::{SqliteStore, rows};

#[async_trait]
impl ToolSwitches for SqliteStore {
    async fn switches(&self) -> Result<Vec<ToolSwitch>, StoreError> {
        self.read(all).await
    }

    async fn switch(&self, switch: ToolSwitch, events: Vec<NewEvent>) -> Result<(), StoreError> {
        self.write(Durability::Committed, move |tx| write(tx, &switch, &events)).await
    }
}

fn write(tx: &mut Tx<'_>, ToolSwitch { name, revision, off }: &ToolSwitch, events: &[NewEvent]) -> Done<()> {
    let off = off.as_ref().map(rows::to_json).transpose()?;
    let written = tx.exec(
        "INSERT INTO tool_switches (name, revision, off) VALUES (?1, ?2, ?3)
         ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, off = excluded.off
         WHERE excluded.revision > tool_switches.revision",
        params![name, to_sql_int(*revision), off],
    )?;
    // What an older write says is not so any more.
    if written > 0 { append_events(tx, events) } else { Ok(()) }
}

fn all(conn: &Connection) -> Done<Vec<ToolSwitch>> {
    tx::rows(conn, "SELECT name, revision, off FROM tool_switches ORDER BY name", [], |row| {
        let off: Option<String> = row.get("off")?;
        Ok(ToolSwitch {
            name: row.get("name")?,
            revision: from_sql_int(row.get("revision")?),
            off: off.map(|text| rows::from_json::<ToolOff>(&text)).transpose()?,
        })
    })
}
