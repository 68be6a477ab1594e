//! Who is acting, and what they may do.

use std::sync::Arc;

/// Who is acting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// Stable within its channel: a user id, a token's name. For the log and for "what is theirs".
    pub id: Arc<str>,
    /// What they may do.
    pub role: Role,
}

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
