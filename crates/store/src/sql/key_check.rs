//! The check of the key of the vault: all nodes of a cluster must have one key.

use belay_protocol::{Durability, StoreError};

use super::SqlStore;
use super::connection::Engine;
use super::tx::{Done, Tx};
use crate::value::params;
use crate::vault::{KeyError, VaultKey};

impl SqlStore {
    /// The id of the cluster, in hexadecimal digits; `None` for a SQLite store, which has one daemon.
    ///
    /// # Errors
    /// The store fails.
    pub async fn cluster_id(&self) -> Result<Option<String>, StoreError> {
        let id = self.write(Durability::Committed, cluster).await?;
        Ok(id.map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Compares the key of the vault with the one of the cluster, at the start of a node. The first node sets it. A SQLite
    /// store has one daemon, and accepts every key.
    ///
    /// # Errors
    /// [`KeyError::OtherThanCluster`]: another node has set another key, and this one must not start.
    /// [`KeyError::Unchecked`]: the store fails.
    ///
    /// # Cancel safety
    /// If the future is dropped, the key may be set.
    pub async fn check_key(&self, key: &VaultKey) -> Result<(), KeyError> {
        let cluster = self.write(Durability::Committed, cluster).await.map_err(KeyError::Unchecked)?;
        let Some(cluster) = cluster else { return Ok(()) };
        let check = key.check_of(&cluster);
        let same = self.write(Durability::Committed, move |tx| claim(tx, &check)).await.map_err(KeyError::Unchecked)?;
        if same { Ok(()) } else { Err(KeyError::OtherThanCluster) }
    }
}

/// The id of the cluster.
fn cluster(tx: &mut Tx<'_>) -> Done<Option<Vec<u8>>> {
    match tx.engine() {
        Engine::Sqlite => Ok(None),
        Engine::Postgres => {
            tx.row("SELECT uuid_send(cluster_id) AS cluster FROM belay_schema", params![], |row| row.get("cluster"))
        }
    }
}

/// Sets the check if there is none. Returns whether the stored one is this one.
fn claim(tx: &mut Tx<'_>, check: &Vec<u8>) -> Done<bool> {
    tx.post("UPDATE belay_schema SET key_check = ?1 WHERE key_check IS NULL", params![check])?;
    let same = "SELECT 1 FROM belay_schema WHERE key_check = ?1";
    Ok(tx.row(same, params![check], |_| Ok(()))?.is_some())
}
