//! Which daemon answers a mail, if several with stores of their own read the mailbox.
//!
//! Each daemon has a keyword of its own, and sets it on a mail before it takes it, on the condition that nobody has
//! changed the mail meanwhile (RFC 7162, `UNCHANGEDSINCE`). A mail with the keyword of another daemon is that daemon's.
//! The own keyword means that the mail was taken before, perhaps by a daemon that was killed: it is offered again, and
//! recognised by its key.

use std::collections::{BTreeMap, HashSet};

use belay_protocol::{Cursor, Cursors, OutboxId, StoreError};

use super::commands::set;
use super::error::ImapError;
use super::fetched::Fetched;
use super::imap::{DEADLINE, Imap};
use crate::NAME;

/// The beginning of each keyword.
const KEYWORD: &str = "$Belay-";

/// Digits of a keyword behind its beginning.
const DIGITS: usize = 12;

/// Attempts while a person changes the same mails, such as by reading them.
const ATTEMPTS: usize = 5;

/// The keyword of this daemon.
pub(crate) struct Lease(String);

impl Lease {
    /// Reads the keyword, and makes it at the first time.
    ///
    /// # Errors
    /// The store fails.
    pub(crate) async fn load(cursors: &dyn Cursors, address: &str) -> Result<Self, StoreError> {
        let name = format!("{address} keyword");
        if let Some(kept) = cursors.cursor(&NAME.into(), &name).await? {
            return Ok(Self(kept.to_string()));
        }
        // The end of a UUIDv7 is random.
        let id = OutboxId::new().as_uuid().simple().to_string();
        let keyword = format!("{KEYWORD}{}", &id[id.len() - DIGITS..]);
        if let Ok(cursor) = Cursor::new(name, keyword.as_str()) {
            cursors.keep_cursor(&NAME.into(), &cursor).await?;
        }
        Ok(Self(keyword))
    }

    /// Sets the keyword on these mails, and returns the UIDs of those that are now this daemon's.
    ///
    /// # Errors
    /// The server does not answer now, or somebody changes the mails all the time.
    pub(crate) async fn take(&self, imap: &mut Imap, mails: &[Fetched]) -> Result<HashSet<u32>, ImapError> {
        let mut mails = mails.to_vec();
        for _ in 0..ATTEMPTS {
            let free = self.free(&mails);
            let own = mails.iter().filter(|mail| self.holder(mail) == Holder::This).map(|it| it.uid);
            if free.is_empty() {
                return Ok(own.collect());
            }
            let own: HashSet<u32> = own.collect();
            let keyword = &self.0;
            for (known, uids) in &free {
                let store = format!("UID STORE {} (UNCHANGEDSINCE {known}) +FLAGS.SILENT ({keyword})", set(uids));
                match imap.call(&store, DEADLINE, |_| {}).await {
                    Ok(()) | Err(ImapError::Refused(_)) => {} // the flags themselves say which mails have changed
                    Err(error) => return Err(error),
                }
            }
            mails.retain(|mail| own.contains(&mail.uid));
            let free: Vec<u32> = free.into_values().flatten().collect();
            mails.extend(imap.fetch(&free, "(UID FLAGS MODSEQ)").await?);
        }
        Err(ImapError::Refused("the server sets no keyword on the mails".to_owned()))
    }

    /// The mails that nobody has taken, by their MODSEQ. Each value has a condition of its own: under the highest one,
    /// a mail with a lower one could have changed unseen.
    fn free(&self, mails: &[Fetched]) -> BTreeMap<u64, Vec<u32>> {
        let mut free = BTreeMap::<u64, Vec<u32>>::new();
        for mail in mails.iter().filter(|mail| self.holder(mail) == Holder::Nobody) {
            free.entry(mail.modseq).or_default().push(mail.uid);
        }
        free
    }

    /// The smallest keyword names the holder, so that two daemons agree about a mail that has two.
    fn holder(&self, mail: &Fetched) -> Holder {
        let keywords = mail.flags.iter().map(|flag| flag.to_ascii_lowercase());
        match keywords.filter(|flag| flag.starts_with(&KEYWORD.to_ascii_lowercase())).min() {
            None => Holder::Nobody,
            Some(smallest) if smallest.eq_ignore_ascii_case(&self.0) => Holder::This,
            Some(_) => Holder::Another,
        }
    }
}

/// The daemon that has taken a mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    Nobody,
    This,
    Another,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyword_names_the_daemon_that_has_a_mail() {
        let lease = Lease("$Belay-0123456789ab".to_owned());
        let rows: [(&[&str], Holder); 7] = [
            (&[], Holder::Nobody),
            (&["\\Seen", "$Forwarded"], Holder::Nobody),
            (&["$belay-0123456789ab"], Holder::This),
            (&["$Belay-ffffffffffff"], Holder::Another),
            (&["$Belay-ffffffffffff", "$Belay-0123456789ab"], Holder::This),
            (&["$Belay-0123456789ab", "$belay-000000000000"], Holder::Another),
            (&["$B", "ä"], Holder::Nobody),
        ];
        for (flags, expected) in rows {
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            assert_eq!(lease.holder(&Fetched { flags, ..Fetched::default() }), expected);
        }
    }

    #[test]
    fn each_mail_is_taken_under_its_own_modseq() {
        let lease = Lease("$Belay-0123456789ab".to_owned());
        let mail =
            |uid, modseq, flag: &str| Fetched { uid, modseq, flags: vec![flag.to_owned()], ..Fetched::default() };
        let mails = [
            mail(1, 7, "\\Seen"),
            mail(2, 9, ""),
            mail(3, 7, ""),
            mail(4, 9, "$Belay-ffffffffffff"),
            mail(5, 8, &lease.0),
        ];
        assert_eq!(lease.free(&mails), BTreeMap::from([(7, vec![1, 3]), (9, vec![2])]));
    }
}
