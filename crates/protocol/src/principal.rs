//! Principals: persons and systems that send messages, and their roles.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::ChannelId;
use crate::time::UnixMillis;

/// The sender of a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Principal {
    /// Its id, stable within the channel: a user id, the name of a token. For the log and for ownership.
    pub id: Arc<str>,
    /// Its role.
    pub role: Role,
}

/// A principal that has sent a message, as the store records it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// The filter of a list of principals that have sent a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrincipalFilter {
    /// The maximum count.
    pub limit: u32,
    /// Only those that were last seen at this date or later.
    pub since: Option<UnixMillis>,
    /// Only those behind this place of the list.
    pub after: Option<PrincipalCursor>,
}

impl PrincipalFilter {
    /// The first `limit` principals of the list.
    pub fn first(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }
}

/// A place in a list of principals, which is in the order of [`KnownPrincipal::last_seen_at`], then of the channel, then
/// of the id. No principal needs to be at this place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalCursor {
    /// When the principal was last seen.
    pub last_seen_at: UnixMillis,
    /// The channel.
    pub channel: ChannelId,
    /// The id within the channel.
    pub id: String,
}

/// The maximum lag of [`KnownPrincipal::last_seen_at`], in milliseconds. One hour: messages of an active principal cost
/// no additional write.
pub const SEEN_PRECISION_MS: i64 = 3_600_000;

/// The role of a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// May write, and may decide and stop what is theirs, within the session of the message.
    User,
    /// The holder of the API token: like a user, and may also watch and stop any session.
    Client,
    /// May do everything, including a shutdown.
    Operator,
}

impl Principal {
    /// An operator with this id.
    pub fn operator(id: impl AsRef<str>) -> Self {
        Self { id: id.as_ref().into(), role: Role::Operator }
    }

    /// Whether this is an operator.
    pub fn is_operator(&self) -> bool {
        self.role == Role::Operator
    }
}
