//! Ids of mails and of threads. Pure.
//!
//! An answer's Message-ID is made of its outbox key, its thread and the question that it asks. So it is the same at
//! each attempt, and a reply to it names its thread and its question even if a mail program keeps no `References`.

use belay_protocol::{ApprovalId, OutboxKey};

use crate::people::{Conversation, THREAD_DIGITS, is_thread};

/// Longest id of a mail that is used as it is, in bytes. A longer one is used by its digest.
const ID_MAX_BYTES: usize = 250;

/// Longest subject of an answer, in characters.
const SUBJECT_MAX_CHARS: usize = 200;

/// The subject of a mail that answers none.
const SUBJECT: &str = "Message from Belay";

/// The digest of a text, as threads and keys have it.
pub(crate) fn digest(parts: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..THREAD_DIGITS].to_owned()
}

/// The Message-ID of a message that Belay sends, without its brackets.
pub(crate) fn own_id(key: OutboxKey, thread: Option<&str>, asks: Option<ApprovalId>, domain: &str) -> String {
    let thread = thread.map(|thread| format!(".t{thread}")).unwrap_or_default();
    let asks = asks.map(|approval| format!(".q{approval}")).unwrap_or_default();
    format!("{}{thread}{asks}@{domain}", key.piece(0))
}

/// The parts of an id that Belay has made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnId {
    pub(crate) thread: Option<String>,
    /// The question that the message asks.
    pub(crate) asks: Option<ApprovalId>,
}

impl OwnId {
    /// `None`: Belay has not made an id like this one.
    pub(crate) fn parse(id: &str, domain: &str) -> Option<Self> {
        let (name, of) = id.rsplit_once('@')?;
        let mut parts = name.split('.');
        let (hex, piece) = parts.next()?.split_once('-')?;
        let is_key = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()) && piece == "0";
        if !of.eq_ignore_ascii_case(domain) || !is_key {
            return None;
        }
        let mut own = Self::default();
        for part in parts {
            match part.split_at_checked(1)? {
                ("t", thread) if is_thread(thread) => own.thread = Some(thread.to_owned()),
                ("q", approval) => own.asks = Some(approval.parse().ok()?),
                _ => return None,
            }
        }
        Some(own)
    }
}

/// The thread of a mail: that of the message of Belay which it answers, else of the first mail that it refers to, else
/// its own.
pub(crate) fn thread_of(own: Option<&OwnId>, references: &[String], in_reply_to: Option<&str>, id: &str) -> String {
    let first = references.first().map(String::as_str).or(in_reply_to).unwrap_or(id);
    own.and_then(|own| own.thread.clone()).unwrap_or_else(|| digest(&[first]))
}

/// The facts of an answered mail that its answer needs. Stored as [`belay_protocol::ReplyRoute::reply_to`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    /// The Message-ID; empty: there is none that a header may have.
    pub(crate) id: String,
    /// The first Message-ID of its thread.
    pub(crate) first: String,
    pub(crate) subject: String,
}

impl Answered {
    pub(crate) fn new(id: &str, references: &[String], subject: &str) -> Self {
        let first = references.first().map_or(id, String::as_str);
        let subject = subject.chars().filter(|c| !c.is_control()).take(SUBJECT_MAX_CHARS).collect();
        Self { id: bounded(id), first: bounded(first), subject }
    }

    /// One line; ids have no blanks.
    pub(crate) fn line(&self) -> String {
        format!("{} {} {}", self.id, self.first, self.subject)
    }

    /// `None`: the line is none of [`Self::line`].
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(3, ' ').map(str::to_owned);
        Some(Self { id: parts.next()?, first: parts.next()?, subject: parts.next()? })
    }

    /// The subject of the answer.
    pub(crate) fn subject_of_answer(answered: Option<&Self>) -> String {
        let subject = answered.map(|it| it.subject.trim()).filter(|subject| !subject.is_empty());
        match subject {
            None => SUBJECT.to_owned(),
            Some(subject) if subject.get(..3).is_some_and(|begin| begin.eq_ignore_ascii_case("re:")) => {
                subject.to_owned()
            }
            Some(subject) => format!("Re: {subject}"),
        }
    }
}

/// An id as a header may have it; empty: it is too long, or has other characters than an id.
fn bounded(id: &str) -> String {
    let is_fine = id.len() <= ID_MAX_BYTES && id.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>".contains(&byte));
    if is_fine { id.to_owned() } else { String::new() }
}

/// The Message-ID of a message to a conversation.
pub(crate) fn id_of(message: &belay_protocol::Outbound, to: Conversation<'_>, domain: &str) -> String {
    let asks = message.question.as_ref().filter(|question| question.decidable).map(|question| question.approval);
    own_id(message.key(), to.thread, asks, domain)
}

#[cfg(test)]
mod tests;
