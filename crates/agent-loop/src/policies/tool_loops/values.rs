//! The digests of single values: numbers, paths, commands, database queries.

use serde_json::Value;

use super::command;
use super::digest::{self, Digest};
use super::keys::{self, Class};
use super::mask::{Piece, Place, pieces};
use super::shapes;
use super::words::Kind;

/// Whether a text is a database query, and whether it only reads.
pub(super) fn sql_kind(text: &str) -> Option<Kind> {
    let first = text.split_ascii_whitespace().next().unwrap_or_default();
    let is = |verbs: &[&str]| verbs.iter().any(|verb| first.eq_ignore_ascii_case(verb));
    match () {
        () if !text.contains(' ') => None,
        () if is(&["select", "with", "pragma", "show", "explain", "describe"]) => Some(Kind::Read),
        () if is(&["insert", "update", "delete", "merge", "replace", "alter", "truncate"]) => Some(Kind::Write),
        () => None,
    }
}

/// The role of a word in a database query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sql {
    /// A table follows: `from`, `join`.
    Source,
    /// An amount or a position follows: `limit`, `offset`.
    Page,
    /// Conditions follow: `where`.
    Condition,
    /// An order follows: `group`, `order`.
    Order,
    /// A keyword without a target.
    Keyword,
    /// A name or a value.
    Name,
}

/// Determines the role of a word in a database query.
pub(super) fn sql_word(word: &[u8]) -> Sql {
    const KEYWORDS: [&str; 32] = [
        "select", "and", "or", "not", "like", "ilike", "lower", "upper", "trim", "by", "asc", "desc", "count", "sum",
        "distinct", "as", "left", "right", "inner", "outer", "on", "in", "is", "null", "cast", "text", "exists",
        "between", "with", "case", "when", "all",
    ];
    let is = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
    match () {
        () if is(&["from", "join", "into", "update", "table"]) => Sql::Source,
        () if is(&["limit", "offset"]) => Sql::Page,
        () if is(&["where", "having"]) => Sql::Condition,
        () if is(&["group", "order"]) => Sql::Order,
        () if is(&KEYWORDS) => Sql::Keyword,
        () => Sql::Name,
    }
}

/// The kind of a list of arguments: of the command that a shell runs, or of the list itself.
pub(super) fn program(items: &[Value]) -> Kind {
    let words: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    match words.as_slice() {
        [shell, flag, line, ..] if shell.ends_with("sh") && flag.starts_with('-') => command::kind(line),
        words => command::kind(&words.join(" ")),
    }
}

/// The digest of a number, and whether it looks like a Unix time. 1 and 1.0 are the same number.
pub(super) fn number_digest(number: &serde_json::Number) -> (u64, bool) {
    let value = number.as_f64().unwrap_or_default();
    let epoch = [1.0, 1e3, 1e6].iter().any(|unit| (1.5e9..2.1e9).contains(&(value / unit)));
    let whole = number.as_i64().or_else(|| (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64));
    (whole.map_or(value.to_bits(), |whole| whole as u64), epoch)
}

/// A whole number as decimal text on the stack, to recognise it in a result.
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

/// Digest of words and punctuation, with volatile pieces masked. White space only separates words.
pub(super) fn masked_digest(text: &[u8], place: Place) -> u64 {
    let mut digest = Digest::new(3);
    pieces(text, place, |piece| match piece {
        Piece::Word(word) => digest.bytes(word),
        Piece::Mark(mark) => digest.word(u64::from(mark)),
        Piece::Volatile => digest.word(1 << 32),
    });
    digest.finish()
}

/// Digest of a path, id or name. A path is normalised: `./a//b` equals `a/b`, and random names of temporary files are
/// masked.
pub(super) fn path_digest(text: &str) -> u64 {
    if let Some((address, query)) = text.split_once('?').filter(|_| text.contains("://")) {
        return address_digest(address, query, |class| class == Class::Volatile);
    }
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

/// The same, without the parts that select a page of one target: `?page=3` in an address.
pub(super) fn aim_digest(text: &str) -> u64 {
    let Some((address, query)) = text.split_once('?') else { return path_digest(text) };
    address_digest(address, query, |class| matches!(class, Class::Page | Class::Volatile))
}

/// Digest of an address with its query in any order. Leaves out the keys that `hides` selects, and values that only
/// defeat a cache: a time or a random id under a key without a known meaning.
fn address_digest(address: &str, query: &str, hides: impl Fn(Class) -> bool) -> u64 {
    let mut digest = path_digest(address);
    for part in query.split('&') {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let class = keys::class(key, "");
        let word = value.as_bytes();
        let end = shapes::word_end(word, 0);
        let random = || shapes::epoch(word, 0).or_else(|| shapes::random_id(word, 0, end)) == Some(word.len());
        let busts = class == Class::Other && !value.is_empty() && random();
        if !busts && !hides(class) {
            digest = digest.wrapping_add(digest::of(part.as_bytes()));
        }
    }
    digest
}

/// Digest of a symbol in any spelling: `processOrder`, `process_order`.
pub(super) fn loose_digest(text: &str) -> u64 {
    let mut digest = Digest::new(6);
    for byte in text.bytes().filter(|byte| *byte != b'_' && shapes::in_word(*byte)) {
        digest.word(u64::from(byte.to_ascii_lowercase()));
    }
    digest.finish()
}
