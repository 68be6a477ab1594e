//! Renders blocks of Markdown as lines.

mod table;

use std::rc::Rc;

use pulldown_cmark::{CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use self::table::Table;
use crate::Look;
use crate::code;
use crate::span::{Colour, Span, Style, painted, width};
use crate::wrap::{chopped, wrapped};

/// Indentation of a code block, in columns. A narrow terminal has none.
const CODE_INDENT: usize = 2;

/// Narrowest terminal on which a code block is indented.
const NARROW: usize = 20;

/// The extensions of Markdown that models use.
pub(crate) fn options() -> Options {
    Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS
}

/// Renders some top-level blocks. A blank line separates blocks.
pub(crate) fn render(source: &str, look: Look) -> Vec<String> {
    let mut writer = Writer::new(look);
    for event in Parser::new_ext(source, options()) {
        writer.event(event);
    }
    writer.flush();
    writer.lines
}

/// A block that contains blocks, or the text itself.
struct Container {
    kind: ContainerKind,
    /// Whether it has a block already.
    has_content: bool,
}

enum ContainerKind {
    Document,
    Quote,
    /// The number of the next item; `None`: bullets.
    List(Option<u64>),
    /// The marker, until it is written; then its width remains.
    Item {
        marker: Option<String>,
        width: usize,
    },
}

/// A block of text whose end is awaited.
enum Open {
    Text,
    Heading(HeadingLevel),
    Code { language: String, code: String },
    Table(Table),
}

struct Writer {
    look: Look,
    lines: Vec<String>,
    containers: Vec<Container>,
    open: Open,
    inline: Vec<Span>,
    /// The styles of the emphasis around the present text, the innermost last.
    styles: Vec<Style>,
    /// The blank line before the present block, until something is written, and the number of its containers.
    gap: Option<(usize, String)>,
    /// The links around the present text, with the place where their text begins.
    links: Vec<(String, usize)>,
}

impl Writer {
    fn new(look: Look) -> Self {
        let look = Look { width: look.width.max(1), ..look };
        let document = Container { kind: ContainerKind::Document, has_content: false };
        Self {
            look,
            lines: Vec::new(),
            containers: vec![document],
            open: Open::Text,
            inline: Vec::new(),
            styles: Vec::new(),
            gap: None,
            links: Vec::new(),
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text),
            Event::Code(text) => self.code_span(&text),
            // As in other chats: a line of the author stays a line.
            Event::SoftBreak | Event::HardBreak => self.push("\n"),
            Event::Rule => self.rule(),
            Event::TaskListMarker(done) => self.push(if done { "[x] " } else { "[ ] " }),
            Event::Html(text) | Event::InlineHtml(text) => self.push(&text),
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => self.push(&text),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.begin_block(),
            Tag::Heading { level, .. } => {
                self.begin_block();
                self.open = Open::Heading(level);
                self.styles.push(Style { bold: true, colour: Some(Colour::Cyan), ..Style::default() });
            }
            Tag::BlockQuote(_) => {
                self.begin_block();
                self.enter(ContainerKind::Quote);
            }
            Tag::CodeBlock(kind) => {
                self.begin_block();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => info.split([' ', ',', '{']).next().unwrap_or("").to_lowercase(),
                    CodeBlockKind::Indented => String::new(),
                };
                self.open = Open::Code { language, code: String::new() };
            }
            Tag::List(first) => {
                // A list within an item stays with the item's text.
                if self.in_item() {
                    self.flush()
                } else {
                    self.begin_block()
                }
                self.enter(ContainerKind::List(first));
            }
            Tag::Item => {
                let marker = self.next_marker();
                let width = width(&marker);
                self.enter(ContainerKind::Item { marker: Some(marker), width });
            }
            Tag::Table(alignments) => {
                self.begin_block();
                self.open = Open::Table(Table::new(alignments));
            }
            Tag::Emphasis => self.emphasise(|style| style.italic = true),
            Tag::Strong => self.emphasise(|style| style.bold = true),
            Tag::Strikethrough => self.emphasise(|style| style.strike = true),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => {
                self.links.push((dest_url.into_string(), self.inline.len()));
                self.emphasise(|style| style.underline = true);
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(_) => {
                self.flush();
                self.styles.pop();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::BlockQuote(_) | TagEnd::List(_) => self.leave(),
            TagEnd::Item => {
                self.flush();
                self.write(Vec::new(), false); // the marker of an empty item
                self.leave();
            }
            TagEnd::TableCell => {
                let cell = std::mem::take(&mut self.inline);
                if let Open::Table(table) = &mut self.open {
                    table.cell(cell);
                }
            }
            TagEnd::TableHead | TagEnd::TableRow => {
                if let Open::Table(table) = &mut self.open {
                    table.end_row();
                }
            }
            TagEnd::Table => self.end_table(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => {
                self.styles.pop();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        match &mut self.open {
            Open::Code { code, .. } => code.push_str(text),
            _ => self.push(text),
        }
    }

    fn code_span(&mut self, text: &str) {
        let style = Style { colour: Some(Colour::Yellow), ..self.style() };
        let text = clean(text);
        let shown = if self.look.colour { text } else { format!("`{text}`") };
        self.inline.push(Span::new(shown, style));
    }

    fn push(&mut self, text: &str) {
        let text = if text == "\n" { text.to_owned() } else { clean(text) };
        self.inline.push(Span::new(text, self.style()));
    }

    fn style(&self) -> Style {
        self.styles.last().cloned().unwrap_or_default()
    }

    fn emphasise(&mut self, change: impl FnOnce(&mut Style)) {
        let mut style = self.style();
        change(&mut style);
        self.styles.push(style);
    }

    /// Ends a link. The address is shown too, unless it is the text: a person sees where a link leads before they open it.
    fn end_link(&mut self) {
        self.styles.pop();
        let Some((url, at)) = self.links.pop() else { return };
        let text: String = self.inline[at.min(self.inline.len())..].iter().map(|span| span.text.as_str()).collect();
        if is_openable(&url) {
            let link: Rc<str> = url.as_str().into();
            self.inline.iter_mut().skip(at).for_each(|span| span.style.link = Some(link.clone()));
        }
        let shown = clean(&url);
        if shown != text && shown != format!("mailto:{text}") && !shown.is_empty() {
            let dim = Style { dim: true, ..self.style() };
            self.inline.push(Span::new(format!(" ({shown})"), dim));
        }
    }

    /// Begins a block: writes the text before it. A blank line follows if the container has a block already.
    fn begin_block(&mut self) {
        self.flush();
        if self.containers.last().is_some_and(|container| container.has_content) {
            let prefix = self.prefix();
            self.gap.get_or_insert_with(|| (self.containers.len(), painted(&prefix, self.look.colour)));
        }
    }

    fn enter(&mut self, kind: ContainerKind) {
        self.containers.push(Container { kind, has_content: false });
    }

    fn leave(&mut self) {
        self.flush();
        if self.containers.len() > 1 {
            self.containers.pop();
        }
        self.gap.take_if(|(depth, _)| *depth > self.containers.len());
    }

    fn in_item(&self) -> bool {
        matches!(self.containers.last(), Some(Container { kind: ContainerKind::Item { .. }, .. }))
    }

    fn next_marker(&mut self) -> String {
        match self.containers.last_mut() {
            Some(Container { kind: ContainerKind::List(Some(number)), .. }) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => "• ".to_owned(),
        }
    }

    /// What stands before the next line: bars of quotes, markers and indentation of lists. It takes half of the
    /// terminal's width at most.
    fn prefix(&mut self) -> Vec<Span> {
        let most = self.look.width / 2;
        let mut spans = Vec::new();
        let mut used = 0;
        for container in &mut self.containers {
            let span = match &mut container.kind {
                ContainerKind::Document | ContainerKind::List(_) => continue,
                ContainerKind::Quote => Span::dim("│ "),
                ContainerKind::Item { marker, width } => match marker.take() {
                    Some(marker) => Span::plain(marker),
                    None => Span::plain(" ".repeat(*width)),
                },
            };
            used += width(&span.text);
            if used <= most {
                spans.push(span);
            }
        }
        spans
    }

    /// Writes a text within the present containers.
    fn write(&mut self, text: Vec<Span>, is_code: bool) {
        let is_marker =
            matches!(self.containers.last(), Some(Container { kind: ContainerKind::Item { marker: Some(_), .. }, .. }));
        if text.is_empty() && !is_marker {
            return;
        }
        self.lines.extend(self.gap.take().map(|(_, line)| line));
        let mut prefix = self.prefix();
        let left = self.look.width.saturating_sub(prefix.iter().map(|span| width(&span.text)).sum()).max(1);
        for (at, line) in (if is_code { chopped(&text, left) } else { wrapped(&text, left) }).into_iter().enumerate() {
            if at > 0 {
                prefix = self.prefix();
            }
            prefix.extend(line);
            self.lines.push(painted(&prefix, self.look.colour));
        }
        self.containers.iter_mut().for_each(|container| container.has_content = true);
    }

    /// Writes the text of the open block.
    fn flush(&mut self) {
        let text = std::mem::take(&mut self.inline);
        let open = std::mem::replace(&mut self.open, Open::Text);
        match open {
            Open::Heading(level) if !self.look.colour => {
                let mut marked = vec![Span::plain("#".repeat(level as usize) + " ")];
                marked.extend(text);
                self.write(marked, false);
            }
            Open::Text | Open::Heading(_) => {
                if text.iter().any(|span| !span.text.trim().is_empty()) {
                    self.write(text, false);
                }
            }
            Open::Code { .. } | Open::Table(_) => self.open = open,
        }
    }

    fn end_code(&mut self) {
        let Open::Code { language, code } = std::mem::replace(&mut self.open, Open::Text) else { return };
        let indent = if self.look.width < NARROW { 0 } else { CODE_INDENT };
        if indent > 0 {
            let marker = Some(" ".repeat(indent));
            self.enter(ContainerKind::Item { marker, width: indent });
        }
        for line in code::lines(&code, &language) {
            self.write(if line.is_empty() { vec![Span::plain("")] } else { line }, true);
        }
        if indent > 0 {
            self.leave();
        }
    }

    fn end_table(&mut self) {
        let Open::Table(table) = std::mem::replace(&mut self.open, Open::Text) else { return };
        let left = self.look.width.saturating_sub(self.prefix_width()).max(1);
        for line in table.lines(left) {
            self.write(line, true);
        }
    }

    /// The columns of the prefix, without taking a marker.
    fn prefix_width(&self) -> usize {
        let of = |container: &Container| match &container.kind {
            ContainerKind::Document | ContainerKind::List(_) => 0,
            ContainerKind::Quote => 2,
            ContainerKind::Item { width, .. } => *width,
        };
        let most = self.look.width / 2;
        let fits = |used: &mut usize, columns: usize| {
            *used += columns;
            Some(if *used <= most { columns } else { 0 })
        };
        self.containers.iter().map(of).scan(0, fits).sum()
    }

    fn rule(&mut self) {
        self.begin_block();
        let left = self.look.width.saturating_sub(self.prefix_width()).max(1);
        self.write(vec![Span::dim("─".repeat(left.min(40)))], true);
    }
}

/// A text in which nothing controls the terminal. It comes from one piece of a paragraph: line feeds in it are spaces.
fn clean(text: &str) -> String {
    belay_text::escaped(text).replace(['\n', '\t'], " ")
}

/// Whether an address may become a link of the terminal: of a kind that a browser or a mail program opens, and without
/// characters that would end the escape sequence.
fn is_openable(url: &str) -> bool {
    let scheme = ["https://", "http://", "mailto:"].iter().any(|scheme| url.starts_with(scheme));
    scheme && url.len() <= 2000 && url.bytes().all(|byte| byte.is_ascii_graphic())
}
