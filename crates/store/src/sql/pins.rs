//! The approved descriptions of MCP tools: one row.

use async_trait::async_trait;
use belay_protocol::{Durability, PinStore, StoreError};

use super::SqlStore;
use super::tx::{self, Done, Tx};
use crate::value::params;

#[async_trait]
impl PinStore for SqlStore {
    async fn pins(&self) -> Result<Option<String>, StoreError> {
        self.read(move |conn| tx::row(conn, "SELECT pins FROM mcp_pins WHERE id = 1", [], |row| row.get("pins"))).await
    }

    async fn replace_pins(&self, before: Option<&str>, after: &str) -> Result<bool, StoreError> {
        let (before, after) = (before.map(str::to_owned), after.to_owned());
        self.write(Durability::Committed, move |tx| replace(tx, before.as_deref(), &after)).await
    }

    fn location(&self) -> String {
        "the table mcp_pins of the database".to_owned()
    }
}

/// Compares and sets. Of two writers, the second one waits for the first, and then sees its row.
fn replace(tx: &mut Tx<'_>, before: Option<&str>, after: &str) -> Done<bool> {
    let changed = match before {
        Some(before) => tx.exec("UPDATE mcp_pins SET pins = ?2 WHERE id = 1 AND pins = ?1", params![before, after])?,
        None => {
            tx.exec("INSERT INTO mcp_pins (id, pins) VALUES (1, ?1) ON CONFLICT (id) DO NOTHING", params![after])?
        }
    };
    Ok(changed > 0)
}
