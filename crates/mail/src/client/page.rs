//! A page of the mailbox: the next mails, and those among them that are for the agent.

use std::collections::{HashSet, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};

use async_imap::types::Flag;
use belay_channel_kit::batch::Batch;
use belay_protocol::{Cursor, Cursors, Principal, ReplyRoute};
use tracing::{info, warn};

use super::error::ImapError;
use super::fetched::Fetched;
use super::head::{HEAD_MAX_BYTES, Head};
use super::heads;
use super::imap::Imap;
use super::lease::Lease;
use super::mailbox::Mailbox;
use super::position::{Position, arrived_ms};
use crate::NAME;

/// Mails of a page. Their heads are in memory together.
const PAGE_MAILS: usize = 50;

/// The folder that is read.
const FOLDER: &str = "INBOX";

/// A mail that is for the agent, still without its text.
pub(crate) struct Admitted {
    /// The UID belongs to this `UIDVALIDITY`.
    pub(crate) validity: u32,
    pub(crate) uid: u32,
    pub(crate) size: u32,
    /// When it arrived, in milliseconds since 1970; `None`: the server does not tell.
    pub(crate) arrived_ms: Option<i64>,
    pub(crate) head: Head,
    pub(crate) principal: Principal,
}

/// A page that is offered to the agent.
pub(crate) struct Page {
    /// The position behind it.
    pub(crate) end: Position,
    pub(crate) mails: VecDeque<Admitted>,
    pub(crate) batch: Batch,
    /// The routes of the messages in the batch.
    pub(crate) routes: Vec<Option<ReplyRoute>>,
}

/// An open mailbox.
pub(crate) struct Opened {
    pub(crate) imap: Imap,
    pub(crate) position: Position,
    /// `None`: the server cannot do what a lease needs.
    lease: Option<Lease>,
}

impl Opened {
    /// Logs in, and finds the position to read from. At the first time it is the end of the mailbox.
    pub(crate) async fn open(mailbox: &Mailbox) -> Result<Self, ImapError> {
        let (address, cursors) = (mailbox.address.as_str(), &*mailbox.parts.cursors);
        let store = |error: belay_protocol::StoreError| ImapError::Lost(format!("the store has failed: {error}"));
        let mut imap = Imap::log_in(&mailbox.account).await?;
        let folder = imap.select(FOLDER).await?;
        let validity = folder.uid_validity.unwrap_or_default();
        let end = match folder.uid_next {
            Some(next) => next,
            None => imap.search("ALL").await?.last().map_or(1, |last| last.saturating_add(1)),
        };
        let kept = cursors.cursor(&NAME.into(), address).await.map_err(store)?;
        let position = match kept.as_deref().and_then(Position::parse) {
            Some(kept) if kept.validity == validity => kept,
            Some(kept) => {
                let next = imap.search(&kept.since()).await?.first().copied().unwrap_or(end);
                warn!(next, end, "the mailbox has new UIDs; mails since the last one are read again, and recognised");
                kept.renewed(validity, next)
            }
            None => {
                let position = Position::first(validity, end, now_s());
                info!(next = end, "the mailbox is read from its end on");
                keep(cursors, address, position).await?;
                position
            }
        };
        let can_lease = imap.abilities.condstore
            && folder.highest_modseq.is_some_and(|modseq| modseq > 0)
            && folder.permanent_flags.contains(&Flag::MayCreate);
        let lease = match can_lease {
            true => Some(Lease::load(cursors, address).await.map_err(store)?),
            false => None,
        };
        Ok(Self { imap, position, lease })
    }

    /// The next page; `None`: there is no new mail.
    pub(crate) async fn page(&mut self, mailbox: &Mailbox) -> Result<Option<Page>, ImapError> {
        let from = self.position.next;
        // With `n:*` a server names its last mail even if that is older (RFC 9051, 6.4.8).
        let mut uids = self.imap.search(&format!("UID {from}:*")).await?;
        uids.retain(|uid| *uid >= from);
        uids.truncate(PAGE_MAILS);
        let Some(last) = uids.last() else { return Ok(None) };
        let end = Position { next: last.saturating_add(1), at: now_s(), ..self.position };
        let modseq = if self.lease.is_some() { " MODSEQ" } else { "" };
        let what = format!("(UID FLAGS RFC822.SIZE INTERNALDATE{modseq} BODY.PEEK[HEADER]<0.{HEAD_MAX_BYTES}>)");
        let (validity, failures) = (self.position.validity, &mailbox.failures);
        let mut found = heads::fetch(&mut self.imap, failures, validity, &uids, &what).await?;
        found.retain(|mail| !self.position.is_too_old(&mail.arrived));
        let admitted: Vec<(Fetched, Head, Principal)> = found
            .into_iter()
            .filter_map(|mail| {
                let head = Head::read(&mail.bytes)?;
                let principal = mailbox.admit(&head)?;
                Some((Fetched { bytes: Vec::new(), ..mail }, head, principal))
            })
            .collect();
        let taken: HashSet<u32> = match &self.lease {
            Some(lease) => {
                let mails: Vec<Fetched> = admitted.iter().map(|(mail, ..)| mail.clone()).collect();
                heads::take(&mut self.imap, failures, validity, lease, &mails).await?
            }
            None => uids.into_iter().collect(),
        };
        let mails = admitted.into_iter().filter(|(mail, ..)| taken.contains(&mail.uid));
        let mails = mails.map(|(Fetched { uid, size, arrived, .. }, head, principal)| Admitted {
            validity,
            uid,
            size,
            arrived_ms: arrived_ms(&arrived),
            head,
            principal,
        });
        Ok(Some(Page { end, mails: mails.collect(), batch: Batch::default(), routes: Vec::new() }))
    }
}

/// The cursor of a position.
pub(crate) fn cursor(address: &str, position: Position) -> Result<Cursor, ImapError> {
    Cursor::new(address, position.to_string()).map_err(|error| ImapError::Lost(error.to_string()))
}

async fn keep(cursors: &dyn Cursors, address: &str, position: Position) -> Result<(), ImapError> {
    let kept = cursors.keep_cursor(&NAME.into(), &cursor(address, position)?).await;
    kept.map_err(|error| ImapError::Lost(format!("the store has failed: {error}")))
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64
}
