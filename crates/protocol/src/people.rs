//! Pairing: a stranger gets a code from the bot, and an operator who enters the code admits the stranger.
//!
//! A code is a secret between the stranger and the operators. The store keeps its digest alone.

use std::fmt;

use async_trait::async_trait;
use serde::Serialize;

use crate::ids::ChannelId;
use crate::principal::Role;
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// The length of a code, in characters.
pub const CODE_CHARS: usize = 8;

/// The characters of a code: 32 of them, without 0, 1, I and O, which people mistake for each other.
const ALPHABET: &[u8; 32] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZ";

/// The time for which a code is valid, in milliseconds: one hour.
pub const CODE_VALID_MS: i64 = 3_600_000;

/// The maximum number of codes of one channel that are valid at the same time.
pub const PENDING_MAX: usize = 3;

/// The context string of the digests of codes.
const DIGEST: &str = "Belay: a pairing code, 1";

/// A pairing code.
#[derive(Clone, PartialEq, Eq)]
pub struct PairingCode(String);

impl PairingCode {
    /// The code of these bytes, which the caller has drawn at random. Five bits of each byte count.
    pub fn from_bytes(bytes: [u8; CODE_CHARS]) -> Self {
        Self(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect())
    }

    /// Parses a code. Lower case, spaces and hyphens are accepted. `None`: the text cannot be a code.
    pub fn parse(text: &str) -> Option<Self> {
        let shown = text.chars().filter(|c| !c.is_whitespace() && *c != '-').map(|c| c.to_ascii_uppercase());
        let code: String = shown.take(CODE_CHARS + 1).collect();
        let is_code = code.len() == CODE_CHARS && code.bytes().all(|byte| ALPHABET.contains(&byte));
        is_code.then_some(Self(code))
    }

    /// The characters, for the message to the stranger.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The digest that is stored, in hexadecimal digits.
    pub fn digest(&self) -> String {
        blake3::Hasher::new_derive_key(DIGEST).update(self.0.as_bytes()).finalize().to_hex().to_string()
    }
}

impl fmt::Debug for PairingCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PairingCode(…)")
    }
}

/// A person who is on no list of the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// The channel.
    pub channel: ChannelId,
    /// The id, unique within the channel.
    pub id: String,
    /// The name that the platform shows. Untrusted text; the channel has cleaned it.
    pub name: String,
    /// The private conversation with this person.
    pub conversation: String,
}

/// A code that a stranger has received, and that no operator has entered yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingPairing {
    /// The stranger.
    pub person: Stranger,
    /// The digest of the code.
    pub code_digest: String,
    /// The end of its validity.
    pub expires_at: UnixMillis,
}

/// A person whom pairing has admitted to the private conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairedPerson {
    /// The person.
    pub person: Stranger,
    /// The operator who entered the code.
    pub admitted_by: String,
    /// The channel of the operator.
    pub admitted_through: ChannelId,
    /// When the operator entered it.
    pub admitted_at: UnixMillis,
}

/// Issues codes to strangers.
#[async_trait]
pub trait PairingCodes: Send + Sync {
    /// A new code for the stranger, after it is stored. `None`: the stranger has a valid code already, or too many codes
    /// of the channel are valid.
    ///
    /// # Errors
    /// The store fails; there is no code.
    ///
    /// # Cancel safety
    /// If the future is dropped, the stranger may have a code that nobody knows, until it expires.
    async fn issue(&self, stranger: Stranger) -> Result<Option<PairingCode>, StoreError>;

    /// Withdraws the code of a stranger who could not be told. The next message of the stranger gets another one.
    async fn withdraw(&self, stranger: &Stranger);
}

/// The people of a channel, as far as pairing and its operators need them.
pub trait ChannelPeople: Send + Sync {
    /// Replaces the people whom pairing has admitted. Takes effect at once.
    fn replace_paired(&self, paired: &[PairedPerson]);

    /// The people of the settings, with their roles.
    fn listed(&self) -> Vec<(String, Role)>;

    /// The first message to a person who was admitted. `None`: there is none.
    fn greeting(&self) -> Option<String>;
}

/// Keeps codes, and the people whom pairing has admitted.
#[async_trait]
pub trait PeopleStore: Send + Sync {
    /// The admitted people, the oldest admission first.
    ///
    /// # Errors
    /// The store fails.
    async fn paired(&self) -> Result<Vec<PairedPerson>, StoreError>;

    /// The codes that are valid at this date, the oldest first.
    ///
    /// # Errors
    /// The store fails.
    async fn pending_pairings(&self, now: UnixMillis) -> Result<Vec<PendingPairing>, StoreError>;

    /// Stores a code, in place of an earlier one of the same person, and deletes the codes that have expired by now.
    /// Committed.
    ///
    /// # Errors
    /// [`StoreError::TooMuch`]: [`PENDING_MAX`] other people of the channel have a valid code. Or the store fails; then
    /// the code may have been stored all the same.
    async fn put_pairing(&self, pairing: PendingPairing, now: UnixMillis) -> Result<(), StoreError>;

    /// Takes the code with this digest, if it is valid at this date: deletes it, and returns it. Of several daemons that
    /// take a code, one gets it. Committed.
    ///
    /// # Errors
    /// The store fails. The code may have been deleted all the same.
    async fn take_pairing(&self, code_digest: String, now: UnixMillis) -> Result<Option<PendingPairing>, StoreError>;

    /// Deletes the code of this person. Committed.
    ///
    /// # Errors
    /// The store fails. The code may have been deleted all the same.
    async fn drop_pairing(&self, channel: ChannelId, id: String) -> Result<(), StoreError>;

    /// Admits a person and deletes the code, in one commit.
    ///
    /// # Errors
    /// The store fails. The person may have been admitted all the same.
    async fn admit_person(&self, person: PairedPerson) -> Result<(), StoreError>;

    /// Revokes an admission. Committed. Returns whether there was one.
    ///
    /// # Errors
    /// The store fails. The admission may have been revoked all the same.
    async fn remove_person(&self, channel: ChannelId, id: String) -> Result<bool, StoreError>;
}

/// A request about people; operators only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeopleRequest {
    /// List them.
    List,
    /// Admit the person who has received this code.
    Pair {
        /// The text that the operator has entered.
        code: String,
    },
    /// Revoke the admission of a person.
    Remove {
        /// The channel of the person.
        channel: ChannelId,
        /// The id of the person.
        id: String,
    },
}

impl PeopleRequest {
    /// The request to remove the person that is written as `CHANNEL:ID`. `None`: the text has another form.
    pub fn remove(person: &str) -> Option<Self> {
        let (channel, id) = person.split_once(':')?;
        let is_person = !channel.is_empty() && !id.is_empty();
        is_person.then(|| Self::Remove { channel: ChannelId::new(channel), id: id.to_owned() })
    }
}

/// The people of all channels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeopleReport {
    /// The people of the settings and those whom pairing has admitted.
    pub people: Vec<PersonReport>,
    /// Strangers with a valid code. The code itself is known to them alone.
    pub pending: Vec<PendingReport>,
}

/// A person who may write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PersonReport {
    /// The channel.
    pub channel: ChannelId,
    /// The id, unique within the channel.
    pub id: String,
    /// The name that the platform showed; `None`: not known here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `operator` or `user`.
    #[cfg_attr(feature = "schema", schemars(extend("enum" = ["operator", "user"])))]
    pub role: &'static str,
    /// The source of the admission.
    pub admitted: AdmittedBy,
}

/// The source of an admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum AdmittedBy {
    /// The settings.
    Settings,
    /// Pairing, to the private conversation alone.
    Pairing {
        /// The operator who entered the code.
        operator: String,
        /// The channel of the operator.
        through: ChannelId,
        /// When the operator entered it.
        at: UnixMillis,
    },
}

/// A stranger with a valid code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PendingReport {
    /// The channel.
    pub channel: ChannelId,
    /// The id, unique within the channel.
    pub id: String,
    /// The name that the platform shows.
    pub name: String,
    /// The end of the validity of the code.
    pub expires_at: UnixMillis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_people_write_it_and_nothing_else_is_one() {
        let code = PairingCode::from_bytes([0, 1, 8, 31, 32, 63, 64, 255]);
        assert_eq!(code.expose(), "23AZ2Z2Z");
        for (text, is_code) in [
            ("23AZ2Z2Z", true),
            (" 23az-2z2z\n", true),
            ("23AZ 2Z2Z", true),
            ("23AZ2Z2", false),
            ("23AZ2Z2ZZ", false),
            ("23AZ2Z2O", false),
            ("23AZ2Z2I", false),
            ("", false),
            ("ääääääää", false),
        ] {
            let read = PairingCode::parse(text);
            assert_eq!(read, is_code.then(|| code.clone()), "{text:?}");
        }
        assert!(!format!("{code:?}{}", code.digest()).contains("23AZ"));
        assert_ne!(code.digest(), PairingCode::from_bytes([0; 8]).digest());
    }

    #[test]
    fn a_person_is_named_by_channel_and_id() {
        for (text, person) in [
            ("telegram:42", Some(("telegram", "42"))),
            ("a:b:c", Some(("a", "b:c"))),
            ("42", None),
            (":42", None),
            ("telegram:", None),
        ] {
            let expected =
                person.map(|(channel, id)| PeopleRequest::Remove { channel: channel.into(), id: id.to_owned() });
            assert_eq!(PeopleRequest::remove(text), expected, "{text}");
        }
    }
}
