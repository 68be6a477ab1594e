//! Processes the elements of a page.

mod blocks;
mod within;

use html5ever::tokenizer::Tag;
use url::Url;

use super::Readable;
use super::allowance::Allowance;
use super::elements::{Gap, attribute, closes_by_itself, gap_around, is_empty, is_marked_hidden, is_unread};
use super::fields::{Choice, tick};
use super::links::Links;
use super::lists::Lists;
use super::math::Formula;
use super::strikes::Strikes;
use super::tables::Tables;
use super::text::{Script, Text};

/// Deepest nesting of hidden elements that is tracked. Beyond it, everything stays hidden.
const MAX_HIDDEN_DEPTH: usize = 512;

#[derive(Default)]
pub(super) struct Page {
    title: String,
    in_title: bool,
    text: Text,
    /// Names of the open elements, from the outermost hidden one inwards; empty if nothing is hidden.
    hidden: Vec<String>,
    /// Number of open elements that preserve white space.
    preformatted: usize,
    lists: Lists,
    tables: Tables,
    strikes: Strikes,
    links: Links,
    choice: Option<Choice>,
    formula: Option<Formula>,
    allowance: Allowance,
}

impl Page {
    pub(super) fn finish(mut self, cut: bool) -> Readable {
        self.close_choice();
        self.close_formula();
        let title: Vec<&str> = self.title.split_whitespace().collect();
        let text = self.lists.finish(self.text.finish());
        Readable { title: title.join(" "), text, links: self.links.into_targets(), cut }
    }

    pub(super) fn start(&mut self, name: &str, tag: &Tag, base: &Url) {
        let attributes = tag.attrs.iter().map(|attribute| attribute.name.local.len() + attribute.value.len() + 2);
        self.allowance.earn("<>".len() + name.len() + attributes.sum::<usize>());
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
        if !self.is_within_field(name, tag) {
            self.space_around(name);
            self.open(name, tag, base);
        }
    }

    fn open(&mut self, name: &str, tag: &Tag, base: &Url) {
        if !tag.self_closing {
            self.strikes.start(name);
            self.text.set_struck(self.strikes.is_struck());
        }
        match name {
            "title" => self.in_title = true,
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                let level = usize::from(name.as_bytes()[1] - b'0');
                self.mark(&"#".repeat(level));
            }
            "li" => self.item(tag),
            "ul" | "ol" | "menu" => self.lists.open(tag),
            "pre" => self.preformatted += 1,
            "a" => {
                self.close_link();
                self.links.open(attribute(tag, "href"), base);
            }
            "img" => {
                if let Some(alt) = attribute(tag, "alt").map(str::trim).filter(|alt| !alt.is_empty()) {
                    self.words(&format!("[picture: {alt}]"));
                }
            }
            "hr" => {
                self.mark("---");
                self.text.widen(Gap::Paragraph);
            }
            "table" => self.tables.open(),
            "thead" | "tbody" | "tfoot" => self.tables.group(),
            "tr" => self.tables.row(),
            "td" | "th" => self.tables.cell(tag, &mut self.allowance),
            "sup" => self.text.begin_script(Script::Super),
            "sub" => self.text.begin_script(Script::Sub),
            "input" => {
                if let Some(tick) = tick(tag) {
                    self.apart(tick);
                }
            }
            "select" if !tag.self_closing => self.choice = Some(Choice::new(tag)),
            "math" if !tag.self_closing => self.formula = Some(Formula::new(tag)),
            _ => {}
        }
    }

    pub(super) fn end(&mut self, name: &str) {
        self.allowance.earn("</>".len() + name.len());
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
        if !self.is_end_within_field(name) {
            self.close(name);
            self.space_around(name);
        }
    }

    fn close(&mut self, name: &str) {
        self.strikes.end(name);
        self.text.set_struck(self.strikes.is_struck());
        match name {
            "title" => self.in_title = false,
            "ul" | "ol" | "menu" => self.lists.close(),
            "pre" => self.preformatted = self.preformatted.saturating_sub(1),
            "a" => self.close_link(),
            "table" => self.tables.close(),
            "sup" | "sub" => self.text.end_script(),
            _ => {}
        }
    }
}
