//! Links to sent files: `/api/v1/files/TOKEN`.
//!
//! A token names a run, a file of it and a date, and is signed by HMAC-SHA256. So it works without the API token, until
//! its date or until its conversation is deleted. Reading a run again gives new links.
//!
//! `readers` adds links to all that the gateway reads: runs, messages and events.

mod readers;

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{Context, HMAC_SHA256, Key, Tag};
use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    HeaderMap, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use belay_protocol::{ByteStream, Clock, FileLinks, RunId, RunRecord, SentFile, SentFileId, UnixMillis};
use secrecy::{ExposeSecret, SecretBox};
use uuid::Uuid;

pub(crate) use self::readers::{LinkedEvents, LinkedRuns, LinkedSessions};

/// The path before a token.
pub(crate) const PATH: &str = "/api/v1/files/";

/// Length of the key, in bytes: the length of a SHA-256 digest.
pub const LINK_KEY_BYTES: usize = 32;

/// Distinguishes these signatures from others by the same key.
const PURPOSE: &[u8] = b"belay sent file, version 1";

/// Length of a token before its signature, in bytes: two ids and a date.
const SIGNED_BYTES: usize = 16 + 16 + 8;

/// Media types that no browser executes. Others are served as unspecified bytes.
const SERVED_TYPES: [&str; 11] = [
    "application/json",
    "application/pdf",
    "application/zip",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "text/csv",
    "text/markdown",
    "text/plain",
    "text/tab-separated-values",
];

/// Makes and checks links to sent files.
pub struct SignedLinks {
    key: SecretBox<[u8; LINK_KEY_BYTES]>,
    valid_ms: i64,
    clock: Arc<dyn Clock>,
}

/// Why a token opens no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkRefusal {
    /// This key has not signed it.
    Forged,
    /// Its date has passed.
    Expired,
}

impl SignedLinks {
    /// Links that are signed by this key and valid for this number of hours.
    pub fn new(key: SecretBox<[u8; LINK_KEY_BYTES]>, hours: u32, clock: Arc<dyn Clock>) -> Self {
        Self { key, valid_ms: i64::from(hours) * 3600 * 1000, clock }
    }

    /// The file that a token names.
    pub(crate) fn open(&self, token: &str) -> Result<(RunId, SentFileId), LinkRefusal> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_not_base64| LinkRefusal::Forged)?;
        let (signed, signature) = bytes.split_at_checked(SIGNED_BYTES).ok_or(LinkRefusal::Forged)?;
        verify_slices_are_equal(self.sign(PURPOSE, &[signed]).as_ref(), signature)
            .map_err(|_differs| LinkRefusal::Forged)?;
        let (run, rest) = signed.split_first_chunk::<16>().ok_or(LinkRefusal::Forged)?;
        let (file, rest) = rest.split_first_chunk::<16>().ok_or(LinkRefusal::Forged)?;
        let (expires_at, _) = rest.split_first_chunk::<8>().ok_or(LinkRefusal::Forged)?;
        if self.clock.now() >= UnixMillis(i64::from_be_bytes(*expires_at)) {
            return Err(LinkRefusal::Expired);
        }
        Ok((Uuid::from_bytes(*run).into(), Uuid::from_bytes(*file).into()))
    }

    /// The record with links to its files.
    pub(crate) fn linked(&self, record: Arc<RunRecord>) -> Arc<RunRecord> {
        if record.files.is_empty() {
            return record;
        }
        let mut record = Arc::unwrap_or_clone(record);
        self.add_links(record.run_id, &mut record.files);
        Arc::new(record)
    }

    /// The beginning of a signature of these parts, for ids that only this daemon makes. All parts but the last one have a
    /// fixed length. `purpose` distinguishes the signatures of each kind of id.
    #[cfg_attr(not(feature = "responses"), expect(dead_code, reason = "a build without ids of this kind"))]
    pub(crate) fn tag(&self, purpose: &[u8], parts: &[&[u8]]) -> [u8; 16] {
        let mut tag = [0; 16];
        tag.copy_from_slice(&self.sign(purpose, parts).as_ref()[..16]);
        tag
    }

    fn sign(&self, purpose: &[u8], parts: &[&[u8]]) -> Tag {
        let mut context = Context::with_key(&Key::new(HMAC_SHA256, self.key.expose_secret()));
        context.update(purpose);
        parts.iter().for_each(|part| context.update(part));
        context.sign()
    }
}

impl fmt::Debug for SignedLinks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignedLinks").field("valid_ms", &self.valid_ms).finish_non_exhaustive()
    }
}

impl FileLinks for SignedLinks {
    fn link(&self, run: RunId, file: SentFileId) -> String {
        let expires_at = self.clock.now().0.saturating_add(self.valid_ms);
        let mut token = Vec::with_capacity(SIGNED_BYTES + 32);
        token.extend_from_slice(run.as_uuid().as_bytes());
        token.extend_from_slice(file.as_uuid().as_bytes());
        token.extend_from_slice(&expires_at.to_be_bytes());
        let signature = self.sign(PURPOSE, &[&token]);
        token.extend_from_slice(signature.as_ref());
        format!("{PATH}{}", URL_SAFE_NO_PAD.encode(token))
    }
}

/// The response with a file, which a browser saves and does not show.
pub(crate) fn response(file: &SentFile, bytes: ByteStream) -> Response {
    let mut headers = HeaderMap::new();
    let media_type = SERVED_TYPES.iter().find(|known| **known == file.media_type);
    let fixed = [
        (CONTENT_TYPE, *media_type.unwrap_or(&"application/octet-stream")),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
        (CACHE_CONTROL, "private, no-store"),
        (ACCEPT_RANGES, "none"),
    ];
    headers.extend(fixed.map(|(name, value)| (name, HeaderValue::from_static(value))));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(file.bytes));
    // ASCII only, so it is always a valid value.
    if let Ok(disposition) = HeaderValue::from_str(&disposition(&file.name)) {
        headers.insert(CONTENT_DISPOSITION, disposition);
    }
    (headers, Body::from_stream(bytes)).into_response()
}

/// `Content-Disposition` with this name. Source: RFC 6266 and RFC 8187.
fn disposition(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, ' ' | '.' | '-' | '_') { c } else { '_' };
    let ascii: String = name.chars().map(plain).collect();
    let mut encoded = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    struct Watch(AtomicI64);

    impl Clock for Watch {
        fn now(&self) -> UnixMillis {
            UnixMillis(self.0.load(Ordering::Relaxed))
        }
    }

    fn links(key: u8, clock: &Arc<Watch>) -> SignedLinks {
        SignedLinks::new(SecretBox::new(Box::new([key; LINK_KEY_BYTES])), 24, clock.clone())
    }

    #[test]
    fn a_link_opens_its_file_until_its_date_and_no_other_token_does() {
        let clock = Arc::new(Watch(AtomicI64::new(1_000)));
        let (own, other) = (links(1, &clock), links(2, &clock));
        let (run, file) = (RunId::new(), SentFileId::new());
        let link = own.link(run, file);
        let token = link.strip_prefix(PATH).unwrap();
        assert_eq!(own.open(token), Ok((run, file)));
        assert_eq!(other.open(token), Err(LinkRefusal::Forged));
        for at in 0..token.len() {
            let other = if token.as_bytes()[at] == b'A' { "B" } else { "A" };
            let changed = format!("{}{other}{}", &token[..at], &token[at + 1..]);
            // The last character has bits that no byte uses; then the text is no valid base64.
            assert_eq!(own.open(&changed), Err(LinkRefusal::Forged), "{changed}");
        }
        for forged in ["", "x", "../../etc", &token[..token.len() - 4], &format!("{token}AAAA")] {
            assert_eq!(own.open(forged), Err(LinkRefusal::Forged), "{forged}");
        }
        clock.0.fetch_add(24 * 3600 * 1000 - 1, Ordering::Relaxed);
        assert_eq!(own.open(token), Ok((run, file)));
        clock.0.fetch_add(1, Ordering::Relaxed);
        assert_eq!(own.open(token), Err(LinkRefusal::Expired));
        assert!(!format!("{own:?}").contains('1'), "the key is not shown");
    }

    #[test]
    fn a_name_cannot_end_its_header() {
        for (name, expected) in [
            ("a.pdf", "attachment; filename=\"a.pdf\"; filename*=UTF-8''a.pdf"),
            ("a\"; x=\r\n.html", "attachment; filename=\"a__ x___.html\"; filename*=UTF-8''a%22%3B%20x%3D%0D%0A.html"),
            ("bäh €.txt", "attachment; filename=\"b_h _.txt\"; filename*=UTF-8''b%C3%A4h%20%E2%82%AC.txt"),
        ] {
            assert_eq!(disposition(name), expected);
        }
    }

    #[test]
    fn no_type_is_served_that_a_browser_executes() {
        let file = |media_type: &str| SentFile {
            id: SentFileId::new(),
            call_id: "c".into(),
            name: "a".into(),
            media_type: media_type.into(),
            bytes: 1,
            sha256: "0".repeat(64).parse().unwrap(),
            caption: String::new(),
            place: None,
            url: None,
        };
        for (media_type, served) in [
            ("image/png", "image/png"),
            ("text/html", "application/octet-stream"),
            ("image/svg+xml", "application/octet-stream"),
            ("text/xml", "application/octet-stream"),
            ("application/javascript", "application/octet-stream"),
        ] {
            let response = response(&file(media_type), Box::pin(futures_util::stream::empty()));
            assert_eq!(response.headers()[CONTENT_TYPE], served);
            assert_eq!(response.headers()[X_CONTENT_TYPE_OPTIONS], "nosniff");
        }
    }
}
