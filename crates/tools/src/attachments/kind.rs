//! The type of a file by its content. The name of a file only distinguishes texts, for example CSV from Markdown.

use std::borrow::Cow;
use std::path::Path;

use belay_protocol::AudioFormat;
use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};
use infer::MatcherType;
use serde::de::IgnoredAny;

use super::audio;
use crate::picture;

/// What is done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It is decoded as a picture.
    Picture,
    /// It is read by the process for PDF files.
    Pdf,
    /// It is converted from HTML to text.
    Html,
    /// It is shown as it is.
    Text,
    /// It is transcribed.
    Audio(AudioFormat),
    /// It is named, for this reason.
    Named(&'static str),
}

/// The media type and the kind of a file.
pub(super) fn of(bytes: &[u8], name: &str) -> (&'static str, Kind) {
    if let Some(format) = picture::format_of(bytes) {
        return (format.to_mime_type(), Kind::Picture);
    }
    if let Some(found) = infer::get(bytes) {
        let media_type = found.mime_type();
        if let Some(format) = audio::format_of(media_type, bytes) {
            let media_type = if format == AudioFormat::Webm { "audio/webm" } else { media_type };
            return (media_type, Kind::Audio(format));
        }
        match (found.matcher_type(), media_type) {
            (_, "application/pdf") => return (media_type, Kind::Pdf),
            (_, "text/html") => return (media_type, Kind::Html),
            // Texts that begin in a known way: XML, shell scripts.
            (MatcherType::Text, _) if decoded(bytes).is_some() => return (media_type, Kind::Text),
            (MatcherType::Image, _) => return (media_type, Kind::Named("pictures of this format are not shown")),
            (MatcherType::Archive, _) => return (media_type, Kind::Named("archives are not unpacked")),
            (MatcherType::Audio, _) => return (media_type, Kind::Named("audio of this format is not transcribed")),
            (MatcherType::Video, _) => return (media_type, Kind::Named("videos are not read")),
            (MatcherType::Doc | MatcherType::Book, _) => {
                return (media_type, Kind::Named("documents of this format are not read; PDF and text are"));
            }
            (MatcherType::App, _) => return (media_type, Kind::Named("programs are not read")),
            _ => return (media_type, Kind::Named("files of this type are not read")),
        }
    }
    match decoded(bytes) {
        Some(text) => text_kind(&text, name),
        None => ("application/octet-stream", Kind::Named("its type is not known")),
    }
}

fn text_kind(text: &str, name: &str) -> (&'static str, Kind) {
    let begin = text.trim_start();
    let head: String = begin.chars().take(14).map(|c| c.to_ascii_lowercase()).collect();
    if head.starts_with("<!doctype html") || head.starts_with("<html") {
        return ("text/html", Kind::Html);
    }
    // The parser refuses JSON that is nested more than 128 deep. Such a file is shown as text.
    if begin.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(text).is_ok() {
        return ("application/json", Kind::Text);
    }
    let ending = Path::new(name).extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let media_type = match ending.as_deref() {
        Some("csv") => "text/csv",
        Some("tsv") => "text/tab-separated-values",
        Some("md" | "markdown") => "text/markdown",
        _ => "text/plain",
    };
    (media_type, Kind::Text)
}

/// The text of a file; `None`: it is no text. UTF-8 and UTF-16 with a byte order mark are exact. Other texts without
/// control characters are read as Windows-1252, which has a character for nearly every byte.
pub(super) fn decoded(bytes: &[u8]) -> Option<Cow<'_, str>> {
    let (encoding, marked) = match Encoding::for_bom(bytes) {
        Some((encoding, _)) => (encoding, true),
        None if std::str::from_utf8(bytes).is_ok() => (UTF_8, false),
        None => (WINDOWS_1252, false),
    };
    let is_control = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{c}' | '\u{1b}');
    let (text, _, broken) = encoding.decode(bytes);
    let is_text = !text.chars().any(is_control) && (!broken || !marked);
    is_text.then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_decides_and_the_name_only_between_texts() {
        let zip: &[u8] = b"PK\x03\x04\x14\0\0\0\0\0";
        let deep = "[".repeat(100_000);
        let elf = [b"\x7fELF".as_slice(), &[0; 60]].concat();
        let webm = |codecs: &str| [b"\x1aE\xdf\xa3\x42\x82\x84webm".as_slice(), codecs.as_bytes(), &[0; 256]].concat();
        let rows: &[(&[u8], &str, &str, &str)] = &[
            (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a.txt", "image/png", "Picture"),
            (b"\xff\xd8\xff\xe0\0\x10JFIF\0", "a.pdf", "image/jpeg", "Picture"),
            (b"%PDF-1.7\n", "photo.png", "application/pdf", "Pdf"),
            (zip, "a.txt", "application/zip", "archives"),
            (b"\x1f\x8b\x08\0", "a.csv", "application/gzip", "archives"),
            (b"ID3\x03\0\0\0\0", "voice.txt", "audio/mpeg", "Audio(Mp3)"),
            (b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0OpusHead", "v", "audio/opus", "Audio(OggOpus)"),
            (b"OggS\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01vorbis", "v", "audio/ogg", "Audio(Ogg)"),
            (b"RIFF\x24\0\0\0WAVEfmt ", "photo.png", "audio/x-wav", "Audio(Wav)"),
            (b"fLaC\0\0\0\x22", "a", "audio/x-flac", "Audio(Flac)"),
            (b"\0\0\0\x20ftypM4A \0\0\0\0", "a", "audio/m4a", "Audio(M4a)"),
            (&webm("A_OPUS"), "a", "audio/webm", "Audio(Webm)"),
            (&webm("A_OPUS V_VP9"), "a", "video/webm", "videos"),
            (b"MThd\0\0\0\x06", "a", "audio/midi", "not transcribed"),
            (&elf, "a.md", "application/x-executable", "programs"),
            (b"a,b\n1,2\n", "t.CSV", "text/csv", "Text"),
            (b"# Title\n", "t.md", "text/markdown", "Text"),
            (b"hello", "t.png", "text/plain", "Text"),
            (b"{\"a\": [1]}", "t.bin", "application/json", "Text"),
            (deep.as_bytes(), "bomb.json", "text/plain", "Text"),
            (b" <!DOCTYPE html><p>x", "t.txt", "text/html", "Html"),
            ("\u{feff}bäh".as_bytes(), "t", "text/plain", "Text"),
            (b"\xff\xfeh\0i\0", "t", "text/plain", "Text"),
            (b"caf\xe9", "t", "text/plain", "Text"),
            (b"a\0b\0\x01", "t.txt", "application/octet-stream", "not known"),
        ];
        for (bytes, name, media_type, kind) in rows {
            let found = of(bytes, name);
            assert_eq!(found.0, *media_type, "{name} {found:?}");
            assert!(format!("{:?}", found.1).contains(kind), "{name} {found:?}");
        }
    }

    #[test]
    fn other_encodings_are_read() {
        assert_eq!(decoded(b"\xff\xfeh\0i\0").as_deref(), Some("hi"));
        assert_eq!(decoded(b"caf\xe9").as_deref(), Some("café"));
        assert_eq!(decoded("naïve".as_bytes()).as_deref(), Some("naïve"));
    }
}
