//! Markdown → HTML of messages, for platforms that show HTML. Pure.
//!
//! HTML of the text is shown as it was written, pictures become links, and links have a known scheme: nothing of an
//! answer acts on the client of a reader. Clients remove whatever else they do not show.

use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html};

/// Schemes of links. Matrix: "m.room.message msgtypes", the attribute `href` of `a`; programs for mail show the same.
const SCHEMES: [&str; 5] = ["https://", "http://", "ftp://", "mailto:", "magnet:"];

/// The HTML of a text; `None`: it is the text itself.
pub fn html(markdown: &str) -> Option<String> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut is_plain = true;
    let mut open = Vec::new();
    let events = Parser::new_ext(markdown, options).map(|event| {
        is_plain &= matches!(
            event,
            Event::Text(_) | Event::SoftBreak | Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph)
        );
        safe(event, &mut open)
    });
    let mut text = String::with_capacity(markdown.len() * 3 / 2);
    html::push_html(&mut text, events);
    (!is_plain || text.matches("<p>").count() > 1).then_some(text)
}

/// The event as it may be shown. `open`: the links around it, and whether each is shown as one.
fn safe<'a>(event: Event<'a>, open: &mut Vec<bool>) -> Event<'a> {
    match event {
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        Event::SoftBreak => Event::HardBreak, // as people and models mean it in a chat
        Event::TaskListMarker(is_done) => Event::Text(CowStr::Borrowed(if is_done { "☑ " } else { "☐ " })),
        Event::Start(Tag::Link { link_type, dest_url, id, .. } | Tag::Image { link_type, dest_url, id, .. }) => {
            let lower = dest_url.trim_start().to_ascii_lowercase();
            let is_link = SCHEMES.iter().any(|scheme| lower.starts_with(scheme)) && !open.contains(&true);
            open.push(is_link);
            match is_link {
                true => Event::Start(Tag::Link { link_type, dest_url, title: CowStr::Borrowed(""), id }),
                false => Event::Text(CowStr::Borrowed("")),
            }
        }
        Event::End(TagEnd::Link | TagEnd::Image) => match open.pop() {
            Some(true) => Event::End(TagEnd::Link),
            _ => Event::Text(CowStr::Borrowed("")),
        },
        event => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_html_that_cannot_act() {
        for (markdown, expected) in [
            ("plain text, 1 < 2", None),
            ("two\nlines", None),
            ("two\nlines *x*", Some("<p>two<br />\nlines <em>x</em></p>\n")),
            ("**a** _b_ ~~c~~", Some("<p><strong>a</strong> <em>b</em> <del>c</del></p>\n")),
            ("`<b>`", Some("<p><code>&lt;b&gt;</code></p>\n")),
            ("a <b onclick=x>b</b>", Some("<p>a &lt;b onclick=x&gt;b&lt;/b&gt;</p>\n")),
            ("<script>x</script>", Some("<p>&lt;script&gt;x&lt;/script&gt;</p>\n")),
            ("[t](https://e.org/?a=1&b=\"2\")", Some("<p><a href=\"https://e.org/?a=1&amp;b=%222%22\">t</a></p>\n")),
            ("[t](javascript:alert(1))", Some("<p>t</p>\n")),
            ("![cat](https://e.org/c.png)", Some("<p><a href=\"https://e.org/c.png\">cat</a></p>\n")),
            ("- [x] done", Some("<ul>\n<li>☑ done</li>\n</ul>\n")),
        ] {
            assert_eq!(html(markdown).as_deref(), expected, "{markdown:?}");
        }
    }
}
