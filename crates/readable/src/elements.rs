//! The elements of HTML, as far as reading them needs.

use html5ever::tokenizer::Tag;

/// The white space before the next word, from narrow to wide. The widest request wins.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Gap {
    #[default]
    None,
    Space,
    Cell,
    Line,
    Paragraph,
}

/// The value of an attribute; `None` if the element does not have it.
pub(super) fn attribute<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

/// Whether the content of the element is not text for readers.
pub(super) fn is_unread(name: &str) -> bool {
    matches!(
        name,
        "script"
            | "style"
            | "template"
            | "noscript"
            | "svg"
            | "iframe"
            | "object"
            | "audio"
            | "video"
            | "canvas"
            | "noembed"
            | "noframes"
            | "dialog"
    )
}

/// Whether the element is marked as hidden. Style sheets are not applied; only the element's own attributes count.
pub(super) fn is_marked_hidden(tag: &Tag) -> bool {
    tag.attrs.iter().any(|attribute| match &*attribute.name.local {
        "hidden" => true,
        "aria-hidden" => attribute.value.trim().eq_ignore_ascii_case("true"),
        "type" => &*tag.name == "input" && attribute.value.trim().eq_ignore_ascii_case("hidden"),
        "style" => {
            let style: String = attribute.value.chars().filter(|c| !c.is_whitespace()).take(2000).collect();
            let style = style.to_ascii_lowercase();
            ["display:none", "visibility:hidden", "opacity:0;", "font-size:0"].iter().any(|way| style.contains(way))
                || style.ends_with("opacity:0")
        }
        _ => false,
    })
}

/// Elements that have no content and no end tag. HTML standard, "void elements".
pub(super) fn is_empty(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "source"
            | "track"
            | "wbr"
    )
}

/// Elements with an optional end tag. HTML standard, "optional tags".
pub(super) fn closes_by_itself(name: &str) -> bool {
    matches!(name, "p" | "li" | "dt" | "dd" | "tr" | "td" | "th" | "option")
}

/// The white space before and after an element.
pub(super) fn gap_around(name: &str) -> Gap {
    match name {
        "td" | "th" => Gap::Cell,
        "br" | "li" | "tr" | "dt" | "dd" | "div" | "option" | "figcaption" | "caption" | "summary" => Gap::Line,
        "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "ul" | "ol" | "dl" | "table" | "pre" | "blockquote"
        | "section" | "article" | "header" | "footer" | "main" | "nav" | "aside" | "figure" | "form" | "hr"
        | "details" => Gap::Paragraph,
        _ => Gap::None,
    }
}

/// Reads an integer as the HTML standard does: text behind the digits is ignored. A larger number becomes the largest.
pub(super) fn integer(text: &str) -> Option<i64> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\r', '\u{c}']);
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut digits = digits.bytes().take_while(u8::is_ascii_digit).peekable();
    digits.peek()?;
    Some(digits.fold(0, |number: i64, digit| number.saturating_mul(10).saturating_add(sign * i64::from(digit - b'0'))))
}

/// HTML white space, and the no-break space.
pub(super) fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}' | '\u{a0}')
}
