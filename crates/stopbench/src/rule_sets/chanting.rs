//! Gemini CLI's chanting detection, with its defects.
//!
//! Each piece of text is processed as it comes:
//!
//! 1. Flags are computed from this piece alone: code fences (three backticks anywhere), a table row, a list item, a
//!    heading, a quote, a divider. Any flag drops all text so far.
//! 2. An odd number of fences toggles the state "in a code block". A piece that was or is in a code block, or is a
//!    divider, is dropped.
//! 3. The rest is appended to the history, which is cut at the front to its limit.
//! 4. Every window of 50 UTF-16 units that was not examined yet is looked up. Ten occurrences with a small average
//!    spacing (and, in 2026, at most five distinct texts between neighbours) are chanting.
//!
//! Defects that are restated because they affect the figures:
//!
//! - Markers that are split between two pieces are missed, and a piece that begins in the middle of a line may be taken
//!   for a heading or an item.
//! - Dashes are not bullets.
//! - A divider is any piece of the ASCII characters from `+` to `_` (digits, capitals, most punctuation). So sentences
//!   that are streamed by single characters reset at each capital or full stop.
//! - Windows overlap, so that 59 equal characters chant.
//! - The flag of code blocks survives every reset.

use std::collections::HashMap;

use belay_trajectory::TrajectoryEvent;

/// Length of a window, in UTF-16 units.
const WINDOW: usize = 50;

/// Occurrences of a window that are chanting.
const OCCURRENCES: usize = 10;

/// The differences between the versions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Largest average spacing of the occurrences, in UTF-16 units.
    pub(super) spacing: usize,
    /// Most distinct texts between neighbours; `None`: any number.
    pub(super) periods: Option<usize>,
    /// Longest history, in UTF-16 units.
    pub(super) history: usize,
}

/// Extracts the pieces of text of a recording: streamed pieces, and complete answers without recorded pieces.
#[derive(Debug, Default)]
pub(super) struct Deltas {
    streamed: bool,
}

impl Deltas {
    /// The piece of text in this event.
    pub(super) fn of<'a>(&mut self, event: &'a TrajectoryEvent) -> Option<&'a str> {
        match event {
            TrajectoryEvent::Text(text) => {
                self.streamed = true;
                Some(text)
            }
            TrajectoryEvent::Assistant(text) => (!std::mem::take(&mut self.streamed)).then_some(text.as_str()),
            TrajectoryEvent::Turn | TrajectoryEvent::User(_) | TrajectoryEvent::Reset => {
                self.streamed = false;
                None
            }
            _ => None,
        }
    }
}

/// The state of the detection.
#[derive(Debug)]
pub(super) struct Chanting {
    limits: Limits,
    /// The history, from the offset `base` on.
    text: Vec<u16>,
    /// Offsets count from the last clearing, so that cutting the front changes none of them.
    base: usize,
    next: usize,
    seen: HashMap<[u16; WINDOW], Vec<usize>>,
    /// The offset up to which dropped text was removed from `seen`.
    swept: usize,
    in_code: bool,
}

impl Chanting {
    /// Makes a detector without text.
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, text: Vec::new(), base: 0, next: 0, seen: HashMap::new(), swept: 0, in_code: false }
    }

    /// Drops the text, but keeps whether it was in a code block.
    pub(super) fn clear(&mut self) {
        *self = Self { in_code: self.in_code, ..Self::new(self.limits) };
    }

    /// Processes a piece. Returns whether the text chants.
    pub(super) fn push(&mut self, delta: &str) -> bool {
        let fences = delta.matches("```").count();
        let divider = is_divider(delta);
        if fences > 0 || divider || has_structure(delta) {
            self.clear();
        }
        let was_in_code = self.in_code;
        self.in_code ^= fences % 2 == 1;
        if was_in_code || self.in_code || divider {
            return false;
        }
        self.text.extend(delta.encode_utf16());
        self.cut();
        while self.next + WINDOW <= self.base + self.text.len() {
            if self.window_chants() {
                return true; // without advancing to the next window
            }
            self.next += 1;
        }
        false
    }

    /// Cuts the front. Text that was cut off is recognised by its offset and removed from the table from time to time.
    fn cut(&mut self) {
        let excess = self.text.len().saturating_sub(self.limits.history);
        self.text.drain(..excess);
        self.base += excess;
        self.next = self.next.max(self.base);
        if self.base >= self.swept + self.limits.history {
            self.swept = self.base;
            self.seen.retain(|_, offsets| {
                offsets.retain(|offset| *offset >= self.base);
                !offsets.is_empty()
            });
        }
    }

    fn window_chants(&mut self) -> bool {
        let (base, text) = (self.base, &self.text);
        let at = self.next - base;
        let Some(window) = text.get(at..at + WINDOW).and_then(|units| <[u16; WINDOW]>::try_from(units).ok()) else {
            return false;
        };
        let offsets = self.seen.entry(window).or_default();
        offsets.retain(|offset| *offset >= base);
        offsets.push(self.next);
        let Some(newest) = offsets.len().checked_sub(OCCURRENCES).map(|from| &offsets[from..]) else { return false };
        let spacing = (newest[OCCURRENCES - 1] - newest[0]) as f64 / (OCCURRENCES - 1) as f64;
        if spacing > self.limits.spacing as f64 {
            return false;
        }
        let mut periods: Vec<&[u16]> = newest.windows(2).map(|pair| &text[pair[0] - base..pair[1] - base]).collect();
        periods.sort_unstable();
        periods.dedup();
        self.limits.periods.is_none_or(|most| periods.len() <= most)
    }
}

/// Whether a table row, list item, heading or quote begins the piece, or follows a line break in it.
fn has_structure(delta: &str) -> bool {
    // JavaScript's `\s*` matches line breaks too.
    starts(delta).any(|at| {
        let line = &delta[at..];
        let unindented = line.trim_start();
        is_row(unindented) || is_item(unindented) || is_heading(line) || is_quote(unindented)
    })
}

fn starts(delta: &str) -> impl Iterator<Item = usize> {
    std::iter::once(0).chain(delta.match_indices('\n').map(|(at, _)| at + 1))
}

fn is_row(text: &str) -> bool {
    let line = text.split(['\n', '\r', '\u{2028}', '\u{2029}']).next().unwrap_or_default();
    let bars = line.strip_prefix('|').is_some_and(|rest| rest.contains('|'));
    bars || text.chars().take_while(|c| matches!(c, '|' | '+' | '-')).count() >= 3
}

/// A bullet (but not `-`), or a number with a full stop; then white space.
fn is_item(text: &str) -> bool {
    let rest = match text.strip_prefix(['*', '+']) {
        Some(rest) => Some(rest),
        None => {
            let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
            (digits.len() < text.len()).then_some(digits).and_then(|rest| rest.strip_prefix('.'))
        }
    };
    rest.is_some_and(begins_with_space)
}

fn is_heading(line: &str) -> bool {
    let rest = line.trim_start_matches('#');
    rest.len() < line.len() && begins_with_space(rest)
}

fn is_quote(text: &str) -> bool {
    text.strip_prefix('>').is_some_and(begins_with_space)
}

fn begins_with_space(text: &str) -> bool {
    text.starts_with(char::is_whitespace)
}

/// Intended for rule lines, but written as a range from `+` to `_`.
fn is_divider(delta: &str) -> bool {
    !delta.is_empty()
        && delta.chars().all(|c| ('+'..='_').contains(&c) || c == '*' || ('\u{2500}'..='\u{257f}').contains(&c))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Limits = Limits { spacing: 75, periods: None, history: 1000 };
    const HEAD: Limits = Limits { spacing: 250, periods: Some(5), history: 5000 };

    fn chants(limits: Limits, pieces: impl IntoIterator<Item = impl AsRef<str>>) -> bool {
        let mut chanting = Chanting::new(limits);
        pieces.into_iter().any(|piece| chanting.push(piece.as_ref()))
    }

    fn singles(text: &str) -> Vec<String> {
        text.chars().map(String::from).collect()
    }

    #[test]
    fn the_same_words_chant_and_long_periods_only_in_2026() {
        let sentence = "we have to look at this once more before we can go on with it ";
        let long = format!(
            "{sentence}and then there is a second part of the sentence which makes it a good deal longer than that "
        );
        for (text, times, seed, head) in
            [(sentence, 9, false, false), (sentence, 12, true, true), (long.as_str(), 12, false, true)]
        {
            assert_eq!(
                (chants(SEED, singles(&text.repeat(times))), chants(HEAD, singles(&text.repeat(times)))),
                (seed, head),
                "{text}"
            );
        }
    }

    #[test]
    fn a_list_with_a_shared_beginning_chants_in_2025_alone() {
        let pieces: Vec<_> =
            (0..30).map(|n| format!("the file was changed and has to be looked at again before number {n} ")).collect();
        assert!(chants(SEED, &pieces));
        assert!(!chants(HEAD, &pieces));
    }

    #[test]
    fn the_known_defects_are_there() {
        // Fifty-nine equal characters.
        assert!(!chants(HEAD, singles(&" ".repeat(58))));
        assert!(chants(HEAD, singles(&" ".repeat(59))));
        // A piece of capitals, digits or punctuation resets, so sentences that are streamed by single characters never
        // chant.
        let sentence = "We have to look at this once more before we can go on with it. ";
        assert!(!chants(HEAD, singles(&sentence.repeat(30))));
        assert!(chants(HEAD, vec![sentence; 30]));
        assert!(!chants(HEAD, vec!["LOOPLOOP"; 100]));
        // Bullets in single pieces never chant, joined ones do. Dashes are not bullets.
        let bullet = "* check the configuration file again and look for the missing entry\n";
        assert!(!chants(HEAD, vec![bullet; 30]));
        assert!(chants(HEAD, [bullet.repeat(30)]));
        let dash = "- check the configuration file again and look for the missing entry\n";
        assert!(chants(HEAD, vec![dash; 30]));
        // Rule lines with a line break are recognised only if they look like a table.
        assert!(chants(HEAD, vec!["==========\n"; 30]));
        assert!(!chants(HEAD, vec!["----------\n"; 30]));
        // A fence that is never closed turns the detection off, and clearing does not turn it on.
        let mut open = Chanting::new(HEAD);
        open.push("```");
        open.clear();
        assert!(!(0..100).any(|_| open.push("round and round it goes ")));
        // A fence that is split between two pieces is missed.
        assert!(chants(
            HEAD,
            ["``", "`\n"].into_iter().chain(std::iter::repeat_n("let x = x + one more of it all;\n", 60))
        ));
    }

    #[test]
    fn structure_is_seen_where_it_is_whole() {
        for (delta, expected) in [
            ("plain text", false),
            ("| a | b |", true),
            ("text\n  | a | b |", true),
            ("a | b | c", false),
            ("---", true),
            ("--", false),
            ("* item", true),
            ("+ item", true),
            ("- item", false),
            ("12. item", true),
            ("12) item", false),
            ("12.5", false),
            ("# heading", true),
            (" # heading", false),
            ("######### heading", true),
            ("> quote", true),
            (">quote", false),
        ] {
            assert_eq!(has_structure(delta), expected, "{delta:?}");
        }
    }

    #[test]
    fn forgotten_text_is_not_counted() {
        let filler: Vec<_> = (0..400).map(|n| format!("words that differ {} and differ {n} ", n * 7919)).collect();
        let phrase = "this very phrase of more than fifty characters comes back now and then ";
        let rare: Vec<_> = filler.iter().enumerate().map(|(n, text)| if n % 30 == 0 { phrase } else { text }).collect();
        assert!(!chants(HEAD, rare));
    }

    #[test]
    fn whole_answers_count_where_no_pieces_were_recorded() {
        let mut deltas = Deltas::default();
        let events = [
            TrajectoryEvent::Text("a".into()),
            TrajectoryEvent::Assistant("a".into()),
            TrajectoryEvent::Assistant("b".into()),
        ];
        assert_eq!(events.each_ref().map(|event| deltas.of(event)), [Some("a"), None, Some("b")]);
    }
}
