//! Conditions that a text fulfils wherever a shape matches it. They cost a few comparisons, and nearly every word of a
//! text fails them, so that the regular expressions are rarely asked.
//!
//! Each may be true without a match, never the reverse: the tests compare it with the expressions.

use super::number_end;

/// The number of digits at `at`.
pub(super) fn digits(text: &[u8], at: usize) -> usize {
    text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// The first three bytes of a text, letters in lower case. No name has less than two.
fn head(text: &[u8]) -> [u8; 3] {
    let bytes = match *text {
        [a, b, c, ..] => [a, b, c],
        [a, b] => [a, b, 0],
        _ => [0; 3],
    };
    bytes.map(|byte| byte.to_ascii_lowercase())
}

fn is_month(head: [u8; 3]) -> bool {
    let first = matches!(&head, b"jan" | b"feb" | b"mar" | b"apr" | b"may" | b"jun");
    first || matches!(&head, b"jul" | b"aug" | b"sep" | b"oct" | b"nov" | b"dec")
}

fn is_day(head: [u8; 3]) -> bool {
    matches!(&head, b"mon" | b"tue" | b"wed" | b"thu" | b"fri" | b"sat" | b"sun")
}

/// Whether the name of a value that counts, measures or identifies begins so.
#[rustfmt::skip]
fn is_name(head: [u8; 3]) -> bool {
    matches!(
        &head,
        b"att" | b"ret" | b"try" | b"pid" | b"tid" | b"too" | b"ela" | b"tot" | b"dur" | b"lat" | b"upt" | b"tim"
            | [b't', b's', _] | b"cre" | b"quo" | b"rat" | b"xre" | b"x_r" | b"_re" | b"req" | b"tra" | b"spa" | b"cor"
            | b"ses" | b"inv" | b"ide" | b"tok" | b"eta" | b"ref" | b"inc" | b"non"
    )
}

/// Whether a word without digits may announce a volatile piece.
pub(super) fn is_announcing(word: &[u8]) -> bool {
    let head = head(word);
    is_name(head) || is_day(head) || is_month(head)
}

/// Whether the name of a volatile value may begin at `at`.
pub(super) fn is_announced(text: &[u8], at: usize) -> bool {
    is_name(head(&text[at..]))
}

/// Whether a date or a time may begin at `at`.
pub(super) fn is_date_time(text: &[u8], at: usize) -> bool {
    let count = digits(text, at);
    let next = text.get(at + count).copied().unwrap_or_default();
    match count {
        0 => is_day(head(&text[at..])) || is_month(head(&text[at..])),
        1 | 2 if next == b' ' => is_month(head(&text[at + count + 1..])),
        1 | 2 => matches!(next, b':' | b'-' | b'/' | b'.'),
        4 => matches!(next, b'-' | b'/'),
        8 => matches!(next, b'T' | b't' | b'_'),
        _ => false,
    }
}

/// Whether seconds since 1970, or smaller units of them, may begin at `at`.
pub(super) fn is_epoch(text: &[u8], at: usize) -> bool {
    matches!(text.get(at), Some(b'1' | b'2')) && matches!(digits(text, at), 10 | 13 | 16 | 19)
}

/// Whether a duration may begin at `at`: a number with a unit.
pub(super) fn is_duration(text: &[u8], at: usize) -> bool {
    let Some(end) = number_end(text, at) else { return false };
    let is_unit = |at: usize| {
        let first = text.get(at).map(u8::to_ascii_lowercase);
        first.is_some_and(|byte| matches!(byte, b's' | b'm' | b'h' | b'd' | b'n' | b'u' | 0xc2 | 0xce))
    };
    is_unit(end) || (text.get(end) == Some(&b' ') && is_unit(end + 1))
}

/// Whether the word from `at` to `end` may be a memory address, or begin a UUID.
pub(super) fn is_random_id(text: &[u8], at: usize, end: usize) -> bool {
    let word = &text[at..end];
    let address = word.len() >= 7 && word[0] == b'0' && word[1].eq_ignore_ascii_case(&b'x');
    address || (word.len() == 8 && text.get(end) == Some(&b'-'))
}
