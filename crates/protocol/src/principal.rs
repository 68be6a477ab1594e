//! Who is acting, and what they may do.

use std::sync::Arc;

use serde::Serialize;

use crate::ids::ChannelId;
use crate::time::UnixMillis;

/// Who is acting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Stable within its channel: a user id, a token's name. For the log and for "what is theirs".
    pub id: Arc<str>,
    /// What they may do.
    pub role: Role,
}

/// A principal that has sent a message, as the store remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KnownPrincipal {
    /// The channel of its messages.
    pub channel: ChannelId,
    /// Its id, unique within the channel.
    pub id: String,
    /// The name that the platform shows; `None`: the platform gives none.
    pub name: Option<String>,
    /// When its first message was accepted.
    pub first_seen_at: UnixMillis,
    /// When its newest message was accepted: at most [`SEEN_PRECISION_MS`] too early.
    pub last_seen_at: UnixMillis,
}

/// How far [`KnownPrincipal::last_seen_at`] may lag, in milliseconds. One hour: a message of an active principal costs no write for it.
pub const SEEN_PRECISION_MS: i64 = 3_600_000;

/// What a principal may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Talk, decide what is theirs, stop what is theirs: everything within the session of the message.
    User,
    /// Like a user, and may also watch and stop any session: the holder of the API token.
    Client,
    /// Everything, shutdown included.
    Operator,
}

impl Principal {
    /// An operator of that id.
    pub fn operator(id: impl AsRef<str>) -> Self {
        Self { id: id.as_ref().into(), role: Role::Operator }
    }

    /// Whether this is an operator.
    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }
}
