//! How long sessions are kept, and which of them a list has.

use serde::{Deserialize, Serialize};

/// How long a session is kept after its last activity. Chosen by the message that creates the session, and stored with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionLifetime {
    /// As long as [`Retention::threads_before`](crate::Retention::threads_before) says.
    #[default]
    Lasting,
    /// Until [`Retention::ephemeral_before`](crate::Retention::ephemeral_before): it was created for one request, whose client
    /// named no session. Lists leave it out by default.
    Ephemeral,
}

impl SessionLifetime {
    /// Whether it is the default, which is not written out.
    pub fn is_lasting(&self) -> bool {
        *self == Self::Lasting
    }
}

/// Which sessions a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFilter {
    /// At most so many.
    pub limit: u32,
    /// Whether ephemeral sessions are listed too.
    pub ephemeral: bool,
}

impl SessionFilter {
    /// Lasting sessions, at most so many.
    pub fn lasting(limit: u32) -> Self {
        Self { limit, ephemeral: false }
    }

    /// All sessions, at most so many.
    pub fn all(limit: u32) -> Self {
        Self { limit, ephemeral: true }
    }
}
