//! Adds the attached pictures of messages to a model request. A message has only their digests; the blob store has each
//! picture as it is shown, in base64, so that a step decodes nothing.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{BlobDigest, BlobStore, Message, MessageBody, Picture};

/// Most pictures of one request, the newest ones. 16: at 1.4 MB of base64 each, they stay below the 32 MB that providers
/// accept as a request.
const PICTURES_MAX: usize = 16;

/// Most bytes of base64 that stay in memory for later steps. 16 MiB: a dozen large pictures.
const CACHE_MAX_BYTES: usize = 16 * 1024 * 1024;

/// Reads attached pictures, and keeps the ones that were used last in memory.
pub struct AttachedPictures {
    blobs: Arc<dyn BlobStore>,
    /// The last used one is at the end. The lock is held for a look-up, never across an await.
    cache: Mutex<VecDeque<(BlobDigest, Arc<str>)>>,
}

impl AttachedPictures {
    /// Reads pictures from this store.
    pub fn new(blobs: Arc<dyn BlobStore>) -> Self {
        Self { blobs, cache: Mutex::default() }
    }

    /// The messages with their attached pictures. Messages without any are unchanged and cost a look at each message.
    pub(crate) async fn shown<'m>(&self, mut messages: Cow<'m, [Arc<Message>]>) -> Cow<'m, [Arc<Message>]> {
        if !messages.iter().any(|message| message.attached_pictures().next().is_some()) {
            return messages;
        }
        let mut left = PICTURES_MAX;
        for message in messages.to_mut().iter_mut().rev() {
            let wanted = message.attached_pictures().count();
            if wanted == 0 {
                continue;
            }
            let (mut pictures, mut missing) = (Vec::new(), 0);
            for (digest, media_type) in message.attached_pictures() {
                let base64 = if left > 0 { self.base64(digest).await } else { None };
                match base64 {
                    Some(base64) => {
                        left -= 1;
                        pictures.push(Picture { media_type: media_type.to_owned(), base64 });
                    }
                    None => missing += 1,
                }
            }
            let mut shown = Message::clone(message).with_pictures(pictures);
            if missing > 0
                && let MessageBody::User { text } = &mut shown.body
            {
                text.push_str(&format!("\n[{missing} of {wanted} pictures of this message are not shown again]"));
            }
            // The clone may hold the form of the message without pictures.
            shown.wire = Default::default();
            *message = Arc::new(shown);
        }
        messages
    }

    /// A picture in base64; `None`: the store does not have it.
    async fn base64(&self, digest: &BlobDigest) -> Option<Arc<str>> {
        if let Some(found) = self.cached(digest) {
            return Some(found);
        }
        let read = match self.blobs.read(digest).await {
            Ok(read) => read,
            Err(error) => {
                tracing::warn!(%error, %digest, "an attached picture cannot be read");
                None
            }
        };
        let base64: Arc<str> = std::str::from_utf8(&read?).ok()?.into();
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.push_back((digest.clone(), base64.clone()));
        while cache.iter().map(|(_, base64)| base64.len()).sum::<usize>() > CACHE_MAX_BYTES {
            cache.pop_front();
        }
        Some(base64)
    }

    fn cached(&self, digest: &BlobDigest) -> Option<Arc<str>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let at = cache.iter().position(|(known, _)| known == digest)?;
        let used = cache.remove(at)?;
        let base64 = used.1.clone();
        cache.push_back(used);
        Some(base64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use belay_protocol::{Attachment, AttachmentContent, BlobWriter, Provenance, StoreError, UnixMillis};
    use bytes::Bytes;

    use super::*;

    /// Has every blob but the one of zeros, and counts the reads.
    #[derive(Default)]
    struct Reads(AtomicUsize);

    #[async_trait]
    impl BlobStore for Reads {
        fn digest(&self, _bytes: &[u8]) -> Result<BlobDigest, StoreError> {
            unreachable!("a request only reads")
        }

        async fn begin(&self) -> Result<Box<dyn BlobWriter>, StoreError> {
            Err(StoreError::Unavailable("it only reads".into()))
        }

        async fn read(&self, digest: &BlobDigest) -> Result<Option<Bytes>, StoreError> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok((*digest != digest_of(0)).then(|| Bytes::copy_from_slice(&digest.as_str().as_bytes()[60..])))
        }

        async fn older_than(&self, _before: UnixMillis) -> Result<Vec<BlobDigest>, StoreError> {
            Ok(Vec::new())
        }

        async fn remove(&self, _digests: &[BlobDigest], _before: UnixMillis) -> Result<u64, StoreError> {
            Ok(0)
        }
    }

    fn digest_of(number: usize) -> BlobDigest {
        format!("{number:064x}").parse().unwrap()
    }

    fn with_picture(number: usize) -> Arc<Message> {
        let content = AttachmentContent::Picture {
            digest: digest_of(number),
            media_type: "image/png".into(),
            detail: "PNG picture".into(),
        };
        let name = format!("{number}.png");
        let attachment =
            Attachment { name, media_type: "image/png".into(), bytes: 1, digest: digest_of(number), content };
        let provenance = Provenance { attachments: vec![attachment], ..Provenance::default() };
        Arc::new(Message::sent("look", Some(Arc::new(provenance))))
    }

    #[tokio::test]
    async fn the_newest_pictures_are_shown_and_read_once() {
        let reads = Arc::new(Reads::default());
        let pictures = AttachedPictures::new(reads.clone());
        let plain = Arc::new(Message::user("hi"));
        let history: Vec<_> = (1..=PICTURES_MAX + 2).map(with_picture).chain([plain.clone()]).collect();
        for _ in 0..2 {
            let shown = pictures.shown(Cow::Borrowed(&history)).await;
            let counts: Vec<usize> = shown.iter().map(|message| message.pictures.len()).collect();
            assert_eq!(counts, [vec![0; 2], vec![1; PICTURES_MAX], vec![0]].concat());
            assert_eq!(shown[0].text(), "look\n[1 of 1 pictures of this message are not shown again]");
            assert_eq!((shown[2].text(), &*shown[2].pictures[0].base64), ("look", "0003"));
            assert!(Arc::ptr_eq(&shown[PICTURES_MAX + 2], &plain));
            assert_eq!(reads.0.load(Ordering::Relaxed), PICTURES_MAX);
        }
        assert!(history.iter().all(|message| message.pictures.is_empty()), "the conversation is unchanged");
    }

    #[tokio::test]
    async fn a_missing_picture_and_a_history_without_pictures_do_no_harm() {
        let pictures = AttachedPictures::new(Arc::new(Reads::default()));
        let shown = pictures.shown(Cow::Owned(vec![with_picture(0)])).await;
        assert!(shown[0].pictures.is_empty() && shown[0].text().contains("not shown again"));
        let plain = vec![Arc::new(Message::user("hi"))];
        assert!(matches!(pictures.shown(Cow::Borrowed(&plain)).await, Cow::Borrowed(_)));
    }
}
