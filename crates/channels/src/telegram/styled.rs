//! Text with styles, as Telegram shows it. It is the text that is counted, cut and written as HTML.

use std::ops::Range;
use std::sync::Arc;

use belay_channel_kit::split::Layout;

/// The style of a span of text. Telegram forbids entities inside `pre` and `code`, and nested quotes (Bot API,
/// "Formatting options"), so those combinations are never written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Style {
    /// Number of the quote that the span is in.
    pub(super) quote: Option<u32>,
    /// The code block that the span is in.
    pub(super) pre: Option<Pre>,
    /// The URL of the link.
    pub(super) link: Option<Arc<str>>,
    pub(super) bold: bool,
    pub(super) italic: bool,
    pub(super) strike: bool,
    pub(super) code: bool,
}

/// A code block: its number, and its language if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pre {
    pub(super) number: u32,
    pub(super) language: Option<Arc<str>>,
}

/// Plain text, its styled spans, and the starts of its blocks.
#[derive(Debug, Default)]
pub(super) struct Styled {
    /// The text, its blocks, and its code blocks and tables.
    layout: Layout,
    /// Spans in order: the end of each, and its style.
    spans: Vec<(usize, Style)>,
}

impl Styled {
    /// The text without styles: exactly what Telegram counts.
    pub(super) fn text(&self) -> &str {
        self.layout.text()
    }

    /// The same with the places at which it may be cut.
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(super) fn push(&mut self, text: &str, style: &Style) {
        if text.is_empty() {
            return;
        }
        self.layout.push(text);
        let end = self.text().len();
        match self.spans.last_mut() {
            Some((last_end, last)) if last == style => *last_end = end,
            _ => self.spans.push((end, style.clone())),
        }
    }

    /// Appends a whole code block.
    pub(super) fn push_pre(&mut self, text: &str, style: &Style) {
        let start = self.text().len();
        self.border();
        self.push(text, style);
        self.layout.code_from(start, 0); // tags do not count
    }

    /// Marks the start of a block here.
    pub(super) fn border(&mut self) {
        self.layout.border();
    }

    /// Writes a range as Telegram's HTML. It is well formed for any range: tags are closed at its end and reopened at
    /// its start.
    pub(super) fn html(&self, range: Range<usize>) -> String {
        let mut html = String::with_capacity(range.len() + range.len() / 4);
        let mut open: Vec<Tag> = Vec::new();
        let mut at = range.start;
        let first = self.spans.partition_point(|(end, _)| *end <= range.start);
        for (end, style) in &self.spans[first..] {
            if at >= range.end {
                break;
            }
            let end = (*end).min(range.end);
            change(&mut html, &mut open, tags(style));
            escape(&mut html, &self.text()[at..end]);
            at = end;
        }
        change(&mut html, &mut open, Vec::new());
        html
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Tag {
    Quote(u32),
    Pre(Pre),
    Link(Arc<str>),
    Bold,
    Italic,
    Strike,
    Code,
}

/// The tags of a style, outermost first.
fn tags(style: &Style) -> Vec<Tag> {
    let mut tags = Vec::new();
    tags.extend(style.quote.map(Tag::Quote));
    if let Some(pre) = &style.pre {
        tags.push(Tag::Pre(pre.clone()));
        return tags;
    }
    // Telegram allows a link or code, not both. The link wins, because losing its URL is worse.
    if style.code && style.link.is_none() {
        tags.push(Tag::Code);
        return tags;
    }
    tags.extend(style.link.clone().map(Tag::Link));
    for (is_on, tag) in [(style.bold, Tag::Bold), (style.italic, Tag::Italic), (style.strike, Tag::Strike)] {
        if is_on {
            tags.push(tag);
        }
    }
    tags
}

/// Closes the tags that end and opens those that begin between two neighbouring spans.
fn change(html: &mut String, open: &mut Vec<Tag>, wanted: Vec<Tag>) {
    let common = open.iter().zip(&wanted).take_while(|(a, b)| a == b).count();
    for tag in open.drain(common..).rev() {
        html.push_str(closing(&tag));
    }
    for tag in &wanted[common..] {
        write_opening(html, tag);
    }
    *open = wanted;
}

fn write_opening(html: &mut String, tag: &Tag) {
    match tag {
        Tag::Quote(_) => html.push_str("<blockquote>"),
        Tag::Pre(Pre { language: None, .. }) => html.push_str("<pre>"),
        Tag::Pre(Pre { language: Some(language), .. }) => {
            html.push_str("<pre><code class=\"language-");
            escape(html, language);
            html.push_str("\">");
        }
        Tag::Link(url) => {
            html.push_str("<a href=\"");
            escape(html, url);
            html.push_str("\">");
        }
        Tag::Bold => html.push_str("<b>"),
        Tag::Italic => html.push_str("<i>"),
        Tag::Strike => html.push_str("<s>"),
        Tag::Code => html.push_str("<code>"),
    }
}

fn closing(tag: &Tag) -> &'static str {
    match tag {
        Tag::Quote(_) => "</blockquote>",
        Tag::Pre(Pre { language: None, .. }) => "</pre>",
        Tag::Pre(Pre { language: Some(_), .. }) => "</code></pre>",
        Tag::Link(_) => "</a>",
        Tag::Bold => "</b>",
        Tag::Italic => "</i>",
        Tag::Strike => "</s>",
        Tag::Code => "</code>",
    }
}

/// Escapes text for HTML, also within a quoted attribute.
fn escape(html: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            c => html.push(c),
        }
    }
}
