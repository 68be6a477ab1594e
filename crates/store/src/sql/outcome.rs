//! The outcomes of the beginning and of the commit of a transaction, the same for each engine.

use super::connection::{Done, Failure};

/// The outcome of the beginning of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "SQLite knows each outcome at once"))]
pub(crate) enum Begun {
    /// A transaction is open.
    New,
    /// A transaction is open, and the one before, whose commit had failed, was committed after all. The number of the newest
    /// event since.
    EarlierCommitted(Option<u64>),
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Committed {
    /// The transaction is committed. The number of its last posted insert, or of a newer event if the answer was lost.
    Yes(Option<u64>),
    /// The connection was lost, and the database tells that the transaction is not committed. It can be repeated at once.
    Lost,
}

impl Committed {
    /// For a caller that repeats nothing.
    ///
    /// # Errors
    /// The transaction is not committed.
    pub(crate) fn or_fail(self) -> Done<()> {
        match self {
            Self::Yes(_) => Ok(()),
            Self::Lost => Err(lost()),
        }
    }
}

/// The failure of a statement whose connection is lost.
pub(super) fn lost() -> Failure {
    Failure::Broken("the connection to the database is lost".into())
}
