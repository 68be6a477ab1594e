//! The files of the console.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{Context, SHA256};
use axum::Router;
use axum::extract::Path;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::app::Shared;
use crate::error::ApiError;

/// Why the build has no console. It has one.
pub(crate) const ABSENT: Option<&str> = None;

/// Nothing but the files here, no inline script or style, and no frame of another page.
/// `blob:` is for pictures that a person is about to send.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; \
                      manifest-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

const PERMISSIONS_POLICY: HeaderName = HeaderName::from_static("permissions-policy");

/// The pages use none of these abilities of a browser. Source: W3C, "Permissions Policy".
const PERMISSIONS: &str =
    "camera=(), display-capture=(), geolocation=(), hid=(), microphone=(), midi=(), payment=(), serial=(), usb=()";

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// The path of the files, relative to the page. A part with the version of all files may follow.
const FOLDER: &str = "console/assets/";

/// A browser asks each time whether its copy is current: another version of the daemon may have other files.
const CHECKED: &str = "no-cache";

/// A browser keeps its copy for a year: another version has another address. Source: RFC 8246.
const KEPT: &str = "public, max-age=31536000, immutable";

/// The page at `/` and what it loads. Open to all: a stranger finds the form of the sign-in, and no data.
pub(crate) fn router() -> Router<Shared> {
    let files = Arc::new(Files::new());
    let page = files.clone();
    Router::new().route("/", get(async move |headers: HeaderMap| page.page(&headers))).route(
        "/console/assets/{*path}",
        get(async move |Path(path): Path<String>, headers: HeaderMap| files.file(&path, &headers)),
    )
}

/// The files as they are sent.
struct Files {
    /// A digest of all files.
    version: String,
    page: OnceLock<Option<Packed>>,
    files: BTreeMap<String, OnceLock<Option<Packed>>>,
}

/// A file, and its gzip. Both are made once, when a browser first asks for the file.
#[derive(Clone)]
struct Packed {
    plain: Bytes,
    /// Absent if it is not shorter.
    gzip: Option<Bytes>,
    media_type: &'static str,
    etag: String,
}

impl Files {
    fn new() -> Self {
        let mut digest = Context::new(&SHA256);
        let mut files = BTreeMap::new();
        for path in belay_console::paths() {
            digest.update(path.as_bytes());
            digest.update(belay_console::file(&path).map(|file| file.etag).unwrap_or_default().as_bytes());
            files.insert(path.into_owned(), OnceLock::new());
        }
        let version = digest.finish().as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        Self { version, page: OnceLock::new(), files }
    }

    /// The page. It names its files with their version.
    fn page(&self, request: &HeaderMap) -> Response {
        let packed = self.page.get_or_init(|| {
            let file = belay_console::file(belay_console::PAGE)?;
            let text = String::from_utf8_lossy(&file.bytes).replace(FOLDER, &format!("{FOLDER}{}/", self.version));
            // The version is the digest of all files, this one too.
            Some(Packed::new(text.into(), file.media_type, format!("\"{}\"", self.version)))
        });
        respond(packed.as_ref(), CHECKED, request)
    }

    /// The file at this path, with or without a version. A page of an older version gets the files of this one.
    fn file(&self, path: &str, request: &HeaderMap) -> Response {
        let (kept, path) = match path.split_once('/') {
            Some((version, rest)) if version == self.version => (KEPT, rest),
            Some((version, rest)) if is_version(version) => (CHECKED, rest),
            _ => (CHECKED, path),
        };
        let packed = self.files.get(path).and_then(|packed| {
            let packed = packed.get_or_init(|| {
                let file = belay_console::file(path)?;
                Some(Packed::new(file.bytes.into_owned().into(), file.media_type, file.etag))
            });
            packed.as_ref()
        });
        respond(packed, kept, request)
    }
}

fn is_version(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Packed {
    fn new(plain: Bytes, media_type: &'static str, etag: String) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let gzip = encoder.write_all(&plain).and_then(|()| encoder.finish());
        let gzip = gzip.ok().filter(|gzip| gzip.len() < plain.len()).map(Bytes::from);
        Self { plain, gzip, media_type, etag }
    }
}

fn respond(file: Option<&Packed>, kept: &'static str, request: &HeaderMap) -> Response {
    let Some(file) = file else { return ApiError::not_found("no such file").into_response() };
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (PERMISSIONS_POLICY, PERMISSIONS),
        (OPENER_POLICY, "same-origin"),
        (RESOURCE_POLICY, "same-origin"),
        (CACHE_CONTROL, kept),
        (CONTENT_TYPE, file.media_type),
        (VARY, "accept-encoding"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Weak: the gzip has the same validator.
    if let Ok(etag) = HeaderValue::from_str(&format!("W/{}", file.etag)) {
        headers.insert(ETAG, etag);
    }
    let mut known = list(request, &IF_NONE_MATCH);
    if known.any(|known| known.strip_prefix("W/").unwrap_or(known) == file.etag) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    let gzip = file.gzip.as_ref().filter(|_| list(request, &ACCEPT_ENCODING).any(is_gzip));
    if gzip.is_some() {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    (headers, gzip.unwrap_or(&file.plain).clone()).into_response()
}

/// The members of a list in the headers of this name.
fn list<'a>(request: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = request.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Whether a member of `Accept-Encoding` accepts gzip. Source: RFC 9110, 12.5.3.
fn is_gzip(member: &str) -> bool {
    let (coding, weight) = member.split_once(';').unwrap_or((member, ""));
    let weight = weight.trim().to_ascii_lowercase();
    let refused = weight.strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok()) == Some(0.0);
    coding.trim().eq_ignore_ascii_case("gzip") && !refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_only_to_those_who_accept_it() {
        for (accepted, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.000, br", false),
            ("deflate, br", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_str(accepted).unwrap())]);
            assert_eq!(list(&headers, &ACCEPT_ENCODING).any(is_gzip), expected, "{accepted}");
        }
    }

    #[test]
    fn a_file_is_compressed_once() {
        let files = Files::new();
        let request = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("gzip"))]);
        let gzip = || {
            assert_eq!(files.file("app.js", &request).headers()[CONTENT_ENCODING], "gzip");
            let packed = files.files["app.js"].get().and_then(Option::as_ref).unwrap();
            packed.gzip.as_ref().unwrap().as_ptr()
        };
        assert_eq!(gzip(), gzip());
    }
}
