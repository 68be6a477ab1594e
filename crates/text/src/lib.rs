//! The one table of invisible and direction-changing characters, and the functions that show or remove them.
//!
//! **For**: all output that a person, a terminal or a model reads. There are two modes. [`escaped`] shows a hidden
//! character as `\u{202e}`. It is for terminals and questions, where a person decides by what is visible. [`removed`]
//! leaves it out. It is for prompts, where a hidden character could only be an invisible instruction. [`escaped_line`]
//! is the first mode on one line, for names; it also shows characters that look like a space.
//!
//! [`markdown`] puts a text into Markdown so that nothing of it acts as markup, and [`question`] makes the text of a
//! question about a call.
//!
//! [`untrusted`] writes the markers around untrusted content, and removes them from the text for people. [`near`] finds the
//! known name that is most similar to a mistyped one. [`figures`] writes tokens, cost and context of a run in words.
//!
//! **Does not know**: who wrote the text, where it is shown, or how long it may be. It is pure.
//!
//! Ordinary text is not changed: Arabic, Hebrew and Indic text, with the joiners (U+200C, U+200D) where these scripts
//! use them, and emoji with their joiners and variation selectors. A joiner or selector anywhere else is hidden. Three
//! things are removed on purpose: direction marks (U+200E, U+200F, U+061C), flags that consist of tag characters
//! (Scotland becomes a black flag), and selectors of rare letter forms.

pub mod figures;
pub mod markdown;
pub mod near;
pub mod question;
pub mod untrusted;

use std::borrow::Cow;
use std::fmt::Write as _;

use icu_properties::props::{
    BidiControl, CanonicalCombiningClass, DefaultIgnorableCodePoint, Emoji, GeneralCategory, JoiningType,
    PrependedConcatenationMark,
};
use icu_properties::{CodePointMapData, CodePointSetData};

/// The joiner that keeps letters apart.
const ZWNJ: char = '\u{200c}';
/// The joiner that connects letters, or the parts of an emoji.
const ZWJ: char = '\u{200d}';

/// Whether a character alone is invisible, or changes how its neighbours are shown: a control character other than line
/// feed and tab, a zero-width character, a direction mark, a line separator, a variation selector, a tag.
///
/// Source: Unicode 17, the properties `Default_Ignorable_Code_Point`, `Bidi_Control` and `General_Category` (Cc, Cf,
/// Zl, Zp). `Prepended_Concatenation_Mark` contains the visible characters of Cf.
pub fn is_hidden(c: char) -> bool {
    !is_common(c) && by_property(c)
}

/// Whether a character is hidden, or looks like a blank or has no defined look: spaces other than U+0020, the empty
/// Braille pattern, private use, and noncharacters. A name or a command with such a character may differ from what it
/// seems to be.
pub fn is_unclear(c: char) -> bool {
    if c == ' ' || c.is_ascii_graphic() {
        return false;
    }
    let noncharacter = matches!(u32::from(c) & 0xffff, 0xfffe | 0xffff) || matches!(c, '\u{fdd0}'..='\u{fdef}');
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    matches!(c, '\n' | '\t' | '\u{2800}')
        || noncharacter
        || matches!(category, GeneralCategory::SpaceSeparator | GeneralCategory::PrivateUse)
        || is_hidden(c)
}

/// The text with each hidden character as an escape, such as `\u{202e}`. Line feeds and tabs are kept; a carriage
/// return before a line feed is removed.
pub fn escaped(text: &str) -> Cow<'_, str> {
    rewrite(text, |out, c| {
        // Writing to a string does not fail.
        let _ = write!(out, "{}", c.escape_unicode());
    })
}

/// The same for one piece of a streamed text. A joiner or an emoji selector at either end is kept, because its
/// neighbour is in another piece.
pub fn escaped_piece(piece: &str) -> Cow<'_, str> {
    let binds = |c: char| matches!(c, ZWNJ | ZWJ | '\u{fe0e}' | '\u{fe0f}');
    let inner = piece.strip_prefix(binds).unwrap_or(piece);
    let inner = inner.strip_suffix(binds).unwrap_or(inner);
    match escaped(inner) {
        Cow::Borrowed(_) => Cow::Borrowed(piece),
        Cow::Owned(shown) => {
            let at = piece.len() - piece.strip_prefix(binds).unwrap_or(piece).len();
            Cow::Owned(format!("{}{shown}{}", &piece[..at], &piece[at + inner.len()..]))
        }
    }
}

/// The text without hidden characters. Line feeds and tabs are kept.
pub fn removed(text: &str) -> Cow<'_, str> {
    rewrite(text, |_, _| ())
}

/// The text on one line, with escapes for everything that is unclear ([`is_unclear`]) and for the backslash. For a
/// name, or for a short text between other words.
pub fn escaped_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for (c, neighbours) in with_neighbours(text) {
        if c == '\\' || (is_unclear(c) && !is_part_of_spelling(c, neighbours)) {
            line.extend(c.escape_default());
        } else {
            line.push(c);
        }
    }
    line
}

/// Whether every character of a name can be recognised by its look.
pub fn is_clear(name: &str) -> bool {
    with_neighbours(name).all(|(c, neighbours)| !is_unclear(c) || is_part_of_spelling(c, neighbours))
}

/// The characters before and after a character.
type Neighbours = (Option<char>, Option<char>);

fn with_neighbours(text: &str) -> impl Iterator<Item = (char, Neighbours)> {
    let mut before = None;
    text.char_indices().map(move |(at, c)| {
        let after = text[at + c.len_utf8()..].chars().next();
        (c, (before.replace(c), after))
    })
}

fn rewrite(text: &str, mut hidden: impl FnMut(&mut String, char)) -> Cow<'_, str> {
    if !text.chars().any(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for (c, neighbours) in with_neighbours(text) {
        if !is_hidden(c) || is_part_of_spelling(c, neighbours) {
            out.push(c);
        } else if (c, neighbours.1) != ('\r', Some('\n')) {
            hidden(&mut out, c);
        }
    }
    Cow::Owned(out)
}

/// Common characters, recognised quickly. A test proves that none of them is hidden.
fn is_common(c: char) -> bool {
    matches!(c, ' '..='~' | '\n' | '\t' | '\u{a0}'..='\u{ac}' | '\u{ae}'..='\u{34e}' | '\u{370}'..='\u{5ff}')
        || matches!(c, '\u{620}'..='\u{6dc}' | '\u{900}'..='\u{dff}' | '\u{3000}'..='\u{3163}' | '\u{3165}'..='\u{d7a3}')
}

fn by_property(c: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator};
    match CodePointMapData::<GeneralCategory>::new().get(c) {
        Control => !matches!(c, '\n' | '\t'),
        LineSeparator | ParagraphSeparator => true,
        Format => !CodePointSetData::new::<PrependedConcatenationMark>().contains(c),
        _ => {
            CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
                || CodePointSetData::new::<BidiControl>().contains(c)
        }
    }
}

/// Whether a hidden character belongs to the normal spelling of its neighbours.
fn is_part_of_spelling(c: char, (before, after): Neighbours) -> bool {
    let Some(before) = before else { return false };
    match c {
        '\u{fe0e}' | '\u{fe0f}' if before.is_ascii() => is_emoji(before, true) && after == Some('\u{20e3}'), // a keycap
        '\u{fe0e}' | '\u{fe0f}' => is_emoji(before, false),
        ZWJ if before == '\u{fe0f}' || is_emoji(before, false) => after.is_some_and(|after| is_emoji(after, false)),
        ZWJ | ZWNJ => joins(before, after),
        _ => false,
    }
}

fn is_emoji(c: char, ascii: bool) -> bool {
    c.is_ascii() == ascii && CodePointSetData::new::<Emoji>().contains(c)
}

/// Whether a joiner between two characters is part of the spelling.
///
/// Source: RFC 5892, appendices A.1 and A.2: after a virama, or between letters that join. At the end of a word, it is
/// accepted only after a virama (as in Malayalam).
fn joins(before: char, after: Option<char>) -> bool {
    if CodePointMapData::<CanonicalCombiningClass>::new().get(before) == CanonicalCombiningClass::Virama {
        return after.is_none_or(|after| !is_hidden(after));
    }
    let joining = CodePointMapData::<JoiningType>::new();
    let is_letter = |c: char| !c.is_ascii() && !is_hidden(c) && joining.get(c) != JoiningType::NonJoining;
    is_letter(before) && after.is_some_and(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_escaped_or_left_out() {
        for (text, shown, left) in [
            ("plain\n\ttext", "plain\n\ttext", "plain\n\ttext"),
            ("two\r\nlines", "two\nlines", "two\nlines"),
            ("over\rwritten", r"over\u{d}written", "overwritten"),
            ("txt.\u{202e}exe", r"txt.\u{202e}exe", "txt.exe"),
            ("soft\u{ad}hyphen", r"soft\u{ad}hyphen", "softhyphen"),
            ("\u{61c}a\u{2066}b\u{2069}", r"\u{61c}a\u{2066}b\u{2069}", "ab"),
            ("a\u{200b}b\u{200e}c\u{200f}", r"a\u{200b}b\u{200e}c\u{200f}", "abc"),
            ("\u{feff}begin", r"\u{feff}begin", "begin"),
            ("hi\u{e0041}\u{e007f}", r"hi\u{e0041}\u{e007f}", "hi"),
            ("a\u{e0100}\u{e01ef}\u{fe01}", r"a\u{e0100}\u{e01ef}\u{fe01}", "a"),
            ("\u{1b}[31mred\u{7}", r"\u{1b}[31mred\u{7}", "[31mred"),
            ("\u{9b}2J\u{7f}", r"\u{9b}2J\u{7f}", "2J"),
            ("a\u{2028}b\u{2029}c", r"a\u{2028}b\u{2029}c", "abc"),
            (
                "\u{3164}\u{115f}\u{34f}\u{2064}\u{fff9}\u{1d173}",
                r"\u{3164}\u{115f}\u{34f}\u{2064}\u{fff9}\u{1d173}",
                "",
            ),
            // Joiners and selectors at positions where they are never written.
            ("a\u{200d}b\u{200c}c", r"a\u{200d}b\u{200c}c", "abc"),
            ("a\u{fe0f}1\u{fe0f}2", r"a\u{fe0f}1\u{fe0f}2", "a12"),
            ("❤\u{fe0f}\u{fe0f}", "❤\u{fe0f}\\u{fe0f}", "❤\u{fe0f}"),
            ("می\u{200c}\u{200c}خواهم", r"می\u{200c}\u{200c}خواهم", "میخواهم"),
            ("👨\u{200d}\u{200d}👩", r"👨\u{200d}\u{200d}👩", "👨👩"),
        ] {
            assert_eq!((&*escaped(text), &*removed(text)), (shown, left), "{text:?}");
        }
    }

    #[test]
    fn ordinary_writing_stays_as_it_is() {
        for text in [
            "größer, ключ, 日本語, 한국어, ελληνικά, tiếng Việt",
            "مرحبا بالعالم، ٣ كتب",
            "می\u{200c}خواهم نامه\u{200c}ها",
            "שָׁלוֹם עולם",
            "क\u{94d}\u{200d}ष क\u{94d}\u{200c}ष हिन्दी",
            "ශ\u{dca}\u{200d}රී ලංකා",
            "അവന\u{d4d}\u{200d}",
            "\u{600}١ \u{6dd}٢",
            "❤\u{fe0f} ☎\u{fe0e} 1\u{fe0f}\u{20e3} 👍🏽 🇩🇪 🦀",
            "👨\u{200d}👩\u{200d}👧 👩🏽\u{200d}🚀 🏳\u{fe0f}\u{200d}🌈 🤷\u{200d}♂\u{fe0f}",
            "e\u{301} n\u{303}",
        ] {
            assert_eq!((&*escaped(text), &*removed(text)), (text, text), "{text:?}");
        }
    }

    #[test]
    fn pieces_of_a_text_are_put_together_again() {
        for text in ["👨\u{200d}👩\u{200d}👧", "می\u{200c}خواهم", "❤\u{fe0f}!"] {
            let pieces = text.chars().map(|c| escaped_piece(c.encode_utf8(&mut [0; 4])).into_owned());
            assert_eq!(pieces.collect::<String>(), text);
        }
        assert_eq!(escaped_piece("\u{200d}\u{202e}a\u{200d}"), "\u{200d}\\u{202e}a\u{200d}");
        assert_eq!(escaped_piece("\u{200d}\u{200d}\u{200d}"), "\u{200d}\\u{200d}\u{200d}");
    }

    #[test]
    fn the_quick_way_agrees_with_the_properties() {
        for c in ('\0'..=char::MAX).filter(|c| is_common(*c)) {
            assert!(!by_property(c), "{c:?}");
        }
    }

    #[test]
    fn a_name_shows_what_it_is() {
        for (text, expected) in [
            ("plain text", "plain text"),
            ("ключ 🗝", "ключ 🗝"),
            ("a\nb\tc", r"a\nb\tc"),
            ("back\\slash", r"back\\slash"),
            ("a\u{a0}b\u{3000}c\u{2800}", r"a\u{a0}b\u{3000}c\u{2800}"),
            ("\u{e000}\u{ffff}", r"\u{e000}\u{ffff}"),
            ("نامه\u{200c}ها 👨\u{200d}👩 ❤\u{fe0f}.txt", "نامه\u{200c}ها 👨\u{200d}👩 ❤\u{fe0f}.txt"),
        ] {
            assert_eq!(escaped_line(text), expected);
            assert_eq!(is_clear(text), text == expected || text.contains('\\'), "{text:?}");
        }
    }
}
