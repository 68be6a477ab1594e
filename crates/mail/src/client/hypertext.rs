//! The text of a mail that has HTML alone, with the quotation marked as in a plain text. Pure.
//!
//! The library's own conversion drops the mark of a `<blockquote>`, so that quoted words would be the sender's own.

use mail_parser::decoders::html::html_to_text;

/// Most bytes of HTML that are read.
const HTML_MAX_BYTES: usize = 1024 * 1024;

/// Marks of an element behind which everything is the mail that is answered: of Gmail, Outlook, Outlook on the web and
/// Yahoo.
const BEGINS: [&str; 4] = ["gmail_quote", "divrplyfwdmsg", "appendonsend", "yahoo_quoted"];

/// The line that stands for such an element. `quotation` knows it.
const BEGIN: &str = "-----Original Message-----";

/// Elements that begin a line. The library knows `<br>` and `</p>` alone.
const BLOCKS: [&str; 12] = ["div", "p", "li", "tr", "hr", "table", "h1", "h2", "h3", "h4", "h5", "h6"];

/// The text, whose quoted lines begin with `>`.
pub(crate) fn text(html: &str) -> String {
    let html = &html[..html.floor_char_boundary(HTML_MAX_BYTES)];
    let (mut text, mut from, mut depth, mut has_begun) = (String::new(), 0, 0_usize, false);
    let mut at = 0;
    while let Some(open) = html[at..].find('<').map(|found| at + found) {
        let end = if html[open..].starts_with("<!--") { "-->" } else { ">" };
        let close = html[open..].find(end).map_or(html.len(), |found| open + found + end.len());
        let tag = html[open..close].to_ascii_lowercase();
        at = close;
        if tag.starts_with("<!--") {
            push(&mut text, &html[from..open], depth);
            from = close;
            continue;
        }
        let (name, is_end) = match tag.strip_prefix("</") {
            Some(name) => (name, true),
            None => (&tag[1..], false),
        };
        if BLOCKS.iter().any(|block| is_named(name, block)) {
            push(&mut text, &html[from..open], depth);
            from = open;
        }
        let begins = !has_begun && depth == 0 && !is_end && BEGINS.iter().any(|mark| tag.contains(mark));
        let is_quote = is_named(name, "blockquote");
        if !begins && !is_quote {
            continue;
        }
        push(&mut text, &html[from..open], depth);
        from = close;
        match (begins, is_end) {
            (true, _) => {
                has_begun = true;
                text.push_str(BEGIN);
                text.push('\n');
            }
            (false, true) => depth = depth.saturating_sub(1),
            (false, false) => depth += 1,
        }
    }
    push(&mut text, &html[from..], depth);
    text
}

/// Whether a tag without its `<` and `/` is of this element.
fn is_named(tag: &str, name: &str) -> bool {
    tag.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
}

/// Appends the text of a piece of HTML.
fn push(text: &mut String, html: &str, depth: usize) {
    let piece = html_to_text(html);
    let piece = piece.trim();
    if piece.is_empty() {
        return;
    }
    for line in piece.lines() {
        if depth > 0 {
            text.push_str("> ");
        }
        text.push_str(line);
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::super::quotation::split;
    use super::*;

    #[test]
    fn quoted_html_is_a_quotation() {
        for (html, own, quoted) in [
            ("<p>Yes</p><blockquote type=\"cite\">do it</blockquote>", "Yes", "do it"),
            (
                "<div>Yes</div><div class=\"gmail_quote\"><div>On 1 Dec</div><blockquote>do it</blockquote></div>",
                "Yes",
                "do it",
            ),
            ("<body>Yes<hr><div id=\"divRplyFwdMsg\"><b>From:</b> Belay</div><div>do it</div></body>", "Yes", "do it"),
            ("<blockquote>May I?</blockquote><p>Yes</p>", "Yes", "May I?"),
            ("<p>Yes &amp; no</p>", "Yes & no", ""),
            ("no tags at all", "no tags at all", ""),
            ("<head><style>p { x: y }</style></head><div>Yes</div><DIV class=x>No</DIV>", "Yes\nNo", ""),
            ("a<!-- <blockquote> --><b>b</b>", "a\nb", ""),
        ] {
            let found = split(&text(html));
            assert_eq!(found.own, own, "{html}: {found:?}");
            assert!(found.quoted.contains(quoted) && !found.is_mixed, "{html}: {found:?}");
        }
    }

    #[test]
    fn hostile_html_ends() {
        for html in ["<".repeat(100_000), "<blockquote>".repeat(50_000), "</blockquote><".to_owned(), "<ä".to_owned()]
        {
            assert!(text(&html).len() < 200_000);
        }
    }
}
