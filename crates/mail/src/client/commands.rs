//! The commands that read the mailbox.
//!
//! Their responses are read here, and not by the library: its streams end alike after `OK` and after `NO`, so that a
//! failed `FETCH` would look like a mail that is gone.

use std::time::Duration;

use async_imap::imap_proto::{MailboxDatum, Outcome, Response, Status};
use tokio::time::{Instant, timeout, timeout_at};

use super::error::{ImapError, words};
use super::fetched::{Fetched, add};
use super::imap::{DEADLINE, Imap};

/// Deadline of a command that returns a mail.
const MAIL_DEADLINE: Duration = Duration::from_secs(180);

/// Bytes of a mail for which its deadline is a second longer: 16 KiB, as a slow line of a telephone has.
const BYTES_PER_S: u32 = 16 * 1024;

impl Imap {
    /// The UIDs that fit, in order.
    pub(crate) async fn search(&mut self, query: &str) -> Result<Vec<u32>, ImapError> {
        let mut found = Vec::new();
        self.has_news = false;
        self.call(&format!("UID SEARCH {query}"), DEADLINE, |response| {
            if let Response::MailboxData(MailboxDatum::Search(uids)) = response {
                found.extend_from_slice(uids);
            }
        })
        .await?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The wanted parts of these mails. A mail that is gone is missing. None of them becomes `\Seen`.
    pub(crate) async fn fetch(&mut self, uids: &[u32], what: &str) -> Result<Vec<Fetched>, ImapError> {
        self.fetch_within(MAIL_DEADLINE, uids, what).await
    }

    /// All bytes of a mail of this size; empty: it is gone.
    pub(crate) async fn fetch_whole(&mut self, uid: u32, size: u32) -> Result<Vec<Fetched>, ImapError> {
        self.fetch_within(mail_deadline(size), &[uid], "(UID BODY.PEEK[])").await
    }

    async fn fetch_within(&mut self, limit: Duration, uids: &[u32], what: &str) -> Result<Vec<Fetched>, ImapError> {
        let mut found: Vec<Fetched> = Vec::new();
        self.call(&format!("UID FETCH {} {what}", set(uids)), limit, |response| {
            if let Response::Fetch(_, values) = response {
                add(&mut found, values);
            }
        })
        .await?;
        found.retain(|mail| uids.contains(&mail.uid));
        found.sort_by_key(|mail| mail.uid);
        Ok(found)
    }

    /// Carries out a command and hands over each untagged response before its end.
    pub(crate) async fn call(
        &mut self,
        command: &str,
        limit: Duration,
        mut take: impl FnMut(&Response<'_>),
    ) -> Result<(), ImapError> {
        let ended = async {
            let id = self.session.run_command(command).await?;
            loop {
                let end = self.response(|response| match response {
                    Response::Done { tag, status: Status::Ok, .. } if *tag == id => Some(Ok(())),
                    Response::Done { tag, outcome, .. } if *tag == id => Some(Err(refused(outcome))),
                    other => {
                        take(other);
                        None
                    }
                });
                if let Some(end) = end.await? {
                    return end;
                }
            }
        };
        timeout(limit, ended).await.map_err(|_elapsed| ImapError::Silent)?
    }

    /// Waits for news of the folder, at most so long. Returns at once if some came since the last search began: Dovecot
    /// searches the mails that it has announced, and announces a new one behind the result, but not in `IDLE` again.
    pub(crate) async fn idle(&mut self, limit: Duration) -> Result<(), ImapError> {
        if std::mem::take(&mut self.has_news) {
            return Ok(());
        }
        let end = Instant::now() + limit;
        let id = self.session.run_command("IDLE").await?;
        let (mut has_begun, mut has_news) = (false, false);
        while !(has_begun && has_news) {
            let response = self.response(|response| match response {
                Response::Continue(_) => {
                    has_begun = true;
                    Ok(())
                }
                Response::Done { tag, outcome, .. } if *tag == id => Err(refused(outcome)),
                Response::Data { status: Status::Ok, .. } => Ok(()), // Dovecot's "Still here"
                _ => {
                    has_news = true;
                    Ok(())
                }
            });
            let Ok(response) = timeout_at(end, response).await else { break };
            response??;
        }
        self.session.run_command_untagged("DONE").await?;
        let ended = async {
            while !self.response(|it| matches!(it, Response::Done { tag, .. } if *tag == id)).await? {}
            Ok(())
        };
        timeout(DEADLINE, ended).await.map_err(|_elapsed| ImapError::Silent)?
    }

    /// Reads one response. The library does not name its type.
    async fn response<T>(&mut self, read: impl FnOnce(&Response<'_>) -> T) -> Result<T, ImapError> {
        let response = self.session.read_response().await?;
        let lost = |why: &str| ImapError::Lost(why.to_owned());
        let response = response.ok_or_else(|| lost("the server has closed the connection"))?;
        match response.parsed() {
            Response::Data { status: Status::Bye, .. } => Err(lost("the server says goodbye")),
            response => {
                self.has_news |= matches!(response, Response::MailboxData(MailboxDatum::Exists(_)));
                Ok(read(response))
            }
        }
    }
}

fn refused(outcome: &Outcome<'_>) -> ImapError {
    ImapError::Refused(words(outcome.information.as_deref().unwrap_or_default()))
}

/// The deadline of a mail of this size.
fn mail_deadline(size: u32) -> Duration {
    MAIL_DEADLINE + Duration::from_secs(u64::from(size / BYTES_PER_S))
}

/// A text as a quoted string of IMAP; line ends are left out.
pub(crate) fn quoted(text: &str) -> String {
    let plain: String = text.chars().filter(|c| !c.is_control()).collect();
    format!("\"{}\"", plain.replace('\\', "\\\\").replace('"', "\\\""))
}

/// A set of UIDs.
pub(crate) fn set(uids: &[u32]) -> String {
    uids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
