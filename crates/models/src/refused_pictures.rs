//! Remembers the pictures that a model has refused. A conversation with one of them gets lines instead of its pictures from
//! then on, so that its next message is not refused again.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use belay_protocol::{Message, ModelError, ModelErrorKind, ModelRequest};

/// The maximum number of refused pictures that are remembered. Beyond it the oldest is forgotten, and costs one more
/// refused request.
const REMEMBERED_MAX: usize = 1024;

/// Words of errors about pictures: "image input is not supported", "unknown variant `image_url`", "No endpoints found that
/// support image input", "this model has no vision", "multimodal data is not allowed".
const ABOUT_PICTURES: [&str; 6] = ["image", "picture", "vision", "multimodal", "multi-modal", "media"];

/// The refused pictures of one candidate, as digests in memory.
#[derive(Default)]
pub(crate) struct RefusedPictures {
    hasher: RandomState,
    /// Locked for a few comparisons, never across an await.
    digests: Mutex<VecDeque<u64>>,
}

impl RefusedPictures {
    /// Whether the request contains a picture that was refused before.
    pub(crate) fn any_of(&self, request: &ModelRequest<'_>) -> bool {
        let digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        !digests.is_empty() && self.of(request.messages).any(|digest| digests.contains(&digest))
    }

    /// Remembers that the pictures of this request were refused.
    pub(crate) fn remember(&self, request: &ModelRequest<'_>) {
        let mut digests = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        for digest in self.of(request.messages) {
            if !digests.contains(&digest) {
                digests.push_back(digest);
            }
            if digests.len() > REMEMBERED_MAX {
                digests.pop_front();
            }
        }
    }

    fn of(&self, messages: &[Arc<Message>]) -> impl Iterator<Item = u64> {
        messages.iter().flat_map(|message| &message.pictures).map(|picture| self.hasher.hash_one(&*picture.base64))
    }
}

/// Whether the request sends pictures.
pub(crate) fn has_pictures(request: &ModelRequest<'_>) -> bool {
    request.send_pictures && request.messages.iter().any(|message| !message.pictures.is_empty())
}

/// Whether an error may be a refusal of pictures by its words.
pub(crate) fn is_about_pictures(error: &ModelError) -> bool {
    let said = error.detail.to_lowercase();
    error.kind == ModelErrorKind::BadRequest && ABOUT_PICTURES.iter().any(|word| said.contains(word))
}
