//! The message for the agent that a mail is. Pure, but for its files.

use std::sync::Arc;

use belay_protocol::provenance::{Author, Provenance, Quote};
use belay_protocol::{
    Body, CommandInfo, Control, Decision, IdempotencyKey, Inbound, NO_TEXT, Principal, ReplyRoute, Unread,
};

use super::body::Content;
use super::head::Head;
use super::quotation::{Parts, first_line, split};
use super::thread::{Answered, OwnId, thread_of};
use crate::NAME;

/// Makes messages of mails, for one address.
pub(crate) struct Reader<'a> {
    /// Belay's own address, in lower case.
    pub(crate) address: &'a str,
    pub(crate) commands: &'a [CommandInfo],
}

impl Reader<'_> {
    fn domain(&self) -> &str {
        self.address.rsplit_once('@').map_or("", |(_, domain)| domain)
    }

    /// The message of a mail of this person, still without its files. `content`: `Err` has the reason why it is not
    /// read.
    pub(crate) fn inbound(&self, head: &Head, principal: Principal, content: &Result<Content, &str>) -> Inbound {
        let replied = head.in_reply_to.as_deref().and_then(|id| OwnId::parse(id, self.domain()));
        let earlier = || head.references.iter().rev().find_map(|id| OwnId::parse(id, self.domain()));
        let own = replied.clone().or_else(earlier);
        let thread = thread_of(own.as_ref(), &head.references, head.in_reply_to.as_deref(), &self.id(head));
        let conversation = format!("{}:{thread}", head.from);
        let parts = split(content.as_ref().map_or("", |content| content.text.as_str()));
        let route = ReplyRoute {
            channel: NAME.into(),
            conversation: conversation.as_str().into(),
            reply_to: Some(Answered::new(&head.id, &head.references, &head.subject).line().into()),
        };
        let body = match decision(replied.as_ref(), &parts) {
            Some(control) => Body::Control(control),
            None => Body::Text(self.text(head, content, &parts, own.is_some())),
        };
        let mut provenance = Provenance {
            reply_to: (own.is_some() && !parts.quoted.is_empty()).then(|| quote(&parts.quoted)),
            message_id: Some(self.id(head)),
            untrusted: parts.is_mixed || !parts.quoted.is_empty(),
            ..Provenance::default()
        };
        provenance.not_read = unread(content);
        Inbound {
            key: Some(self.key(head)),
            reply_to: Some(route),
            provenance: Some(Arc::new(provenance.cleaned())),
            ..Inbound::new(NAME.into(), format!("{NAME}:{conversation}").into(), principal, body)
        }
    }

    /// The key of a mail: a digest of its Message-ID, its sender and its date. The UID is not part of it: the same mail
    /// may come again under another one.
    fn key(&self, head: &Head) -> IdempotencyKey {
        IdempotencyKey { channel: NAME.into(), account: self.address.into(), message_id: head.digest.as_str().into() }
    }

    /// The Message-ID, or something like it.
    fn id(&self, head: &Head) -> String {
        if head.id.is_empty() { head.digest.clone() } else { head.id.chars().take(250).collect() }
    }

    /// The text for the agent: a command alone if the first line is one, else the own words. The subject and the
    /// quotation belong to the text if the mail answers none of Belay.
    fn text(&self, head: &Head, content: &Result<Content, &str>, parts: &Parts, answers_belay: bool) -> String {
        let first = first_line(&parts.own);
        let command = |line: &str| {
            let word = line.strip_prefix('/').and_then(|rest| rest.split_whitespace().next()).unwrap_or_default();
            self.commands.iter().any(|command| command.name.eq_ignore_ascii_case(word))
        };
        if command(first) {
            return first.to_owned();
        }
        if parts.own.is_empty() && command(&head.subject) {
            return head.subject.clone();
        }
        let whole = match content {
            Ok(content) if !answers_belay => content.text.trim(),
            _ => parts.own.as_str(),
        };
        match (whole, head.subject.as_str()) {
            ("", "") => NO_TEXT.to_owned(),
            ("", _) if answers_belay => NO_TEXT.to_owned(),
            ("", subject) => subject.to_owned(),
            (text, subject) if !answers_belay && !subject.is_empty() => format!("Subject: {subject}\n\n{text}"),
            (text, _) => text.to_owned(),
        }
    }
}

/// The answer to a question of Belay: the first line of a mail that replies to the question itself.
fn decision(replied: Option<&OwnId>, parts: &Parts) -> Option<Control> {
    let approval = replied?.asks?;
    Decision::from_words(first_line(&parts.own)).map(|decision| Control::Decide { approval, decision })
}

/// A quotation has words of anybody: an id like those of Belay proves nothing, for anybody can write a mail with one.
fn quote(text: &str) -> Quote {
    Quote { author: Author::Other, text: text.to_owned(), ..Quote::default() }
}

/// The parts of a mail that are left out, with the reasons.
fn unread(content: &Result<Content, &str>) -> Vec<Unread> {
    let of = |kind: &str, file_name: Option<String>, reason: String| Unread {
        kind: kind.into(),
        file_name,
        reason: Some(reason),
        ..Unread::default()
    };
    match content {
        Err(reason) => vec![of("mail", None, (*reason).to_owned())],
        Ok(content) => {
            let files =
                content.more.iter().map(|name| of("file", Some(name.clone()), "a mail may have fewer files".into()));
            let text = (content.left_out > 0).then(|| of("text", None, format!("its last {} bytes", content.left_out)));
            files.chain(text).collect()
        }
    }
}

#[cfg(test)]
mod tests;
