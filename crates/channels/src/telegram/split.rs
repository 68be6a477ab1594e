//! Splits long answers into pieces that fit into a Telegram message.
//!
//! The *rendered* text is cut, not its Markdown, because Telegram counts the rendered text. Each piece is HTML of its
//! own: styles and code blocks are closed at its end and reopened, with their language, in the next piece.

use super::format::styled;
use belay_channel_kit::split::{Limits, Unit, cut};

/// Longest message. Telegram: sendMessage, `text`: "1-4096 characters after entities parsing"; its characters are
/// UTF-16 code units (Bot API, MessageEntity).
pub(super) const PIECE_MAX_UNITS: usize = 4096;

/// Longest caption. Telegram: sendPhoto, `caption`: "0-1024 characters after entities parsing".
const CAPTION_MAX_UNITS: usize = 1024;

/// One message of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// For `parse_mode=HTML`.
    pub(super) html: String,
    /// The same text without styles.
    pub(super) plain: String,
}

/// Splits an answer into messages, in order; an empty answer has none. The same text always gives the same pieces, so a
/// delivery can continue after the pieces of an earlier attempt.
pub(super) fn pieces(markdown: &str) -> Vec<Piece> {
    limited(markdown, PIECE_MAX_UNITS)
}

/// The same for a text whose first piece is the caption of a file.
pub(super) fn with_caption(markdown: &str) -> Vec<Piece> {
    limited(markdown, CAPTION_MAX_UNITS)
}

fn limited(markdown: &str, first_max_units: usize) -> Vec<Piece> {
    let styled = styled(markdown);
    cut(styled.layout(), Limits { unit: Unit::Utf16, first: first_max_units, rest: PIECE_MAX_UNITS })
        .into_iter()
        .map(|range| Piece { html: styled.html(range.clone()), plain: styled.text()[range].to_owned() })
        .collect()
}

#[cfg(test)]
mod tests;
