//! A PostgreSQL server for tests: the real one, in a temporary folder, as an unprivileged user.
//!
//! A test asks [`Programs::for_test`] first, which skips it on a machine without PostgreSQL and fails it in continuous integration.
//! It takes a database of its own from [`PostgresServer::shared`], or starts a [`PostgresServer`] of its own to stop, kill or
//! replicate it.
//!
//! The functions block their thread. A test on one thread of tokio calls them while nothing else has to make progress.
//!
//! **Does not know** any client library: it runs `psql`.
//!
//! Modules in reading order: `programs`, `server`, `standby`, `pooler`, `deaf_pooler`, `database`, `process`, `certificates`, `account`.

mod account;
mod certificates;
mod database;
mod deaf_pooler;
mod pooler;
mod process;
mod programs;
mod server;
mod standby;
#[cfg(test)]
mod tests;

pub use database::TestDatabase;
pub use deaf_pooler::DeafPooler;
pub use pooler::{PoolMode, Pooler};
pub use programs::{Missing, Programs};
pub use server::{Durability, PostgresOptions, PostgresServer, Shutdown, Transport};
