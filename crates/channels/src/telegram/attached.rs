//! Reads which attachments a Telegram message has: a file that Belay fetches, or a thing that it only names. Pure.

use belay_protocol::provenance::Unread;
use belay_protocol::{Attachment, AttachmentContent};

use super::facts::visible;
use super::shared;
use super::wire::{Content, File};

/// The kind of a recording that its sender has made for this message.
const VOICE: &str = "voice message";

/// A file of a message, before it is fetched. The platform and the sender have announced everything in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemoteFile {
    /// Its id for `getFile`.
    pub(super) id: String,
    /// Its kind: `photo`, `voice message`, …
    pub(super) kind: &'static str,
    /// Its file name, if the sender has given one.
    pub(super) file_name: Option<String>,
    /// Its name for the store, if the sender has given none.
    usual_name: &'static str,
    /// Its announced size in bytes.
    pub(super) bytes: Option<u64>,
    /// Whether it belongs to the message that is replied to.
    pub(super) is_quoted: bool,
}

impl RemoteFile {
    /// The same file, as one of the message that is replied to.
    pub(super) fn quoted(self) -> Self {
        Self { is_quoted: true, ..self }
    }

    /// The name under which it is stored.
    pub(super) fn name(&self) -> String {
        match &self.file_name {
            Some(name) => name.clone(),
            None if self.is_quoted => format!("quoted-{}", self.usual_name),
            None => self.usual_name.to_owned(),
        }
    }

    /// Whether its sender has recorded it instead of writing.
    pub(super) fn is_voice(&self) -> bool {
        self.kind == VOICE && !self.is_quoted
    }

    /// The file as an attachment that is not read, for this reason.
    pub(super) fn unread(&self, reason: String) -> Unread {
        let reason = Some(reason);
        let of = if self.is_quoted { " of the message that is replied to" } else { "" };
        Unread {
            kind: format!("{}{of}", self.kind),
            file_name: self.file_name.clone(),
            bytes: self.bytes,
            album: false,
            reason,
        }
    }
}

/// The file of a message that Belay fetches: a document, a photo in its largest size, a voice message, an audio file, or
/// a sticker that does not move.
pub(super) fn file(m: &Content) -> Option<RemoteFile> {
    let named = |kind, usual_name, it: &File| {
        let (id, file_name, bytes) = (it.file_id.clone(), it.file_name.as_deref().map(visible), it.file_size);
        (!id.is_empty()).then_some(RemoteFile { id, kind, file_name, usual_name, bytes, is_quoted: false })
    };
    // As for attachments that are only named, the first match counts: an animation comes with its document.
    if m.animation.is_some() {
        None
    } else if let Some(it) = &m.document {
        named("document", "document", it)
    } else if let Some(it) = m.photo.as_deref().and_then(largest) {
        named("photo", "photo.jpg", it)
    } else if m.live_photo.is_some() {
        None
    } else if let Some(it) = &m.voice {
        named(VOICE, "voice.ogg", it)
    } else if let Some(it) = &m.audio {
        named("audio file", "audio", it)
    } else {
        let still = m.sticker.as_ref().filter(|it| !it.is_animated && !it.is_video);
        still.and_then(|it| named("sticker", "sticker.webp", it))
    }
}

/// The largest of the sizes of a photo.
fn largest(sizes: &[File]) -> Option<&File> {
    sizes.iter().filter(|size| !size.file_id.is_empty()).max_by_key(|size| size.width.saturating_mul(size.height))
}

/// The attachments of a message, if Belay reads none of them. `album`: the message is a part of one.
pub(super) fn not_read(m: &Content, album: bool) -> Vec<Unread> {
    let named = |kind: &str, file_name: Option<&String>, bytes: Option<u64>| {
        let file_name = file_name.map(|name| visible(name));
        vec![Unread { kind: kind.to_owned(), file_name, bytes, album, reason: None }]
    };
    let sized = |kind: &str, bytes: Option<u64>| named(kind, None, bytes);
    // Only the first match counts: an animation comes with its document.
    if let Some(it) = &m.animation {
        named("animation", it.file_name.as_ref(), it.file_size)
    } else if let Some(it) = &m.document {
        named("document", it.file_name.as_ref(), it.file_size)
    } else if let Some(sizes) = &m.photo {
        sized("photo", sizes.iter().filter_map(|size| size.file_size).max())
    } else if let Some(it) = &m.live_photo {
        sized("live photo", it.file_size)
    } else if let Some(it) = &m.voice {
        sized(VOICE, it.file_size)
    } else if let Some(it) = &m.audio {
        named("audio file", it.file_name.as_ref(), it.file_size)
    } else if let Some(it) = &m.video {
        named("video", it.file_name.as_ref(), it.file_size)
    } else if let Some(it) = &m.video_note {
        sized("video message", it.file_size)
    } else {
        let kinds = [
            (m.sticker.is_some(), "sticker"),
            (m.paid_media.is_some(), "paid media"),
            (m.story.is_some(), "story"),
            (m.game.is_some(), "game"),
            (m.invoice.is_some(), "invoice"),
        ];
        let unread = shared::unread(m);
        kinds
            .into_iter()
            .filter(|(is_there, _)| *is_there)
            .map(|(_, kind)| kind)
            .chain(unread)
            .flat_map(|kind| sized(kind, None))
            .collect()
    }
}

/// The files that were fetched and whose content the model does not get, with the reason, for the notice to the person.
pub(super) fn named_only(attachments: &[Attachment]) -> impl Iterator<Item = Unread> {
    attachments.iter().filter_map(|file| match &file.content {
        AttachmentContent::Named { detail } => Some(Unread {
            kind: "file".to_owned(),
            file_name: Some(file.name.clone()),
            bytes: Some(file.bytes),
            album: false,
            reason: Some(detail.clone()),
        }),
        AttachmentContent::Picture { .. } | AttachmentContent::Text { .. } | AttachmentContent::Spoken { .. } => None,
    })
}

/// The part of a message that the model answers in spite of attachments that are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// Nothing.
    Nothing,
    /// The text.
    Text,
    /// Other files, and perhaps a text.
    Files,
}

/// The notice to the person about attachments that are not read; `None` if there are none.
pub(super) fn line(not_read: &[Unread], rest: Rest) -> Option<String> {
    let first = not_read.first()?;
    let what: Vec<String> = not_read.iter().map(described).collect();
    let mut line = format!("I have not read this: {}.", what.join("; "));
    if first.album {
        line.push_str(&format!(" The same goes for every {} of the album.", first.kind));
    }
    line.push_str(match rest {
        Rest::Nothing => " Please write it out.",
        Rest::Text => " I answer the text alone.",
        Rest::Files => " I answer the rest.",
    });
    Some(line)
}

fn described(unread: &Unread) -> String {
    let size = unread.bytes.map(size);
    let more: Vec<String> = unread.file_name.iter().cloned().chain(size).collect();
    let what = if more.is_empty() { unread.kind.clone() } else { format!("{} ({})", unread.kind, more.join(", ")) };
    match &unread.reason {
        Some(reason) => format!("{what}: {reason}"),
        None => what,
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes.div_ceil(1_000)),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;
    use crate::telegram::wire::Read;

    fn content(fields: Value) -> Content {
        Content::read(&fields).unwrap()
    }

    fn media(more: Value) -> Value {
        let mut file =
            json!({"file_id": "f", "file_unique_id": "u", "duration": 1, "width": 1, "height": 1, "length": 1});
        file.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        file
    }

    fn sticker(is_animated: bool) -> Value {
        media(json!({"type": "regular", "is_animated": is_animated, "is_video": false, "emoji": "🎲"}))
    }

    #[test]
    fn a_photo_is_fetched_in_its_largest_size_and_a_video_is_not_fetched() {
        let photo = json!([
            media(json!({"file_id": "s", "width": 90, "height": 60, "file_size": 90})),
            media(json!({"file_id": "l", "width": 1280, "height": 853, "file_size": 120_000})),
            media(json!({"file_id": "m", "width": 320, "height": 213})),
        ]);
        let sized = media(json!({"file_size": 1200}));
        for (fields, expected) in [
            (json!({"photo": photo}), "photo l photo.jpg 120000"),
            (json!({"photo": []}), ""),
            (json!({"document": media(json!({"file_name": "a\u{202e}.pdf", "file_size": 7}))}), "document f a.pdf 7"),
            (json!({"document": media(json!({}))}), "document f document 0"),
            (json!({"voice": sized}), "voice message f voice.ogg 1200"),
            (json!({"audio": media(json!({"file_name": "a.mp3"}))}), "audio file f a.mp3 0"),
            (json!({"sticker": sticker(false)}), "sticker f sticker.webp 0"),
            (json!({"sticker": sticker(true)}), ""),
            (json!({"video": sized}), ""),
            (json!({"video_note": sized}), ""),
            (json!({"animation": sized, "document": sized}), ""),
            (json!({"contact": {"phone_number": "1", "first_name": "x"}}), ""),
            (json!({"text": "hi"}), ""),
        ] {
            let found = file(&content(fields.clone()));
            let found = found.map(|it| format!("{} {} {} {}", it.kind, it.id, it.name(), it.bytes.unwrap_or_default()));
            assert_eq!(found.unwrap_or_default(), expected, "{fields}");
        }
    }

    #[test]
    fn attachments_that_are_not_read_are_named() {
        let sized = media(json!({"file_size": 1200}));
        let photo = json!([media(json!({"file_size": 90})), media(json!({"file_size": 120_000}))]);
        let user = json!({"id": 1, "is_bot": false, "first_name": "x"});
        let location = json!({"longitude": 1.0, "latitude": 1.0});
        for (fields, expected) in [
            (json!({"photo": photo}), "photo (120 kB)"),
            (
                json!({"document": media(json!({"file_name": "a.pdf", "file_size": 2_500_000}))}),
                "document (a.pdf, 2.5 MB)",
            ),
            (json!({"voice": sized}), "voice message (2 kB)"),
            (json!({"audio": media(json!({"file_name": "a.mp3", "file_size": 7}))}), "audio file (a.mp3, 7 bytes)"),
            (json!({"video": sized}), "video (2 kB)"),
            (json!({"video_note": sized}), "video message (2 kB)"),
            (json!({"animation": sized, "document": sized}), "animation (2 kB)"),
            (json!({"sticker": sticker(true)}), "sticker"),
            // Their content is data for the model, if it can be read.
            (json!({"location": location}), ""),
            (json!({"location": 5}), "location"),
            (json!({"venue": 5, "location": location}), "venue"),
            (json!({"contact": {"phone_number": "1", "first_name": "x"}}), ""),
            (json!({"contact": {}, "poll": "x", "checklist": 5, "dice": {}}), "contact; poll; checklist; dice"),
            (json!({"game": 5}), "game"),
            (json!({"new_chat_members": [user]}), ""),
            (json!({}), ""),
        ] {
            let unread = not_read(&content(fields.clone()), false);
            assert_eq!(unread.iter().map(described).collect::<Vec<_>>().join("; "), expected, "{fields}");
        }
    }

    #[test]
    fn the_notice_says_what_was_not_read_and_why_and_what_is_answered() {
        let of = |fields: Value, album: bool| not_read(&content(fields), album);
        let video = json!({"video": media(json!({"file_size": 1200}))});
        let voice = file(&content(json!({"voice": media(json!({"file_size": 1200}))}))).unwrap();
        let failed = [voice.unread("the download failed".into()), voice.unread("it is empty".into())];
        for (unread, rest, expected) in [
            (&of(video.clone(), false)[..], Rest::Nothing, "I have not read this: video (2 kB). Please write it out."),
            (
                &of(video, true),
                Rest::Text,
                "I have not read this: video (2 kB). The same goes for every video of the album. I answer the text alone.",
            ),
            (
                &failed,
                Rest::Files,
                "I have not read this: voice message (2 kB): the download failed; voice message (2 kB): it is empty. I \
                 answer the rest.",
            ),
        ] {
            assert_eq!(line(unread, rest).unwrap(), expected);
        }
        assert_eq!(line(&[], Rest::Text), None);
    }
}
