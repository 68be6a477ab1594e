//! The head of a mail. Pure.

use mail_parser::{DateTime, HeaderValue, Message, MessageParser};

use super::thread::digest;
use crate::config::is_address;

/// Most bytes of a head that are read.
pub(crate) const HEAD_MAX_BYTES: usize = 256 * 1024;

/// Most ids of `References` that are read.
const REFERENCES_MAX: usize = 100;

/// Seconds by which a `Date` may differ from the arrival. 3 days: servers try to deliver for some days.
const DATE_MARGIN_S: u64 = 3 * 86_400;

/// The head of a mail, as far as the channel needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The address of the sender in lower case; empty: there is not exactly one.
    pub(crate) from: String,
    /// The addresses of `To` and `Cc` in lower case; empty: one of the two is there twice.
    pub(crate) to: Vec<String>,
    /// Its `Date`, in seconds since 1970; `None`: it has not exactly one.
    pub(crate) date_s: Option<i64>,
    /// When the own server took it, in seconds since 1970, as the topmost `Received` says.
    pub(crate) received_s: Option<i64>,
    /// The Message-ID without brackets; empty: it has none.
    pub(crate) id: String,
    /// The ids of its thread, the first one first.
    pub(crate) references: Vec<String>,
    /// The id of the mail that it answers.
    pub(crate) in_reply_to: Option<String>,
    pub(crate) subject: String,
    /// The values of `Authentication-Results`, the topmost first.
    pub(crate) results: Vec<String>,
    /// Why nothing may answer it; `None`: a person has written it.
    pub(crate) automatic: Option<&'static str>,
    /// Message-ID, sender and date, as one digest.
    pub(crate) digest: String,
}

impl Head {
    /// `None`: these bytes are no head of a mail.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let message = MessageParser::default().parse_headers(bytes)?;
        let senders: Vec<&str> =
            message.from().into_iter().flat_map(|from| from.iter()).filter_map(|one| one.address()).collect();
        let from = match senders[..] {
            [one] if values(&message, "From").count() == 1 && is_address(one) => one.to_ascii_lowercase(),
            _ => String::new(),
        };
        let id = message.message_id().unwrap_or_default().to_owned();
        let date = values(&message, "Date").next().unwrap_or_default();
        let mut digested = digest(&[&id, &from, &date]);
        if id.is_empty() {
            digested = digest(&[&String::from_utf8_lossy(bytes)]);
        }
        let is_dated_once = values(&message, "Date").count() == 1;
        Some(Self {
            digest: digested,
            to: recipients(&message),
            date_s: message.date().filter(|date| is_dated_once && date.is_valid()).map(DateTime::to_timestamp),
            received_s: received_s(&message),
            references: ids(message.references()),
            in_reply_to: ids(message.in_reply_to()).pop(),
            subject: belay_text::removed(message.subject().unwrap_or_default()).trim().to_owned(),
            results: values(&message, "Authentication-Results").collect(),
            automatic: automatic(&message),
            from,
            id,
        })
    }

    /// Whether its sender has sent it to this address, and now. Anybody can send a confirmed mail to others, or an old
    /// one, again. `Err`: why not, for the log.
    pub(crate) fn is_sent_to(&self, address: &str, now_s: i64) -> Result<(), &'static str> {
        if !self.to.iter().any(|to| to == address) {
            return Err("neither its To nor its Cc names Belay's address, or one of them is there twice");
        }
        let date_s = self.date_s.ok_or("it has not exactly one Date")?;
        match date_s.abs_diff(self.received_s.unwrap_or(now_s)) > DATE_MARGIN_S {
            true => Err("its Date is more than 3 days from its arrival"),
            false => Ok(()),
        }
    }

    /// The domain of the sender.
    pub(crate) fn domain(&self) -> &str {
        self.from.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

/// The raw values of a header, the topmost first.
fn values<'a>(message: &'a Message<'_>, name: &'a str) -> impl Iterator<Item = String> + 'a {
    let of = message.headers().iter().filter(move |header| header.name().eq_ignore_ascii_case(name));
    of.map(|header| {
        let range = header.offset_start() as usize..header.offset_end() as usize;
        String::from_utf8_lossy(message.raw_message().get(range).unwrap_or_default()).trim().to_owned()
    })
}

/// The addresses of `To` and `Cc`. None if one of the two is there twice: a signature covers only one of them.
fn recipients(message: &Message<'_>) -> Vec<String> {
    if ["To", "Cc"].into_iter().any(|name| values(message, name).count() > 1) {
        return Vec::new();
    }
    let lists = message.to().into_iter().chain(message.cc());
    lists.flat_map(|list| list.iter()).filter_map(|one| one.address()).map(str::to_ascii_lowercase).collect()
}

fn received_s(message: &Message<'_>) -> Option<i64> {
    let topmost = values(message, "Received").next()?;
    let (_, date) = topmost.rsplit_once(';')?;
    DateTime::parse_rfc822(date.trim()).filter(DateTime::is_valid).map(|date| date.to_timestamp())
}

fn ids(value: &HeaderValue<'_>) -> Vec<String> {
    let ids: Vec<String> = match value {
        HeaderValue::Text(id) => vec![id.to_string()],
        HeaderValue::TextList(ids) => ids.iter().map(ToString::to_string).collect(),
        _ => Vec::new(),
    };
    ids.into_iter().filter(|id| !id.is_empty()).take(REFERENCES_MAX).collect()
}

/// Why nothing may answer a mail: a program has written it, or a list has sent it. An answer could begin a loop.
fn automatic(message: &Message<'_>) -> Option<&'static str> {
    let first_word = |value: String| {
        value.split(|c: char| c == ';' || c.is_whitespace()).next().unwrap_or_default().to_ascii_lowercase()
    };
    let words = |name: &'static str| values(message, name).map(first_word).collect::<Vec<_>>();
    let has = |name: &'static str| values(message, name).next().is_some();
    let content = values(message, "Content-Type").next().unwrap_or_default().to_ascii_lowercase();
    let has_list = message.headers().iter().any(|header| header.name().to_ascii_lowercase().starts_with("list-"));
    let rules = [
        (words("Auto-Submitted").iter().any(|word| word != "no"), "Auto-Submitted"),
        (words("Precedence").iter().any(|word| matches!(&**word, "bulk" | "list" | "junk")), "Precedence"),
        (has_list, "a list"),
        (words("X-Auto-Response-Suppress").iter().any(|word| word != "none"), "X-Auto-Response-Suppress"),
        (has("X-Autoreply") || has("X-Autorespond"), "X-Autoreply"),
        (values(message, "Return-Path").any(|path| path == "<>"), "an empty Return-Path"),
        (content.starts_with("multipart/report"), "a report"),
    ];
    rules.into_iter().find(|(is_so, _)| *is_so).map(|(_, why)| why)
}

#[cfg(test)]
mod tests;
