//! The lifetime of sessions, and the filter of their lists.

use serde::{Deserialize, Serialize};

/// The time for which a session is kept after its last activity. The message that creates the session chooses it, and
/// it is stored with the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SessionLifetime {
    /// Until [`Retention::threads_before`](crate::Retention::threads_before).
    #[default]
    Lasting,
    /// Until [`Retention::ephemeral_before`](crate::Retention::ephemeral_before). The session was created for one
    /// request whose client named no session. Lists omit it by default.
    Ephemeral,
}

impl SessionLifetime {
    /// Whether it is the default, which the wire form omits.
    pub fn is_lasting(&self) -> bool {
        *self == Self::Lasting
    }
}

/// The filter of a list of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionFilter {
    /// The maximum count.
    pub limit: u32,
    /// Whether the list contains ephemeral sessions too.
    pub ephemeral: bool,
}

impl SessionFilter {
    /// At most `limit` lasting sessions.
    pub fn lasting(limit: u32) -> Self {
        Self { limit, ephemeral: false }
    }

    /// At most `limit` sessions of any lifetime.
    pub fn all(limit: u32) -> Self {
        Self { limit, ephemeral: true }
    }
}
