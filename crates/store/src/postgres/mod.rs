//! PostgreSQL: the address, the connection, the schema, and the dialect of its SQL.
//!
//! **Does not know**: the statements of the store, which serve both engines (`sql`), and their jobs.
//!
//! Reading order: `url` → `connection` (with `connect`, `wire`, `statements`) → `dialect` → `schema` → `words` → `fault`; `direct` (a connection beside
//! those of the store) → `living`, `register`, `lease` → `history`, `hints`.

pub(crate) mod connect;
pub(crate) mod connection;
mod dialect;
mod direct;
pub(crate) mod fault;
pub(crate) mod hints;
mod history;
pub mod lease;
mod living;
pub(crate) mod params;
mod passfile;
mod register;
pub(crate) mod schema;
mod statements;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tls;
mod url;
mod wire;
pub(crate) mod words;

pub(crate) use self::connect::{IDLE, IDLE_OF_WRITER, Limits};
pub(crate) use self::connection::PgConnection;
pub(crate) use self::direct::CLOCK;
pub(crate) use self::fault::{Cause, PgError};
pub(crate) use self::hints::Hinter;
pub(crate) use self::history::{HISTORY_LOST, History};
pub(crate) use self::params::{PgRow, index_of, value};
pub(crate) use self::schema::{
    EDITION as SCHEMA_EDITION, Opening, WRITER_LOCK, check_again as check_schema_again, inspect as inspect_schema,
    open as open_schema,
};
pub(crate) use self::words::{all_of as all_words, any_of as any_words, vector as words_vector};
pub use url::PostgresUrl;
