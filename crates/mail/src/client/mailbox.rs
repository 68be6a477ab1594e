//! The facts that the parts of the channel share: the account, the people, and which mails are admitted.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use belay_protocol::Principal;
use tracing::{info, warn};

use super::authentication::confirm;
use super::failures::Failures;
use super::head::Head;
use super::imap::Account;
use super::rate::Rate;
use super::smtp::Smtp;
use crate::parts::MailParts;

/// Senders whose first dropped mail is named in the log, of listed people and of others each. Beyond that, mails are
/// counted alone.
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
    pub(crate) failures: Failures,
    /// The start of this daemon, in milliseconds since 1970.
    pub(crate) since_ms: i64,
    pub(crate) trouble: Mutex<Option<String>>,
    pub(crate) dropped: AtomicU64,
    pub(crate) noted: Mutex<Noted>,
}

/// The dropped mails that the log has named. Listed people have a set of their own, so that strangers cannot fill it.
#[derive(Default)]
pub(crate) struct Noted {
    listed: HashSet<String>,
    others: HashSet<String>,
}

impl Noted {
    /// Whether the log is to name this sender with this reason now.
    fn is_new(&mut self, is_listed: bool, sender: &str, why: &str) -> bool {
        let set = if is_listed { &mut self.listed } else { &mut self.others };
        set.len() < NOTED_MAX && set.insert(format!("{sender} {why}"))
    }
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
                let is_listed = self.parts.people.role(&head.from).is_some();
                let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
                match (noted.is_new(is_listed, &head.from, why), is_listed) {
                    (true, true) => warn!(sender = head.from, why, dropped, "a mail is not answered"),
                    (true, false) => info!(sender = head.from, why, dropped, "a mail is not answered"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_silence_the_warnings_for_listed_people() {
        let mut noted = Noted::default();
        let strangers = (0..NOTED_MAX * 2).filter(|at| noted.is_new(false, &format!("{at}@example.net"), "unknown"));
        assert_eq!(strangers.count(), NOTED_MAX);
        assert!(noted.is_new(true, "ann@example.org", "not confirmed"));
        assert!(!noted.is_new(true, "ann@example.org", "not confirmed"));
    }
}
