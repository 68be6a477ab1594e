//! Processes the tokens of a page.

use std::cell::RefCell;

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult};
use url::Url;

use super::Readable;

/// Most links in the list. A page with more is a list of links, and its text names them.
const MAX_LINKS: usize = 500;

/// Longest link in the list, in bytes. Longer ones contain data.
const MAX_LINK_BYTES: usize = 1000;

/// Deepest nesting of hidden elements that is tracked. Beyond it, everything stays hidden.
const MAX_HIDDEN_DEPTH: usize = 512;

/// Consumes tokens and writes text.
pub(super) struct Sink {
    base: Url,
    page: RefCell<Page>,
}

#[derive(Default)]
struct Page {
    title: String,
    in_title: bool,
    text: String,
    /// The white space to write before the next word.
    gap: Gap,
    /// Names of the open elements, from the outermost hidden one inwards; empty if nothing is hidden.
    hidden: Vec<String>,
    /// Number of open elements that preserve white space.
    preformatted: usize,
    lists: usize,
    /// Number of the open link.
    link: Option<usize>,
    links: Vec<String>,
}

/// The white space before the next word, from narrow to wide. The widest request wins.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    #[default]
    None,
    Space,
    Cell,
    Line,
    Paragraph,
}

impl Sink {
    pub(super) fn new(base: Url) -> Self {
        Self { base, page: RefCell::default() }
    }

    pub(super) fn finish(&self, cut: bool) -> Readable {
        let page = self.page.take();
        let title: Vec<&str> = page.title.split_whitespace().collect();
        Readable { title: title.join(" "), text: page.text, links: page.links, cut }
    }
}

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut page = self.page.borrow_mut();
        match token {
            Token::CharacterTokens(text) => page.characters(&text),
            Token::TagToken(tag) => {
                let name = &*tag.name;
                match tag.kind {
                    TagKind::StartTag => page.start(name, &tag, &self.base),
                    TagKind::EndTag => page.end(name),
                }
                // As in the tree builder of a browser. Otherwise `<` within a script would begin a tag.
                if tag.kind == TagKind::StartTag {
                    match name {
                        "script" => return TokenSinkResult::RawData(RawKind::ScriptData),
                        "style" | "xmp" | "iframe" | "noembed" | "noframes" => {
                            return TokenSinkResult::RawData(RawKind::Rawtext);
                        }
                        "title" | "textarea" => return TokenSinkResult::RawData(RawKind::Rcdata),
                        "plaintext" => return TokenSinkResult::Plaintext,
                        _ => {}
                    }
                }
            }
            Token::CommentToken(_)
            | Token::DoctypeToken(_)
            | Token::NullCharacterToken
            | Token::EOFToken
            | Token::ParseError(_) => {}
        }
        TokenSinkResult::Continue
    }
}

impl Page {
    fn start(&mut self, name: &str, tag: &Tag, base: &Url) {
        let empty = is_empty(name) || tag.self_closing;
        if self.hidden.first().is_some_and(|open| closes_by_itself(open) && (open == name || name == "body")) {
            self.hidden.clear();
        }
        if !self.hidden.is_empty() || is_unread(name) || is_marked_hidden(tag) {
            // An element without an end tag hides only itself.
            if !empty && self.hidden.len() < MAX_HIDDEN_DEPTH {
                self.hidden.push(name.to_owned());
            }
            return;
        }
        self.widen(gap_around(name));
        match name {
            "title" => self.in_title = true,
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.mark(&"#".repeat(level));
            }
            "li" => {
                let indent = self.lists.saturating_sub(1).min(8);
                self.mark(&format!("{}-", "  ".repeat(indent)));
            }
            "ul" | "ol" => self.lists += 1,
            "pre" => self.preformatted += 1,
            "a" => self.open_link(tag, base),
            "img" => {
                if let Some(alt) = attribute(tag, "alt").map(str::trim).filter(|alt| !alt.is_empty()) {
                    self.words(&format!("[picture: {alt}]"));
                }
            }
            "hr" => {
                self.words("---");
                self.widen(Gap::Paragraph);
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        if !self.hidden.is_empty() {
            // Closes the innermost element of that name and all elements inside it. An end tag without a start tag
            // closes nothing.
            let at = self.hidden.iter().rposition(|open| open == name);
            // The end of a block around a paragraph also ends the paragraph.
            let around = closes_by_itself(&self.hidden[0]) && gap_around(name) != Gap::None;
            match at {
                Some(at) => return self.hidden.truncate(at),
                None if around => self.hidden.clear(),
                None => return,
            }
        }
        match name {
            "title" => self.in_title = false,
            "ul" | "ol" => self.lists = self.lists.saturating_sub(1),
            "pre" => self.preformatted = self.preformatted.saturating_sub(1),
            "a" => self.close_link(),
            _ => {}
        }
        self.widen(gap_around(name));
    }

    fn characters(&mut self, text: &str) {
        if !self.hidden.is_empty() {
            return;
        }
        if self.in_title {
            self.title.push_str(text);
            return;
        }
        if self.preformatted > 0 {
            self.flush();
            self.text.push_str(text);
            return;
        }
        let mut pieces = text.split(is_space).peekable();
        while let Some(piece) = pieces.next() {
            self.words(piece);
            if pieces.peek().is_some() {
                self.widen(Gap::Space);
            }
        }
    }

    /// Writes the pending white space, then the words.
    fn words(&mut self, words: &str) {
        if !words.is_empty() {
            self.flush();
            self.text.push_str(words);
        }
    }

    /// Writes a mark at the beginning of a line, followed by a space.
    fn mark(&mut self, mark: &str) {
        self.words(mark);
        self.gap = Gap::Space;
    }

    fn flush(&mut self) {
        let gap = std::mem::take(&mut self.gap);
        if self.text.is_empty() {
            return;
        }
        let lines = match gap {
            Gap::None => return,
            Gap::Space => return self.text.push(' '),
            Gap::Cell => return self.text.push_str(" | "),
            Gap::Line => 1,
            Gap::Paragraph => 2,
        };
        let there = self.text.bytes().rev().take(lines).take_while(|b| *b == b'\n').count();
        self.text.extend(std::iter::repeat_n('\n', lines - there));
    }

    fn widen(&mut self, gap: Gap) {
        self.gap = self.gap.max(gap);
    }

    fn open_link(&mut self, tag: &Tag, base: &Url) {
        self.close_link();
        let url = attribute(tag, "href").and_then(|href| base.join(href.trim()).ok());
        let Some(url) = url.filter(|url| matches!(url.scheme(), "http" | "https" | "mailto")) else { return };
        let url = url.as_str();
        if url.len() > MAX_LINK_BYTES || url.split('#').next() == base.as_str().split('#').next() {
            return;
        }
        // Searches only the last few links: menus repeat a link at once or not at all, and searching all links would
        // take quadratic time.
        let last = self.links.len().saturating_sub(16);
        let at = self.links[last..].iter().position(|known| known == url).map(|at| last + at);
        self.link = at.or_else(|| {
            (self.links.len() < MAX_LINKS).then(|| {
                self.links.push(url.to_owned());
                self.links.len() - 1
            })
        });
    }

    fn close_link(&mut self) {
        if let Some(at) = self.link.take() {
            self.gap = Gap::Space;
            self.words(&format!("[{}]", at + 1));
        }
    }
}

/// HTML white space, and the no-break space.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{c}' | '\u{a0}')
}

fn attribute<'a>(tag: &'a Tag, name: &str) -> Option<&'a str> {
    tag.attrs.iter().find(|attribute| &*attribute.name.local == name).map(|attribute| &*attribute.value)
}

/// Whether the content of the element is not text for readers.
fn is_unread(name: &str) -> bool {
    matches!(
        name,
        "script"
            | "style"
            | "template"
            | "noscript"
            | "svg"
            | "math"
            | "iframe"
            | "object"
            | "audio"
            | "video"
            | "canvas"
            | "select"
            | "noembed"
            | "noframes"
            | "dialog"
    )
}

/// Whether the element is marked as hidden. Style sheets are not applied; only the element's own attributes count.
fn is_marked_hidden(tag: &Tag) -> bool {
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
fn is_empty(name: &str) -> bool {
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
fn closes_by_itself(name: &str) -> bool {
    matches!(name, "p" | "li" | "dt" | "dd" | "tr" | "td" | "th" | "option")
}

fn gap_around(name: &str) -> Gap {
    match name {
        "td" | "th" => Gap::Cell,
        "br" | "li" | "tr" | "dt" | "dd" | "div" | "option" | "figcaption" | "caption" | "summary" => Gap::Line,
        "p" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "ul" | "ol" | "dl" | "table" | "pre" | "blockquote"
        | "section" | "article" | "header" | "footer" | "main" | "nav" | "aside" | "figure" | "form" | "hr"
        | "details" => Gap::Paragraph,
        _ => Gap::None,
    }
}
