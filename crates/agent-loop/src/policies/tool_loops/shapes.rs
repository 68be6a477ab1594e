//! The shapes of volatile text, as regular expressions over bytes. Each function examines the text from a position on
//! and returns the end of its shape.

mod begins;
#[cfg(test)]
mod tests;

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

/// Names in braces that the patterns use.
const NAMES: [(&str, &str); 14] = [
    (
        "{DATE_TIME}",
        "{COMPACT}|(?:{DATE}|{SHORT_DATE})(?:[T:]|,? *){TIME}(?: *{YEAR})?|{DATE}|{CLOCK}(?:{SECONDS}(?:{ZONE})?|{ZONE})",
    ),
    // 20260102T030405Z
    ("{COMPACT}", "{YEAR}[0-9]{4}[T_][0-9]{6}Z?"),
    (
        "{DATE}",
        "(?:{DAY},? *)?(?:{YEAR}-{NN}-{NN}|{YEAR}/{NN}/{NN}|{NN}/{NN}/{YEAR}|{NN}[.]{NN}[.]{YEAR}|{NN}[-/. ]{MONTH}[-/,]? *{YEAR}|{MONTH}[.]? *{NN},? *{YEAR})",
    ),
    // A date only if a time follows: "May 5" alone may be something else.
    ("{SHORT_DATE}", "(?:{DAY},? *)?{MONTH}[.]? *{NN}"),
    // Hours and minutes are a time only after a date: "12:34" alone may be a line and a column.
    ("{TIME}", "{CLOCK}(?:{SECONDS})?(?:{ZONE})?"),
    ("{CLOCK}", "(?:[01]?[0-9]|2[0-4]):[0-5][0-9]"),
    ("{SECONDS}", ":[0-9]{2}(?:[.,][0-9]+)?"),
    ("{ZONE}", r" *(?:(?:[AP]M)? *(?:(?:Z|UTC|GMT|CES?T|E[SD]T|P[SD]T)\b|[+-][0-9]{2,4}(?::[0-9]{2})?\b)|[AP]M\b)"),
    ("{DAY}", "(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day|mon|tue|wed|thu|fri|sat|sun)"),
    (
        "{MONTH}",
        "(?:january|february|march|april|may|june|july|august|september|october|november|december|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)",
    ),
    ("{YEAR}", "(?:19|2[01])[0-9]{2}"),
    ("{NN}", "[0-9]{1,2}"),
    // Names of values that count or measure by themselves. Remaining credits and quotas decrease by themselves.
    (
        "{NUMBER}",
        "(?:attempts?|retry|retries|try|pid|tid|took|elapsed(?:_?time)?|total_?time|duration|latency|uptime|timestamp|ts|(?:dur|ela|took)[a-z_]*ms|credits_?(?:left|remaining|used)|quota_?(?:left|remaining)|rate_?limit_?(?:remaining|reset))",
    ),
    // The name of an id.
    (
        "{ID}",
        "(?:x?_?request|req|trace|span|correlation|session|transaction|invocation|idempotency|token|traceparent|etag|ref|reference|incident)",
    ),
];

/// The text between a name and its value.
const SEPARATOR: &str = "[ \"'=:#(\\[`]{1,4}";

/// Compiles a pattern that matches at the beginning of a text, case-insensitively.
fn shape(pattern: &str) -> Regex {
    let expanded = NAMES.iter().fold(pattern.to_owned(), |pattern, (name, meaning)| pattern.replace(name, meaning));
    let pattern = format!(r"\A(?:{expanded})");
    RegexBuilder::new(&pattern).unicode(false).case_insensitive(true).build().expect("the pattern is a constant")
}

static DATE_TIME: LazyLock<Regex> = LazyLock::new(|| shape("{DATE_TIME}"));
static EPOCH: LazyLock<Regex> = LazyLock::new(|| shape(r"(?:1[5-9]|20)[0-9]{8}(?:[0-9]{3}){0,3}\b(?:[.][0-9]+)?"));
static DURATION: LazyLock<Regex> = LazyLock::new(|| {
    let unit =
        r"(?:(?:\xc2\xb5|\xce\xbc|[mun])s|m?sec|secs|seconds?|mins?|minutes?|hrs?|hours?|days?|millis|milliseconds)";
    let number = "[0-9]+(?:[.][0-9]+)?";
    // Single letters are units only in lower case: "12M" is a size. After a space, only "s" is a unit.
    let close = format!("(?:(?-i:[smhd])|{unit})");
    shape(&format!(r"{number}(?: (?:(?-i:s)|{unit})|{close}(?:{number}{close})*)\b"))
});
static RANDOM_ID: LazyLock<Regex> =
    LazyLock::new(|| shape(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|0x[0-9a-z_]{5,}"));
static ANNOUNCING: LazyLock<Regex> = LazyLock::new(|| shape(r"(?:{DAY}|{MONTH}|{NUMBER}|{ID}(?:_?id|_?key)?|nonce)\z"));
static NUMBER: LazyLock<Regex> = LazyLock::new(|| shape(&format!("{{NUMBER}}{SEPARATOR}")));
static NAMED_ID: LazyLock<Regex> = LazyLock::new(|| shape(&format!("(?:nonce|{{ID}}[ _-]?(?:id|key)){SEPARATOR}")));
static ID: LazyLock<Regex> = LazyLock::new(|| shape(&format!("{{ID}}{SEPARATOR}")));

/// The end of the match at `at`.
fn end_of(shape: &Regex, text: &[u8], at: usize) -> Option<usize> {
    shape.find(text.get(at..)?).map(|found| at + found.end())
}

/// Whether each byte belongs to a word.
static IN_WORD: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = (byte as u8).is_ascii_alphanumeric() || byte as u8 == b'_' || byte >= 0x80;
        byte += 1;
    }
    table
};

/// Whether a byte belongs to a word. Bytes outside of ASCII do, so that no character is split.
pub(super) fn in_word(byte: u8) -> bool {
    IN_WORD[usize::from(byte)]
}

/// The end of the word that begins at `at`.
pub(super) fn word_end(text: &[u8], at: usize) -> usize {
    word(text, at).0
}

/// The end of the word that begins at `at`, and whether it contains a digit.
pub(super) fn word(text: &[u8], at: usize) -> (usize, bool) {
    let (mut end, mut digits) = (at, false);
    while end < text.len() && in_word(text[end]) {
        digits |= text[end].is_ascii_digit();
        end += 1;
    }
    (end, digits)
}

/// The end of the number that begins at `at`, including decimals.
pub(super) fn number_end(text: &[u8], at: usize) -> Option<usize> {
    let digits = |at: usize| text.get(at..).unwrap_or_default().iter().take_while(|byte| byte.is_ascii_digit()).count();
    let end = at + digits(at);
    let decimals = if text.get(end) == Some(&b'.') { digits(end + 1) } else { 0 };
    (end > at).then_some(if decimals > 0 { end + 1 + decimals } else { end })
}

/// The end of a date, a time, or both, and whether it is precise: whether its second is not 0.
pub(super) fn date_time(text: &[u8], at: usize) -> Option<(usize, bool)> {
    static PRECISE: LazyLock<Regex> =
        LazyLock::new(|| shape(".*?(?:[T_][0-9]{6}|[0-9]:[0-9]{2}:(?:0[1-9]|[1-9][0-9]|00[.,][0-9]))"));
    if !begins::is_date_time(text, at) {
        return None;
    }
    let end = end_of(&DATE_TIME, text, at).filter(|end| !text.get(*end).is_some_and(u8::is_ascii_digit))?;
    Some((end, PRECISE.is_match(&text[at..end])))
}

/// The end of a Unix time between 2017 and 2036 in seconds, milli-, micro- or nanoseconds: a word of 10, 13, 16 or 19
/// digits. A number of bytes may have as many digits; it is progress and not masked.
pub(super) fn epoch(text: &[u8], at: usize) -> Option<usize> {
    static BYTES: LazyLock<Regex> = LazyLock::new(|| shape(r" *(?:bytes?|b)\b"));
    if !begins::is_epoch(text, at) {
        return None;
    }
    end_of(&EPOCH, text, at).filter(|end| !BYTES.is_match(&text[*end..]))
}

/// The end of a duration: "12 ms", "3.4s", "2m13s", "5 minutes". A remaining time is not one: it shows the progress of
/// a wait.
pub(super) fn duration(text: &[u8], at: usize) -> Option<usize> {
    static REMAINING: LazyLock<Regex> = LazyLock::new(|| shape(r" *(?:remaining|left|until)\b"));
    if !begins::is_duration(text, at) {
        return None;
    }
    let ends = |end: &usize| !text.get(*end).is_some_and(|byte| in_word(*byte)) && !REMAINING.is_match(&text[*end..]);
    end_of(&DURATION, text, at).filter(ends)
}

/// The end of a UUID, of hexadecimal digits that are not a number, of a memory address, or of a random mix of letters
/// and digits.
pub(super) fn random_id(text: &[u8], at: usize, end: usize) -> Option<usize> {
    if begins::is_random_id(text, at, end)
        && let Some(end) = end_of(&RANDOM_ID, text, at)
    {
        return Some(end);
    }
    let word = &text[at..end];
    // Counts how often letters and digits alternate: "sha256" once, "3f2a9bc" five times. An underscore restarts the
    // comparison.
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

/// The end of a random name in a directory for temporary files. The slash before it is part of the shape.
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

/// Whether a word without digits may begin a volatile piece: a date, or a name whose value follows.
pub(super) fn may_announce(word: &[u8]) -> bool {
    (2..=24).contains(&word.len()) && begins::is_announcing(word) && ANNOUNCING.is_match(word)
}

/// The end of the volatile value whose name begins at `at`. `None`: no such value follows.
pub(super) fn announced(text: &[u8], at: usize) -> Option<usize> {
    if !begins::is_announced(text, at) {
        return None;
    }
    if let Some(begin) = end_of(&NUMBER, text, at) {
        let end = number_end(text, begin)?;
        return Some(duration(text, begin).unwrap_or_else(|| word_end(text, end)));
    }
    let named = end_of(&NAMED_ID, text, at);
    let begin = named.or_else(|| end_of(&ID, text, at))?;
    let len = text[begin..].iter().take_while(|byte| in_word(**byte) || **byte == b'-').count();
    let value = &text[begin..begin + len];
    // An id contains a digit, unless it is long and happens to have none. It must be long unless its name says that it is an id.
    let random = value.iter().any(u8::is_ascii_digit) && (named.is_some() || len >= 6);
    let long = len >= 12 && value.iter().all(u8::is_ascii_hexdigit);
    (random || long).then_some(begin + len)
}
