//! Identifiers: newtypes that are made where data enters, so that no two kinds can be confused.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name(#[cfg_attr(feature = "schema", schemars(with = "crate::schema::UuidText"))] Uuid);

        impl $name {
            /// A new identifier: UUIDv7, so that later ones sort after earlier ones.
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// A new identifier with this date, where the clock of the machine may show another one.
            pub fn new_at(date: crate::UnixMillis) -> Self {
                const RANDOM_BITS: u32 = 80; // RFC 9562, 5.7: the date is in the 48 bits before them
                let date = u128::try_from(date.0).unwrap_or(0) << RANDOM_BITS;
                Self(Uuid::from_u128(date | (Uuid::now_v7().as_u128() & ((1 << RANDOM_BITS) - 1))))
            }

            /// The date in a UUIDv7, by the clock of the machine that made it; `None`: it is of another version.
            pub fn created_at(&self) -> Option<crate::UnixMillis> {
                let (seconds, nanos) = self.0.get_timestamp()?.to_unix();
                let millis = i64::try_from(seconds).ok()?.checked_mul(1000)?;
                Some(crate::UnixMillis(millis.checked_add(i64::from(nanos / 1_000_000))?))
            }

            /// The identifier as its 128 bits.
            pub fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl From<Uuid> for $name {
            fn from(id: Uuid) -> Self {
                Self(id)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

/// The beginning of an identifier, for a search of the identifiers that it may mean.
///
/// At least [`IdPrefix::MIN_CHARS`] characters of the usual form (`0199e3a0-7b1c-…`), case-insensitive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct IdPrefix {
    text: String,
    first: Uuid,
    last: Uuid,
}

impl TryFrom<String> for IdPrefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<IdPrefix> for String {
    fn from(prefix: IdPrefix) -> Self {
        prefix.text
    }
}

impl IdPrefix {
    /// The minimum length in characters. 6: the first six change every 17 minutes, so that a shorter prefix would match
    /// all identifiers of a day.
    pub const MIN_CHARS: usize = 6;

    /// Parses a prefix.
    ///
    /// # Errors
    /// The reason, for people: the text is too short, or is not the beginning of an identifier.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.to_ascii_lowercase();
        if text.len() < Self::MIN_CHARS {
            return Err(format!("an id needs at least {} characters of its beginning", Self::MIN_CHARS));
        }
        let filled = |fill: &str| format!("{text}{}", fill.get(text.len()..)?).parse().ok();
        match [filled("00000000-0000-0000-0000-000000000000"), filled("ffffffff-ffff-ffff-ffff-ffffffffffff")] {
            [Some(first), Some(last)] => Ok(Self { text, first, last }),
            _ => Err("it is not the beginning of an id such as 0199e3a0-7b1c-7000-8000-0123456789ab".into()),
        }
    }

    /// The characters, in lower case.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it is a whole identifier.
    pub fn is_whole(&self) -> bool {
        self.first == self.last
    }

    /// The first and the last identifier with this prefix.
    pub fn range(&self) -> RangeInclusive<Uuid> {
        self.first..=self.last
    }

    /// Whether an identifier has this prefix.
    pub fn begins(&self, id: Uuid) -> bool {
        self.range().contains(&id)
    }
}

uuid_id!(
    /// One execution of the loop for a turn. It keeps its id over restarts and crashes.
    RunId
);
uuid_id!(
    /// An uploaded file that a message can name.
    UploadId
);
uuid_id!(
    /// A file that a run has sent.
    SentFileId
);
uuid_id!(
    /// One conversation within a session: an ordered list of messages.
    ThreadId
);
uuid_id!(
    /// One start of the daemon. A boot owns lanes; a lane of another boot was left behind by a dead daemon.
    BootId
);
uuid_id!(
    /// One reply that is committed and waits for delivery.
    OutboxId
);
uuid_id!(
    /// One approval request for one tool call.
    ApprovalId
);
uuid_id!(
    /// One lasting connection of a client, for the log lines of both ends.
    ConnectionId
);
uuid_id!(
    /// The link of one worker. It lives as long as the worker.
    LinkId
);
uuid_id!(
    /// One job: work that outlives the turn that started it. It keeps its id over all its attempts.
    JobId
);
uuid_id!(
    /// One freeze.
    FreezeId
);
uuid_id!(
    /// One routine. It keeps its id over all its changes.
    RoutineId
);
uuid_id!(
    /// One execution of a routine.
    RoutineRunId
);
uuid_id!(
    /// One order to stop that applies to all nodes of a cluster.
    OrderId
);
uuid_id!(
    /// One message between nodes of a cluster.
    MailId
);

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Wraps the text unchanged. The caller has checked and limited it.
            pub fn new(text: impl AsRef<str>) -> Self {
                Self(text.as_ref().into())
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self::new(text)
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:?})"), &*self.0)
            }
        }
    };
}

text_id!(
    /// The name of a session, given by its channel: `stdin`, `telegram:42`, or a name that an HTTP client has chosen. 1
    /// to 256 bytes without control or invisible characters (checked by [`SessionKey::parse`]).
    SessionKey
);
text_id!(
    /// The name of a channel: `stdin`, `http`, `telegram`.
    ChannelId
);
text_id!(
    /// The provider's identifier of a tool call; unique within one assistant message.
    CallId
);

/// The maximum length of a session key, in bytes. 256: keys are stored with every run and event, and quoted in URLs.
pub const SESSION_KEY_MAX_BYTES: usize = 256;

impl SessionKey {
    /// Checks a session key that a client has sent.
    ///
    /// # Errors
    /// The problem, as a sentence: the key is empty, longer than [`SESSION_KEY_MAX_BYTES`], or has control or invisible
    /// characters.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the session key is empty".into());
        }
        if text.len() > SESSION_KEY_MAX_BYTES {
            return Err(format!("the session key is longer than {SESSION_KEY_MAX_BYTES} bytes"));
        }
        if text.chars().any(char::is_control) {
            return Err("the session key has control characters".into());
        }
        if !belay_text::is_clear(text) {
            return Err(format!(
                "the session key has invisible characters or unusual spaces: {}",
                belay_text::escaped_line(text)
            ));
        }
        Ok(Self::new(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_is_made_at_a_date() {
        for ms in [0, 1_795_203_780_123, 253_402_300_799_999] {
            let (one, other) = (RunId::new_at(crate::UnixMillis(ms)), RunId::new_at(crate::UnixMillis(ms)));
            assert_eq!(
                (one.created_at(), other.created_at()),
                (Some(crate::UnixMillis(ms)), Some(crate::UnixMillis(ms)))
            );
            assert_ne!(one, other);
            assert_eq!(one.as_uuid().get_version_num(), 7);
        }
    }

    #[test]
    fn session_keys_are_checked_at_the_edge() {
        for (text, ok) in [
            ("alice", true),
            ("telegram:42", true),
            ("ключ 🗝", true),
            ("", false),
            ("   ", false),
            ("two words", true),
            ("نامه\u{200c}ها 👨\u{200d}👩", true),
            ("a\nb", false),
            ("alice\u{202e}", false),
            ("ali\u{200b}ce", false),
            ("ali\u{a0}ce", false),
            (&"x".repeat(256), true),
            (&"x".repeat(257), false),
        ] {
            assert_eq!(SessionKey::parse(text).is_ok(), ok, "{text:?}");
        }
    }

    #[test]
    fn the_beginning_of_an_id_is_told_from_other_words() {
        let id: Uuid = "0199e3a0-7b1c-7000-8000-0123456789ab".parse().expect("an id");
        for (text, meant) in [
            ("0199e3", Ok(true)),
            ("0199E3A0-7B", Ok(true)),
            ("0199e3a0-", Ok(true)),
            ("0199e3a0-7b1c-7000-8000-0123456789ab", Ok(true)),
            ("0199e4", Ok(false)),
            ("0199e", Err(())),
            ("0199e3a07b", Err(())),
            ("alice-and-bob", Err(())),
            ("0199e3a0-7b1c-7000-8000-0123456789abc", Err(())),
            ("0199é3a0", Err(())),
        ] {
            assert_eq!(IdPrefix::parse(text).map(|prefix| prefix.begins(id)).map_err(drop), meant, "{text}");
        }
    }

    #[test]
    fn the_range_of_a_prefix_goes_from_the_first_to_the_last_id_that_begins_so() {
        let whole = "0199e3a0-7b1c-7000-8000-0123456789ab";
        for (text, first, last) in [
            ("0199e3", "0199e300-0000-0000-0000-000000000000", "0199e3ff-ffff-ffff-ffff-ffffffffffff"),
            ("0199e3a0-7", "0199e3a0-7000-0000-0000-000000000000", "0199e3a0-7fff-ffff-ffff-ffffffffffff"),
            (whole, whole, whole),
        ] {
            let id = |text: &str| text.parse::<Uuid>().expect("an id");
            assert_eq!(IdPrefix::parse(text).expect(text).range(), id(first)..=id(last), "{text}");
        }
    }

    #[test]
    fn ids_round_trip_as_text() {
        let id = RunId::new();
        assert_eq!(id.to_string().parse::<RunId>().ok(), Some(id));
        assert_eq!(serde_json::to_value(id).ok(), Some(serde_json::Value::String(id.to_string())));
    }
}
