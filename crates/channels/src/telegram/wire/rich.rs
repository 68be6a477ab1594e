//! Writes the blocks of a rich message as Markdown. Bot API: RichMessage, RichBlock, RichText.
//!
//! It reads the blocks as values: a kind of block that is not known here gives the texts that it has. Of the entities, only
//! those that may address the bot are kept, with their places in the Markdown.

use serde_json::Value;

use super::message::Entity;
use super::read::{Field, Read};
use super::words::Words;
use crate::telegram::marked::{fence, time_of};

/// Depth of blocks and styles down to which they are read. 32: deeper than anybody writes.
const DEPTH_MAX: usize = 32;

/// Fields of an unknown kind of block that may have its texts, in the order in which they are shown.
const PARTS: [&str; 8] = ["title", "summary", "text", "expression", "blocks", "items", "caption", "credit"];

/// The words of a rich message.
pub(super) fn words(message: &Value) -> Words {
    let mut markdown = Markdown::default();
    markdown.blocks(&message["blocks"], 0);
    let text = markdown.text.trim_end().to_owned();
    let is_unreadable = text.is_empty();
    Words { text, entities: markdown.entities, is_unreadable }
}

/// The texts inside of a value that stands for a text.
pub(super) fn plain(text: &Value) -> String {
    let mut markdown = Markdown::default();
    markdown.inline(text, 0);
    markdown.text
}

/// Markdown while it is written.
#[derive(Default)]
struct Markdown {
    text: String,
    entities: Vec<Entity>,
    /// What each line begins with: the markers of the quotes and list items around it.
    prefix: String,
    /// Whether a cell of a table is written: it has one line, and its bars are escaped.
    is_cell: bool,
}

impl Markdown {
    fn blocks(&mut self, blocks: &Value, depth: usize) {
        for (number, block) in blocks.as_array().into_iter().flatten().enumerate() {
            if number > 0 {
                self.new_line();
                self.new_line();
            }
            self.block(block, depth);
        }
    }

    fn block(&mut self, block: &Value, depth: usize) {
        if depth > DEPTH_MAX {
            return;
        }
        match block["type"].as_str().unwrap_or_default() {
            "heading" => {
                let size = block["size"].as_u64().unwrap_or(1).clamp(1, 6) as usize;
                self.push(&format!("{} ", "#".repeat(size)));
                self.inline(&block["text"], depth);
            }
            "pre" => self.code(block),
            "divider" => self.push("---"),
            "anchor" => {}
            "mathematical_expression" => self.push(&format!("$${}$$", string(&block["expression"]))),
            "list" => self.list(&block["items"], depth),
            "blockquote" | "expandable_blockquote" | "pullquote" => {
                self.indented("> ", "> ", |it| it.parts(block, depth))
            }
            "table" => self.table(block, depth),
            "map" => {
                let at = &block["location"];
                self.push(&format!("(map: latitude {}, longitude {})", at["latitude"], at["longitude"]));
                self.caption(block, depth);
            }
            "buttons" => {
                let buttons = block["buttons"].as_array().into_iter().flatten();
                buttons.for_each(|button| self.button(button, depth));
            }
            kind @ ("animation" | "audio" | "document" | "photo" | "video" | "voice_note") => {
                self.push(&format!("({})", kind.replace('_', " ")));
                self.caption(block, depth);
            }
            _ => self.parts(block, depth),
        }
    }

    /// The texts of a block: its inner blocks, and its text, caption and the like.
    fn parts(&mut self, block: &Value, depth: usize) {
        let mut is_first = true;
        for name in PARTS {
            let part = &block[name];
            if part.is_null() {
                continue;
            }
            if !std::mem::take(&mut is_first) {
                self.new_line();
            }
            match name {
                "blocks" => self.blocks(part, depth + 1),
                "items" => self.list(part, depth),
                _ => self.inline(part, depth),
            }
        }
    }

    fn caption(&mut self, block: &Value, depth: usize) {
        if !block["caption"].is_null() {
            self.push(" ");
            self.inline(&block["caption"], depth);
        }
    }

    /// A code block. Its fence is longer than each row of backticks in it.
    fn code(&mut self, block: &Value) {
        let code = plain(&block["text"]);
        let fence = fence(&code);
        self.push(&format!("{fence}{}\n{}\n{fence}", string(&block["language"]), code.trim_end_matches('\n')));
    }

    fn list(&mut self, items: &Value, depth: usize) {
        for (number, item) in items.as_array().into_iter().flatten().enumerate() {
            if number > 0 {
                self.new_line();
            }
            let label = match string(&item["label"]).trim() {
                label if label.ends_with(['.', ')']) => format!("{label} "),
                _ => "- ".to_owned(),
            };
            let checkbox = match (item["has_checkbox"] == true, item["is_checked"] == true) {
                (true, true) => "[x] ",
                (true, false) => "[ ] ",
                (false, _) => "",
            };
            let indent = " ".repeat(label.len());
            self.indented(&format!("{label}{checkbox}"), &indent, |it| match item {
                Value::Object(_) => it.parts(item, depth),
                other => it.inline(other, depth),
            });
        }
    }

    /// Rows with cells. The first row is the head, as Markdown has no table without one.
    fn table(&mut self, block: &Value, depth: usize) {
        for (number, row) in block["cells"].as_array().into_iter().flatten().enumerate() {
            if number > 0 {
                self.new_line();
            }
            let cells: Vec<&Value> = row.as_array().into_iter().flatten().collect();
            self.push("|");
            for cell in &cells {
                self.push(" ");
                // Escaped while it is written, because entities keep their places.
                let is_inner = std::mem::replace(&mut self.is_cell, true);
                self.inline(&cell["text"], depth);
                self.is_cell = is_inner;
                self.push(" |");
            }
            if number == 0 {
                self.new_line();
                self.push(&format!("|{}", " --- |".repeat(cells.len())));
            }
        }
        if !block["caption"].is_null() {
            self.new_line();
            self.inline(&block["caption"], depth);
        }
    }

    /// Writes something whose first line begins with `first`, and each further one with `rest`.
    fn indented(&mut self, first: &str, rest: &str, write: impl FnOnce(&mut Self)) {
        self.push(first);
        let outer = self.prefix.len();
        self.prefix.push_str(rest);
        write(self);
        self.prefix.truncate(outer);
    }

    /// Styled text: a text, a list of them, or an object with a kind.
    fn inline(&mut self, text: &Value, depth: usize) {
        match text {
            Value::String(text) => self.push(text),
            Value::Number(number) => self.push(&number.to_string()),
            Value::Array(parts) if depth <= DEPTH_MAX => parts.iter().for_each(|part| self.inline(part, depth + 1)),
            Value::Object(_) if depth <= DEPTH_MAX => self.styled(text, depth + 1),
            _ => {}
        }
    }

    fn styled(&mut self, text: &Value, depth: usize) {
        let (inner, start) = (&text["text"], self.text.len());
        match text["type"].as_str().unwrap_or_default() {
            "bold" => self.between("**", inner, depth),
            "italic" => self.between("*", inner, depth),
            "strikethrough" => self.between("~~", inner, depth),
            "code" => self.between("`", inner, depth),
            "mathematical_expression" => self.push(&format!("${}$", string(&text["expression"]))),
            "custom_emoji" => self.push(string(&text["alternative_text"])),
            "button" => self.button(&text["button"], depth),
            "url" => {
                self.push("[");
                self.inline(inner, depth);
                self.push(&format!("]({})", string(&text["url"])));
            }
            "date_time" => {
                self.inline(inner, depth);
                self.push(&time_of(i64::read(&text["unix_time"])));
            }
            kind @ ("mention" | "text_mention" | "bot_command") => {
                self.inline(inner, depth);
                self.entity(kind, start, text);
            }
            _ => self.parts(text, depth),
        }
    }

    fn between(&mut self, marker: &str, inner: &Value, depth: usize) {
        self.push(marker);
        self.inline(inner, depth);
        self.push(marker);
    }

    fn button(&mut self, button: &Value, depth: usize) {
        self.push("[");
        self.inline(&button["text"], depth);
        self.push("] ");
    }

    /// Keeps what was written since `start` as an entity.
    fn entity(&mut self, kind: &str, start: usize, text: &Value) {
        let units = |text: &str| Some(text.encode_utf16().count());
        let (offset, length) = (units(&self.text[..start]), units(&self.text[start..]));
        let user = Field::field(text.get("user"));
        self.entities.push(Entity { kind: kind.to_owned(), offset, length, user, ..Entity::default() });
    }

    fn push(&mut self, text: &str) {
        for (number, line) in text.split('\n').enumerate() {
            if number > 0 {
                self.new_line();
            }
            match self.is_cell {
                true => self.text.push_str(&line.replace('|', "\\|")),
                false => self.text.push_str(line),
            }
        }
    }

    fn new_line(&mut self) {
        if self.is_cell {
            return self.text.push(' ');
        }
        self.text.push('\n');
        self.text.push_str(&self.prefix);
    }
}

fn string(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
