//! The list of the entries of a backup.

use std::fmt;
use std::str::FromStr;

use belay_protocol::{BlobDigest, UnixMillis};
use serde::{Deserialize, Serialize};

/// The version of the format of backups.
pub const FORMAT: u32 = 1;

/// Largest manifest, in bytes: 64 MiB, for about 400,000 files.
pub(super) const MANIFEST_MAX_BYTES: u64 = 64 * 1024 * 1024;

/// The name of the manifest's entry, which is the first.
pub(super) const MANIFEST: &str = "manifest.json";

/// The contents of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of the format.
    pub format: u32,
    /// The version of the program that wrote it.
    pub program: String,
    /// The schema of the database.
    pub schema: u32,
    /// When it was begun. Everything that was accepted before is in it.
    #[serde(rename = "created_ms", serialize_with = "as_number")]
    pub created: UnixMillis,
    /// The cause of the backup.
    #[serde(default)]
    pub reason: Reason,
    /// The entries, in the order of the file.
    pub entries: Vec<Entry>,
    /// The files of messages that were damaged on the disk. The backup does not contain them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub damaged: Vec<BlobDigest>,
}

impl Manifest {
    /// The size of all entries, in bytes.
    pub fn bytes(&self) -> u64 {
        self.entries.iter().fold(0, |sum, entry| sum.saturating_add(entry.bytes))
    }

    /// Whether the key of the vault is in the backup.
    pub fn has_key(&self) -> bool {
        self.entries.iter().any(|entry| entry.name == EntryName::Key)
    }
}

/// The cause of a backup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A person or a program has asked for it. Also a backup of a version that did not write the cause.
    #[default]
    Request,
    /// The schedule. The schedule removes old backups of this cause only.
    Schedule,
}

/// The description of a new backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Label<'a> {
    /// The version of the program.
    pub program: &'a str,
    /// The cause.
    pub reason: Reason,
    /// The date.
    pub now: UnixMillis,
}

/// In milliseconds since 1970 (UTC), as it is read.
fn as_number<S: serde::Serializer>(at: &UnixMillis, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(at.0)
}

/// One file of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: EntryName,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The SHA-256 digest of its bytes, in hexadecimal.
    pub sha256: String,
    /// The path of a settings file on the machine of the backup.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// The name of an entry. No other names are accepted, so an entry cannot leave the directory that it is restored to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum EntryName {
    /// `belay.db`
    Database,
    /// `secret.key`: the key of the vault.
    Key,
    /// `settings/N.toml`
    Settings(u16),
    /// `attachments/DIGEST`: a file of a message.
    File(BlobDigest),
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database => f.write_str("belay.db"),
            Self::Key => f.write_str("secret.key"),
            Self::Settings(number) => write!(f, "settings/{number}.toml"),
            Self::File(digest) => write!(f, "attachments/{}", digest.as_str()),
        }
    }
}

impl FromStr for EntryName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let settings = || text.strip_prefix("settings/")?.strip_suffix(".toml")?.parse().ok().map(Self::Settings);
        let file = || text.strip_prefix("attachments/")?.parse().ok().map(Self::File);
        let name = match text {
            "belay.db" => Some(Self::Database),
            "secret.key" => Some(Self::Key),
            _ => settings().or_else(file),
        };
        // The canonical form alone: one name for each file.
        name.filter(|name| name.to_string() == text).ok_or_else(|| format!("{text:?} is no name of an entry"))
    }
}

impl From<EntryName> for String {
    fn from(name: EntryName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for EntryName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
