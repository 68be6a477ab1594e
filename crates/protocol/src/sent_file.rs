//! Files that a run sends to people: from the workspace into a conversation.
//!
//! The bytes are stored in the [`BlobStore`](crate::BlobStore) before they are sent. The run keeps its sent files as
//! [`SentFile`]s, and a delivery carries its file as an [`OutboundFile`]. Both refer to the stored bytes.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::attachment::BlobDigest;
use crate::ids::{CallId, RunId, SentFileId};
use crate::tool::ToolFailure;

/// The tool that sends a file.
pub const SEND_FILE: &str = "send_file";

/// A file that is delivered with an outbound message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundFile {
    /// The last part of its path.
    pub name: String,
    /// Its media type, found by its content.
    pub media_type: String,
    /// Its size in bytes; at least 1.
    pub bytes: u64,
    /// The digest of its stored bytes.
    pub digest: BlobDigest,
    /// Its absolute path, for channels of this machine. The file may have changed since.
    pub path: String,
}

/// A file that a run has sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SentFile {
    /// Its id.
    pub id: SentFileId,
    /// The call that sent it.
    pub call_id: CallId,
    /// Its name.
    pub name: String,
    /// Its media type, found by its content.
    pub media_type: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The digest of its stored bytes.
    pub sha256: BlobDigest,
    /// The text with it, in Markdown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub caption: String,
    /// The conversation that it was sent to; `None`: that of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The link to its bytes, for readers. The store has none: a link expires.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl SentFile {
    /// A file that this call sends, without a link. `place`: another conversation.
    pub fn new(call_id: CallId, file: &OutboundFile, caption: String, place: Option<String>) -> Self {
        let OutboundFile { name, media_type, bytes, digest, .. } = file.clone();
        Self { id: SentFileId::new(), call_id, name, media_type, bytes, sha256: digest, caption, place, url: None }
    }
}

impl OutboundFile {
    /// A line for a terminal: the name, the size and the path.
    pub fn line(&self) -> String {
        format!("{} ({}): {}", self.name, size_text(self.bytes), self.path)
    }
}

/// A size for people, such as `12.3 kB`.
pub fn size_text(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000 => return format!("{bytes} bytes"),
        1_000..1_000_000 => (1_000, "kB"),
        1_000_000..1_000_000_000 => (1_000_000, "MB"),
        _ => (1_000_000_000, "GB"),
    };
    format!("{}.{} {name}", bytes / unit, bytes % unit / (unit / 10))
}

/// Reads files of the workspace that are sent.
#[async_trait]
pub trait OutgoingFiles: Send + Sync {
    /// Describes a file of at most `max_bytes`, without storing it.
    ///
    /// # Errors
    /// The reason why it cannot be sent, for the model.
    async fn describe(&self, path: &str, max_bytes: u64) -> Result<OutboundFile, ToolFailure>;

    /// Stores the bytes of a file of at most `max_bytes`, and describes them.
    ///
    /// # Errors
    /// As those of [`describe`](Self::describe).
    ///
    /// # Cancel safety
    /// If the future is dropped, stored bytes that nothing refers to are removed later.
    async fn store(&self, path: &str, max_bytes: u64) -> Result<OutboundFile, ToolFailure>;
}

/// Makes links to sent files.
pub trait FileLinks: Send + Sync {
    /// A link to a file of a run, from now on until its time is up.
    fn link(&self, run: RunId, file: SentFileId) -> String;

    /// Adds a link to each of the files.
    fn add_links(&self, run: RunId, files: &mut [SentFile]) {
        for file in files {
            file.url = Some(self.link(run, file.id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_three_digits_and_a_unit() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (12_399, "12.3 kB"),
            (999_999, "999.9 kB"),
            (20_971_520, "20.9 MB"),
            (u64::MAX, "18446744073.7 GB"),
        ] {
            assert_eq!(size_text(bytes), text);
        }
    }
}
