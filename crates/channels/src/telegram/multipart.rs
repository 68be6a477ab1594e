//! A body in `multipart/form-data` with one file, whose bytes are sent as they are read. Source: RFC 7578.

use belay_protocol::{ByteStream, OutboundFile};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use reqwest::Body;
use reqwest::header::HeaderValue;

/// Separates the parts. A fresh id follows.
const BOUNDARY: &str = "belay-";

/// The fields before the file.
pub(super) struct Form {
    boundary: String,
    begin: String,
}

/// A complete form.
pub(super) struct FormBody {
    /// The value of `Content-Type`.
    pub(super) content_type: HeaderValue,
    /// The length of the body in bytes.
    pub(super) length: u64,
    /// The body.
    pub(super) body: Body,
}

impl Form {
    pub(super) fn new() -> Self {
        let random = belay_protocol::OutboxId::new().as_uuid().simple().to_string();
        Self { boundary: format!("{BOUNDARY}{random}"), begin: String::new() }
    }

    /// Adds a field. `name` is a literal of this crate.
    pub(super) fn text(&mut self, name: &str, value: &str) {
        let head = format!("--{}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n", self.boundary);
        self.begin.extend([&head, value, "\r\n"]);
    }

    /// Ends the form with a file.
    pub(super) fn with_file(self, field: &str, file: &OutboundFile, bytes: ByteStream) -> FormBody {
        let Self { boundary, mut begin } = self;
        let disposition = format!("form-data; name=\"{field}\"; filename=\"{}\"", escaped(&file.name));
        let head =
            format!("--{boundary}\r\nContent-Disposition: {disposition}\r\nContent-Type: {}\r\n\r\n", file.media_type);
        begin.push_str(&head);
        let end = format!("\r\n--{boundary}--\r\n");
        let length = (begin.len() + end.len()) as u64 + file.bytes;
        let (begin, end) = (stream::iter([Ok(Bytes::from(begin))]), stream::iter([Ok(Bytes::from(end))]));
        let content_type = HeaderValue::try_from(format!("multipart/form-data; boundary={boundary}"));
        FormBody {
            content_type: content_type.unwrap_or_else(|_| HeaderValue::from_static("multipart/form-data")), // ASCII only
            length,
            body: Body::wrap_stream(begin.chain(bytes).chain(end)),
        }
    }
}

/// A file name in a header. Source: WHATWG, HTML, "multipart/form-data encoding algorithm".
fn escaped(name: &str) -> String {
    name.replace('"', "%22").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_its_header() {
        for (name, expected) in [
            ("a.pdf", "a.pdf"),
            ("a\"; name=\"chat_id", "a%22; name=%22chat_id"),
            ("a\r\nX: y", "a%0D%0AX: y"),
            ("bäh", "bäh"),
        ] {
            assert_eq!(escaped(name), expected);
        }
    }
}
