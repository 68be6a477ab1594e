//! Files: those of messages are fetched, those of answers are uploaded. The bytes pass piece by piece.

use std::sync::Arc;
use std::time::Duration;

use belay_protocol::{
    Attachment, AttachmentError, Body, ByteStream, DeliverError, Inbound, OutboundFile, Provenance, Uploader,
    with_spoken,
};
use futures_util::{StreamExt, stream};
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE};
use reqwest::{Body as RequestBody, Method, Response};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::deliver::failed;
use super::error::unsent;
use super::intake::RemoteFile;
use super::room::Rooms;
use crate::NAME;

/// Largest file that is sent. 50 MB: the default limit of Synapse, `max_upload_size`.
pub(crate) const FILE_MAX_BYTES: u64 = 50_000_000;

/// Longest time of a download, after which the message goes on without the file.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(120);

/// Longest time of an upload: less than the limit of a delivery with a file.
const UPLOAD_LIMIT: Duration = Duration::from_secs(540);

/// Longest transcript that becomes the text of its message. 8 KiB: about ten minutes of speech.
const SPOKEN_MAX_BYTES: usize = 8192;

/// Why a file was not read whose message was stopped.
const NOT_FETCHED: &str = "its message was stopped before it was fetched";

impl Rooms {
    /// Fetches the file of a message. A file that cannot be fetched is no error of the message: the model reads why.
    pub(crate) async fn add_file(&self, inbound: &mut Inbound, file: &RemoteFile, hurry: &CancellationToken) {
        let from = Uploader { channel: NAME.into(), principal: inbound.principal.id.to_string() };
        let fetched = hurry.run_until_cancelled(timeout(DOWNLOAD_LIMIT, self.fetch(&from, file))).await;
        let fetched = match fetched {
            Some(Ok(fetched)) => fetched,
            Some(Err(_elapsed)) => Err(format!("it took longer than {} s", DOWNLOAD_LIMIT.as_secs())),
            None => Err(NOT_FETCHED.to_owned()),
        };
        let mut provenance = inbound.provenance.as_deref().cloned().unwrap_or_default();
        match fetched {
            Ok(attachment) => provenance.attachments.push(attachment),
            Err(reason) => provenance.not_read.push(file.unread(reason)),
        }
        if let Body::Text(text) = &mut inbound.body {
            let spoken = with_spoken(text, &provenance.attachments);
            if spoken.len() <= SPOKEN_MAX_BYTES {
                *text = spoken;
            }
        }
        inbound.provenance = Some(Arc::new(Provenance::cleaned(provenance)));
    }

    async fn fetch(&self, from: &Uploader, file: &RemoteFile) -> Result<Attachment, String> {
        if self.parts.attachments.max_count() == 0 {
            return Err(AttachmentError::Disabled.to_string());
        }
        let path = ["client", "v1", "media", "download", file.server.as_str(), file.media.as_str()];
        let response = self.api.request(Method::GET, &path, &[]).send().await;
        let response = response.map_err(|error| unsent(error).to_string())?;
        if !response.status().is_success() {
            return Err(format!("the server did not give it (HTTP {})", response.status().as_u16()));
        }
        let name = if file.name.is_empty() { file.kind } else { file.name.as_str() };
        let upload = self.parts.attachments.take(from, name, pieces(response)).await;
        upload.map(|upload| upload.attachment).map_err(|error| error.to_string())
    }

    /// Uploads the file of an answer and returns its address. A repetition leaves a file that no message names.
    pub(crate) async fn upload(&self, file: &OutboundFile) -> Result<String, DeliverError> {
        let retry = |detail: String| DeliverError::Retry { after: None, detail, pieces_sent: 0 };
        let found = self.parts.blobs.stream(&file.digest).await.map_err(|error| retry(error.to_string()))?;
        let gone = || DeliverError::Refused { detail: "the bytes of the file are not stored any more".into() };
        let body = RequestBody::wrap_stream(found.ok_or_else(gone)?);
        let query = [("filename", file.name.as_str())];
        let request = self.api.request(Method::POST, &["media", "v3", "upload"], &query).timeout(UPLOAD_LIMIT);
        let request = request.header(CONTENT_TYPE, &file.media_type);
        let sent = self.api.upload(request.header(CONTENT_LENGTH, file.bytes), body).await;
        let answer = sent.map_err(|error| match failed(&error, 0) {
            DeliverError::Ambiguous { detail, .. } => retry(detail), // nothing is shown yet
            error => error,
        })?;
        let address = answer.get("content_uri").and_then(Value::as_str);
        address.map(str::to_owned).ok_or_else(|| retry("the server names no address of the file".to_owned()))
    }
}

/// The pieces of a download.
fn pieces(response: Response) -> ByteStream {
    stream::unfold(Some(response), |response| async move {
        let mut response = response?;
        match response.chunk().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(response))),
            Ok(None) => None,
            Err(error) => Some((Err(std::io::Error::other(unsent(error).to_string())), None)),
        }
    })
    .boxed()
}
