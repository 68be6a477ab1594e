//! Splits long answers into pieces that fit into a message of a platform.
//!
//! The text of a [`Layout`] is cut, in the unit of the platform. [`markdown`] makes pieces of Markdown, for platforms
//! that take it; Telegram cuts the text that it shows.

mod escapes;
mod fences;
mod layout;
mod lengths;
pub mod markdown;
mod structure;

use std::ops::Range;

use unicode_segmentation::GraphemeCursor;

pub use self::layout::{Code, Layout};

/// Longest grapheme that is kept whole, in bytes. Longer ones are not readable anyway.
const GRAPHEME_MAX_BYTES: usize = 256;

/// The unit in which a platform counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// UTF-16 code units: Telegram.
    Utf16,
    /// Unicode code points: Discord, Slack.
    CodePoints,
    /// Bytes of UTF-8: Matrix, IRC.
    Bytes,
}

impl Unit {
    /// The length of a text.
    pub fn count(self, text: &str) -> usize {
        match self {
            Self::Bytes => text.len(),
            Self::Utf16 | Self::CodePoints => text.chars().map(|c| self.of(c)).sum(),
        }
    }

    fn of(self, c: char) -> usize {
        match self {
            Self::Utf16 => c.len_utf16(),
            Self::CodePoints => 1,
            Self::Bytes => c.len_utf8(),
        }
    }
}

/// The maximum lengths of the pieces.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The unit of the length.
    pub unit: Unit,
    /// Of the first piece, such as the caption of a file.
    pub first: usize,
    /// Of the others.
    pub rest: usize,
}

/// The pieces of a text, in order, without the space between them; a text without anything but space has none. The same
/// text always gives the same pieces, so a delivery can continue after the pieces of an earlier attempt.
pub fn cut(layout: &Layout, limits: Limits) -> Vec<Range<usize>> {
    let text = layout.text();
    let mut ranges = Vec::new();
    let mut start = skip_space(layout, 0);
    while start < text.len() {
        let max = if ranges.is_empty() { limits.first } else { limits.rest };
        let max = max.saturating_sub(usize::from(layout.escape_at(start).is_some()));
        let reach = layout.reach(start, limits.unit, max);
        let best = || Some(best_cut(layout, start..reach, limits.unit, max));
        let fits = |at: &usize| layout.fits(&(start..*at), limits.unit, max);
        let end = if reach == text.len() { reach } else { best().filter(fits).unwrap_or(reach) };
        let used = layout.trimmed_end(start..end);
        if used > start {
            ranges.push(start..used);
        }
        start = skip_space(layout, end);
    }
    ranges
}

/// The start of the next piece: after the space at the cut. In a code block the indentation stays, and in a code span all
/// space.
fn skip_space(layout: &Layout, at: usize) -> usize {
    let rest = &layout.text()[at..];
    let after = |trimmed: &str| at + rest.len() - trimmed.len();
    let to = after(rest.trim_start());
    match layout.codes_after(at).first() {
        Some(code) if code.range.start <= at && code.is_inline => at,
        Some(code) if code.range.start <= at => after(rest.trim_start_matches('\n')),
        // When space before a code is skipped, that at the start of the code stays.
        Some(code) => to.min(code.range.start),
        None => to,
    }
}

/// Selects where to cut within the range that fits. In order of preference: before a block, after a line, a sentence, a
/// word, a grapheme, a character. A cut that leaves the piece too short is not used.
fn best_cut(layout: &Layout, fits: Range<usize>, unit: Unit, max: usize) -> usize {
    let text = layout.text();
    if let Some(border) = layout.last_border(&fits) {
        let is_long_enough = border - fits.start >= fits.len() / 4;
        // A code block that fits into a message is never cut, however short the piece before it.
        let fits_alone = |code: &Code| !code.is_inline && unit.count(&text[code.range.clone()]) + code.around <= max;
        if is_long_enough || layout.code_at(border).is_some_and(fits_alone) {
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
    let at = line
        .filter(|at| *at >= earliest)
        .or_else(|| sentence().filter(|at| *at >= earliest))
        .or_else(|| word().filter(|at| *at >= earliest))
        .unwrap_or_else(|| grapheme_border(text, &fits));
    // Not within a styled span, if that leaves the piece long enough.
    layout.span_at(at).map(|span| span.start).filter(|start| *start >= earliest).unwrap_or(at)
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
