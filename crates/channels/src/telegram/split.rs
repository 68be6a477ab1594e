//! Splits long answers into pieces that fit into a Telegram message.
//!
//! The *rendered* text is cut, not its Markdown, because Telegram counts the rendered text. Each piece is HTML of its
//! own: styles and code blocks are closed at its end and reopened, with their language, in the next piece.

use std::ops::Range;

use unicode_segmentation::GraphemeCursor;

use super::format::styled;
use super::styled::Styled;

/// Longest message. Telegram: sendMessage, `text`: "1-4096 characters after entities parsing"; its characters are
/// UTF-16 code units (Bot API, MessageEntity).
pub(super) const PIECE_MAX_UNITS: usize = 4096;

/// Longest caption. Telegram: sendPhoto, `caption`: "0-1024 characters after entities parsing".
const CAPTION_MAX_UNITS: usize = 1024;

/// Longest grapheme that is kept whole, in bytes. Longer ones are not readable anyway.
const GRAPHEME_MAX_BYTES: usize = 256;

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
    cut(&styled, first_max_units, PIECE_MAX_UNITS)
        .into_iter()
        .map(|range| Piece { html: styled.html(range.clone()), plain: styled.text()[range].to_owned() })
        .collect()
}

fn cut(styled: &Styled, first_max_units: usize, rest_max_units: usize) -> Vec<Range<usize>> {
    let text = styled.text();
    let mut ranges = Vec::new();
    let mut start = skip_space(styled, 0);
    while start < text.len() {
        let max_units = if ranges.is_empty() { first_max_units } else { rest_max_units };
        let reach = start + prefix(&text[start..], max_units);
        let end = if reach == text.len() { reach } else { best_cut(styled, start..reach, max_units) };
        let used = start + text[start..end].trim_end().len();
        if used > start {
            ranges.push(start..used);
        }
        start = skip_space(styled, end);
    }
    ranges
}

/// Length in bytes of the longest prefix of at most `max_units` UTF-16 units.
fn prefix(text: &str, max_units: usize) -> usize {
    let mut units = 0;
    for (at, c) in text.char_indices() {
        units += c.len_utf16();
        if units > max_units {
            return at;
        }
    }
    text.len()
}

/// The start of the next piece: after the space at the cut. In a code block the indentation stays.
fn skip_space(styled: &Styled, at: usize) -> usize {
    let rest = &styled.text()[at..];
    let skipped = match styled.pre_at(at) {
        Some(_) => rest.trim_start_matches('\n'),
        None => {
            let trimmed = rest.trim_start();
            let to = at + rest.len() - trimmed.len();
            // When space before a code block is skipped, the indentation of the block's first line stays.
            match styled.pre_at(to) {
                Some(pre) if pre.start > at => &styled.text()[pre.start..],
                _ => trimmed,
            }
        }
    };
    styled.text().len() - skipped.len()
}

/// Selects where to cut within the range that fits. In order of preference: before a block, after a line, a sentence, a
/// word, a grapheme, a character. A cut that leaves the piece too short is not used.
fn best_cut(styled: &Styled, fits: Range<usize>, max_units: usize) -> usize {
    let text = styled.text();
    if let Some(border) = styled.last_border(&fits) {
        let is_long_enough = border - fits.start >= fits.len() / 4;
        // A code block that fits into a message is never cut, however short the piece before it.
        let keeps_code_whole =
            styled.pre_at(border).is_some_and(|pre| prefix(&text[pre.clone()], max_units) == pre.len());
        if is_long_enough || keeps_code_whole {
            return border;
        }
    }
    let earliest = fits.start + fits.len() / 2;
    let line = text[fits.clone()].rfind('\n').map(|at| fits.start + at + 1);
    let sentence = || {
        text[fits.clone()].char_indices().rev().find_map(|(at, c)| {
            let end = fits.start + at + c.len_utf8();
            let ends = matches!(c, '。' | '！' | '？')
                || matches!(c, '.' | '!' | '?') && text[end..].starts_with(char::is_whitespace);
            ends.then_some(end)
        })
    };
    let word = || text[fits.clone()].rfind(char::is_whitespace).map(|at| fits.start + at);
    line.filter(|at| *at >= earliest)
        .or_else(|| sentence().filter(|at| *at >= earliest))
        .or_else(|| word().filter(|at| *at >= earliest))
        .unwrap_or_else(|| grapheme_border(text, &fits))
}

/// The last grapheme boundary within the range, or the end of the range if there is none near.
fn grapheme_border(text: &str, fits: &Range<usize>) -> usize {
    let lowest = fits.end.saturating_sub(GRAPHEME_MAX_BYTES).max(fits.start + 1);
    (lowest..=fits.end)
        .rev()
        .filter(|at| text.is_char_boundary(*at))
        .find(|at| GraphemeCursor::new(*at, text.len(), true).is_boundary(text, 0).unwrap_or(false))
        .unwrap_or(fits.end)
}

#[cfg(test)]
mod tests;
