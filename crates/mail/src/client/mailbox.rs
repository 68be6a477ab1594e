//! The facts that the parts of the channel share: the account, the people, and which mails are admitted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use belay_protocol::Principal;
use tracing::{info, warn};

use super::authentication::confirm;
use super::head::Head;
use super::imap::Account;
use super::rate::Rate;
use super::smtp::Smtp;
use crate::parts::MailParts;

/// Senders whose first dropped mail is named in the log. Beyond that, mails are counted alone.
const NOTED_MAX: usize = 1000;

/// The mailbox, and what is needed to answer.
pub(crate) struct Mailbox {
    /// Belay's own address, in lower case.
    pub(crate) address: String,
    pub(crate) authserv_id: String,
    pub(crate) account: Account,
    pub(crate) smtp: Smtp,
    pub(crate) parts: MailParts,
    pub(crate) rate: Rate,
    /// The start of this daemon, in milliseconds since 1970.
    pub(crate) since_ms: i64,
    pub(crate) trouble: Mutex<Option<String>>,
    pub(crate) dropped: AtomicU64,
    pub(crate) noted: Mutex<HashSet<String>>,
}

impl Mailbox {
    /// The domain of Belay's address.
    pub(crate) fn domain(&self) -> &str {
        self.address.rsplit_once('@').map_or("", |(_, domain)| domain)
    }

    /// The sender of a mail, if it is for the agent. Other mails are counted, and logged once for each sender.
    pub(crate) fn admit(&self, head: &Head) -> Option<Principal> {
        match self.judge(head) {
            Ok(principal) => Some(principal),
            Err(why) => {
                let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
                let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = noted.len() < NOTED_MAX && noted.insert(format!("{} {why}", head.from));
                match (is_new, self.parts.people.role(&head.from)) {
                    (true, Some(_)) => warn!(sender = head.from, why, dropped, "a mail is not answered"),
                    (true, None) => info!(sender = head.from, why, dropped, "a mail is not answered"),
                    (false, _) => {}
                }
                None
            }
        }
    }

    /// # Errors
    /// Why the mail is not for the agent.
    fn judge(&self, head: &Head) -> Result<Principal, &'static str> {
        if head.from.is_empty() {
            return Err("it has not exactly one sender");
        }
        if head.from == self.address {
            return Err("it is Belay's own");
        }
        if let Some(why) = head.automatic {
            return Err(why);
        }
        let role = self.parts.people.role(&head.from).ok_or("its sender is not in channels.mail.allow")?;
        confirm(&head.results, &self.authserv_id, head.domain())?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        head.is_sent_to(&self.address, now.as_secs() as i64)?;
        Ok(Principal { id: head.from.as_str().into(), role })
    }

    pub(crate) fn set_trouble(&self, why: Option<String>) {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }
}
