//! Splits text into pieces and masks those that change by themselves, such as times, request ids and durations.
//!
//! Nothing is copied: the pieces are slices, and the callers add them to a digest. Spaces and quotes are not pieces, so
//! that reformatted text counts as the same text.

use super::shapes;

/// A piece of text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Piece<'a> {
    /// A run of letters, digits, underscores and characters outside of ASCII.
    Word(&'a [u8]),
    /// Punctuation.
    Mark(u8),
    /// A part that changes by itself.
    Volatile,
}

/// The origin of the text. It decides what is volatile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A result: everything that is known to change by itself.
    Result,
    /// A search query: times, and ids that nobody would search for.
    Query,
    /// Any other argument. Ids and durations are part of the work here (`docker rm 3f2a9b…`, `sleep 30`). Only precise
    /// times are volatile, and values behind a word that marks them as volatile.
    Argument,
    /// Nothing is volatile.
    Plain,
}

/// Splits `text` into pieces, in order.
pub(super) fn pieces<'a>(text: &'a [u8], place: Place, mut take: impl FnMut(Piece<'a>)) {
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        if byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'`') {
            at += 1;
        } else if shapes::in_word(byte) {
            at = word(text, at, place, &mut take);
        } else {
            at = mark(text, at, place, &mut take);
        }
    }
}

/// Takes the word that begins at `at`, with the text that belongs to it. Returns the position behind it.
fn word<'a>(text: &'a [u8], at: usize, place: Place, take: &mut impl FnMut(Piece<'a>)) -> usize {
    let (end, digits) = shapes::word(text, at);
    let word = &text[at..end];
    if place == Place::Plain || (!digits && !shapes::may_announce(word)) {
        take(Piece::Word(word));
        return end;
    }
    if let Some((end, precise)) = shapes::date_time(text, at)
        && (place == Place::Result || precise)
    {
        take(Piece::Volatile);
        return end;
    }
    if digits {
        let end = shapes::epoch(text, at).or_else(|| match place {
            Place::Result => shapes::duration(text, at).or_else(|| shapes::random_id(text, at, end)),
            Place::Query => shapes::random_id(text, at, end),
            Place::Argument | Place::Plain => None,
        });
        if let Some(end) = end {
            take(Piece::Volatile);
            return end;
        }
    }
    take(Piece::Word(word));
    match shapes::announced(text, at) {
        Some(end) => {
            take(Piece::Volatile);
            end
        }
        None => end,
    }
}

/// Takes the punctuation at `at`, with the text that belongs to it. Returns the position behind it.
fn mark<'a>(text: &'a [u8], at: usize, place: Place, take: &mut impl FnMut(Piece<'a>)) -> usize {
    let hidden = match text[at] {
        // "#17": a build, a job, an attempt. In arguments it identifies the target.
        b'#' if place == Place::Result => shapes::number_end(text, at + 1),
        b'/' if place != Place::Plain => shapes::temporary(text, at),
        _ => None,
    };
    match hidden {
        Some(end) => {
            take(Piece::Volatile);
            end
        }
        None => {
            take(Piece::Mark(text[at]));
            at + 1
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows pieces as text: words and marks separated by spaces, `~` for volatile pieces.
    fn show(text: &str, place: Place) -> String {
        let mut out = Vec::new();
        pieces(text.as_bytes(), place, |piece| {
            out.push(match piece {
                Piece::Word(word) => String::from_utf8_lossy(word).into_owned(),
                Piece::Mark(mark) => char::from(mark).to_string(),
                Piece::Volatile => "~".into(),
            });
        });
        out.join(" ")
    }

    #[test]
    fn in_results_what_changes_by_itself_is_hidden_and_what_is_news_is_not() {
        for (text, expected) in [
            // Dates and times.
            ("at 2026-01-02T03:04:05.678Z ok", "at ~ ok"),
            ("at 2026-01-02 03:04:05,678 +0100 ok", "at ~ ok"),
            ("on 2026-01-02, ok", "on ~ , ok"),
            ("[03:04:05] ok", "[ ~ ] ok"),
            ("12:00 UTC", "~"),
            ("9:30 PM", "~"),
            ("Tue, 02 Jan 2026 03:04:05 GMT", "~"),
            ("Tue Jan  2 03:04:05 2026", "~"),
            ("Jan 12 03:04:05 host sshd", "~ host sshd"),
            ("02/Jan/2026:03:04:05 +0000] GET", "~ ] GET"),
            ("January 2, 2026: closed", "~ : closed"),
            ("20260102T030405Z", "~"),
            ("main.rs:12:34: error", "main . rs : 12 : 34 : error"),
            ("May 5 items", "May 5 items"),
            ("ratio 16:9", "ratio 16 : 9"),
            // Seconds since 1970.
            ("now 1767322222 and 1767322222123", "now ~ and ~"),
            ("now 1767322222.5", "now ~"),
            ("1767322222 bytes", "1767322222 bytes"),
            ("order 4711", "order 4711"),
            // Durations.
            ("took 12 ms", "took ~"),
            ("in 3.4s", "in ~"),
            ("up 2m13s", "up ~"),
            ("up 5 minutes, idle", "up ~ , idle"),
            ("3 files at 195M", "3 files at 195M"),
            ("90 s remaining", "90 s remaining"),
            ("elapsed: 17", "elapsed ~"),
            ("duration_ms\": 17}", "duration_ms ~ }"),
            // Ids.
            ("id 550e8400-e29b-41d4-a716-446655440000.", "id ~ ."),
            ("commit 3f2a9bc1d2e4 done", "commit ~ done"),
            ("at 0x7ffe12ab", "at ~"),
            ("req_01HXYZ8K2M4N6P", "~"),
            ("key a8f3k2l9x1q", "key ~"),
            ("utf8mb4 x86_64 sha256 v2 test_case_12_step_3", "utf8mb4 x86_64 sha256 v2 test_case_12_step_3"),
            (r#"{"request_id":"abc-123","n":1}"#, "{ request_id ~ , n : 1 }"),
            ("X-Request-Id: 42", "X - Request ~"),
            ("trace=ab12cd99 x", "trace ~ x"),
            ("trace_id=deecdffcedbdbaca x", "trace_id ~ x"),
            ("nonce 7", "nonce ~"),
            (r#"{"creditsLeft": 912}"#, "{ creditsLeft ~ }"),
            (r#"{"left": 912}"#, "{ left : 912 }"),
            ("session 3 of 10", "session 3 of 10"),
            ("(pid 1234)", "( pid ~ )"),
            ("attempt 3 failed", "attempt ~ failed"),
            ("Build #17 failed", "Build ~ failed"),
            ("/tmp/tmpa1b2c3/out.txt", "~ / out . txt"),
            ("/tmp/notes.txt", "/ tmp / notes . txt"),
            // News.
            ("45% of 3 of 10, 1234 bytes", "45 % of 3 of 10 , 1234 bytes"),
            ("  a \n\t'b' ", "a b"),
            ("größe 5", "größe 5"),
        ] {
            assert_eq!(show(text, Place::Result), expected, "{text}");
        }
    }

    #[test]
    fn in_arguments_only_precise_times_and_announced_ids_are_hidden() {
        for (text, expected) in [
            ("docker rm 3f2a9bc1d2e4", "docker rm 3f2a9bc1d2e4"),
            ("sleep 30s", "sleep 30s"),
            ("gh pr view #17", "gh pr view # 17"),
            ("since 2026-01-02", "since 2026 - 01 - 02"),
            ("since 2026-01-02T03:00:00Z", "since 2026 - 01 - 02T03 : 00 : 00Z"),
            ("note at 2026-01-02T03:04:05Z", "note at ~"),
            ("curl -H 'X-Request-Id: 9f8e7d' a?t=1767322222", "curl - H X - Request ~ a ? t = ~"),
            ("run --attempt 3", "run - - attempt ~"),
        ] {
            assert_eq!(show(text, Place::Argument), expected, "{text}");
        }
        assert_eq!(show("fix it 550e8400-e29b-41d4-a716-446655440000", Place::Query), "fix it ~");
    }

    #[test]
    fn no_text_breaks_the_masker() {
        for text in
            ["", "#", "/tmp/", "1.", "1:", "12:34:", "Jan", "Jan ", "0x", "request_id", "pid:", "\u{b5}s 5 \u{b5}s"]
        {
            for end in 0..=text.len() {
                // Split anywhere, even within a character.
                pieces(&text.as_bytes()[..end], Place::Result, |_| ());
            }
        }
    }
}
