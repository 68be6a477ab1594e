//! Files that clients send: inline in a request, or uploaded before.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use belay_protocol::{Attachment, AttachmentError, ByteStream, Principal, Provenance, Upload, Uploader};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use tokio::time::{Instant, timeout_at};

use crate::app::App;
use crate::error::{ApiError, ErrorCode};

/// Longest pause between two pieces of an upload. 30 s, as for other bodies.
const PIECE_LIMIT: Duration = Duration::from_secs(30);

/// Longest time for the arrival of an upload. 10 minutes: 20 MiB at 35 kB/s.
const UPLOAD_LIMIT: Duration = Duration::from_secs(600);

/// Longest name of a file that is only named, in characters.
const NAME_MAX_CHARS: usize = 128;

/// Base64 with or without padding at the end: clients differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// A file of a message: its content, or the id of an upload.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct NewFile {
    pub(crate) name: Option<String>,
    /// For people that read the request. The content decides.
    #[serde(rename = "media_type")]
    _media_type: Option<String>,
    /// In base64, also as a `data:` URL.
    pub(crate) data: Option<String>,
    /// The id of an upload.
    pub(crate) file: Option<String>,
}

impl NewFile {
    pub(crate) fn inline(name: &str, data: &str) -> Self {
        Self { name: Some(name.to_owned()), data: Some(data.to_owned()), ..Self::default() }
    }

    /// The name for the model, on one line; for an upload its id.
    pub(crate) fn shown_name(&self) -> String {
        let name = self.name.as_deref().or(self.file.as_deref()).unwrap_or_default();
        let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_MAX_CHARS).collect();
        if name.is_empty() { "unnamed".to_owned() } else { name }
    }

    pub(crate) fn uploaded(id: &str) -> Self {
        Self { file: Some(id.to_owned()), ..Self::default() }
    }
}

/// Takes the files of a message; `None`: there are none.
///
/// # Errors
/// There are too many, or one is not taken. Nothing of the message is accepted then.
pub(crate) async fn take_all(
    app: &App,
    principal: &Principal,
    files: &[NewFile],
) -> Result<Option<Arc<Provenance>>, ApiError> {
    if files.is_empty() {
        return Ok(None);
    }
    let most = app.attachments.max_count();
    if most == 0 {
        return Err(AttachmentError::Disabled.into());
    }
    if files.len() > most {
        return Err(ApiError::invalid(format!("attachments: at most {most} (attachments.max_count)")));
    }
    let mut attachments = Vec::with_capacity(files.len());
    for (at, file) in files.iter().enumerate() {
        let taken = take(app, principal, file).await;
        let named = |mut error: ApiError| {
            // The path of a field of the file continues that of the file.
            let between = if error.param().is_some() { "." } else { ": " };
            error.message = format!("attachments[{at}]{between}{}", error.message).into();
            error
        };
        attachments.push(taken.map_err(named)?);
    }
    Ok(Some(Arc::new(Provenance { attachments, ..Provenance::default() })))
}

async fn take(app: &App, principal: &Principal, file: &NewFile) -> Result<Attachment, ApiError> {
    let from = uploader(app, principal);
    match (&file.data, &file.file) {
        (Some(data), None) => {
            let bytes = decoded(data).ok_or_else(|| ApiError::invalid("data: it is not base64"))?;
            let name = file.name.as_deref().unwrap_or_default();
            Ok(app.attachments.take_whole(&from, name, bytes).await?.attachment)
        }
        (None, Some(id)) => Ok(app.attachments.find(&from, id).await?),
        _ => Err(ApiError::invalid("give either data (base64), or file, the id of an upload")),
    }
}

/// The bytes of base64, with or without the beginning of a `data:` URL.
fn decoded(data: &str) -> Option<Bytes> {
    let data = match data.strip_prefix("data:") {
        Some(url) => url.split_once(";base64,")?.1,
        None => data,
    };
    BASE64.decode(data.trim()).ok().map(Bytes::from)
}

fn uploader(app: &App, principal: &Principal) -> Uploader {
    Uploader { channel: app.channel.clone(), principal: principal.id.to_string() }
}

/// Takes the body of a request as a file.
///
/// # Errors
/// 413 when it is longer than the limit, before reading if its length is declared; 415 for a wrong content type; 400
/// when the body breaks off, stalls, or takes longer than [`UPLOAD_LIMIT`].
pub(crate) async fn upload(app: &App, principal: &Principal, name: &str, request: Request) -> Result<Upload, ApiError> {
    if app.attachments.max_count() == 0 {
        return Err(AttachmentError::Disabled.into());
    }
    // Another site's page cannot declare this type without a CORS preflight.
    let kind = request.headers().get(CONTENT_TYPE).map(|kind| kind.as_bytes());
    if !kind.is_some_and(|kind| kind.eq_ignore_ascii_case(b"application/octet-stream")) {
        return Err(ApiError::unsupported("send the file with the header \"Content-Type: application/octet-stream\""));
    }
    let limit = app.attachments.max_bytes();
    let declared = request.headers().get(CONTENT_LENGTH).and_then(|n| n.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|bytes| bytes > limit) {
        return Err(AttachmentError::TooLarge(limit).into());
    }
    let from = uploader(app, principal);
    Ok(app.attachments.take(&from, name, pieces(request.into_body())).await?)
}

/// The pieces of a body. A body that stalls or takes too long ends with an error.
fn pieces(body: Body) -> ByteStream {
    let pieces = body.into_data_stream();
    let end = Instant::now() + UPLOAD_LIMIT;
    Box::pin(stream::unfold(Some(pieces), move |pieces| async move {
        let mut pieces = pieces?;
        match timeout_at(end.min(Instant::now() + PIECE_LIMIT), pieces.next()).await {
            Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
            Ok(Some(Err(_broken))) => Some((Err(std::io::Error::other("the body broke off")), None)),
            Ok(None) => None,
            Err(_elapsed) if Instant::now() >= end => {
                Some((Err(std::io::Error::other("it took longer than 10 minutes")), None))
            }
            Err(_elapsed) => Some((Err(std::io::Error::other("nothing arrived for 30 s")), None)),
        }
    }))
}

impl From<AttachmentError> for ApiError {
    fn from(error: AttachmentError) -> Self {
        let message = error.to_string();
        match error {
            AttachmentError::TooLarge(_) => Self::file_too_large(message),
            AttachmentError::Quota { .. } => Self::upload_quota(message),
            AttachmentError::Disabled => Self::forbidden(message),
            AttachmentError::Broken(_) => Self::bad_request(ErrorCode::BrokenBody, message),
            AttachmentError::Empty | AttachmentError::Unknown(_) => Self::invalid(message),
            AttachmentError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_comes_with_or_without_padding_and_as_a_data_url() {
        for (data, expected) in [
            ("aGk=", Some("hi")),
            ("aGk", Some("hi")),
            (" aGk=\n", Some("hi")),
            ("data:text/plain;base64,aGk=", Some("hi")),
            ("data:text/plain;charset=utf-8;base64,aGk=", Some("hi")),
            ("", Some("")),
            ("data:text/plain,hi", None),
            ("a*k=", None),
        ] {
            assert_eq!(decoded(data).as_deref(), expected.map(str::as_bytes), "{data:?}");
        }
    }
}
