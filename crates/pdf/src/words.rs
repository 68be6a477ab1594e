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

/// A name: UTF-8, or the encoding of old writers.
pub(super) fn of_name(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| bytes.iter().filter_map(|byte| of_byte(*byte)).collect(), str::to_owned)
}

/// The words of a rich text, which is XHTML.
pub(super) fn of_rich(markup: &str) -> String {
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

/// Language codes are between two escapes.
fn without_languages(text: &str) -> String {
    text.split(ESCAPE).step_by(2).collect()
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
            Some(if code == 13 { '\n' } else { char::from_u32(code)? })
        }
    }
}
