//! The approved descriptions of MCP tools, for a command: beside a running daemon, or without one.

use std::sync::Arc;

use belay_program::environment::Environment;
use belay_program::exit::{Exit, Failure};
use belay_program::paths::Paths;
use belay_settings::{Settings, store_place};
use belay_store::{PostgresLimits, SqlStore, StoreOptions, StoreUrl, inspect_server};
use belay_tools::mcp::Pins;

use crate::mcp::own_pins;
use crate::opening::{opened, postgres_limits};

/// The pins of this machine's file, or those of the cluster.
pub struct CommandPins {
    pins: Pins,
    /// The connection to the database of the cluster.
    store: Option<SqlStore>,
}

impl CommandPins {
    /// Opens the pins. Changes nothing in the database. `None`: it is that of a cluster, and no node has created its tables
    /// yet.
    ///
    /// # Errors
    /// The database of the cluster cannot be used (69, 75), or its tables are those of another version (78).
    pub async fn open(settings: &Settings, env: &Environment, paths: &Paths) -> Result<Option<Self>, Failure> {
        let url = match store_place(settings, paths, env)? {
            StoreUrl::Postgres(url) if settings.cluster.enabled => url,
            _ => return Ok(Some(Self { pins: own_pins(paths), store: None })),
        };
        let limits = PostgresLimits { connections: 1, ..postgres_limits(settings) };
        let address = url.clone();
        let found = opened(move || inspect_server(&address, limits)).await?;
        match found.schema {
            None => Ok(None),
            Some(schema) if schema == found.known => {
                let options = StoreOptions::default();
                let store = opened(move || SqlStore::connect_beside_another(&url, limits, options)).await?;
                Ok(Some(Self { pins: Pins::shared(Arc::new(store.clone())), store: Some(store) }))
            }
            Some(schema) => {
                let what = format!("the database has schema {schema}, and this belay knows {}", found.known);
                Err(Failure::new(Exit::Refused, what)
                    .next("start a node with this version first: it migrates the schema"))
            }
        }
    }

    /// As [`open`](Self::open), for a command that needs the pins.
    ///
    /// # Errors
    /// As [`open`](Self::open); also if there are no tables yet (69).
    pub async fn required(settings: &Settings, env: &Environment, paths: &Paths) -> Result<Self, Failure> {
        Self::open(settings, env, paths).await?.ok_or_else(|| {
            Failure::new(Exit::OutOfReach, "the database of the cluster has no tables yet")
                .next("start a node: belay run")
        })
    }

    /// The pins.
    pub fn pins(&self) -> Pins {
        self.pins.clone()
    }

    /// Closes the connection to the database.
    pub async fn close(self) {
        if let Some(store) = self.store {
            store.close().await;
        }
    }
}
