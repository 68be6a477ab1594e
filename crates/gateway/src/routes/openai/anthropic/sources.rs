//! The sources of pictures and documents, as the files of a chat request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::blocks::{Fields, Said, text, text_part, typed};
use super::request::wrong;
use crate::routes::openai::OpenAiError;

/// Why a source is refused.
const SOURCES: &str = "only sources of type base64 and file are accepted, for documents also text and content: send the file \
                       itself, or upload it to /api/v1/files and name it by its file_id";

impl Said {
    /// Adds a document: a file, or the blocks that it consists of.
    pub(super) fn add_document(&mut self, mut fields: Fields, path: &str) -> Result<(), OpenAiError> {
        if let Some(Value::String(context)) = fields.remove("context") {
            self.parts.push(text_part(context));
        }
        let title = match fields.remove("title") {
            Some(Value::String(title)) if !title.is_empty() => title,
            _ => "document".to_owned(),
        };
        let source = fields.get_mut("source").and_then(Value::as_object_mut);
        match source.map(|source| (source.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(), source)) {
            Some((kind, source)) if kind == "text" => {
                let data = text(source, "data", &format!("{path}.source"))?;
                let data = format!("data:text/plain;base64,{}", STANDARD.encode(data));
                self.parts.push(json!({"type": "file", "file": {"filename": title, "file_data": data}}));
            }
            Some((kind, source)) if kind == "content" => {
                let path = format!("{path}.source.content");
                match source.remove("content") {
                    Some(Value::String(text)) => self.parts.push(text_part(text)),
                    Some(Value::Array(blocks)) => {
                        for (at, block) in blocks.into_iter().enumerate() {
                            let path = format!("{path}[{at}]");
                            let (kind, mut fields) = typed(block, &path)?;
                            match kind.as_str() {
                                "text" => self.parts.push(text_part(text(&mut fields, "text", &path)?)),
                                "image" => self.parts.push(file(&mut fields, "picture", &path)?),
                                _ => {}
                            }
                        }
                    }
                    _ => return Err(wrong(path, "must be a text or a list of blocks")),
                }
            }
            _ => self.parts.push(file(&mut fields, &title, path)?),
        }
        Ok(())
    }
}

/// The file of a picture or a document.
pub(super) fn file(fields: &mut Fields, name: &str, path: &str) -> Result<Value, OpenAiError> {
    let path = format!("{path}.source");
    let Some(Value::Object(mut source)) = fields.remove("source") else { return Err(wrong(path, SOURCES)) };
    match source.get("type").and_then(Value::as_str) {
        Some("base64") => {
            let (kind, data) = (text(&mut source, "media_type", &path)?, text(&mut source, "data", &path)?);
            let data = format!("data:{kind};base64,{data}");
            Ok(json!({"type": "file", "file": {"filename": name, "file_data": data}}))
        }
        Some("file") => Ok(json!({"type": "file", "file": {"file_id": text(&mut source, "file_id", &path)?}})),
        _ => Err(wrong(path, SOURCES)),
    }
}
