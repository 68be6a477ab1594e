//! Pictures in a build without the feature `pictures`: none is decoded, and each is named with the reason.

use std::convert::Infallible;
use std::fmt;

use belay_protocol::Picture;
use tokio_util::sync::CancellationToken;

/// Bytes at the beginning of a file that tell whether it is a picture.
pub(crate) const SNIFFED_BYTES: usize = 16;

/// A format of pictures, by its media type.
pub(crate) struct Format(&'static str);

impl Format {
    pub(crate) fn to_mime_type(&self) -> &'static str {
        self.0
    }
}

/// The picture format of these first bytes, if it is one that other builds show.
pub(crate) fn format_of(beginning: &[u8]) -> Option<Format> {
    let media_type = infer::get(beginning)?.mime_type();
    matches!(media_type, "image/png" | "image/jpeg" | "image/gif" | "image/webp").then_some(Format(media_type))
}

/// Shows no picture.
#[derive(Clone, Debug)]
pub(crate) struct Pictures;

/// A picture that other builds show. There is none.
#[derive(Debug)]
pub(crate) struct Cleaned {
    pub(crate) picture: Picture,
    never: Infallible,
}

/// Why a picture is not shown.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PictureError {
    /// The call was cancelled.
    Cancelled,
    /// A reason in plain words.
    Unreadable(String),
}

impl Pictures {
    pub(crate) fn new() -> Self {
        Self
    }

    /// Refuses a picture, which is not loaded.
    pub(crate) async fn clean(
        &self,
        _load: impl FnOnce() -> Result<Vec<u8>, String> + Send + 'static,
        cancel: &CancellationToken,
    ) -> Result<Cleaned, PictureError> {
        if cancel.is_cancelled() {
            return Err(PictureError::Cancelled);
        }
        Err(PictureError::Unreadable("this build of Belay decodes no pictures (feature pictures)".to_owned()))
    }
}

impl fmt::Display for Cleaned {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}
