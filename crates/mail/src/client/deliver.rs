//! Sends answers, questions and files: one mail to one person.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belay_protocol::{DeliverError, LookUp, Outbound, OutboundFile, UnixMillis};
use tracing::{info, warn};

use super::compose::{Draft, SentFile, asked};
use super::mailbox::Mailbox;
use super::sent;
use super::smtp::SmtpError;
use super::thread::{Answered, id_of};
use crate::people::Conversation;

/// Largest file that is sent. 15 MB: encoded, it fits the 25 MB of most servers.
pub(crate) const FILE_MAX_BYTES: u64 = 15_000_000;

/// Longest times of the text of a mail and of the copy in the folder of sent mails, without and with a file. With the
/// steps before, they are below the limits of a delivery: 120 s and 600 s.
const LIMITS: [(Duration, Duration); 2] =
    [(Duration::from_secs(50), Duration::from_secs(20)), (Duration::from_secs(400), Duration::from_secs(100))];

/// How long a server that keeps sent mails by itself may take.
const SENT_LATE: Duration = Duration::from_secs(60);

/// The pause before the folder of sent mails is looked into again.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// Sends a message.
pub(crate) async fn deliver(mailbox: &Mailbox, message: &Outbound) -> Result<(), DeliverError> {
    let refused = |detail: String| DeliverError::Refused { detail };
    let to = &*message.route.conversation;
    let Some(to) = Conversation::parse(to) else { return Err(refused(format!("{to:?} is no conversation by mail"))) };
    if mailbox.parts.people.role(to.address).is_none() {
        return Err(refused(format!("{} is not in channels.mail.allow", to.address)));
    }
    if message.pieces_sent > 0 {
        return Ok(()); // a mail has one piece
    }
    let file = match &message.file {
        Some(file) => Some(read(mailbox, file).await?),
        None => None,
    };
    let (limit, copy_limit) = LIMITS[usize::from(file.is_some())];
    let id = id_of(message, to, mailbox.domain());
    let answered = message.route.reply_to.as_deref().and_then(Answered::parse);
    let address = |text: &str| text.parse::<lettre::Address>().map_err(|_| refused(format!("{text} is no address")));
    let (from, recipient) = (address(&mailbox.address)?, address(to.address)?);
    let text = asked(&message.text, message.question.as_ref());
    let draft = Draft { from: from.clone(), to: recipient.clone(), id: &id, answered: answered.as_ref(), text, file };
    let mail = draft.write().map_err(refused)?;
    if !mailbox.rate.admits(to.address) {
        return Err(refused(format!("{} has got too many mails within an hour", to.address)));
    }
    if let Err(error) = mailbox.smtp.send(from, recipient, &mail, limit).await {
        if !matches!(error, SmtpError::Unknown(_)) {
            mailbox.rate.take_back(to.address);
        }
        return Err(failed(&error));
    }
    let kept = tokio::time::timeout(copy_limit, sent::keep(&mailbox.account, &id, &mail, copy_limit)).await;
    match kept {
        Ok(Ok(())) => {}
        Ok(Err(error)) => info!(detail = %error, "a sent mail has no copy in the folder of sent mails"),
        Err(_elapsed) => info!("a sent mail has no copy in the folder of sent mails: no answer in time"),
    }
    Ok(())
}

/// Looks for a message in the folder of sent mails. A mail that is missing there may have been sent all the same.
pub(crate) async fn look_up(mailbox: &Mailbox, message: &Outbound, since: UnixMillis) -> LookUp {
    let Some(to) = Conversation::parse(&message.route.conversation) else { return LookUp::Unknown };
    let found = sent::is_sent(&mailbox.account, &id_of(message, to, mailbox.domain())).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64;
    let is_early = now.saturating_sub(since.0) < SENT_LATE.as_millis() as i64;
    match found {
        Ok(true) => LookUp::Sent { pieces: 1 },
        Ok(false) if is_early => {
            LookUp::Later { after: Some(LOOK_AGAIN), detail: "it is not in the folder of sent mails yet".to_owned() }
        }
        Ok(false) => LookUp::Unknown,
        Err(error) => LookUp::Later { after: None, detail: error.to_string() },
    }
}

async fn read(mailbox: &Mailbox, file: &OutboundFile) -> Result<SentFile, DeliverError> {
    let retry = |detail: String| DeliverError::Retry { after: None, detail, pieces_sent: 0 };
    let found = mailbox.parts.blobs.read(&file.digest).await.map_err(|error| retry(error.to_string()))?;
    let gone = || DeliverError::Refused { detail: "the bytes of the file are not stored any more".into() };
    Ok(SentFile { name: file.name.clone(), media_type: file.media_type.clone(), bytes: found.ok_or_else(gone)? })
}

fn failed(error: &SmtpError) -> DeliverError {
    let detail = error.to_string();
    match error {
        // The operator may replace the password, so the message is retried.
        SmtpError::NotSent(_) => DeliverError::Retry { after: None, detail, pieces_sent: 0 },
        SmtpError::Login(_) => {
            warn!(detail = %error, "no answer can be sent by mail");
            DeliverError::Retry { after: None, detail, pieces_sent: 0 }
        }
        SmtpError::Refused(_) => DeliverError::Refused { detail },
        SmtpError::Unknown(_) => DeliverError::Ambiguous { detail, pieces_sent: 0 },
    }
}
