//! The strings of a PDF as text.
//!
//! Source: ISO 32000-2, 7.9.2.2 (text strings), 12.7.4.4 (rich text) and annex D.3 (PDFDocEncoding).

use encoding_rs::UTF_16BE;
use encoding_rs::UTF_16LE;

/// Characters of PDFDocEncoding from 0x18.
const ACCENTS: [char; 8] = ['˘', 'ˇ', 'ˆ', '˙', '˝', '˛', '˚', '˜'];

/// Characters of PDFDocEncoding from 0x80.
const SIGNS: [char; 31] = [
    '•', '†', '‡', '…', '—', '–', 'ƒ', '⁄', '‹', '›', '−', '‰', '„', '“', '”', '‘', '’', '‚', '™', 'ﬁ', 'ﬂ', 'Ł', 'Œ',
    'Š', 'Ÿ', 'Ž', 'ı', 'ł', 'œ', 'š', 'ž',
];

/// Marks the begin and the end of a language code inside a text of UTF-16 or UTF-8.
const ESCAPE: char = '\u{1b}';

/// Longest text that may count as empty.
const EMPTY_MAX_BYTES: usize = 16;

/// A text string, with one kind of line end. Its first bytes name its encoding.
pub(super) fn of_string(bytes: &[u8]) -> String {
    let text = match bytes {
        [0xfe, 0xff, rest @ ..] => UTF_16BE.decode_without_bom_handling(rest).0.into_owned(),
        // No standard has it, and readers accept it.
        [0xff, 0xfe, rest @ ..] => UTF_16LE.decode_without_bom_handling(rest).0.into_owned(),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest).into_owned(),
        _ => return lines(&bytes.iter().filter_map(|byte| of_byte(*byte)).collect::<String>()),
    };
    lines(&without_languages(&text))
}

/// Whether a text string has no characters, or a few blanks alone. Looks at the first bytes.
pub(super) fn is_empty(bytes: &[u8]) -> bool {
    let rest = match bytes {
        [0xfe, 0xff, rest @ ..] | [0xff, 0xfe, rest @ ..] | [0xef, 0xbb, 0xbf, rest @ ..] => rest,
        _ => bytes,
    };
    rest.len() <= EMPTY_MAX_BYTES && rest.iter().all(|byte| matches!(byte, 0 | b'\t' | b'\n' | b'\r' | b' '))
}

/// A name, with one kind of line end: UTF-8, or the encoding of old writers.
pub(super) fn of_name(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => lines(text),
        Err(_) => lines(&bytes.iter().filter_map(|byte| of_byte(*byte)).collect::<String>()),
    }
}

/// The words of a rich text, which is XHTML, with one kind of line end.
pub(super) fn of_rich(markup: &str) -> String {
    lines(&without_tags(markup))
}

fn without_tags(markup: &str) -> String {
    let (mut text, mut rest) = (String::new(), markup);
    while let Some(begin) = rest.find('<') {
        push_decoded(&mut text, &rest[..begin]);
        let Some(length) = rest[begin..].find('>') else { return text };
        let tag = &rest[begin + 1..begin + length];
        if ["br", "/p", "/div", "/li"].iter().any(|end| tag.starts_with(end)) {
            text.push('\n');
        }
        rest = &rest[begin + length + 1..];
    }
    push_decoded(&mut text, rest);
    text
}

fn of_byte(byte: u8) -> Option<char> {
    Some(match byte {
        b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0xa1..=0xff => char::from(byte),
        0x18..=0x1f => ACCENTS[usize::from(byte - 0x18)],
        0x80..=0x9e => SIGNS[usize::from(byte - 0x80)],
        0xa0 => '€',
        _ => return None,
    })
}

/// Leaves out language codes: two letters, or four with a country, between two escapes. Any other escape is text.
fn without_languages(text: &str) -> String {
    let (mut kept, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(ESCAPE) {
        kept.push_str(before);
        let letters = after.bytes().take(5).take_while(u8::is_ascii_alphabetic).count();
        let code_end = after[letters..].strip_prefix(ESCAPE).filter(|_| matches!(letters, 2 | 4));
        if code_end.is_none() {
            kept.push(ESCAPE);
        }
        rest = code_end.unwrap_or(after);
    }
    kept.push_str(rest);
    kept
}

fn lines(text: &str) -> String {
    let is_end = |c: char| matches!(c, '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}');
    text.replace("\r\n", "\n").replace(is_end, "\n")
}

fn push_decoded(text: &mut String, mut rest: &str) {
    while let Some(begin) = rest.find('&') {
        text.push_str(&rest[..begin]);
        rest = &rest[begin + 1..];
        // The longest is `&#x10ffff;`.
        let end = rest.bytes().take(10).position(|byte| byte == b';');
        match end.and_then(|end| Some((entity(&rest[..end])?, end))) {
            Some((c, end)) => {
                text.push(c);
                rest = &rest[end + 1..];
            }
            None => text.push('&'),
        }
    }
    text.push_str(rest);
}

fn entity(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some(' '),
        _ => {
            let digits = name.strip_prefix('#')?;
            let hex = digits.strip_prefix(['x', 'X']).map(|hex| u32::from_str_radix(hex, 16));
            let code = hex.unwrap_or_else(|| digits.parse()).ok()?;
            char::from_u32(code)
        }
    }
}
