//! Sends files to Telegram: a picture as a photo if Telegram takes it as one, everything else as a document.
//!
//! The bytes go from the blob store to the connection piece by piece. The caption is a part of the same message; the
//! rest of a longer text follows as messages.

use std::time::Duration;

use belay_protocol::{BlobStore, ByteStream, DeliverError, OutboundFile};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::de::IgnoredAny;
use tracing::info;

use super::deliver::undelivered;
use super::multipart::Form;
use super::split::Piece;
use super::target::{Sending, Target};

/// Largest file. Telegram: sendDocument, "Bots can currently send files of any type of up to 50 MB in size".
pub(super) const FILE_MAX_BYTES: u64 = 50_000_000;

/// Largest photo. Telegram: sendPhoto, "The photo must be at most 10 MB in size".
const PHOTO_MAX_BYTES: u64 = 10_000_000;

/// Longest sum of both edges, in pixels. Telegram: sendPhoto, "width and height must not exceed 10000 in total".
const PHOTO_MAX_EDGES: u64 = 10_000;

/// Largest ratio of the edges. Telegram: sendPhoto, "Width and height ratio must be at most 20".
const PHOTO_MAX_RATIO: u64 = 20;

/// Deadline of one upload. 9 minutes: 50 MB at 93 kB/s, and less than the limit of a delivery with a file.
const UPLOAD_DEADLINE: Duration = Duration::from_secs(540);

/// The method and the field of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Photo,
    Document,
}

impl Kind {
    fn method(self) -> &'static str {
        match self {
            Self::Photo => "sendPhoto",
            Self::Document => "sendDocument",
        }
    }

    fn field(self) -> &'static str {
        match self {
            Self::Photo => "photo",
            Self::Document => "document",
        }
    }

    /// The kind of a file with this beginning.
    fn of(file: &OutboundFile, head: &[u8]) -> Self {
        let edges = match file.media_type.as_str() {
            "image/png" => png_edges(head),
            "image/jpeg" => jpeg_edges(head),
            _ => None,
        };
        let fits = |(width, height): (u64, u64)| {
            let (short, long) = (width.min(height), width.max(height));
            short > 0 && short + long <= PHOTO_MAX_EDGES && long <= short * PHOTO_MAX_RATIO
        };
        let is_photo = file.bytes <= PHOTO_MAX_BYTES && edges.is_some_and(fits);
        if is_photo { Self::Photo } else { Self::Document }
    }
}

/// Width and height of a PNG. Source: PNG specification, 11.2.2: IHDR is the first chunk.
fn png_edges(head: &[u8]) -> Option<(u64, u64)> {
    let edge = |at: usize| Some(u64::from(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?)));
    (head.get(12..16)? == b"IHDR").then_some((edge(16)?, edge(20)?))
}

/// Width and height of a JPEG. Source: ITU-T T.81, B.2.2: the frame header is the first segment SOF0 to SOF15, apart
/// from DHT (C4), JPG (C8) and DAC (CC).
fn jpeg_edges(head: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from(u16::from_be_bytes(head.get(at..at + 2)?.try_into().ok()?)));
    let mut at = 2;
    loop {
        let (prefix, marker) = (*head.get(at)?, *head.get(at + 1)?);
        match marker {
            _ if prefix != 0xff => return None,
            0xff => at += 1,
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => return Some((number(at + 7)?, number(at + 5)?)),
            _ => at += 2 + usize::try_from(number(at + 2)?.max(2)).ok()?,
        }
    }
}

/// Sends the file of a message with a caption. Changes the target as Telegram demands.
pub(super) async fn send(
    sending: Sending<'_>,
    blobs: &dyn BlobStore,
    target: &mut Target,
    file: &OutboundFile,
    caption: Option<&Piece>,
) -> Result<(), DeliverError> {
    let mut kind = None;
    loop {
        let (head, bytes) = opened(blobs, file).await?;
        let used = kind.unwrap_or_else(|| Kind::of(file, &head));
        let form = form(target, caption).with_file(used.field(), file, bytes);
        match sending.api.upload::<IgnoredAny>(used.method(), form, UPLOAD_DEADLINE).await {
            Ok(_) => return Ok(()),
            Err(error) if used == Kind::Photo && error.is_bad_photo() => {
                info!(detail = %error, "telegram does not take the picture as a photo; it is sent as a document");
                kind = Some(Kind::Document);
            }
            Err(error) if sending.amend(target, &error).await => {}
            Err(error) => return Err(undelivered(target, error, 0)),
        }
    }
}

/// The fields of an upload before the file.
fn form(target: &Target, caption: Option<&Piece>) -> Form {
    let mut form = Form::new();
    form.text("chat_id", &target.chat.to_string());
    if let Some(topic) = target.thread() {
        form.text("message_thread_id", &topic.to_string());
    }
    if let Some(topic) = target.direct_topic() {
        form.text("direct_messages_topic_id", &topic.to_string());
    }
    if let Some(ephemeral) = target.ephemeral() {
        form.text("ephemeral_message_parameters", &serde_json::to_string(&ephemeral).unwrap_or_default());
    }
    if let Some(reply) = target.reply_parameters() {
        form.text("reply_parameters", &serde_json::to_string(&reply).unwrap_or_default());
    }
    if let Some(piece) = caption {
        form.text("caption", if target.is_html { &piece.html } else { &piece.plain });
        if target.is_html {
            form.text("parse_mode", "HTML");
        }
    }
    form
}

/// The first piece of a stored file, and all of its bytes as a stream.
async fn opened(blobs: &dyn BlobStore, file: &OutboundFile) -> Result<(Bytes, ByteStream), DeliverError> {
    let retry = |detail: String| DeliverError::Retry { after: None, detail, pieces_sent: 0 };
    let found = blobs.stream(&file.digest).await.map_err(|error| retry(error.to_string()))?;
    let Some(mut bytes) = found else {
        return Err(DeliverError::Refused { detail: "the bytes of the file are not stored any more".into() });
    };
    let head = match bytes.next().await {
        Some(piece) => piece.map_err(|error| retry(error.to_string()))?,
        None => Bytes::new(),
    };
    Ok((head.clone(), stream::iter([Ok(head)]).chain(bytes).boxed()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn png(width: u32, height: u32) -> Vec<u8> {
        let (width, height) = (width.to_be_bytes(), height.to_be_bytes());
        [b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR".as_slice(), &width, &height].concat()
    }

    /// A JPEG with an application segment and a table before the frame header.
    fn jpeg(width: u16, height: u16) -> Vec<u8> {
        let (width, height) = (width.to_be_bytes(), height.to_be_bytes());
        let begin = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc4\0\x03x\xff\xc2\0\x11\x08".as_slice();
        [begin, &height, &width].concat()
    }

    #[test]
    fn a_picture_within_the_limits_is_a_photo_and_everything_else_a_document() {
        let photo = 10_000_000;
        for (media_type, head, bytes, kind) in [
            ("image/png", png(800, 600), 1, Kind::Photo),
            ("image/jpeg", jpeg(800, 600), photo, Kind::Photo),
            ("image/jpeg", jpeg(800, 600), photo + 1, Kind::Document),
            ("image/png", png(5000, 5000), 1, Kind::Photo),
            ("image/png", png(5001, 5000), 1, Kind::Document),
            ("image/png", png(2000, 100), 1, Kind::Photo),
            ("image/png", png(100, 2001), 1, Kind::Document),
            ("image/png", png(0, 0), 1, Kind::Document),
            ("image/png", png(u32::MAX, u32::MAX), 1, Kind::Document),
            ("image/jpeg", jpeg(1, 21), 1, Kind::Document),
            ("image/jpeg", b"\xff\xd8\xff\xe0\0\0".to_vec(), 1, Kind::Document),
            ("image/jpeg", b"\xff\xd8no marker".to_vec(), 1, Kind::Document),
            ("image/png", Vec::new(), 1, Kind::Document),
            ("image/gif", png(800, 600), 1, Kind::Document),
            ("application/pdf", png(800, 600), 1, Kind::Document),
        ] {
            let digest = "0".repeat(64).parse().unwrap();
            let (name, path) = (String::new(), String::new());
            let file = OutboundFile { name, media_type: media_type.into(), bytes, digest, path };
            assert_eq!(Kind::of(&file, &head), kind, "{media_type} {head:?}");
        }
    }
}
