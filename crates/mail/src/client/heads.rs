//! Fetches the heads of a page, and takes its mails, so that one mail that fails does not hold up the others.

use std::collections::HashSet;

use tracing::warn;

use super::error::ImapError;
use super::failures::Failures;
use super::fetched::Fetched;
use super::imap::Imap;
use super::lease::Lease;

/// The heads of these mails. A page that fails is fetched mail by mail, and a mail that fails again and again is
/// missing.
///
/// # Errors
/// The server does not answer now, or a mail has failed and is not passed over yet. The page is read again later.
pub(crate) async fn fetch(
    imap: &mut Imap,
    failures: &Failures,
    validity: u32,
    uids: &[u32],
    what: &str,
) -> Result<Vec<Fetched>, ImapError> {
    let mut found = Vec::new();
    let (single, together): (Vec<u32>, Vec<u32>) = uids.iter().partition(|uid| failures.is_single(validity, **uid));
    for uid in single {
        if failures.passes_over(validity, uid) {
            continue;
        }
        match imap.fetch(&[uid], what).await {
            Ok(mails) => found.extend(mails),
            Err(error) => failed(failures, validity, uid, error)?,
        }
    }
    if let Some(last) = together.last() {
        match imap.fetch(&together, what).await {
            Ok(mails) => found.extend(mails),
            Err(error) => {
                failures.note_page(validity, *last);
                return Err(error);
            }
        }
    }
    Ok(found)
}

/// Takes these mails for this daemon, and returns the UIDs of those that it has.
///
/// # Errors
/// As for [`fetch`].
pub(crate) async fn take(
    imap: &mut Imap,
    failures: &Failures,
    validity: u32,
    lease: &Lease,
    mails: &[Fetched],
) -> Result<HashSet<u32>, ImapError> {
    match lease.take(imap, mails).await {
        Err(ImapError::Refused(_)) => {}
        taken => return taken,
    }
    let mut taken = HashSet::new();
    for mail in mails.iter().filter(|mail| !failures.passes_over(validity, mail.uid)) {
        match lease.take(imap, std::slice::from_ref(mail)).await {
            Ok(one) => taken.extend(one),
            Err(error) => failed(failures, validity, mail.uid, error)?,
        }
    }
    Ok(taken)
}

/// Notes a failure of a mail; `Ok`: the server has refused it for the last time, and the connection is still good.
fn failed(failures: &Failures, validity: u32, uid: u32, error: ImapError) -> Result<(), ImapError> {
    let is_last = failures.note(validity, uid);
    if is_last {
        warn!(uid, detail = %error, "a mail is passed over: it could not be read several times");
    }
    match error {
        ImapError::Refused(_) if is_last => Ok(()),
        error => Err(error),
    }
}
