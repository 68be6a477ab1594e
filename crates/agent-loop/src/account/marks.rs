//! The markers of untrusted content around a result.

use belay_text::untrusted;

use super::calls::SeenCall;

/// The markers around the newest result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Marks {
    /// The result is no untrusted content.
    None,
    /// Its source and the id of its markers.
    Of { source: String, id: String },
    /// It is untrusted content, and its markers are not at its beginning. Nothing of it is quoted.
    Unknown,
}

impl Marks {
    /// The markers of a call's result.
    pub(super) fn of(call: &SeenCall<'_>) -> Self {
        let text = call.result.unwrap_or_default().trim_start();
        let opening = text.lines().next().filter(|line| untrusted::is_marker(line)).and_then(|line| {
            let (source, rest) = line.split_once("source=\"")?.1.split_once('"')?;
            let (id, _) = rest.split_once("id=\"")?.1.split_once('"')?;
            Some(Self::Of { source: source.to_owned(), id: id.to_owned() })
        });
        match opening {
            Some(marks) => marks,
            None if call.untrusted => Self::Unknown,
            None => Self::None,
        }
    }
}
