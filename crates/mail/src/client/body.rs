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
    let mut content = Content { text: text(&message), ..Content::default() };
    let cut = content.text.floor_char_boundary(TEXT_MAX_BYTES);
    content.left_out = content.text.len() - cut;
    content.text.truncate(cut);
    let mut unnamed = 0_usize;
    for part in message.attachments() {
        let is_mail = matches!(part.body, PartType::Message(_));
        let name = part.attachment_name().unwrap_or(if is_mail { "mail.eml" } else { "file" }).to_owned();
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

/// The text of a mail: its plain parts, or those of HTML if the plain ones are empty.
fn text(message: &Message<'_>) -> String {
    let of = |ids: &[u32]| {
        let parts = ids.iter().filter_map(|id| message.part(*id)).filter_map(|part| match &part.body {
            PartType::Text(text) => Some(text.to_string()),
            PartType::Html(html) => Some(hypertext::text(html)),
            _ => None,
        });
        let text = parts.collect::<Vec<_>>().join("\n");
        belay_text::removed(&text).trim().to_owned()
    };
    let plain = of(&message.text_body);
    if plain.is_empty() { of(&message.html_body) } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(head: &str, body: &str) -> Vec<u8> {
        format!("From: ann@example.org\nMIME-Version: 1.0\n{head}\n\n{body}").replace('\n', "\r\n").into_bytes()
    }

    #[test]
    fn mails_of_known_programs_are_read() {
        let alternative = "--b\nContent-Type: text/plain; charset=\"UTF-8\"\n\
                           Content-Transfer-Encoding: quoted-printable\n\nGr=C3=BC=C3=9Fe\n\
                           --b\nContent-Type: text/html\n\n<p>other</p>\n--b--\n";
        for (head, body, text) in [
            ("Content-Type: text/plain; charset=utf-8; format=flowed", "hello\n", "hello"),
            ("Content-Type: multipart/alternative; boundary=\"b\"", alternative, "Grüße"),
            ("Content-Type: text/plain; charset=iso-8859-15\nContent-Transfer-Encoding: base64", "5Pb8pA==", "äöü€"),
            ("Content-Type: text/plain; charset=unknown-8", "hello", "hello"),
            ("Content-Type: text/html", "<p>Yes</p><blockquote>do it</blockquote>", "Yes\n> do it"),
            ("Subject: no type", "hello", "hello"),
        ] {
            assert_eq!(read(&mail(head, body), 5).expect("read").text, text, "{head}");
        }
    }

    #[test]
    fn files_are_bounded_and_named() {
        let part = |name: &str| {
            format!("--b\nContent-Type: application/pdf\nContent-Disposition: attachment; filename=\"{name}\"\n\nx\n")
        };
        let body = format!("--b\nContent-Type: text/plain\n\nsee\n{}{}--b--\n", part("a.pdf"), part("b.pdf"));
        let found = read(&mail("Content-Type: multipart/mixed; boundary=b", &body), 1).expect("read");
        assert_eq!((found.text.as_str(), found.more), ("see", vec!["b.pdf".to_owned()]));
        assert_eq!(found.files.iter().map(|file| file.name.as_str()).collect::<Vec<_>>(), ["a.pdf"]);
        let body = format!("{}--b--\n", part("a.pdf").repeat(MORE_MAX + 6));
        let found = read(&mail("Content-Type: multipart/mixed; boundary=b", &body), 1).expect("read");
        assert_eq!((found.more.len(), found.more.last().map(String::as_str)), (MORE_MAX + 1, Some("5 more files")));
    }

    #[test]
    fn a_mail_of_parts_alone_is_refused_and_a_long_text_is_cut() {
        let parts = mail("Content-Type: multipart/mixed; boundary=b", &"--b\n\n".repeat(10_000));
        assert_eq!(read(&parts, 5), Err("it has too many parts"));
        let long = read(&mail("Subject: x", &"ä".repeat(TEXT_MAX_BYTES)), 5).expect("read");
        assert!(long.text.len() <= TEXT_MAX_BYTES && long.left_out >= TEXT_MAX_BYTES - 1, "{}", long.left_out);
        let nested = (0..40).fold("hello".to_owned(), |inner, at| {
            format!("Content-Type: multipart/mixed; boundary=b{at}\n\n--b{at}\n{inner}\n--b{at}--\n")
        });
        let nested = format!("From: ann@example.org\n{nested}");
        assert!(read(nested.as_bytes(), 5).is_ok());
    }
}
