//! The mail that a message is. Pure.

use belay_channel_kit::html::html;
use belay_protocol::Question;
use bytes::Bytes;
use lettre::Address;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, Message, MultiPart, SinglePart};

use super::thread::Answered;

/// The name beside Belay's address.
const NAME: &str = "Belay";

/// A file with its bytes.
pub(crate) struct SentFile {
    pub(crate) name: String,
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
}

/// A mail before it is written.
pub(crate) struct Draft<'a> {
    pub(crate) from: Address,
    pub(crate) to: Address,
    /// The Message-ID without brackets.
    pub(crate) id: &'a str,
    pub(crate) answered: Option<&'a Answered>,
    /// In Markdown.
    pub(crate) text: String,
    pub(crate) file: Option<SentFile>,
}

impl Draft<'_> {
    /// The bytes of the mail. It is marked as one of a program, so that no other program answers it.
    ///
    /// # Errors
    /// A header cannot be written.
    pub(crate) fn write(self) -> Result<Vec<u8>, String> {
        let kind = if self.answered.is_some() { "auto-replied" } else { "auto-generated" };
        let mut head = Message::builder()
            .from(Mailbox::new(Some(NAME.to_owned()), self.from))
            .to(Mailbox::new(None, self.to))
            .message_id(Some(format!("<{}>", self.id)))
            .subject(Answered::subject_of_answer(self.answered))
            .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), kind.to_owned()))
            .raw_header(HeaderValue::new(HeaderName::new_from_ascii_str("X-Auto-Response-Suppress"), "All".to_owned()));
        if let Some(Answered { id, first, .. }) = self.answered.filter(|it| !it.id.is_empty()) {
            let references = match first == id || first.is_empty() {
                true => format!("<{id}>"),
                false => format!("<{first}> <{id}>"),
            };
            head = head.in_reply_to(format!("<{id}>")).references(references);
        }
        let written = match (html(&self.text), self.file) {
            (None, None) => head.singlepart(SinglePart::plain(self.text)),
            (Some(html), None) => head.multipart(MultiPart::alternative_plain_html(self.text, html)),
            (html, Some(file)) => {
                let media_type = ContentType::parse(&file.media_type).unwrap_or(ContentType::TEXT_PLAIN);
                let attached = Attachment::new(file.name).body(file.bytes.to_vec(), media_type);
                let text = MultiPart::mixed();
                head.multipart(match html {
                    Some(html) => {
                        text.multipart(MultiPart::alternative_plain_html(self.text, html)).singlepart(attached)
                    }
                    None => text.singlepart(SinglePart::plain(self.text)).singlepart(attached),
                })
            }
        };
        written.map(|mail| mail.formatted()).map_err(|error| error.to_string())
    }
}

/// The text of a question, with the way to answer it by mail.
pub(crate) fn asked(text: &str, question: Option<&Question>) -> String {
    let words = match question {
        Some(Question { decidable: true, offers_always: true, .. }) => "yes, always or no",
        Some(Question { decidable: true, .. }) => "yes or no",
        _ => return text.to_owned(),
    };
    format!("{text}\n\nReply to this mail with {words} in the first line.")
}

#[cfg(test)]
mod tests {
    use mail_parser::MessageParser;

    use super::super::head::Head;
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().expect("an address")
    }

    fn draft<'a>(answered: Option<&'a Answered>, text: &str, file: Option<SentFile>) -> Draft<'a> {
        let (from, to) = (address("belay@example.org"), address("ann@example.org"));
        Draft { from, to, id: "own-0@example.org", answered, text: text.to_owned(), file }
    }

    #[test]
    fn an_answer_belongs_to_its_thread_and_says_that_it_is_of_a_program() {
        let answered = Answered::new("2@a", &["1@a".to_owned()], "Grüße\r\nBcc: eve@example.com");
        let mail = draft(Some(&answered), "**yes** <b>x</b>\n\nline two", None).write().expect("a mail");
        assert!(mail.is_ascii() && !String::from_utf8_lossy(&mail).contains("\r\nBcc:"));
        let head = Head::read(&mail).expect("a head");
        assert_eq!((head.id.as_str(), head.in_reply_to.as_deref()), ("own-0@example.org", Some("2@a")));
        assert_eq!(
            (head.references, head.automatic),
            (vec!["1@a".to_owned(), "2@a".to_owned()], Some("Auto-Submitted"))
        );
        assert!(head.subject.starts_with("Re: Grüße"), "{}", head.subject);
        let read = MessageParser::default().parse(&mail).expect("a mail");
        let text = read.body_text(0).unwrap_or_default().replace("\r\n", "\n");
        assert_eq!(text.trim(), "**yes** <b>x</b>\n\nline two");
        let html = read.body_html(0).expect("HTML");
        assert!(html.contains("<strong>yes</strong> &lt;b&gt;x"), "{html}");
    }

    #[test]
    fn a_file_is_attached() {
        let file = SentFile {
            name: "ä.pdf".into(),
            media_type: "application/pdf".into(),
            bytes: Bytes::from_static(&[0, 255]),
        };
        let mail = draft(None, "", Some(file)).write().expect("a mail");
        let read = super::super::body::read(&mail, 5).expect("read");
        assert_eq!((read.files[0].name.as_str(), &read.files[0].bytes[..]), ("ä.pdf", &[0, 255][..]));
    }

    #[test]
    fn a_question_says_how_to_answer_by_mail() {
        let question = |decidable, offers_always| Question {
            approval: belay_protocol::ApprovalId::new(),
            offers_always,
            decidable,
        };
        assert!(asked("May I?", Some(&question(true, false))).ends_with("with yes or no in the first line."));
        assert!(asked("May I?", Some(&question(true, true))).contains("yes, always or no"));
        assert_eq!(asked("Type it", Some(&question(false, false))), "Type it");
    }
}
