//! A database of one test.

use anyhow::Result;
use uuid::Uuid;

use super::server::{PostgresServer, quoted};

/// An empty database with a name of its own. The end of the value ends its connections and drops it.
#[derive(Debug)]
pub struct TestDatabase<'a> {
    server: &'a PostgresServer,
    name: String,
}

impl<'a> TestDatabase<'a> {
    /// Makes a database.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn new(server: &'a PostgresServer) -> Result<Self> {
        let name = format!("test_{}", Uuid::now_v7().simple());
        server.create_database(&name)?;
        Ok(Self { server, name })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address; see [`PostgresServer::url`].
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Runs statements in it; see [`PostgresServer::sql`].
    ///
    /// # Errors
    /// As there.
    pub fn sql(&self, statements: &str) -> Result<String> {
        self.server.sql(&self.name, statements)
    }
}

impl Drop for TestDatabase<'_> {
    fn drop(&mut self) {
        // The server may be stopped; then its folder goes with the database.
        drop(self.server.sql("postgres", &format!("drop database if exists {} with (force)", quoted(&self.name))));
    }
}
