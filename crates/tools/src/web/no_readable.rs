//! HTML in a build without the feature `web`: a page is named with the reason why it is not read.

use std::time::Duration;

use url::Url;

/// A page as other builds read it.
pub(crate) struct Readable {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) links: Vec<String>,
    pub(crate) cut: bool,
}

/// Reads no page.
///
/// # Errors
/// Always: the reason in plain words.
pub(crate) fn readable(_html: &str, _base: &Url, _limit: Duration) -> Result<Readable, &'static str> {
    Err("this build of Belay has no reader of HTML (feature web)")
}
