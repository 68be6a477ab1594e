//! The text and the files of a mail. Pure.

use bytes::Bytes;
use mail_parser::{Message, MessageParser, MimeHeaders, PartType};

use super::{guard, hypertext};

/// Largest mail that is read, in bytes. 25 MB: the limit of Gmail and of most servers.
pub(crate) const MAIL_MAX_BYTES: u32 = 25_000_000;

/// Most files beyond the limit that are named. The rest is counted.
const MORE_MAX: usize = 32;

/// Longest text, in bytes. The rest is left out, and the model reads that.
const TEXT_MAX_BYTES: usize = 100_000;

/// A file of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MailFile {
    pub(crate) name: String,
    pub(crate) bytes: Bytes,
}

/// The content of a mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// The text, quotation included.
    pub(crate) text: String,
    /// The bytes of the text that are left out.
    pub(crate) left_out: usize,
    pub(crate) files: Vec<MailFile>,
    /// The files beyond the limit, by their names, and at last the number of those that are not named.
    pub(crate) more: Vec<String>,
}

/// Reads a mail with at most `files_max` files.
///
/// # Errors
/// Why it is not read, for the model.
pub(crate) fn read(mail: &[u8], files_max: usize) -> Result<Content, &'static str> {
    if let Some(why) = guard::refusal(mail) {
        return Err(why);
    }
    let message = MessageParser::default().parse(mail).ok_or("it is no mail")?;
    let (text, others) = text(&message);
    let mut content = Content { text, ..Content::default() };
    let cut = content.text.floor_char_boundary(TEXT_MAX_BYTES);
    content.left_out = content.text.len() - cut;
    content.text.truncate(cut);
    let mut unnamed = 0_usize;
    let mut files: Vec<u32> = others.into_iter().chain(message.attachments.iter().copied()).collect();
    files.sort_unstable();
    for part in files.into_iter().filter_map(|id| message.part(id)) {
        let unnamed_file = match part.body {
            PartType::Message(_) => "mail.eml",
            PartType::Text(_) => "text.txt",
            PartType::Html(_) => "text.html",
            _ => "file",
        };
        let name = part.attachment_name().unwrap_or(unnamed_file).to_owned();
        if content.files.len() == files_max && content.more.len() == MORE_MAX {
            unnamed += 1;
        } else if content.files.len() == files_max {
            content.more.push(name);
        } else if !part.contents().is_empty() {
            content.files.push(MailFile { name, bytes: Bytes::copy_from_slice(part.contents()) });
        }
    }
    if unnamed > 0 {
        content.more.push(format!("{unnamed} more files"));
    }
    Ok(content)
}

/// The words of the sender: the first text without a file name, or that of HTML if the plain one is empty. And the other
/// texts of the body that are not empty. Their disposition may be inline, but anybody may have written them: they are
/// files.
fn text(message: &Message<'_>) -> (String, Vec<u32>) {
    let of = |id: u32| match message.part(id).map(|part| &part.body) {
        Some(PartType::Text(text)) => belay_text::removed(text).trim().to_owned(),
        Some(PartType::Html(html)) => belay_text::removed(&hypertext::text(html)).trim().to_owned(),
        _ => String::new(),
    };
    let has_no_name = |id: &u32| message.part(*id).is_some_and(|part| part.attachment_name().is_none());
    let words = |body: &[u32]| body.iter().copied().find(has_no_name);
    let plain = words(&message.text_body).map(of).unwrap_or_default();
    let body = if plain.is_empty() { &message.html_body } else { &message.text_body };
    let first = words(body);
    let others = body.iter().copied().filter(|id| Some(*id) != first && !of(*id).is_empty()).collect();
    (if plain.is_empty() { first.map(of).unwrap_or_default() } else { plain }, others)
}

#[cfg(test)]
mod tests;
