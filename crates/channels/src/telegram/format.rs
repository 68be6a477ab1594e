//! Markdown → styled text.
//!
//! Telegram supports bold, italic, strike, code, code blocks, links and quotes. Headings become bold lines, list
//! markers become characters, and tables become code blocks with aligned columns. Everything else stays as text.

use std::sync::Arc;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::styled::{Pre, Style, Styled};

/// Longest language name of a code block that is kept.
const LANGUAGE_MAX: usize = 32;

/// Widest column of a table to which other cells are aligned, in characters. One long cell must not fill a message with
/// spaces.
const COLUMN_MAX: usize = 40;

/// URL schemes that Telegram accepts in a link. Other links show their URL as text.
const LINK_SCHEMES: [&str; 5] = ["http://", "https://", "tg://", "mailto:", "tel:"];

/// Parses Markdown. Text that consists of markup alone (a lone link definition) is kept as it was written.
pub(super) fn styled(markdown: &str) -> Styled {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut writer = Writer::default();
    for event in Parser::new_ext(markdown, options) {
        writer.take(event);
    }
    if writer.out.text().trim().is_empty() {
        let mut raw = Styled::default();
        raw.push(markdown.trim(), &Style::default());
        return raw;
    }
    writer.out
}

#[derive(Default)]
struct Writer {
    out: Styled,
    bold: u32,
    italic: u32,
    strike: u32,
    quotes: u32,
    /// Number of the outermost open quote.
    quote: Option<u32>,
    /// Open links and images, outermost first: the URL, and the offset at which the text begins.
    links: Vec<(Arc<str>, usize)>,
    /// Open lists; for an ordered one, its next number.
    lists: Vec<Option<u64>>,
    /// Whether a list marker was just written, so that the next block continues on its line.
    at_marker: bool,
    /// The code block or HTML block that is being collected.
    verbatim: Option<(Option<Arc<str>>, String)>,
    table: Option<Table>,
    /// Numbers quotes and code blocks, so that neighbours stay separate.
    next_number: u32,
}

#[derive(Default)]
struct Table {
    rows: Vec<Vec<String>>,
    cell: String,
}

impl Writer {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => self.text(&text, false),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.text(&text, false);
            }
            Event::Code(text) => self.text(&text, true),
            Event::SoftBreak | Event::HardBreak => self.text("\n", false),
            Event::Rule => {
                self.block(2);
                self.text("———", false);
            }
            Event::TaskListMarker(done) => self.text(if done { "☑ " } else { "☐ " }, false),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.block(2),
            Tag::Heading { .. } => {
                self.block(2);
                self.bold += 1;
            }
            Tag::BlockQuote(_) => {
                self.block(2);
                self.quotes += 1;
                if self.quotes == 1 {
                    self.quote = Some(self.number());
                }
            }
            Tag::CodeBlock(kind) => {
                self.block(if self.at_marker { 1 } else { 2 });
                self.verbatim = Some((language(&kind), String::new()));
            }
            Tag::HtmlBlock => self.block(2),
            Tag::List(first) => {
                self.block(if self.lists.is_empty() { 2 } else { 1 });
                self.lists.push(first);
            }
            Tag::Item => self.item(),
            Tag::Table(_) => {
                self.block(2);
                self.table = Some(Table::default());
            }
            Tag::TableHead | Tag::TableRow => {
                if let Some(table) = &mut self.table {
                    table.rows.push(Vec::new());
                }
            }
            Tag::Emphasis => self.italic += 1,
            Tag::Strong => self.bold += 1,
            Tag::Strikethrough => self.strike += 1,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                let at = self.table.as_ref().map_or(self.out.text().len(), |table| table.cell.len());
                self.links.push((Arc::from(&*dest_url), at));
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Heading(_) => self.bold -= 1,
            TagEnd::BlockQuote(_) => {
                self.quotes -= 1;
                if self.quotes == 0 {
                    self.quote = None;
                }
                self.at_marker = false;
            }
            TagEnd::CodeBlock => {
                if let Some((language, code)) = self.verbatim.take() {
                    self.pre(code.trim_end_matches('\n'), language);
                }
            }
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Item => self.at_marker = false,
            TagEnd::Table => {
                if let Some(table) = self.table.take() {
                    self.pre(&aligned(&table.rows), None);
                }
            }
            TagEnd::TableCell => {
                if let Some(table) = &mut self.table {
                    let cell = std::mem::take(&mut table.cell).replace('\n', " ");
                    if let Some(row) = table.rows.last_mut() {
                        row.push(cell);
                    }
                }
            }
            TagEnd::Emphasis => self.italic -= 1,
            TagEnd::Strong => self.bold -= 1,
            TagEnd::Strikethrough => self.strike -= 1,
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    /// Appends the URL if the text alone would lose it.
    fn end_link(&mut self) {
        let Some((url, start)) = self.links.pop() else { return };
        let written = self.table.as_ref().map_or(self.out.text(), |table| &table.cell).get(start..).unwrap_or_default();
        if written.is_empty() {
            self.links.push((Arc::clone(&url), start)); // an image without a description: its URL is the text
            self.text(&url, false);
            self.links.pop();
        } else if written != &*url && (self.table.is_some() || !can_link(&url)) {
            self.text(&format!(" ({url})"), false);
        }
    }

    fn item(&mut self) {
        self.block(1);
        let indent = "  ".repeat(self.lists.len().saturating_sub(1));
        let marker = match self.lists.last_mut() {
            Some(Some(number)) => {
                *number += 1;
                format!("{indent}{}. ", *number - 1)
            }
            _ => format!("{indent}• "),
        };
        self.text(&marker, false);
        self.at_marker = true;
    }

    /// Begins a block, with at least `newlines` line ends after the text before it.
    fn block(&mut self, newlines: usize) {
        if std::mem::take(&mut self.at_marker) && newlines > 1 {
            return; // a paragraph continues on the line of its list marker
        }
        let text = self.out.text();
        if !text.is_empty() {
            let there = text.bytes().rev().take_while(|byte| *byte == b'\n').count();
            let style = Style { quote: self.quote, ..Style::default() };
            self.out.push(&"\n".repeat(newlines.saturating_sub(there)), &style);
        }
        self.out.border();
    }

    fn text(&mut self, text: &str, code: bool) {
        if let Some((_, collected)) = &mut self.verbatim {
            collected.push_str(text);
            return;
        }
        if let Some(table) = &mut self.table {
            table.cell.push_str(text);
            return;
        }
        self.at_marker = false;
        let style = Style {
            quote: self.quote,
            pre: None,
            link: self.links.first().map(|(url, _)| url).filter(|url| can_link(url)).cloned(),
            bold: self.bold > 0,
            italic: self.italic > 0,
            strike: self.strike > 0,
            code,
        };
        self.out.push(text, &style);
    }

    fn pre(&mut self, text: &str, language: Option<Arc<str>>) {
        let pre = Pre { number: self.number(), language };
        self.out.push_pre(text, &Style { quote: self.quote, pre: Some(pre), ..Style::default() });
    }

    fn number(&mut self) -> u32 {
        self.next_number += 1;
        self.next_number
    }
}

fn language(kind: &CodeBlockKind<'_>) -> Option<Arc<str>> {
    let CodeBlockKind::Fenced(info) = kind else { return None };
    let name = info.split([' ', ',', '{', '\t']).next().unwrap_or_default();
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "+-#._".contains(c));
    (!name.is_empty() && name.len() <= LANGUAGE_MAX && is_plain).then(|| Arc::from(name))
}

fn can_link(url: &str) -> bool {
    LINK_SCHEMES.iter().any(|scheme| url.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// Formats a table as lines with aligned columns, with a line under the header.
fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
            .min(COLUMN_MAX)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &[String]| {
        let cells = widths.iter().enumerate().map(|(column, &width)| {
            let cell = row.get(column).map_or("", String::as_str);
            format!("{cell}{}", " ".repeat(width.saturating_sub(cell.chars().count())))
        });
        cells.collect::<Vec<_>>().join(" | ").trim_end().to_owned()
    };
    let rule = widths.iter().map(|&width| "-".repeat(width)).collect::<Vec<_>>().join("-|-");
    let mut lines: Vec<String> = rows.iter().map(|row| line(row)).collect();
    if !lines.is_empty() {
        lines.insert(1, rule);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(markdown: &str) -> String {
        let styled = styled(markdown);
        styled.html(0..styled.text().len())
    }

    #[test]
    fn a_text_of_a_model_in_a_question_is_shown_as_it_is_and_links_nowhere() {
        for text in [
            "[my bank](https://example.com)",
            "see ![my bank][1] and [2]: https://example.com",
            "<a href=\"https://example.com\">my bank</a> <https://example.com>",
            "two `ticks` and ``` three",
            "`",
            "__init__.py *2*3* ~~4~~ a_b",
            "&#91;a](b) \\* &lt;",
            "# a | b |",
            "plain words, https://example.com/a_b",
        ] {
            let question = styled(&format!("- caption: {}\n- to: here", belay_text::markdown::inline(text)));
            assert_eq!(question.text(), format!("• caption: {text}\n• to: here"));
            let html = question.html(0..question.text().len());
            assert!(!["<a ", "<b>", "<i>", "<s>"].iter().any(|tag| html.contains(tag)), "{html}");
        }
    }

    #[test]
    fn markdown_becomes_telegrams_html() {
        for (markdown, expected) in [
            ("plain", "plain"),
            ("a < b & \"c\" > d", "a &lt; b &amp; &quot;c&quot; &gt; d"),
            ("**bold** *it* ~~no~~ `x<y`", "<b>bold</b> <i>it</i> <s>no</s> <code>x&lt;y</code>"),
            ("**bold *both* bold**", "<b>bold <i>both</i> bold</b>"),
            ("**see `code` here**", "<b>see </b><code>code</code><b> here</b>"),
            ("# Title\ntext", "<b>Title</b>\n\ntext"),
            ("one\ntwo\n\nthree", "one\ntwo\n\nthree"),
            ("```rust\nfn main() {}\n```", "<pre><code class=\"language-rust\">fn main() {}</code></pre>"),
            ("```\na\n\nb\n```\nafter", "<pre>a\n\nb</pre>\n\nafter"),
            ("```\"><b>\nx\n```", "<pre>x</pre>"),
            ("    indented", "<pre>indented</pre>"),
            ("> quoted\n> more\n\nout", "<blockquote>quoted\nmore</blockquote>\n\nout"),
            ("> one\n>\n> > two", "<blockquote>one\n\ntwo</blockquote>"),
            ("> a\n\n<!-- -->\n\n> b", "<blockquote>a</blockquote>\n\n&lt;!-- --&gt;\n\n<blockquote>b</blockquote>"),
            ("- a\n- b\n  - c\n\nend", "• a\n• b\n  • c\n\nend"),
            ("3. a\n4. b", "3. a\n4. b"),
            ("- a\n\n- b", "• a\n• b"),
            ("- [x] done\n- [ ] open", "• ☑ done\n• ☐ open"),
            ("- ```\n  x\n  ```\n- y", "• \n<pre>x</pre>\n• y"),
            ("[text](https://e.org/?a=1&b=\"2\")", "<a href=\"https://e.org/?a=1&amp;b=&quot;2&quot;\">text</a>"),
            ("[text](https://e.org/?a=1&b=2)", "<a href=\"https://e.org/?a=1&amp;b=2\">text</a>"),
            ("[`code`](https://e.org)", "<a href=\"https://e.org\">code</a>"),
            ("<https://e.org>", "<a href=\"https://e.org\">https://e.org</a>"),
            ("[doc](docs/a.md)", "doc (docs/a.md)"),
            ("[x](javascript:alert(1))", "x (javascript:alert(1))"),
            ("![a cat](https://e.org/c.png)", "<a href=\"https://e.org/c.png\">a cat</a>"),
            ("![](https://e.org/c.png)", "<a href=\"https://e.org/c.png\">https://e.org/c.png</a>"),
            ("a\n\n---\n\nb", "a\n\n———\n\nb"),
            ("<b>not ours</b>", "&lt;b&gt;not ours&lt;/b&gt;"),
            ("| a | bb |\n|---|---|\n| 111 | 2 |", "<pre>a   | bb\n----|---\n111 | 2</pre>"),
            ("[only]: https://e.org", "[only]: https://e.org"),
            ("", ""),
            ("snake_case_name and 2*3*4", "snake_case_name and 2<i>3</i>4"),
            ("**unclosed", "**unclosed"),
        ] {
            assert_eq!(html(markdown), expected, "{markdown:?}");
        }
    }
}
