//! The message of a person: the blocks of a prompt as one text and files. Pure.
//!
//! A part of a known kind becomes text or a file. An unknown or broken part costs itself, and the text says so.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belay_cli::client::text;
use serde_json::Value as Json;

/// Most files of one prompt. 32: the daemon's own limit is lower by default, and its refusal names it.
const FILES_MAX: usize = 32;

/// Longest name of a file in characters.
const NAME_MAX_CHARS: usize = 120;

/// The text of a prompt that consists of files alone: a message of the daemon has a text.
const FILES_ALONE: &str = "See the attached files.";

/// A prompt as the daemon takes it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Intake {
    pub(crate) text: String,
    pub(crate) files: Vec<File>,
}

/// A file of a prompt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Intake {
    /// Reads the blocks of a prompt. `None`: they are no list, or there is nothing in them.
    pub(crate) fn of(prompt: &Json) -> Option<Self> {
        let mut intake = Self::default();
        for block in prompt.as_array()? {
            intake.take(block);
        }
        if intake.text.trim().is_empty() && !intake.files.is_empty() {
            intake.text = FILES_ALONE.into();
        }
        (!intake.text.trim().is_empty()).then_some(intake)
    }

    fn take(&mut self, block: &Json) {
        match text(block, "/type") {
            "text" => self.text.push_str(text(block, "/text")),
            "resource_link" => {
                let uri = text(block, "/uri");
                let name = Some(text(block, "/name")).filter(|name| !name.is_empty()).unwrap_or(uri);
                self.mention(name, uri);
            }
            "resource" => {
                let uri = text(block, "/resource/uri");
                let name = name_of(uri);
                self.mention(&name, uri);
                match (block.pointer("/resource/text"), block.pointer("/resource/blob")) {
                    (Some(Json::String(content)), _) => self.file(name, Some(content.clone().into_bytes())),
                    (_, Some(Json::String(blob))) => self.file(name, decoded(blob)),
                    _ => self.leave_out(&name, "it has neither text nor bytes"),
                }
            }
            kind @ ("image" | "audio") => {
                let end = text(block, "/mimeType").rsplit('/').next().unwrap_or_default();
                let end: String = end.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
                let name = format!("{kind}-{}.{}", self.files.len() + 1, if end.is_empty() { "bin" } else { &end });
                self.file(name, decoded(text(block, "/data")));
            }
            kind => self.leave_out(kind, "Belay does not know this kind of content"),
        }
    }

    fn mention(&mut self, name: &str, uri: &str) {
        self.text.push_str(&format!("[{name}]({uri})"));
    }

    fn file(&mut self, name: String, bytes: Option<Vec<u8>>) {
        match bytes {
            // An empty file says nothing, and the daemon refuses it.
            Some(bytes) if bytes.is_empty() => self.leave_out(&name, "it is empty"),
            Some(_) if self.files.len() >= FILES_MAX => self.leave_out(&name, "there are too many files"),
            Some(bytes) => self.files.push(File { name, bytes }),
            None => self.leave_out(&name, "it is not base64"),
        }
    }

    /// Says in the text that a part is missing, and why.
    pub(crate) fn leave_out(&mut self, name: &str, why: &str) {
        let name: String = name.chars().take(NAME_MAX_CHARS).collect();
        self.text.push_str(&format!("\n[not attached: {name}: {why}]"));
    }
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The name of a resource: the end of its address, which may have lines as a fragment.
fn name_of(uri: &str) -> String {
    let name = uri.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name: String = name.chars().filter(|c| !c.is_control()).take(NAME_MAX_CHARS).collect();
    if name.is_empty() { "resource".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(name: &str, bytes: &[u8]) -> File {
        File { name: name.into(), bytes: bytes.into() }
    }

    #[test]
    fn the_blocks_of_a_prompt_are_one_text_and_files() {
        let prompt = json!([
            {"type": "text", "text": "Compare "},
            {"type": "resource_link", "uri": "file:///p/x.rs", "name": "x.rs"},
            {"type": "text", "text": " with "},
            {"type": "resource", "resource": {"uri": "file:///p/y.rs#L1:9", "text": "fn y() {}"}},
            {"type": "image", "data": "AAE=", "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "", "blob": "AAE="}},
        ]);
        let text = "Compare [x.rs](file:///p/x.rs) with [y.rs#L1:9](file:///p/y.rs#L1:9)[resource]()".to_owned();
        let files = vec![file("y.rs#L1:9", b"fn y() {}"), file("image-2.png", &[0, 1]), file("resource", &[0, 1])];
        assert_eq!(Intake::of(&prompt), Some(Intake { text, files }));
    }

    #[test]
    fn a_part_that_cannot_be_read_costs_itself_alone() {
        let prompt = json!([
            {"type": "text", "text": "go"},
            {"type": "hologram"},
            {"type": "image", "data": "%", "mimeType": 7},
            {"type": "resource", "resource": {"uri": "a/b"}},
            5,
        ]);
        let text = "go\n[not attached: hologram: Belay does not know this kind of content]\n[not attached: image-1.bin: it is not \
                    base64][b](a/b)\n[not attached: b: it has neither text nor bytes]\n[not attached: : Belay does not know this \
                    kind of content]";
        assert_eq!(Intake::of(&prompt), Some(Intake { text: text.into(), files: vec![] }));
    }

    #[test]
    fn a_prompt_of_files_alone_has_a_text_and_an_empty_one_is_none() {
        let picture = json!([{"type": "image", "data": "AAE=", "mimeType": "image/png"}]);
        assert_eq!(Intake::of(&picture).map(|intake| intake.text), Some(FILES_ALONE.to_owned()));
        for nothing in [json!([]), json!([{"type": "text", "text": " "}]), json!("go"), Json::Null] {
            assert_eq!(Intake::of(&nothing), None, "{nothing}");
        }
    }
}
