//! Reads one admitted mail: its text and its files.

use std::sync::Arc;

use belay_protocol::{AttachmentError, Body, Inbound, Provenance, Unread, Uploader, with_spoken};
use tracing::{info, warn};

use super::body::{self, Content, MAIL_MAX_BYTES, MailFile};
use super::error::ImapError;
use super::imap::Imap;
use super::inbound::Reader;
use super::mailbox::Mailbox;
use super::page::Admitted;
use crate::NAME;

/// Longest transcript that becomes the text of its message. 8 KiB: about ten minutes of speech.
const SPOKEN_MAX_BYTES: usize = 8192;

/// The reason for the model. The later mails are read all the same.
const NOT_GIVEN: &str = "the mail server did not give it";

/// The message that a mail is; `None`: it is gone, or it is a command for an earlier daemon.
///
/// # Errors
/// The server does not answer now; the mail is read again later.
pub(crate) async fn read(mailbox: &Mailbox, imap: &mut Imap, mail: &Admitted) -> Result<Option<Inbound>, ImapError> {
    let Some(content) = content(mailbox, imap, mail).await? else { return Ok(None) };
    let reader = Reader { address: &mailbox.address, commands: &mailbox.parts.commands };
    let mut inbound = reader.inbound(&mail.head, mail.principal.clone(), &content);
    if ends_the_daemon(&inbound.body) && mail.arrived_ms.is_none_or(|at| at < mailbox.since_ms) {
        info!(uid = mail.uid, "a mail that ends the daemon is older than the daemon");
        return Ok(None);
    }
    if let Ok(content) = content {
        add_files(mailbox, &mut inbound, content).await;
    }
    Ok(Some(inbound))
}

/// The content of a mail, or why it is not read; `None`: the mail is gone. A mail that the server refuses to give would
/// be asked for without end, and no later one would be read, so that the model reads the reason instead.
async fn content(
    mailbox: &Mailbox,
    imap: &mut Imap,
    mail: &Admitted,
) -> Result<Option<Result<Content, &'static str>>, ImapError> {
    if mail.size > MAIL_MAX_BYTES {
        return Ok(Some(Err("it is larger than 25 MB")));
    }
    let (failures, validity, uid) = (&mailbox.failures, mail.validity, mail.uid);
    if failures.passes_over(validity, uid) {
        return Ok(Some(Err(NOT_GIVEN)));
    }
    let found = match imap.fetch_whole(uid, mail.size).await {
        Ok(mut found) => found.pop(),
        Err(ImapError::Refused(why)) => {
            warn!(uid, detail = why, "the server does not give the text of a mail");
            return Ok(Some(Err(NOT_GIVEN)));
        }
        Err(error) => {
            failures.note(validity, uid);
            return Err(error);
        }
    };
    let Some(found) = found else { return Ok(None) };
    if found.bytes.is_empty() {
        if failures.note(validity, uid) {
            warn!(uid, "the server gives no text of a mail");
            return Ok(Some(Err(NOT_GIVEN)));
        }
        return Err(ImapError::Lost("the server gives no text of a mail".to_owned()));
    }
    let files_max = mailbox.parts.attachments.max_count();
    let parsed = tokio::task::spawn_blocking(move || body::read(&found.bytes, files_max)).await;
    Ok(Some(parsed.unwrap_or(Err("it cannot be read"))))
}

/// Whether a message ends the daemon. One from before its start was meant for an earlier one.
fn ends_the_daemon(body: &Body) -> bool {
    let Body::Text(text) = body else { return false };
    let word = text.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
    matches!(word.as_str(), "/quit" | "/exit" | "/shutdown")
}

/// Takes the files of a mail. A file that cannot be taken is no error of the mail: the model reads why.
async fn add_files(mailbox: &Mailbox, inbound: &mut Inbound, content: Content) {
    if content.files.is_empty() {
        return;
    }
    let from = Uploader { channel: NAME.into(), principal: inbound.principal.id.to_string() };
    let mut provenance = inbound.provenance.as_deref().cloned().unwrap_or_default();
    for MailFile { name, bytes } in content.files {
        match mailbox.parts.attachments.take_whole(&from, &name, bytes).await {
            Ok(upload) => provenance.attachments.push(upload.attachment),
            Err(error) => provenance.not_read.push(unread(name, &error)),
        }
    }
    if let Body::Text(text) = &mut inbound.body {
        let spoken = with_spoken(text, &provenance.attachments);
        if spoken.len() <= SPOKEN_MAX_BYTES {
            *text = spoken;
        }
    }
    inbound.provenance = Some(Arc::new(Provenance::cleaned(provenance)));
}

fn unread(name: String, error: &AttachmentError) -> Unread {
    Unread { kind: "file".into(), file_name: Some(name), reason: Some(error.to_string()), ..Unread::default() }
}
