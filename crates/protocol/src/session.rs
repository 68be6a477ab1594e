//! The lifetime of sessions, and the filter of their lists.

use serde::{Deserialize, Serialize};

use crate::ids::SessionKey;
use crate::time::UnixMillis;

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

/// The beginnings of session keys that no program may choose: the channels of people, also those that are off or left
/// out of the build, the parts of Belay, and the command line of the operator. The sessions of a channel must hold words of
/// its people alone on the day on which it is turned on.
pub const RESERVED_KEYS: [&str; 10] =
    ["cli", "heartbeat", "job", "mail", "matrix", "routine", "stdin", "system", "telegram", "watchdog"];

/// The beginning of a session key: the text before its first colon, or the whole key. It names the channel or the part
/// of Belay to which the session belongs, or is free.
pub fn beginning_of(session: &SessionKey) -> String {
    let key = session.as_str();
    key.split_once(':').map_or(key, |(beginning, _)| beginning).trim().to_lowercase()
}

/// The filter of a list of sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// The maximum count.
    pub limit: u32,
    /// Whether the list contains ephemeral sessions too.
    pub ephemeral: bool,
    /// Whether the list contains the hidden sessions instead of the others.
    pub hidden: bool,
    /// Only those that were last used at this date or later.
    pub since: Option<UnixMillis>,
    /// Only those behind this place of the list.
    pub after: Option<SessionCursor>,
}

/// A place in a list of sessions, which is in the order of the last use and then of the key. No session needs to be at
/// this place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionCursor {
    /// The time of the last use.
    pub last_active_at: UnixMillis,
    /// The key.
    pub session: SessionKey,
}

impl SessionFilter {
    /// At most `limit` lasting sessions.
    pub fn lasting(limit: u32) -> Self {
        Self { limit, ..Self::default() }
    }

    /// At most `limit` sessions of any lifetime.
    pub fn all(limit: u32) -> Self {
        Self { limit, ephemeral: true, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_key_ends_at_its_first_colon() {
        for (key, expected) in [
            ("telegram:42:7", "telegram"),
            (" Telegram :42", "telegram"),
            ("cli", "cli"),
            ("client", "client"),
            ("telegrams:42", "telegrams"),
            (":", ""),
        ] {
            assert_eq!(beginning_of(&key.into()), expected, "{key:?}");
        }
    }
}
