//! Files that come with messages, and the ports that take, store and find them.
//!
//! An uploaded file becomes an [`Attachment`] once, when it arrives: its type is found by its content, and it is turned
//! into a picture or a text for the model. The facts of a message ([`Provenance`](crate::Provenance)) carry its
//! attachments. The bytes stay in the [`BlobStore`], each under its digest.

use std::fmt;
use std::pin::Pin;
use std::str::FromStr;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};

use crate::ids::{ChannelId, UploadId};
use crate::store_error::StoreError;
use crate::time::UnixMillis;

/// The text of a message that consists of attachments alone.
pub const NO_TEXT: &str = "[this message has no text, only attachments]";

/// The mark before the words of a voice message.
const SPOKEN: &str = "[voice message]";

/// The time for which an uploaded file can be named in a message, in milliseconds: 24 hours. Also the period of the
/// limit of bytes per person.
pub const UPLOADS_KEPT_MS: i64 = 24 * 3600 * 1000;

/// The digest of a stored file: SHA-256, as 64 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobDigest(String);

impl BlobDigest {
    /// The digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for BlobDigest {
    type Err = &'static str;

    /// Accepts 64 lower-case hexadecimal digits and nothing else, so that a digest is always a safe file name.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if text.len() == 64 && text.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err("a digest has 64 lower-case hexadecimal digits")
        }
    }
}

impl TryFrom<String> for BlobDigest {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BlobDigest> for String {
    fn from(digest: BlobDigest) -> Self {
        digest.0
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobDigest({})", self.0)
    }
}

/// A file that comes with a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its name, as the sender gave it, on one line and without control characters. It proves nothing.
    pub name: String,
    /// Its media type, found by its content.
    pub media_type: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// The digest of the stored file.
    pub digest: BlobDigest,
    /// Its content for the model.
    pub content: AttachmentContent,
}

/// The content of an attachment for the model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum AttachmentContent {
    /// A picture. The blob with this digest is the picture decoded, scaled down and encoded again, in base64, as requests
    /// to a model contain it.
    Picture {
        /// The digest of the prepared picture.
        digest: BlobDigest,
        /// `image/png` or `image/jpeg`.
        media_type: String,
        /// A description, such as `JPG picture, 4032 x 3024 pixels, shown at 1568 x 1176`.
        detail: String,
    },
    /// A text, which the model reads as untrusted content.
    Text {
        /// The text, possibly cut.
        text: String,
        /// The id of its markers: 12 hexadecimal digits that its author could not know.
        mark: String,
        /// A description, such as `text of 3 pages`, and what was cut off.
        detail: String,
    },
    /// The words of a voice message, which are part of the text of its message: see [`with_spoken`].
    Spoken {
        /// The transcript.
        text: String,
        /// A description, such as `transcript of a recording, which is part of the text of this message`.
        detail: String,
    },
    /// Nothing but the name.
    Named {
        /// The reason, such as `archives are not unpacked`.
        detail: String,
    },
}

impl AttachmentContent {
    /// The description for the model.
    pub fn detail(&self) -> &str {
        match self {
            Self::Picture { detail, .. }
            | Self::Text { detail, .. }
            | Self::Spoken { detail, .. }
            | Self::Named { detail } => detail,
        }
    }
}

/// The text of a message with the words of its voice messages. The words are marked, so they are neither a command nor
/// an answer to a question. `text` is the text that the sender has written, or [`NO_TEXT`].
pub fn with_spoken(text: &str, attachments: &[Attachment]) -> String {
    let spoken = attachments.iter().filter_map(|file| match &file.content {
        AttachmentContent::Spoken { text, .. } => Some(format!("{SPOKEN} {text}")),
        _ => None,
    });
    let mut spoken = spoken.peekable();
    let written = (text != NO_TEXT || spoken.peek().is_none()).then(|| text.to_owned());
    written.into_iter().chain(spoken).collect::<Vec<_>>().join("\n")
}

impl Attachment {
    /// The digests of all blobs that it needs.
    pub fn digests(&self) -> impl Iterator<Item = &BlobDigest> {
        let picture = match &self.content {
            AttachmentContent::Picture { digest, .. } => Some(digest),
            _ => None,
        };
        std::iter::once(&self.digest).chain(picture)
    }
}

/// The person or program that uploads a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploader {
    /// The channel.
    pub channel: ChannelId,
    /// The principal, unique within the channel.
    pub principal: String,
}

/// An uploaded file that a message of the same uploader can name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    /// Its id.
    pub id: UploadId,
    /// The file.
    pub attachment: Attachment,
}

/// The bytes of a file as they arrive.
pub type ByteStream = Pin<Box<dyn Stream<Item = std::io::Result<Bytes>> + Send>>;

/// The reason why a file was not taken.
#[derive(Debug, thiserror::Error)]
pub enum AttachmentError {
    /// The file has no bytes.
    #[error("the file is empty (0 bytes)")]
    Empty,
    /// The file is larger than the limit.
    #[error("the file is larger than {0} bytes, the limit of attachments.max_bytes")]
    TooLarge(u64),
    /// The person has uploaded too much.
    #[error(
        "you have uploaded {used} of {limit} bytes within 24 hours (attachments.max_bytes_per_day); try again later"
    )]
    Quota {
        /// The bytes within 24 hours.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// No such upload, or another person's, or one that has expired.
    #[error("there is no uploaded file {0}: an upload can be named for 24 hours, by its uploader alone")]
    Unknown(String),
    /// The bytes did not arrive completely.
    #[error("the file did not arrive completely: {0}")]
    Broken(String),
    /// Attachments are disabled.
    #[error("attachments are disabled here (attachments.max_count)")]
    Disabled,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes files: checks, stores and reads them.
#[async_trait]
pub trait AttachmentIntake: Send + Sync {
    /// The maximum number of attachments of one message; 0: attachments are disabled.
    fn max_count(&self) -> usize;

    /// The maximum size of a file in bytes.
    fn max_bytes(&self) -> u64;

    /// Takes a file as it arrives. The same bytes under the same name, again within [`UPLOADS_KEPT_MS`], renew the
    /// upload and are not charged again.
    ///
    /// # Errors
    /// [`AttachmentError`]. A hostile or broken file is no error: it becomes an attachment with a name alone.
    ///
    /// # Cancel safety
    /// If the future is dropped while the bytes arrive, the file is not taken, and its stored bytes are removed later. If
    /// it is dropped afterwards, the file is charged and stays unread until it is sent again.
    async fn take(&self, from: &Uploader, name: &str, bytes: ByteStream) -> Result<Upload, AttachmentError>;

    /// Takes a file that has arrived as a whole. A file that [`take`](Self::take) would renew is taken even if nothing is
    /// left of the bytes of the day. Errors and cancel safety are those of [`take`](Self::take).
    async fn take_whole(&self, from: &Uploader, name: &str, bytes: Bytes) -> Result<Upload, AttachmentError>;

    /// The file that this uploader has uploaded under this id.
    ///
    /// # Errors
    /// [`AttachmentError::Unknown`], or the store failed.
    async fn find(&self, from: &Uploader, id: &str) -> Result<Attachment, AttachmentError>;
}

/// Takes no files.
#[derive(Debug, Default)]
pub struct NoAttachments;

#[async_trait]
impl AttachmentIntake for NoAttachments {
    fn max_count(&self) -> usize {
        0
    }

    fn max_bytes(&self) -> u64 {
        0
    }

    async fn take(&self, _from: &Uploader, _name: &str, _bytes: ByteStream) -> Result<Upload, AttachmentError> {
        Err(AttachmentError::Disabled)
    }

    async fn take_whole(&self, _from: &Uploader, _name: &str, _bytes: Bytes) -> Result<Upload, AttachmentError> {
        Err(AttachmentError::Disabled)
    }

    async fn find(&self, _from: &Uploader, _id: &str) -> Result<Attachment, AttachmentError> {
        Err(AttachmentError::Disabled)
    }
}

/// Stores files by their digest.
#[async_trait]
pub trait BlobStore: Send + Sync {
    /// The digest of a file with these bytes. CPU-bound.
    fn digest(&self, bytes: &[u8]) -> Result<BlobDigest, StoreError>;

    /// Begins to write a file.
    async fn begin(&self) -> Result<Box<dyn BlobWriter>, StoreError>;

    /// The bytes of a file; `None`: there is no such file.
    async fn read(&self, digest: &BlobDigest) -> Result<Option<Bytes>, StoreError>;

    /// The bytes of a file, in pieces; `None`: there is no such file.
    async fn stream(&self, digest: &BlobDigest) -> Result<Option<ByteStream>, StoreError> {
        Ok(self.read(digest).await?.map(|bytes| stream::iter([Ok(bytes)]).boxed()))
    }

    /// The digests of the files that were last written before a date.
    async fn older_than(&self, before: UnixMillis) -> Result<Vec<BlobDigest>, StoreError>;

    /// Removes files, except those that were written after the date. Returns their number.
    async fn remove(&self, digests: &[BlobDigest], before: UnixMillis) -> Result<u64, StoreError>;
}

/// A file that is being written. If it is dropped before its end, nothing is stored.
#[async_trait]
pub trait BlobWriter: Send {
    /// Appends bytes.
    async fn write(&mut self, piece: &Bytes) -> Result<(), StoreError>;

    /// Stores the file durably and returns its digest. A file with the same bytes is replaced and counts as written
    /// now.
    async fn finish(self: Box<Self>) -> Result<BlobDigest, StoreError>;
}

/// Keeps the rows of uploads, and knows which blobs are in use.
#[async_trait]
pub trait UploadStore: Send + Sync {
    /// The bytes that a person has uploaded since a date.
    async fn uploaded_since(&self, from: &Uploader, since: UnixMillis) -> Result<u64, StoreError>;

    /// Stores an upload with references to its blobs, unless the bytes since `since` would exceed `max_bytes`.
    /// Committed. Returns whether it was stored.
    async fn record_upload(
        &self,
        from: &Uploader,
        upload: &Upload,
        at: UnixMillis,
        since: UnixMillis,
        max_bytes: u64,
    ) -> Result<bool, StoreError>;

    /// Replaces the attachment of an upload and refers to its blobs. Committed. Without effect if the upload is deleted.
    async fn update_upload(&self, upload: &Upload) -> Result<(), StoreError>;

    /// Finds an upload of this person with this digest and name, made since a date, and dates it `at`. Committed. `None`:
    /// there is none.
    async fn renew_upload(
        &self,
        from: &Uploader,
        digest: &BlobDigest,
        name: &str,
        since: UnixMillis,
        at: UnixMillis,
    ) -> Result<Option<Upload>, StoreError>;

    /// The upload of this person with this id, made since a date.
    async fn upload(&self, from: &Uploader, id: UploadId, since: UnixMillis) -> Result<Option<Attachment>, StoreError>;

    /// Deletes the uploads from before a date. The blobs of messages stay referenced by their runs.
    async fn forget_uploads(&self, before: UnixMillis) -> Result<u64, StoreError>;

    /// Those of the blobs that no upload, no run and no delivery refers to.
    async fn unused_blobs(&self, digests: Vec<BlobDigest>) -> Result<Vec<BlobDigest>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_always_a_safe_file_name() {
        let good = "0123456789abcdef".repeat(4);
        for (text, valid) in [
            (good.as_str(), true),
            (&good.to_uppercase(), false),
            (&good[1..], false),
            (&format!("{good}0"), false),
            (&format!("../{}", &good[3..]), false),
            ("", false),
        ] {
            assert_eq!(text.parse::<BlobDigest>().is_ok(), valid, "{text}");
            let json = serde_json::to_string(text).expect("serialises");
            assert_eq!(serde_json::from_str::<BlobDigest>(&json).is_ok(), valid, "{text}");
        }
    }
}
