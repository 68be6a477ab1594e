//! The shapes of volatile text. Each function looks at the text from a place on and returns where its shape ends.

/// Whether a byte belongs to a word. Bytes outside of ASCII do, so that no character is cut.
pub(super) fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Where the word that begins at `at` ends.
pub(super) fn word_end(text: &[u8], at: usize) -> usize {
    at + text[at..].iter().take_while(|byte| in_word(**byte)).count()
}

/// Where the digits that begin at `at` end. `None`: there are none.
fn digits_end(text: &[u8], at: usize) -> Option<usize> {
    let count = text.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(at + count)
}

/// Where the number that begins at `at` ends, decimals included.
pub(super) fn number_end(text: &[u8], at: usize) -> Option<usize> {
    let end = digits_end(text, at)?;
    Some(match text.get(end) {
        Some(b'.') => digits_end(text, end + 1).unwrap_or(end),
        _ => end,
    })
}

/// Digits at `at`, at least `min` and at most `max` of them: where they end, and their value.
fn digits(text: &[u8], at: usize, min: usize, max: usize) -> Option<(usize, u32)> {
    let end = digits_end(text, at)?;
    if !(min..=max).contains(&(end - at)) {
        return None;
    }
    Some((end, text[at..end].iter().fold(0, |value, digit| value * 10 + u32::from(digit - b'0'))))
}

fn one_of(text: &[u8], at: usize, set: &[u8]) -> Option<u8> {
    text.get(at).copied().filter(|byte| set.contains(byte))
}

fn spaces(text: &[u8], at: usize) -> usize {
    at + text[at.min(text.len())..].iter().take_while(|byte| **byte == b' ').count()
}

/// A word without regard to case, if one begins at `at`.
fn letters(text: &[u8], at: usize) -> &[u8] {
    let rest = text.get(at..).unwrap_or_default();
    &rest[..rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count()]
}

/// A date, a time, or both: where it ends, and whether it is precise, that is, tells a second other than 0.
pub(super) fn date_time(text: &[u8], at: usize) -> Option<(usize, bool)> {
    if let Some(end) = compact(text, at) {
        return Some((end, true));
    }
    let Some((end, needs_time)) = date(text, at) else { return time(text, at, false) };
    // "T03:04", " 03:04", ", 03:04", ":03:04" (web server logs).
    let begin = match text.get(end) {
        Some(b'T' | b':') => end + 1,
        Some(b',') => spaces(text, end + 1),
        _ => spaces(text, end),
    };
    match time(text, begin, true) {
        Some((end, precise)) => Some((year_after(text, end), precise)),
        None if needs_time => None,
        None => Some((end, false)),
    }
}

/// "Tue Jan 2 03:04:05 2026": the year after the time.
fn year_after(text: &[u8], end: usize) -> usize {
    match digits(text, spaces(text, end), 4, 4) {
        Some((after, 1900..=2199)) => after,
        _ => end,
    }
}

/// "20260102T030405", with Z or without.
fn compact(text: &[u8], at: usize) -> Option<usize> {
    let (end, day) = digits(text, at, 8, 8)?;
    one_of(text, end, b"T_")?;
    let (end, _) = digits(text, end + 1, 6, 6)?;
    (19_000_000..22_000_000).contains(&day).then_some(if text.get(end) == Some(&b'Z') { end + 1 } else { end })
}

/// A date: where it ends, and whether it is one only if a time follows ("May 5" may be anything).
fn date(text: &[u8], at: usize) -> Option<(usize, bool)> {
    let word = letters(text, at);
    if is_weekday(word) {
        let next = at + word.len();
        let next = if text.get(next) == Some(&b',') { next + 1 } else { next };
        return date(text, spaces(text, next)).filter(|_| next < text.len());
    }
    if is_month(word) {
        let next = at + word.len();
        let next = if text.get(next) == Some(&b'.') { next + 1 } else { next };
        let (end, _) = digits(text, spaces(text, next), 1, 2)?;
        let comma = if text.get(end) == Some(&b',') { end + 1 } else { end };
        return Some(match digits(text, spaces(text, comma), 4, 4) {
            Some((end, 1900..=2199)) => (end, false),
            _ => (end, true),
        });
    }
    let (end, first) = digits(text, at, 1, 4)?;
    let between = one_of(text, end, b"-/. ")?;
    let month = letters(text, end + 1);
    if is_month(month) && first <= 31 {
        let after = end + 1 + month.len();
        let (end, _) = digits(text, spaces(text, after + usize::from(one_of(text, after, b"-/,").is_some())), 4, 4)?;
        return Some((end, false));
    }
    let (middle, _) = digits(text, end + 1, 1, 2)?;
    one_of(text, middle, &[between]).filter(|byte| *byte != b' ')?;
    let (last, year) = digits(text, middle + 1, 1, 4)?;
    let year = match end - at {
        4 if between != b'.' && last - middle <= 3 => first,
        1 | 2 if between != b'-' && last - middle == 5 => year,
        _ => return None,
    };
    (1900..2200).contains(&year).then_some((last, false))
}

/// A time of day with its zone. Without a date before it, hours and minutes alone are none unless a zone or AM/PM
/// follows: "12:34" may be a line and a column.
fn time(text: &[u8], at: usize, dated: bool) -> Option<(usize, bool)> {
    let (end, hour) = digits(text, at, 1, 2)?;
    one_of(text, end, b":")?;
    let (mut end, minute) = digits(text, end + 1, 2, 2)?;
    if hour > 24 || minute > 59 {
        return None;
    }
    let (mut sure, mut precise) = (dated, false);
    if one_of(text, end, b":").is_some()
        && let Some((after, second)) = digits(text, end + 1, 2, 2)
    {
        (end, sure, precise) = (after, true, second != 0);
        if one_of(text, end, b".,").is_some()
            && let Some(after) = digits_end(text, end + 1)
        {
            (end, precise) = (after, true);
        }
    }
    let zone = zone(text, end);
    (sure || zone.is_some()).then_some((zone.unwrap_or(end), precise))
}

/// "Z", "+01:00", " +0100", " UTC", "PM".
fn zone(text: &[u8], at: usize) -> Option<usize> {
    let begin = spaces(text, at);
    let word = letters(text, begin);
    if ["Z", "UTC", "GMT", "AM", "PM", "CET", "CEST", "EST", "EDT", "PST", "PDT"].iter().any(|known| is(word, known)) {
        let end = begin + word.len();
        return if is(word, "AM") || is(word, "PM") { zone(text, end).or(Some(end)) } else { Some(end) };
    }
    one_of(text, begin, b"+-")?;
    let (end, _) = digits(text, begin + 1, 2, 4)?;
    Some(match one_of(text, end, b":").and_then(|_| digits(text, end + 1, 2, 2)) {
        Some((end, _)) => end,
        None => end,
    })
}

fn is(word: &[u8], known: &str) -> bool {
    word.eq_ignore_ascii_case(known.as_bytes())
}

fn is_month(word: &[u8]) -> bool {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    word.len() >= 3
        && MONTHS.iter().any(|month| {
            is(word, month) || (word.len() <= 4 && word.len() < month.len() && is(word, &month[..word.len()]))
        })
}

fn is_weekday(word: &[u8]) -> bool {
    const DAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];
    word.len() >= 3 && DAYS.iter().any(|day| is(word, day) || (word.len() == 3 && is(word, &day[..3])))
}

/// Seconds since 1970 between 2017 and 2036, or milli-, micro- or nanoseconds: a word of 10, 13, 16 or 19 digits.
/// Bytes may be as many, and are progress.
pub(super) fn epoch(text: &[u8], at: usize, end: usize) -> Option<usize> {
    if !matches!(end - at, 10 | 13 | 16 | 19) || !text[at..end].iter().all(u8::is_ascii_digit) {
        return None;
    }
    let seconds = text[at..at + 10].iter().fold(0u64, |value, digit| value * 10 + u64::from(digit - b'0'));
    let unit = letters(text, spaces(text, end));
    let bytes = is(unit, "bytes") || is(unit, "byte") || is(unit, "b");
    ((1_500_000_000..2_100_000_000).contains(&seconds) && !bytes).then(|| number_end(text, at).unwrap_or(end))
}

/// A duration: "12 ms", "3.4s", "2m13s", "5 minutes". What is left of a wait is no such thing: it tells how far it is.
pub(super) fn duration(text: &[u8], at: usize) -> Option<usize> {
    let mut end = at;
    let mut parts = 0;
    while let Some(number) = number_end(text, end) {
        let begin = if parts == 0 { number + usize::from(text.get(number) == Some(&b' ')) } else { number };
        let Some(after) = unit(text, begin, begin > number) else { break };
        (end, parts) = (after, parts + 1);
        if !text.get(end).is_some_and(u8::is_ascii_digit) {
            break;
        }
    }
    let next = letters(text, spaces(text, end));
    let left = ["remaining", "left", "until"].iter().any(|word| is(next, word));
    (parts > 0 && !left && !text.get(end).is_some_and(|byte| in_word(*byte))).then_some(end)
}

/// A unit of time. One letter alone, a space apart, is a unit only for seconds.
fn unit(text: &[u8], at: usize, apart: bool) -> Option<usize> {
    for micro in ["µs", "μs"] {
        if text.get(at..).is_some_and(|rest| rest.starts_with(micro.as_bytes())) {
            return Some(at + micro.len());
        }
    }
    let word = letters(text, at);
    let known = match word.len() {
        1 => matches!(word[0], b's') || (!apart && matches!(word[0], b'm' | b'h' | b'd')),
        _ => [
            "ms",
            "us",
            "ns",
            "sec",
            "secs",
            "second",
            "seconds",
            "msec",
            "min",
            "mins",
            "minute",
            "minutes",
            "hr",
            "hrs",
            "hour",
            "hours",
            "day",
            "days",
            "millis",
            "milliseconds",
        ]
        .iter()
        .any(|known| is(word, known)),
    };
    known.then_some(at + word.len())
}

/// A UUID, hexadecimal digits that are no number, an address in memory, or a random mix of letters and digits.
pub(super) fn random_id(text: &[u8], at: usize, end: usize) -> Option<usize> {
    if let Some(end) = uuid(text, at) {
        return Some(end);
    }
    let word = &text[at..end];
    if word.starts_with(b"0x") && word.len() >= 7 {
        return Some(end);
    }
    // How often letters and digits alternate: "sha256" once, "3f2a9bc" five times. An underscore begins anew.
    let (mut changes, mut before, mut hex) = (0, None, true);
    for byte in word {
        let kind = match byte {
            b'0'..=b'9' => Some(true),
            b'_' => None,
            _ => Some(false),
        };
        changes += usize::from(before.is_some() && kind.is_some() && before != kind);
        before = kind;
        hex &= byte.is_ascii_hexdigit();
    }
    let random = (hex && word.len() >= 7 && changes >= 2) || (hex && word.len() >= 16 && changes >= 1);
    (random || (word.len() >= 8 && changes >= 3)).then_some(end)
}

/// 8-4-4-4-12 hexadecimal digits.
fn uuid(text: &[u8], at: usize) -> Option<usize> {
    let whole = text.get(at..at + 36)?;
    let dashes = [8, 13, 18, 23];
    let shape = whole
        .iter()
        .enumerate()
        .all(|(i, byte)| if dashes.contains(&i) { *byte == b'-' } else { byte.is_ascii_hexdigit() });
    (shape && !text.get(at + 36).is_some_and(|byte| in_word(*byte))).then_some(at + 36)
}

/// A random name under a directory for temporary files: where it ends. The slash before it is part of the shape.
pub(super) fn temporary(text: &[u8], at: usize) -> Option<usize> {
    const ROOTS: [&[u8]; 2] = [b"/tmp/", b"/var/folders/"];
    let root = ROOTS.iter().find(|root| text[at..].starts_with(root))?;
    let begin = at + root.len();
    let name = &text[begin..];
    let len = name.iter().take_while(|byte| in_word(**byte) || matches!(byte, b'.' | b'-')).count();
    let name = &name[..len];
    let random = name.iter().filter(|byte| byte.is_ascii_digit()).count() >= 2 && len >= 6;
    let made = name.starts_with(b"tmp") && len >= 7;
    (random || made).then_some(begin + len)
}

/// Whether a word without digits may begin something volatile: a date, or a value that it announces.
pub(super) fn may_announce(word: &[u8]) -> bool {
    let [a, b, rest @ ..] = word else { return false };
    let third = rest.first().map_or(b' ', u8::to_ascii_lowercase);
    // Most words are sorted out by their first three letters.
    let begins = matches!(
        &[a.to_ascii_lowercase(), b.to_ascii_lowercase(), third],
        b"jan"
            | b"feb"
            | b"mar"
            | b"apr"
            | b"may"
            | b"jun"
            | b"jul"
            | b"aug"
            | b"sep"
            | b"oct"
            | b"nov"
            | b"dec"
            | b"mon"
            | b"tue"
            | b"wed"
            | b"thu"
            | b"fri"
            | b"sat"
            | b"sun"
            | b"att"
            | b"ret"
            | b"try"
            | b"pid"
            | b"tid"
            | b"non"
            | b"too"
            | b"ela"
            | b"dur"
            | b"lat"
            | b"upt"
            | b"tim"
            | b"ts "
            | b"tot"
            | b"req"
            | b"xre"
            | b"tra"
            | b"spa"
            | b"cor"
            | b"ses"
            | b"inv"
            | b"ide"
            | b"tok"
            | b"eta"
            | b"ref"
            | b"inc"
            | b"cre"
            | b"quo"
            | b"rat"
    );
    begins && word.len() <= 24 && (is_month(word) || is_weekday(word) || announces(word).is_some())
}

/// What a word announces.
#[derive(Clone, Copy, PartialEq)]
enum Announced {
    /// A number that counts or measures by itself.
    Number,
    /// An id: anything with a digit, if it is long or called an id.
    Id,
    /// An id that was called one.
    NamedId,
}

fn announces(word: &[u8]) -> Option<Announced> {
    let mut squashed = [0; 24];
    let mut len = 0;
    for byte in word.iter().filter(|byte| **byte != b'_').take(24) {
        squashed[len] = byte.to_ascii_lowercase();
        len += 1;
    }
    let word = &squashed[..len];
    match word {
        b"attempt" | b"attempts" | b"retry" | b"retries" | b"try" | b"pid" | b"tid" | b"took" | b"elapsed"
        | b"duration" | b"latency" | b"uptime" | b"timestamp" | b"ts" | b"elapsedtime" | b"totaltime" => {
            return Some(Announced::Number);
        }
        // What is left to pay with, or to ask with, goes down by itself.
        b"creditsleft"
        | b"creditsremaining"
        | b"creditsused"
        | b"quotaleft"
        | b"quotaremaining"
        | b"ratelimitremaining"
        | b"ratelimitreset" => return Some(Announced::Number),
        b"nonce" => return Some(Announced::NamedId),
        _ => {}
    }
    if word.ends_with(b"ms") && (word.starts_with(b"dur") || word.starts_with(b"ela") || word.starts_with(b"took")) {
        return Some(Announced::Number);
    }
    let (head, named) = match word.strip_suffix(b"id").or_else(|| word.strip_suffix(b"key")) {
        Some(head) => (head, true),
        None => (word, false),
    };
    let known = matches!(
        head,
        b"request"
            | b"req"
            | b"xrequest"
            | b"trace"
            | b"span"
            | b"correlation"
            | b"session"
            | b"transaction"
            | b"invocation"
            | b"idempotency"
            | b"token"
            | b"traceparent"
            | b"etag"
            | b"ref"
            | b"reference"
            | b"incident"
    );
    known.then_some(if named { Announced::NamedId } else { Announced::Id })
}

/// Where the value ends that `word` announces, which itself ends at `end`. `None`: it announces nothing.
pub(super) fn announced(text: &[u8], word: &[u8], end: usize) -> Option<usize> {
    let mut what = announces(word)?;
    let mut at = end;
    if what == Announced::Id {
        let begin = at + usize::from(one_of(text, at, b" -").is_some());
        let next = letters(text, begin);
        if is(next, "id") || is(next, "key") {
            (what, at) = (Announced::NamedId, begin + next.len());
        }
    }
    let between = text[at..].iter().take(5).take_while(|byte| b" \"'=:#([`".contains(byte)).count();
    let begin = at + between;
    if between == 0 || between > 4 {
        return None;
    }
    if what == Announced::Number {
        let end = number_end(text, begin)?;
        if let Some(end) = duration(text, begin) {
            return Some(end);
        }
        return Some(if text.get(end).is_some_and(|byte| in_word(*byte)) { word_end(text, end) } else { end });
    }
    let len = text[begin..].iter().take_while(|byte| in_word(**byte) || **byte == b'-').count();
    let value = &text[begin..begin + len];
    let random = value.iter().any(u8::is_ascii_digit) && (what == Announced::NamedId || len >= 6);
    random.then_some(begin + len)
}
