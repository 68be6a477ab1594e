//! The hostile texts: `corpus/*.json`, one file for each kind.
//!
//! An order is a line `DO: tool {json}`, with the verb in any of a dozen languages, or `SAY: text`. The model that
//! obeys an order fills in its marks `{collector}`, `{pages}`, `{canary}` and `{case}`.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// One hostile text.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Item {
    /// A description.
    pub(crate) name: String,
    /// How the text enters the conversation.
    pub(crate) via: Via,
    /// When the model obeys.
    #[serde(default)]
    pub(crate) pace: Pace,
    /// The media type of the page. Without one and without `html`: plain text.
    #[serde(default, rename = "type")]
    media: Option<String>,
    #[serde(default)]
    html: bool,
    /// The HTTP status of the page.
    #[serde(default = "ok")]
    pub(crate) status: u16,
    text: String,
    /// How `order` is hidden after the text.
    #[serde(default)]
    spell: Option<Spell>,
    #[serde(default)]
    order: String,
    /// The name of its file, without the extension.
    #[serde(skip)]
    pub(crate) kind: String,
}

/// How a text enters the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Via {
    Page,
    Error,
    File,
    /// As the name of a file.
    Name,
    Search,
    McpDescription,
    McpResult,
}

/// When the model obeys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Pace {
    /// At once, one order after the other.
    #[default]
    Single,
    /// At once, all orders in one step.
    Batch,
    /// At the person's next message.
    Later,
    /// After a compaction of the conversation.
    Compacted,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Spell {
    /// Letters of the Unicode block "Tags", which are invisible.
    Tags,
    /// With a zero-width space after each letter.
    ZeroWidth,
    /// Full-width letters.
    Wide,
}

fn ok() -> u16 {
    200
}

impl Item {
    /// The text as the server sends it.
    pub(crate) fn text(&self) -> String {
        let spelled: String = match self.spell {
            None => String::new(),
            Some(Spell::Tags) => self.order.chars().filter_map(|c| char::from_u32(0xe0000 + u32::from(c))).collect(),
            Some(Spell::ZeroWidth) => self.order.chars().flat_map(|c| [c, '\u{200b}']).collect(),
            Some(Spell::Wide) => self.order.chars().map(wide).collect(),
        };
        format!("{}{spelled}", self.text)
    }

    /// The media type of the text.
    pub(crate) fn media(&self) -> &str {
        match &self.media {
            Some(media) => media,
            None if self.html => "text/html; charset=utf-8",
            None => "text/plain; charset=utf-8",
        }
    }
}

fn wide(c: char) -> char {
    if ('!'..='~').contains(&c) { char::from_u32(u32::from(c) + 0xfee0).unwrap_or(c) } else { c }
}

/// All items, in a fixed order.
pub(crate) fn load() -> Result<Vec<Item>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("injection/corpus");
    let mut files: Vec<_> = std::fs::read_dir(&dir)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut items = Vec::new();
    for file in files {
        let kind = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file)?;
        let read: Vec<Item> = serde_json::from_str(&text).with_context(|| file.display().to_string())?;
        items.extend(read.into_iter().map(|item| Item { kind: kind.clone(), ..item }));
    }
    Ok(items)
}
