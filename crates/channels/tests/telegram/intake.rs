//! An intake of attachments in memory: it counts the bytes as they arrive and finds the type by the content.

use std::sync::Mutex;

use async_trait::async_trait;
use belay_protocol::{
    Attachment, AttachmentContent, AttachmentError, AttachmentIntake, ByteStream, Upload, UploadId, Uploader,
};
use futures_util::StreamExt;

/// Takes up to 3 files of a message, of at most 1000 bytes each, and 5000 bytes of a person.
#[derive(Default)]
pub(crate) struct Intake {
    taken: Mutex<Vec<(String, String, usize)>>,
}

impl Intake {
    /// The uploader, the name and the size of each file so far.
    pub(crate) fn taken(&self) -> Vec<(String, String, usize)> {
        self.taken.lock().unwrap().clone()
    }
}

#[async_trait]
impl AttachmentIntake for Intake {
    fn max_count(&self) -> usize {
        3
    }

    fn max_bytes(&self) -> u64 {
        1000
    }

    async fn take(&self, from: &Uploader, name: &str, mut bytes: ByteStream) -> Result<Upload, AttachmentError> {
        let used: usize = self.taken().iter().map(|(.., size)| size).sum();
        if used >= 5000 {
            return Err(AttachmentError::Quota { used: used as u64, limit: 5000 });
        }
        let mut whole = Vec::new();
        while let Some(piece) = bytes.next().await {
            whole.extend(piece.map_err(|error| AttachmentError::Broken(error.to_string()))?);
            if whole.len() > 1000 {
                return Err(AttachmentError::TooLarge(1000));
            }
        }
        if whole.is_empty() {
            return Err(AttachmentError::Empty);
        }
        let from = format!("{}:{}", from.channel, from.principal);
        self.taken.lock().unwrap().push((from, name.to_owned(), whole.len()));
        let content = match String::from_utf8(whole.clone()) {
            Ok(text) => AttachmentContent::Text { text, mark: "0123456789ab".into(), detail: "text".into() },
            Err(_) => AttachmentContent::Named { detail: "its type is not known".into() },
        };
        let media_type = "text/plain".to_owned();
        let digest = format!("{:064x}", whole.len()).parse().unwrap();
        let attachment = Attachment { name: name.to_owned(), media_type, bytes: whole.len() as u64, digest, content };
        Ok(Upload { id: UploadId::new(), attachment })
    }

    async fn take_whole(
        &self,
        from: &Uploader,
        name: &str,
        bytes: axum::body::Bytes,
    ) -> Result<Upload, AttachmentError> {
        self.take(from, name, Box::pin(futures_util::stream::iter([Ok(bytes)]))).await
    }

    async fn find(&self, _from: &Uploader, id: &str) -> Result<Attachment, AttachmentError> {
        Err(AttachmentError::Unknown(id.to_owned()))
    }
}
