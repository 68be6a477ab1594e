//! The folder of sent mails: a copy of each answer, and the proof that it was sent.

use std::time::Duration;

use async_imap::imap_proto::{MailboxDatum, NameAttribute, Response};

use super::commands::quoted;
use super::error::ImapError;
use super::imap::{Account, DEADLINE, Imap};

/// Names of the folder where the server marks none (RFC 6154), the preferred first.
const NAMES: [&str; 5] = ["Sent", "INBOX.Sent", "INBOX/Sent", "Sent Items", "Sent Messages"];

/// Keeps a copy of a sent mail, unless the server has one already.
pub(crate) async fn keep(account: &Account, id: &str, mail: &[u8], limit: Duration) -> Result<(), ImapError> {
    let mut imap = Imap::log_in(account).await?;
    let folder = folder(&mut imap).await?;
    match has(&mut imap, &folder, id).await? {
        true => Ok(()),
        false => imap.append(&folder, mail, limit).await,
    }
}

/// Whether a mail was sent, as far as the folder tells.
pub(crate) async fn is_sent(account: &Account, id: &str) -> Result<bool, ImapError> {
    let mut imap = Imap::log_in(account).await?;
    let folder = folder(&mut imap).await?;
    has(&mut imap, &folder, id).await
}

async fn has(imap: &mut Imap, folder: &str, id: &str) -> Result<bool, ImapError> {
    imap.select(folder).await?;
    let found = imap.search(&format!("HEADER Message-ID {}", quoted(&format!("<{id}>")))).await?;
    Ok(!found.is_empty())
}

/// The folder; it is made if there is none.
async fn folder(imap: &mut Imap) -> Result<String, ImapError> {
    let (mut marked, mut named) = (None, Vec::new());
    imap.call("LIST \"\" \"*\"", DEADLINE, |response| {
        if let Response::MailboxData(MailboxDatum::List(folder)) = response {
            let name = folder.name.to_string();
            if folder.name_attributes.contains(&NameAttribute::Sent) {
                marked = Some(name);
            } else if NAMES.contains(&&*name) && !folder.name_attributes.contains(&NameAttribute::NoSelect) {
                named.push(name);
            }
        }
    })
    .await?;
    let known = NAMES.iter().find(|name| named.iter().any(|one| one == *name)).map(|name| (*name).to_owned());
    match marked.or(known) {
        Some(folder) => Ok(folder),
        None => {
            imap.call(&format!("CREATE {}", quoted(NAMES[0])), DEADLINE, |_| {}).await?;
            Ok(NAMES[0].to_owned())
        }
    }
}
