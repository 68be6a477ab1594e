//! A build without the feature `postgres` has SQLite alone: an address of PostgreSQL is refused, so that no value of
//! [`PostgresUrl`] exists. The functions here that take one are never called.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use belay_protocol::Seq;
use tokio::sync::watch;

use crate::error::OpenError;
use crate::hints::HintBoard;
use crate::value::ValueRef;

/// Has no values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Never {}

/// The address of a PostgreSQL database in other builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostgresUrl(Never);

impl PostgresUrl {
    /// Refuses each address.
    ///
    /// # Errors
    /// Always: the reason in plain words, without any part of the address.
    pub fn parse(_text: &str) -> Result<Self, String> {
        Err("this build of Belay has no driver for PostgreSQL (feature postgres); remove the setting and use SQLite, or \
             use a build with it: `belay --version --long` lists the parts"
            .to_owned())
    }

    /// The file with the password.
    pub fn passfile(&self) -> Option<&Path> {
        self.absent()
    }

    /// The schema of the database in which the tables are.
    pub fn schema(&self) -> &str {
        self.absent()
    }

    /// Stands for each use of a database that does not exist.
    pub(crate) fn absent(&self) -> ! {
        match self.0 {}
    }
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.absent()
    }
}

impl OpenError {
    /// Whether the database server is away. There is none.
    pub fn is_outage(&self) -> bool {
        false
    }
}

/// A row of a PostgreSQL database in other builds.
pub(crate) enum PgRow {}

/// The place of the column with this name.
pub(crate) fn index_of(row: &PgRow, _name: &str) -> Option<usize> {
    match *row {}
}

/// The value of a column.
///
/// # Errors
/// None: there is no row.
pub(crate) fn value(row: &PgRow, _index: usize) -> Result<ValueRef<'_>, String> {
    match *row {}
}

/// Whether the database has what this opening of the store has seen committed, in other builds.
#[derive(Debug)]
pub(crate) enum History {}

impl History {
    /// Changes once, to `true`.
    pub(crate) fn lost(&self) -> watch::Receiver<bool> {
        match *self {}
    }
}

/// The thread that exchanges hints with other nodes in other builds.
pub(crate) enum Hinter {}

impl Hinter {
    /// Starts nothing.
    ///
    /// # Errors
    /// None: there is no address.
    pub(crate) fn start(
        url: PostgresUrl,
        _board: Arc<HintBoard>,
        _tip: watch::Sender<Seq>,
        _history: Arc<History>,
    ) -> io::Result<Self> {
        url.absent()
    }
}

/// The limits of the statements of a connection in other builds.
pub(crate) struct Limits;

/// The schema of a database that was inspected in other builds.
pub(crate) struct Inspected {
    pub(crate) version: Option<u32>,
    pub(crate) known: u32,
    pub(crate) in_use: bool,
    pub(crate) waits_for: Vec<String>,
}

/// Inspects nothing.
///
/// # Errors
/// None: there is no address.
pub(crate) fn inspect_schema(url: &PostgresUrl, _limits: &Limits) -> Result<Inspected, OpenError> {
    url.absent()
}

/// A part of statements for PostgreSQL. None is sent, so the value has no meaning.
pub(crate) const CLOCK: &str = "";

/// See [`CLOCK`].
pub(crate) const SCHEMA_EDITION: u32 = 0;

/// See [`CLOCK`].
pub(crate) fn words_vector(_text: &str) -> String {
    String::new()
}

/// See [`CLOCK`].
pub(crate) fn all_words(_terms: &[String]) -> String {
    String::new()
}

/// See [`CLOCK`].
pub(crate) fn any_words(_terms: &[String]) -> String {
    String::new()
}

/// The lease of a node in other builds.
pub mod lease {
    use std::time::Duration;

    use belay_protocol::{BootId, NodeState};
    use tokio::sync::watch;

    use super::PostgresUrl;
    use crate::error::OpenError;

    /// The duration of a lease: there is none.
    pub const LEASE: Duration = Duration::ZERO;

    /// A node that registers in other builds.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct NewNode {
        /// Its start.
        pub boot: BootId,
        /// Its name.
        pub name: String,
        /// The version of its program.
        pub version: String,
        /// The digest of its settings.
        pub settings: String,
    }

    /// The lease of this node. No value exists.
    #[derive(Debug)]
    pub struct NodeLease(PostgresUrl);

    impl NodeLease {
        /// Registers nothing.
        ///
        /// # Errors
        /// None: there is no address.
        pub fn register(url: &PostgresUrl, _node: NewNode) -> Result<Self, OpenError> {
            url.absent()
        }

        /// The standing of the node.
        pub fn state(&self) -> watch::Receiver<NodeState> {
            self.0.absent()
        }

        /// Whether the node is a member.
        pub fn membership(&self) -> std::sync::Arc<dyn Fn() -> bool + Send + Sync> {
            self.0.absent()
        }

        /// By how much the clock of the database is ahead, in milliseconds.
        pub fn clock_offset(&self) -> watch::Receiver<i64> {
            self.0.absent()
        }

        /// The names of the nodes with other settings.
        pub fn differing_settings(&self) -> &[String] {
            self.0.absent()
        }
    }
}
