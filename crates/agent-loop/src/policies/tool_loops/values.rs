//! The digests of single values: numbers, paths, commands, database queries.

use serde_json::Value;

use super::command;
use super::digest::{self, Digest};
use super::keys::{self, Class};
use super::mask::{Piece, Place, pieces};
use super::shapes;
use super::words::Kind;

/// Whether a text is a database query.
pub(super) fn is_sql(text: &str) -> bool {
    let first = text.split_ascii_whitespace().next().unwrap_or_default();
    let verbs = ["select", "with", "insert", "update", "delete", "pragma"];
    text.contains(' ') && verbs.iter().any(|verb| first.eq_ignore_ascii_case(verb))
}

/// A word of SQL that says how, and not which.
pub(super) fn is_keyword(word: &[u8]) -> bool {
    const KEYWORDS: [&str; 40] = [
        "select", "from", "where", "and", "or", "not", "like", "ilike", "lower", "upper", "trim", "order", "by",
        "group", "limit", "offset", "asc", "desc", "count", "sum", "distinct", "as", "join", "left", "right", "inner",
        "outer", "on", "in", "is", "null", "having", "cast", "text", "exists", "between", "with", "case", "when",
        "all",
    ];
    KEYWORDS.iter().any(|keyword| word.eq_ignore_ascii_case(keyword.as_bytes()))
}

/// The first eight bytes of a word in lower case.
pub(super) fn lower(word: &[u8]) -> [u8; 8] {
    let mut lower = [0; 8];
    let len = word.len().min(8);
    lower[..len].copy_from_slice(&word[..len]);
    lower.make_ascii_lowercase();
    lower
}

/// The program in a list of arguments: what a shell is told to run, or the list itself.
pub(super) fn program(items: &[Value]) -> Kind {
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    match words.as_slice() {
        [shell, flag, line, ..] if shell.ends_with("sh") && flag.starts_with('-') => command::kind(line),
        words => command::kind(&words.join(" ")),
    }
}

/// The digest of a number, and whether it looks like seconds since 1970. 1 and 1.0 are the same number.
pub(super) fn number_digest(number: &serde_json::Number) -> (u64, bool) {
    let value = number.as_f64().unwrap_or_default();
    let epoch = [1.0, 1e3, 1e6].iter().any(|unit| (1.5e9..2.1e9).contains(&(value / unit)));
    let whole = number.as_i64().or_else(|| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64));
    (whole.map_or(value.to_bits(), |whole| whole as u64), epoch)
}

/// A whole number as text on the stack, to find it again in a result.
pub(super) fn itoa(value: u64) -> Decimal {
    let mut decimal = Decimal { digits: [0; 20], from: 20 };
    let mut rest = value;
    loop {
        decimal.from -= 1;
        decimal.digits[decimal.from] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return decimal;
        }
    }
}

pub(super) struct Decimal {
    digits: [u8; 20],
    from: usize,
}

impl Decimal {
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.digits[self.from..]
    }
}

/// Words and punctuation with volatile pieces hidden; runs of spaces are one.
pub(super) fn masked_digest(text: &[u8], place: Place) -> u64 {
    let mut digest = Digest::new(3);
    pieces(text, place, |piece| match piece {
        Piece::Word(word) => digest.bytes(word),
        Piece::Mark(mark) => digest.word(u64::from(mark)),
        Piece::Volatile => digest.word(1 << 32),
    });
    digest.finish()
}

/// A path, id or name as it stands; of a path `./a//b` only `a/b`, and without random names of temporary files.
pub(super) fn path_digest(text: &str) -> u64 {
    let mut digest = Digest::new(5);
    let bytes = text.as_bytes();
    let bytes = bytes.strip_prefix(b"./").unwrap_or(bytes);
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'/' if bytes.get(at + 1) == Some(&b'/') => at += 1,
            b'/' if bytes[at..].starts_with(b"/./") => at += 2,
            b'/' if let Some(end) = shapes::temporary(bytes, at) => {
                digest.word(2 << 32);
                at = end;
            }
            _ => {
                let len = bytes[at + 1..].iter().take_while(|byte| **byte != b'/').count() + 1;
                digest.bytes(&bytes[at..at + len]);
                at += len;
            }
        }
    }
    digest.finish()
}

/// The same without what leads on within one thing: `?page=3` of an address.
pub(super) fn aim_digest(text: &str) -> u64 {
    let Some((address, query)) = text.split_once('?') else { return path_digest(text) };
    let mut digest = path_digest(address);
    for part in query.split('&') {
        let key = part.split('=').next().unwrap_or_default();
        if !matches!(keys::class(key, ""), Class::Page | Class::Volatile) {
            digest = digest.wrapping_add(digest::of(part.as_bytes()));
        }
    }
    digest
}

/// A symbol without regard to its spelling: `processOrder`, `process_order`.
pub(super) fn loose_digest(text: &str) -> u64 {
    let mut digest = Digest::new(6);
    for byte in text.bytes().filter(|byte| *byte != b'_' && shapes::in_word(*byte)) {
        digest.word(u64::from(byte.to_ascii_lowercase()));
    }
    digest.finish()
}
